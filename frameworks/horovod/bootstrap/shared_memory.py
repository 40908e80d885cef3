"""Whether the system lets ranks of a host share memory."""

import mmap
import os
import resource


def shared_memory_refusal(ranks: int) -> str | None:
    """Why this process cannot make memory that so many ranks of its host could share; None: it can."""
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if allowed != resource.RLIM_INFINITY:
        from horovod import _core

        needed = _core.shared_file_bytes(ranks)
        if allowed < needed:
            return (
                f"no file may have more than {allowed:,} bytes, and {ranks} ranks share one of {needed:,} "
                "(ulimit -f unlimited lifts the limit)"
            )
    try:
        descriptor = os.memfd_create("horovod", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(descriptor, 0, mmap.PAGESIZE)
            mmap.mmap(descriptor, mmap.PAGESIZE).close()
        finally:
            os.close(descriptor)
    except OSError as error:
        return str(error)
    return None
