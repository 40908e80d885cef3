"""Compiles the fake libcuda.so.1 and libnccl.so.2 with nothing but a C++ compiler."""

import hashlib
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
FLAGS = ["-std=c++17", "-O1", "-fPIC", "-pthread"]


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
            objects = {part: _compile(Path(scratch), part) for part in ("cuda", "nccl")}
            _link(made / "libcuda.so.1", objects["cuda"])
            _link(made / "libnccl.so.2", [*objects["nccl"], str(made / "libcuda.so.1"), "-Wl,-rpath,$ORIGIN"])
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


def _compile(scratch: Path, part: str) -> list[str]:
    """The objects of a library, made on all cores."""

    def one(source: Path) -> str:
        made = str(scratch / f"{part}-{source.stem}.o")
        subprocess.run([_compiler(), *FLAGS, f"-I{SOURCES}", "-c", "-o", made, source], check=True)
        return made

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(one, sorted((SOURCES / part).glob("*.cc"))))


def _link(library: Path, inputs: list[str]) -> None:
    options = ["-shared", "-Wl,-z,nodelete", f"-Wl,-soname,{library.name}", "-o", str(library)]
    subprocess.run([_compiler(), *FLAGS, *options, *inputs], check=True)


def _publish(made: Path, target: Path) -> None:
    """All or nothing, so that no other process finds half of it."""
    try:
        made.rename(target)
    except OSError:
        if not target.exists():  # else another process was faster
            raise
