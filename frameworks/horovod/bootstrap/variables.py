"""The HOROVOD_ variables: their defaults, and a warning of those that nothing reads, mostly misspelled."""

import os
import re
import warnings
from collections.abc import Collection, Mapping, MutableMapping

from .text import escaped, shown

_PREFIX = "HOROVOD_"
_MOST_SECONDS = 1e12
_NUMBER = re.compile("-?[0-9]{1,18}")

# Of the launcher, and of a rank, which alone read them.
_OWN = (
    "HOROVOD_JOB_ID",
    "HOROVOD_RESTART",
    "HOROVOD_RANK_PROCESS",
    "HOROVOD_SECRET_SOCKET",
    "HOROVOD_SSH_CONFIG",
    "HOROVOD_SSH_FAN_OUT",
    "HOROVOD_HOST_TIMEOUT",
    "HOROVOD_ELASTIC_TIMEOUT",
)

# Variables of Horovod 0.28 that have no effect here: what they ask for is so anyway, or concerns a library
# that is not used, or the build.
_WITHOUT_EFFECT = """
    ADASUM_MPI_CHUNK_SIZE ALLOW_MIXED_GPU_IMPL BATCH_D2D_MEMCOPIES CCL_CACHE CMAKE
    DEBUG DISABLE_GROUP_FUSION DISABLE_NVTX_RANGES ENABLE_ASYNC_COMPLETION ENABLE_XLA_OPS
    HIERARCHICAL_ALLGATHER HIERARCHICAL_ALLREDUCE LOCAL_VERSION MIXED_INSTALL
    NUM_NCCL_STREAMS SKIP_COMPILE TEST_GPU TORUS_ALLREDUCE
""".split()
# Those that Python alone reads.
_CHOICES = {
    "HOROVOD_CONTROLLER": ("gloo", "mpi"),
    "HOROVOD_CPU_OPERATIONS": ("host", "gloo", "mpi"),
    "HOROVOD_GPU_OPERATIONS": ("nccl", "host"),
}
_FAMILIES_WITHOUT_EFFECT = (
    "WITH_",
    "WITHOUT_",
    "GPU",
    "GLOO_",
    "SPARK_",
    "CUDA_",
    "ROCM_",
    "NCCL_",
    "NVTX_",
    "BUILD_",
)


def flag(variable: str, default: bool = False, environ: Mapping[str, str] = os.environ) -> bool:
    """A flag, understood as the core understands its own. ``init`` has warned of what is no value."""
    text = environ.get(variable, "").lower()
    if _NUMBER.fullmatch(text):
        return int(text) > 0
    return text in {"true", "yes", "on"} or (default and text not in {"false", "no", "off"})


def seconds(name: str, environ: Mapping[str, str], default: float) -> float:
    """A time that a variable says, in the range that the core's table has for it. Raises ValueError for a
    value that is none.
    """
    text = environ.get(name, "")
    if not text:
        return default
    from horovod import _core

    _core.check_setting(name, text)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < _MOST_SECONDS:
        raise ValueError(f"{name}: {text!r} is no number of at least 0")
    return value


def usable_seconds(name: str, environ: Mapping[str, str], default: float) -> float:
    """The same, for those who leave it to others to say that a value is none: the default holds then."""
    try:
        return seconds(name, environ, default)
    except ValueError:
        return default


def defaults() -> dict[str, str]:
    """The default of each variable that the library reads; empty where the core is not built."""
    try:
        from horovod import _core
    except ImportError:
        return {}
    return {name: default for name, _, default, _ in _core.settings()}


def without_meaning(environ: MutableMapping[str, str]) -> list[str]:
    """Takes the values out of ``environ`` that their variables cannot have, so that the defaults hold, as in
    Horovod: a variable ends no job. Returns what is wrong with each.
    """
    from horovod import _core

    problems = []
    for name, *_ in _core.settings():
        value = environ.get(name, "")
        try:
            _core.check_setting(name, value)
            if value and value.lower() not in _CHOICES.get(name, {value.lower()}):
                raise ValueError(f"{name}={shown(value)}: expected {' or '.join(_CHOICES[name])}")
        except ValueError as error:
            problems.append(str(error))
            del environ[name]
    return problems


def warn_of_unknown(environ: Mapping[str, str], known: Collection[str]) -> None:
    """One warning that names every unknown variable and, where there is one, the known name nearest to it."""
    names = {*known, *_OWN}
    unknown = sorted(name for name in environ if name.startswith(_PREFIX) and not _is_known(name, names))
    if unknown:
        warnings.warn(_text(unknown, names), RuntimeWarning, stacklevel=6)  # who calls init


def _is_known(name: str, known: Collection[str]) -> bool:
    rest = name.removeprefix(_PREFIX)
    return name in known or rest in _WITHOUT_EFFECT or rest.startswith(_FAMILIES_WITHOUT_EFFECT)


def _text(unknown: list[str], known: Collection[str]) -> str:
    import difflib  # late: most starts have no unknown names

    parts = []
    for name in unknown[:8]:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        parts.append(escaped(name[:80]) + (f" (did you mean {nearest[0]}?)" if nearest else ""))
    more = f" and {len(unknown) - 8} more" if len(unknown) > 8 else ""
    verb = (
        "is not a setting of Horovod and has" if len(unknown) == 1 else "are not settings of Horovod and have"
    )
    return f"{', '.join(parts)}{more} {verb} no effect"
