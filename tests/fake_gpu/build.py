"""Compiles the fake libcuda.so.1 and libnccl.so.2 with nothing but a C++ compiler."""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
FLAGS = ["-std=c++17", "-O2", "-fPIC", "-shared", "-pthread", "-Wl,-z,nodelete"]


def build(folder: Path) -> Path:
    """Builds both libraries somewhere below `folder`, unless they are there already.

    Args:
        folder: where to keep them; several processes may build into it at the same time.

    Returns:
        The folder with the two files, for LD_LIBRARY_PATH.

    Raises:
        subprocess.CalledProcessError: the compiler failed; its messages are on stderr.
    """
    target = folder / f"fake_gpu-{_stamp()}"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "libraries"
            made.mkdir()
            _compile(made / "libcuda.so.1", "cuda", [])
            _compile(made / "libnccl.so.2", "nccl", [str(made / "libcuda.so.1"), "-Wl,-rpath,$ORIGIN"])
            _publish(made, target)
    return target


def _stamp() -> str:
    """Changes with the compiler and with every file that is compiled."""
    digest = hashlib.sha256(repr([_compiler(), FLAGS]).encode())
    for path in sorted([*SOURCES.rglob("*.cc"), *SOURCES.rglob("*.h")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _compiler() -> str:
    return os.environ.get("CXX", "c++")


def _compile(library: Path, part: str, more: list[str]) -> None:
    sources = [str(path) for path in sorted((SOURCES / part).glob("*.cc"))]
    name = ["-o", str(library), f"-Wl,-soname,{library.name}"]
    subprocess.run([_compiler(), *FLAGS, f"-I{SOURCES}", *name, *sources, *more], check=True)


def _publish(made: Path, target: Path) -> None:
    """All or nothing, so that no other process finds half of it."""
    try:
        made.rename(target)
    except OSError:
        if not target.exists():  # else another process was faster
            raise
