"""Small questions that scripts and other libraries ask, under the names that they import."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import itertools
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from horovod.common import builds
from horovod.common.exceptions import HorovodVersionMismatchError, get_version_mismatch_message

_T = TypeVar("_T")

_NOT_OF_THE_PROGRAM = ("horovod.", "tensorflow.python.autograph.")  # which calls some of our functions


def _cache(function: Callable[..., _T]) -> Callable[..., _T]:
    """Calls ``function`` once for every combination of arguments."""
    return functools.lru_cache(maxsize=None)(function)


def level_of_the_program() -> int:
    """The ``stacklevel`` of a warning by the caller that is to point at the program, not at this library."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_NOT_OF_THE_PROGRAM):
        level, frame = level + 1, frame.f_back
    return level


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether an adapter exists and its framework is installed.

    Args:
        ext_base_name: of the adapter, as in ``import horovod.<ext_base_name>``.
        verbose: prints the answer, too.

    Returns:
        Whether the import can work.
    """
    framework = {"keras": "keras", "mxnet": "mxnet"}.get(ext_base_name, ext_base_name.partition(".")[0])
    try:
        available = all(
            importlib.util.find_spec(module) is not None for module in (f"horovod.{ext_base_name}", framework)
        )
    except ModuleNotFoundError:
        available = False
    if verbose:
        print(f"horovod.{ext_base_name} is {'available' if available else 'not available'}")
    return available


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework of an adapter sees a GPU.

    Args:
        ext_base_name: of the adapter, as in ``import horovod.<ext_base_name>``.
        verbose: prints the answer, too.

    Returns:
        Whether it does; False where the adapter cannot be imported.
    """
    available = False
    if extension_available(ext_base_name):
        available = importlib.import_module(f"horovod.{ext_base_name}")._check_has_gpu()
    if verbose:
        print(f"{ext_base_name} {'sees' if available else 'does not see'} a GPU")
    return available


def mpi_built(verbose: bool = False) -> bool:
    """Whether MPI can be used here."""
    return _told("MPI", builds.mpi_built(), verbose)


def gloo_built(verbose: bool = False) -> bool:
    """Whether there is a controller and a CPU data plane without MPI: always."""
    return _told("Gloo", builds.gloo_built(), verbose)


def nccl_built(verbose: bool = False) -> bool:
    """Whether NCCL can be used here."""
    return _told("NCCL", bool(builds.nccl_built()), verbose)


def ddl_built(verbose: bool = False) -> bool:
    """Whether IBM DDL can be used here."""
    return _told("DDL", builds.ddl_built(), verbose)


def ccl_built(verbose: bool = False) -> bool:
    """Whether oneCCL can be used here."""
    return _told("CCL", builds.ccl_built(), verbose)


def _told(library: str, built: bool, verbose: bool) -> bool:
    if verbose:
        print(f"{library} is {'available' if built else 'not available'}")
    return built


@contextlib.contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Sets environment variables for the length of a ``with`` block; None removes one."""
    before = {name: os.environ.get(name) for name in kwargs}
    _assign(kwargs)
    try:
        yield
    finally:
        _assign(before)


def _assign(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Makes sure that an adapter can be imported.

    Args:
        ext_name: its module, ``horovod.torch`` for example.
        ext_env_var: not needed: what has no compiled part is there always.
        pkg_path, *args: not needed either.

    Raises:
        ImportError: it does not exist, or its framework is not installed.
    """
    if not extension_available(ext_name.removeprefix("horovod.")):
        raise ImportError(f"{ext_name} cannot be imported: its framework is not installed")


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[int | None, bool | None], int]:
    """The function that turns the arguments ``op`` and ``average`` into a reduction.

    Args:
        reduce_ops: not needed: the reductions are the same everywhere.
    """
    from horovod.common.reduce_ops import handle_average_backwards_compatibility

    return handle_average_backwards_compatibility


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether ``num_rank`` is 1, 2, 4, 8, ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: Sequence[_T], n: int) -> list[Sequence[_T]]:  # noqa: E741  # a public name
    """Cuts ``l`` into ``n`` consecutive parts whose lengths differ by at most one."""
    short, longer = divmod(len(l), n)
    bounds = [part * short + min(part, longer) for part in range(n + 1)]
    return [l[start:end] for start, end in itertools.pairwise(bounds)]


def check_installed_version(name: str, version: str, exception: BaseException | None = None) -> None:
    """Compares the installed version of a framework with the one that this library was installed for.

    Args:
        name: of the framework's distribution.
        version: the one expected.
        exception: what went wrong, if the difference is to explain that; without one a difference is a
            warning.

    Raises:
        HorovodVersionMismatchError: the versions differ and there is an ``exception``.
    """
    import importlib.metadata  # as long to import as all else that a rank needs

    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return
    if installed == version:
        return
    if exception is None:
        warnings.warn(get_version_mismatch_message(name, version, installed), stacklevel=2)
    else:
        raise HorovodVersionMismatchError(name, version, installed) from exception


def is_iterable(x: Any) -> bool:
    """Whether ``iter(x)`` works."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Compares versions by the rules of PEP 440.

    Args:
        ver: a version.
        target: another one, of the form major.minor.patch.

    Returns:
        Whether ``ver`` is ``target`` or later.

    Raises:
        ValueError: ``target`` is not of that form.
    """
    from packaging import version

    if any(not part.isdigit() for part in target.split(".")) or target.count(".") != 2:
        raise ValueError(f"target version must be major.minor.patch, not {target!r}")
    return version.parse(ver) >= version.parse(target)
