"""Makes what users install, and tries it.

python scripts/package.py sdist    the sources: dist/horovod-VERSION.tar.gz
python scripts/package.py wheels   from them, a manylinux wheel for each Python of this machine, or
                                   for those that are named: wheels 3.11 3.12
python scripts/package.py test     both for this Python, each tried in a bare environment
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from pythons import VERSIONS, interpreter

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
WORK = ROOT / "build" / "package"
PROGRAM = ROOT / "tests" / "mp" / "programs" / "no_framework.py"
TOOLS = Path(sys.executable).parent

# Libraries of the frameworks: there when horovod is loaded, and never part of it.
NOT_IN_A_WHEEL = ("libtensorflow_framework.so.2", "libmxnet.so")
# A module for a library of this machine would not fit that of another one.
LEFT_OUT = {"HOROVOD_WITHOUT_GLOO": "1", "HOROVOD_WITHOUT_MPI": "1"}
COMPILED = (
    "horovod/_core.",
    "horovod/tensorflow/_ops.so",
    "horovod/mxnet/_ops.so",
    "horovod/xla/_ops.so",
)


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Runs a command; a failure ends the program with its status."""
    environment = {**os.environ, "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)  # what is tried is what is installed
    environment |= {"TMPDIR": str(WORK), **LEFT_OUT}
    status = subprocess.run([*map(str, command)], cwd=cwd, env=environment, check=False).returncode
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))}: failed with status {status}")


def pip(python: str | Path, *arguments: str | Path) -> None:
    """pip of this environment, for another Python, which needs none of its own."""
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, *arguments)


def sdist() -> Path:
    """The archive of the sources."""
    run(sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", DIST)
    return newest(DIST, "horovod-*.tar.gz")


def wheel(python: str, source: Path) -> Path:
    """A wheel from the archive, for one Python, that runs on other machines too."""
    made = WORK / "wheels"
    shutil.rmtree(made, ignore_errors=True)
    pip(python, "wheel", "--quiet", "--no-deps", "--wheel-dir", made, source)
    excluded = [word for name in NOT_IN_A_WHEEL for word in ("--exclude", name)]
    built = newest(made, "horovod-*.whl")
    run(sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", DIST, built)
    repaired = newest(DIST, "horovod-*.whl")
    names = zipfile.ZipFile(repaired).namelist()
    missing = [part for part in COMPILED if not any(name.startswith(part) for name in names)]
    if missing:
        sys.exit(f"{repaired.name} lacks {', '.join(missing)}")
    return repaired


def newest(folder: Path, pattern: str) -> Path:
    """The file that was written last."""
    return max(folder.glob(pattern), key=lambda path: path.stat().st_mtime)


def wheels(*named: str) -> None:
    """One for each Python of this machine, or for those that are named."""
    pythons = {version: interpreter(version) for version in named or VERSIONS}
    for version in named:
        if pythons[version] is None:
            sys.exit(f"Python {version}: not on this machine")
    source = sdist()
    for version, python in pythons.items():
        if python is None:
            print(f"Python {version}: not on this machine", flush=True)
        else:
            print(f"Python {version}: {wheel(python, source).relative_to(ROOT)}", flush=True)


def try_out(package: Path) -> None:
    """Installs a package in an environment with nothing else, and runs two ranks there."""
    home = WORK / "bare"
    run(sys.executable, "-m", "venv", "--clear", "--without-pip", home)
    pip(home / "bin" / "python", "install", "--quiet", package)
    shutil.copy(PROGRAM, home)
    horovodrun = home / "bin" / "horovodrun"
    run(horovodrun, "--version", cwd=home)
    run(horovodrun, "-np", "2", home / "bin" / "python", PROGRAM.name, cwd=home)
    print(f"{package.name}: installed in a bare environment, and two ranks have run", flush=True)


def test() -> None:
    """What a user of either package does first."""
    source = sdist()
    for package in (wheel(sys.executable, source), source):
        try_out(package)


if __name__ == "__main__":
    WORK.mkdir(parents=True, exist_ok=True)
    {"sdist": sdist, "wheels": wheels, "test": test}[sys.argv[1]](*sys.argv[2:])
