"""Builds the one compiled module, horovod._core, with CMake and Ninja; the rest is in pyproject.toml."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


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


class CMakeBuild(build_ext):
    """Builds in build/<python>, which is kept, so that a second build compiles only what changed."""

    def build_extension(self, ext: Extension) -> None:
        import pybind11

        cmake = find_tool("cmake", "CMAKE_BIN_DIR")
        build_dir = ROOT / "build" / sys.implementation.cache_tag
        # Tools and headers of an isolated build are gone by the next one: name them all every time.
        definitions = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_MAKE_PROGRAM": find_tool("ninja", "BIN_DIR"),
            "CMAKE_LIBRARY_OUTPUT_DIRECTORY": str(build_dir / "lib"),
            "HVD_BUILD_PYTHON": "ON",
            "HVD_BUILD_TESTS": "OFF",
            "HVD_WERROR": os.environ.get("WERROR", "OFF"),
            "HVD_VERSION": self.distribution.get_version(),
            "Python_EXECUTABLE": sys.executable,
            "PYBIND11_FINDPYTHON": "ON",
            "pybind11_DIR": pybind11.get_cmake_dir(),
        }
        settings = [f"-D{name}={value}" for name, value in definitions.items()]
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", "2")
        quiet = [] if self.distribution.verbose else ["--log-level=WARNING"]
        self.spawn([cmake, *quiet, "-S", str(ROOT), "-B", str(build_dir), "-G", "Ninja", *settings])
        subprocess.run([cmake, "--build", str(build_dir), "--target", "_core", "-j", jobs], check=True)
        self.deliver(build_dir / "lib", Path(self.get_ext_fullpath(ext.name)))

    def deliver(self, folder: Path, target: Path) -> None:
        """Puts the module in place in one step: a process that has the old one mapped keeps it."""
        built = max(folder.glob("_core*.so"), key=lambda path: path.stat().st_mtime)
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(target.name + ".new")
        shutil.copy2(built, fresh)
        os.replace(fresh, target)


setup(ext_modules=[Extension("horovod._core", sources=[])], cmdclass={"build_ext": CMakeBuild})
