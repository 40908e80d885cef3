"""Runs the tests of the TensorFlow operations with older versions of TensorFlow and the library that is
built: nothing is compiled. Each version has an environment beside .venv, made once.
"""

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "frameworks" / "horovod" / "tensorflow" / "_ops.so"
NEEDED = ROOT / "requirements" / "tests.txt"
TESTS = ("run_ranks", "matrix", "collectives", "graph", "gradients", "errors", "sync_batch_norm")
MOST_RANKS = "not 4-shm and not 4-tcp"  # the newest version has run them with more


@dataclass
class Version:
    """One of TensorFlow, with the last Python that has wheels of it."""

    number: str
    last_python: tuple[int, int]
    keras_2: str | None = None  # the package, where Keras 3 is what TensorFlow brings

    @property
    def folder(self) -> Path:
        """Its environment."""
        return ROOT / f".venv-tf-{self.number}"

    @property
    def python(self) -> Path:
        """The interpreter in there."""
        return self.folder / "bin" / "python"


VERSIONS = [Version("2.15.1", (3, 11)), Version("2.18.1", (3, 12), keras_2="tf_keras==2.18.0")]


def prepare(version: Version) -> None:
    """Makes the environment, unless it is there already as it should be."""
    wanted = f"{version}\n{sys.version}\n{NEEDED.read_text(encoding='utf-8')}"
    stamp = version.folder / "installed"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print(f"Making an environment with TensorFlow {version.number} in {version.folder.name} ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", version.folder], check=True)
    install(version, f"tensorflow-cpu=={version.number}", "-r", str(NEEDED))
    if version.keras_2:
        install(version, "--no-deps", version.keras_2)
    stamp.write_text(wanted, encoding="utf-8")


def install(version: Version, *what: str) -> None:
    """By pip, with its cache."""
    pip = [version.python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, *what], check=True)


def test(version: Version, jobs: str) -> bool:
    """Whether the tests pass with the library as it is."""
    before = hashlib.sha256(LIBRARY.read_bytes()).hexdigest()
    print(f"\nTensorFlow {version.number}, {LIBRARY.relative_to(ROOT)}, sha256 {before}", flush=True)
    files = [str(ROOT / "tests" / "tf" / f"test_tf_{name}.py") for name in TESTS]
    options = ["-q", "-n", jobs, "--dist", "loadfile", "-k", MOST_RANKS, "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "frameworks"), "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [version.python, "-m", "pytest", *files, *options]
    passed = subprocess.run(command, cwd=ROOT, env=environment).returncode == 0
    assert hashlib.sha256(LIBRARY.read_bytes()).hexdigest() == before, f"{LIBRARY} was changed meanwhile"
    return passed


def main() -> int:
    """The number of versions whose tests fail."""
    failed = 0
    for version in VERSIONS:
        if sys.version_info[:2] > version.last_python:
            newest = ".".join(map(str, version.last_python))
            mine = ".".join(map(str, sys.version_info[:2]))
            print(
                f"\nSkipped: TensorFlow {version.number} has no wheel for Python {mine}, only up to {newest}"
            )
            continue
        prepare(version)
        failed += not test(version, os.environ.get("JOBS", "2"))
    return failed


if __name__ == "__main__":
    sys.exit(main())
