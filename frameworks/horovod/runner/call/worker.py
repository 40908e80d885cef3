"""A rank of horovod.run: fetches the function, calls it, and sends back what it returned or raised."""

import contextlib
import os
import sys
from types import TracebackType

from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.start import launchers_store

from . import packing
from .transfer import Kind, fetch, send


def main() -> None:
    """Ends with status 1 when the function raised something; the launcher then ends the other ranks.

    What ends a process anywhere (sys.exit, an interrupt) ends this one, too. A child that the function has
    forked, and that comes back from it, ends here and sends nothing.
    """
    environment = dict(os.environ)  # the function may change that of the process
    rank = os.getpid()
    try:
        kind, data = Kind.RESULT, _call()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        kind, data = Kind.ERROR, _told(error)
    if os.getpid() != rank or not _sent(kind, data, environment) or kind == Kind.ERROR:
        sys.exit(1)


def _call() -> bytes:
    rank = os.getpid()
    with launchers_store() as store:
        data = fetch(store)
    function, arguments, keywords = packing.read_call(data)
    del data  # it may be large
    result = function(*arguments, **keywords)
    if os.getpid() != rank:  # a child that the function has forked: the result is its parent's to send
        sys.exit()
    return packing.result_bytes(result)


def _told(error: BaseException) -> bytes:
    """The traceback is for the launcher's report and for whoever reads the output of the rank, too."""
    data, text = packing.error_bytes(error.with_traceback(_users_part(error.__traceback__)))
    _show(text)
    return data


def _show(text: str) -> None:
    """On stderr, unless the function has closed it, or put something else in its place."""
    with contextlib.suppress(Exception):
        sys.stderr.write(text)


def _users_part(traceback: TracebackType | None) -> TracebackType | None:
    """Without the frames of this file, with which each would begin."""
    inner = traceback
    while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
        inner = inner.tb_next
    return inner or traceback


def _sent(kind: Kind, data: bytes, environment: dict[str, str]) -> bool:
    """Whether the launcher has it; else it is told why."""
    try:
        with launchers_store(environment) as store:
            try:
                send(store, kind, data)
                return True
            except BootstrapError as error:
                send(store, Kind.ERROR, _told(RuntimeError(f"the result cannot be sent: {error}")))
    except BootstrapError as error:
        _show(f"horovod.run: {error}\n")
    return False


if __name__ == "__main__":
    main()
