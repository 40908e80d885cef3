"""Builds the compiled files with CMake and Ninja: the module horovod._core, and the operations of TensorFlow,
of MXNet and of XLA, which need none of them. The rest is in pyproject.toml.
"""

import importlib
import os
import re
import runpy
import shutil
import site
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent

# Commands that compile, as setuptools is asked for them by pip and by hand.
COMPILES = {"bdist_wheel", "editable_wheel", "build", "build_ext", "install", "develop"}


def check_machine() -> None:
    """Ends the build in three lines where it cannot succeed, before anything else is said."""
    missing = runpy.run_path(str(ROOT / "scripts" / "preflight.py"))["missing_to_compile"]()
    if missing:
        raise SystemExit(
            "Installing horovod from its sources compiles it, and this machine lacks:\n"
            + "".join(f"  {thing}\n" for thing in missing)
            + "Install it and try again, or install a wheel, which needs none of it (make wheel)."
        )


def check_nccl() -> None:
    """HOROVOD_WITH_NCCL=1: nothing of it is compiled in, but it must be here, if without a driver."""
    if os.environ.get("HOROVOD_WITH_NCCL") != "1":
        return
    hidden = [sysconfig.get_path("purelib"), site.getusersitepackages()]  # from a build of pip's
    sys.path += [str(ROOT / "frameworks"), *hidden]
    gpu_libraries = importlib.import_module("horovod.bootstrap.gpu_libraries")
    if not any(gpu_libraries.find_library(name, os.environ) for name in ("nccl", "rccl")):
        raise SystemExit(
            f"HOROVOD_WITH_NCCL=1, but {gpu_libraries.HOW_TO_GET_LIBRARY}. Or unset HOROVOD_WITH_NCCL."
        )


def run_cmake(command: list[str], **streams: Any) -> None:
    """Ends the build where it fails, without a traceback: CMake and the compiler have said why."""
    if status := subprocess.run(command, check=False, **streams).returncode:
        raise SystemExit(f"horovod was not built: see the error above (cmake ended with status {status}).")


def find_tool(name: str, folder_attribute: str) -> str:
    """A tool from its Python package (which need not be on PATH), else from PATH."""
    try:
        folder = getattr(importlib.import_module(name), folder_attribute)
    except ImportError:
        folder = None
    found = shutil.which(name, path=folder) or shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is needed to build horovod: pip install {name}")
    return found


# By extension: the target, and the file that it makes.
TARGETS = {
    "horovod._core": ("_core", "_core*.so"),
    "horovod.tensorflow._ops": ("tensorflow_ops", "tensorflow_ops.so"),
    "horovod.mxnet._ops": ("mxnet_ops", "mxnet_ops.so"),
    "horovod.xla._ops": ("xla_ops", "xla_ops.so"),
    "horovod._gloo": ("hvd_gloo", "_gloo.so"),
    "horovod._mpi_openmpi": ("hvd_mpi_openmpi", "_mpi_openmpi.so"),
    "horovod._mpi_mpich": ("hvd_mpi_mpich", "_mpi_mpich.so"),
}
# Built where the library that they need was found; cmake/HvdOptional.cmake has the switches.
OPTIONAL = {"horovod._gloo", "horovod._mpi_openmpi", "horovod._mpi_mpich"}


def announcement(jobs: str) -> str:
    """What a first build says before the compiler starts; of pip it is seen with -v."""
    return (
        f"Compiling horovod and its operations for TensorFlow, MXNet and XLA, {jobs} files at a time.\n"
        "This takes 2 to 4 minutes on 2 cores. A later build in this folder compiles only what changed."
    )


class CMakeBuild(build_ext):
    """Builds in build/<python>, which is kept, so that a second build compiles only what changed."""

    def get_ext_filename(self, fullname: str) -> str:
        """The operations are no Python module: their file serves every Python, so its name has no tag."""
        name = super().get_ext_filename(fullname)
        return name if fullname.endswith("_core") else name.split(".")[0] + ".so"

    def build_extensions(self) -> None:
        """Configures once and compiles everything together; then each extension is put in its place."""
        cmake = find_tool("cmake", "CMAKE_BIN_DIR")
        sanitizers = os.environ.get("HVD_SANITIZE", "")
        name = "-".join([sys.implementation.cache_tag, *sanitizers.split(",")])
        self.build_dir = ROOT / "build" / name.rstrip("-")
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
        if not (self.build_dir / "build.ninja").exists():
            print(announcement(jobs), file=sys.stderr, flush=True)
        self.configure(cmake, sanitizers)
        optional = (self.build_dir / "optional-targets").read_text().split(";")
        self.targets = [
            target for name, (target, _) in TARGETS.items() if name not in OPTIONAL or target in optional
        ]
        run_cmake([cmake, "--build", str(self.build_dir), "-j", jobs, "--target", *self.targets])
        super().build_extensions()

    def pybind11_folder(self) -> str:
        """That of the last build while it is there: by another path, every file would be compiled anew."""
        import pybind11

        cache = self.build_dir / "CMakeCache.txt"
        text = cache.read_text(encoding="utf-8") if cache.exists() else ""
        last = re.search(r"^pybind11_DIR:\w+=(.+)$", text, re.MULTILINE)
        return last[1] if last and Path(last[1]).is_dir() else pybind11.get_cmake_dir()

    def configure(self, cmake: str, sanitizers: str) -> None:
        # Tools and headers of an isolated build are gone by the next one: name them all every time.
        definitions = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_MAKE_PROGRAM": find_tool("ninja", "BIN_DIR"),
            "CMAKE_LIBRARY_OUTPUT_DIRECTORY": str(self.build_dir / "lib"),
            "HVD_BUILD_PYTHON": "ON",
            "HVD_BUILD_TESTS": "OFF",
            "HVD_SANITIZE": sanitizers,
            "HVD_WERROR": os.environ.get("WERROR", "OFF"),
            "HVD_VERSION": self.distribution.get_version(),
            "Python_EXECUTABLE": sys.executable,
            "PYBIND11_FINDPYTHON": "ON",
            "pybind11_DIR": self.pybind11_folder(),
        }
        settings = [f"-D{name}={value}" for name, value in definitions.items()]
        # Some lines of CMake come at every level of its log; warnings and errors go to stderr.
        told = None if self.distribution.verbose else subprocess.DEVNULL
        run_cmake([cmake, "-S", str(ROOT), "-B", str(self.build_dir), "-G", "Ninja", *settings], stdout=told)

    def build_extension(self, ext: Extension) -> None:
        target, pattern = TARGETS[ext.name]
        if target not in self.targets:
            self.remove(ext)
            return
        built = max((self.build_dir / "lib").glob(pattern), key=lambda path: path.stat().st_mtime)
        self.deliver(built, Path(self.get_ext_fullpath(ext.name)))

    def remove(self, ext: Extension) -> None:
        """What a build left that had the library."""
        Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
        if self.inplace:
            (ROOT / "frameworks" / self.get_ext_filename(ext.name)).unlink(missing_ok=True)

    def deliver(self, built: Path, target: Path) -> None:
        """Puts a file in place in one step: a process that has the old one mapped keeps it."""
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(target.name + ".new")
        shutil.copy2(built, fresh)
        os.replace(fresh, target)


if COMPILES.intersection(sys.argv):
    check_machine()
    check_nccl()

setup(
    ext_modules=[Extension(name, sources=[], optional=name in OPTIONAL) for name in TARGETS],
    cmdclass={"build_ext": CMakeBuild},
)
