"""Finds the Pythons of this machine."""

import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""Those that the project supports."""


def interpreter(version: str) -> str | None:
    """The path of a Python "3.12": this one, one on the path, or one that pyenv has."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    found = shutil.which(f"python{version}")
    if found and subprocess.run([found, "-V"], capture_output=True).returncode == 0:
        return found
    if shutil.which("pyenv") is None:
        return None
    listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True)
    for name in listed.stdout.split():
        if name.startswith(f"{version}."):
            prefix = subprocess.run(["pyenv", "prefix", name], capture_output=True, text=True)
            return str(Path(prefix.stdout.strip()) / "bin" / "python")
    return None
