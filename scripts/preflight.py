"""Says in one line each what this machine lacks for a build, before anything is downloaded."""

import importlib.util
import os
import shutil
import sys
import sysconfig


def missing_to_compile() -> list[str]:
    """What setup.py needs and pip cannot bring, each with how to get it."""
    found = []
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        found.append("Python.h (Debian, Ubuntu: apt-get install python3-dev; Fedora: python3-devel)")
    chosen = os.environ.get("CXX", "")
    compilers = [chosen.split()[0]] if chosen.strip() else ["c++", "g++", "clang++"]
    if not any(map(shutil.which, compilers)):
        named = f"the compiler of CXX={chosen}" if chosen.strip() else "a C++17 compiler"
        found.append(f"{named} (Debian, Ubuntu: apt-get install g++; Fedora: gcc-c++)")
    return found


def missing() -> list[str]:
    """What `make` needs, each with what to do."""
    found = []
    if sys.version_info < (3, 10):  # noqa: UP036 - this script is what tells older ones
        version = ".".join(map(str, sys.version_info[:3]))
        found.append(f"Python 3.10 or later (this is {version}); choose one with: make PYTHON=python3.11 ...")
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        found.append("the venv module (Debian, Ubuntu: apt-get install python3-venv)")
    return found + missing_to_compile()


if __name__ == "__main__":
    problems = missing()
    for problem in problems:
        print("missing: " + problem, file=sys.stderr)
    sys.exit(1 if problems else 0)
