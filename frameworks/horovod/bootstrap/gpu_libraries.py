"""The libraries by which tensors travel from GPU to GPU: NCCL and the driver of CUDA, or RCCL and that of
ROCm.

Here they are only looked for, by names of files, in less than a millisecond. The core loads them when the
first tensor on a GPU comes. A process that has none pays nothing for them, and may fork.
"""

import ctypes
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .errors import BootstrapError
from .text import shown

VARIABLE = "HOROVOD_GPU_OPERATIONS"
_FILE_VARIABLE = "HOROVOD_NCCL_LIB"
_HOME_VARIABLE = "HOROVOD_NCCL_HOME"
_REFUSED = {
    "mpi": "MPI carries tensors of the CPU only",
    "ddl": "IBM's DDL is not supported",
    "ccl": "oneCCL is not supported",
}
HOW_TO_GET_LIBRARY = (
    "NCCL (libnccl.so.2) is not here. Install it, with pip install nvidia-nccl-cu12 (or -cu13, for CUDA 13), "
    f"or set {_HOME_VARIABLE} to the folder that has it in lib"
)
_RTLD_DI_LINKMAP = 2


class GpuLibraries(NamedTuple):
    """A pair of them: the name ("nccl" or "rccl"), and the files. Empty where there is none. ``demanded``:
    the user has asked for it.
    """

    name: str = ""
    driver: str = ""
    library: str = ""
    demanded: bool = False


NONE = GpuLibraries()


class _Vendor(NamedTuple):
    name: str
    drivers: tuple[str, ...]
    libraries: tuple[str, ...]
    folders: tuple[str, ...]


# HIP counts its file up with each major version.
_HIP = tuple(f"libamdhip64.so{version}" for version in (".7", ".6", ""))
_VENDORS = (
    _Vendor(
        "nccl",
        ("libcuda.so.1",),
        ("libnccl.so.2",),
        ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/local/cuda/lib64"),
    ),
    _Vendor("rccl", _HIP, ("librccl.so.1", "librccl.so"), (os.path.join("/opt", "rocm", "lib"),)),
)
_MACHINE = os.uname().machine
_STANDARD = (
    "/usr/lib64",
    f"/usr/lib/{_MACHINE}-linux-gnu",
    f"/lib/{_MACHINE}-linux-gnu",
    "/usr/local/lib",
    "/usr/lib",
    f"{sys.prefix}/lib",  # of conda
)
# Of the packages nvidia-nccl-cu12 and nvidia-nccl-cu13, within the folder "nvidia".
_IN_PACKAGE = ("nccl/lib", "cu13/lib")


def wanted(rank: int, environ: Mapping[str, str]) -> GpuLibraries:
    """What ``rank`` can use, unless its environment does not want it.

    Raises ValueError for a library that there is no support for, and BootstrapError for one that is asked for
    and not there.
    """
    value = environ.get(VARIABLE, "")
    name = value.lower()
    if name == "host":
        return NONE
    asked = f"rank {rank}: {VARIABLE}={shown(value)}"
    if name not in ("", "nccl"):
        why = _REFUSED.get(name, "there is no such library")
        raise ValueError(f"{asked}: {why}. Set it to nccl (the default) or host, or unset it")
    found = find(environ)
    if name and not found.name:
        raise BootstrapError(f"{asked}: {how_to_get(environ)}. Or unset {VARIABLE}")
    return found._replace(demanded=bool(name))


def find(environ: Mapping[str, str]) -> GpuLibraries:
    """The pair that can be used here. Nothing is loaded: that there is a driver need not mean that there is a
    GPU.
    """
    for vendor in _VENDORS:
        driver = find_driver(vendor.name, environ)
        library = find_library(vendor.name, environ) if driver else ""
        if library:
            return GpuLibraries(vendor.name, driver, library)
    return NONE


def find_driver(name: str, environ: Mapping[str, str]) -> str:
    """The file of the driver that ``name`` ("nccl" or "rccl") needs; empty where there is none."""
    vendor = _vendor(name)
    folders = (*_path(environ), *vendor.folders, *_STANDARD)
    return _loaded(vendor.drivers) or _first_file(folders, vendor.drivers)


def how_to_get(environ: Mapping[str, str]) -> str:
    """In one or two sentences, where ``find`` finds nothing."""
    if not any(find_driver(vendor.name, environ) for vendor in _VENDORS):
        return (
            "there is no driver of a GPU here (libcuda.so.1). Install it; a container must be started with "
            "access to the GPUs, as by docker run --gpus all"
        )
    return HOW_TO_GET_LIBRARY


def version_code(library: str) -> int:
    """What ncclGetVersion says, for example 22304 for version 2.23.4; 0 where the file cannot be loaded."""
    code = ctypes.c_int(0)
    try:
        ctypes.CDLL(library).ncclGetVersion(ctypes.byref(code))
    except (OSError, AttributeError):
        return 0
    return code.value


def version_text(code: int) -> str:
    """Of a version code, which has had two digits for the second number since 2.9."""
    major = code // 10_000 if code >= 10_000 else code // 1000
    minor = code // 100 - major * (100 if code >= 10_000 else 10)
    return f"{major}.{minor}.{code % 100}"


def _vendor(name: str) -> _Vendor:
    return next(vendor for vendor in _VENDORS if vendor.name == name)


def find_library(name: str, environ: Mapping[str, str]) -> str:
    """The file of ``name`` ("nccl" or "rccl"), with or without a driver; empty where there is none. First
    where the user says, then what a framework has loaded, so that a process has one of them.
    """
    vendor = _vendor(name)
    names = vendor.libraries
    file, home = environ.get(_FILE_VARIABLE, ""), environ.get(_HOME_VARIABLE, "")
    if os.path.isfile(file):
        return os.path.abspath(file)
    wish = [file, f"{home}/lib", f"{home}/lib64", home] if home else [file]
    rest = (*_path(environ), *vendor.folders, *_STANDARD)
    return (
        _first_file(wish, names)
        or _loaded(names)
        or _first_file(_package_folders(), names)
        or _first_file(rest, names)
    )


def _path(environ: Mapping[str, str]) -> list[str]:
    return environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)


def _package_folders() -> Iterable[str]:
    """Of the packages from PyPI. Nothing is imported."""
    import importlib.util  # late: most machines have no driver

    try:
        found = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return ()
    places = found.submodule_search_locations if found else None
    return [f"{place}/{folder}" for place in places or () for folder in _IN_PACKAGE]


def _first_file(folders: Iterable[str], names: Sequence[str]) -> str:
    files = (os.path.join(folder, name) for folder in folders if folder for name in names)
    return next((os.path.abspath(file) for file in files if os.path.isfile(file)), "")


class _LinkMap(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("file", ctypes.c_char_p))


def _loaded(names: Sequence[str]) -> str:
    """The file of the first of these libraries that this process has loaded. The list of all files that are
    mapped would take ten times as long to read.
    """
    for name in names:
        try:
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            entry = ctypes.POINTER(_LinkMap)()
            handle = ctypes.c_void_p(library._handle)
            if ctypes.CDLL(None).dlinfo(handle, _RTLD_DI_LINKMAP, ctypes.byref(entry)) == 0:
                return os.path.abspath(os.fsdecode(entry.contents.file))
        except (OSError, AttributeError):
            continue
    return ""
