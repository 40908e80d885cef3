"""What adapters with native code of their own need of the core."""

from horovod import _core
from horovod._core import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER

__all__ = ["ALLGATHER", "ALLREDUCE", "ALLTOALL", "BROADCAST", "REDUCESCATTER", "acquire_api"]


def acquire_api() -> int:
    """The address of the core's table of C functions (core/api/c_api.h). Whoever receives it owns a reference
    to it.
    """
    return _core.acquire_api()
