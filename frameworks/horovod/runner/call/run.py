"""``horovod.run`` itself."""

import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, TypeVar

from horovod.bootstrap import descriptors, tracebacks
from horovod.bootstrap.identity import HOROVODRUN, from_environment
from horovod.bootstrap.start_settings import is_elastic

from . import arguments, packing
from .call import Outcome
from .child import Caller, Child, End, python_command
from .transfer import Kind, content, nameless_file

Result = TypeVar("Result")


class _Unsaid(int):
    """A number that nobody has given."""


_ONE = _Unsaid(1)


def run(
    func: Callable[..., Result],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = _ONE,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: bool | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: str | Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Result]:
    """Starts a job, calls a function on each of its ranks, and returns what they return.

    The function and its arguments are pickled (by cloudpickle: functions of a script or a notebook, lambdas
    and closures work). The function calls ``hvd.init()`` as a training script does. What the ranks print
    appears in ``sys.stdout`` and ``sys.stderr`` of the caller, each line behind ``[rank]<stream>:``. An
    interrupt (Ctrl-C, or that of a notebook) ends all ranks and raises KeyboardInterrupt.

    Example::

        results = horovod.run(train, args=(0.1,), num_proc=2)

    Args:
        func: what each rank calls.
        args: its positional arguments, the same on every rank.
        kwargs: its keyword arguments.
        num_proc: how many ranks to start, 1 by default; in an elastic job at least ``min_num_proc``.
        min_num_proc: makes the job elastic: it goes on as long as there are so many ranks. Each new process
            calls the function, too; see docs/elastic.md for what it has to do.
        max_num_proc: of an elastic job, to which it may grow.
        slots: of an elastic job: how many ranks a host may run that the script names without a number.
        reset_limit: of an elastic job: how often its ranks may start again.
        cooldown_range: of an elastic job: the shortest and the longest time, in seconds, for which a host is
            left alone where ranks fail again and again.
        hosts: where to start the ranks, and how many at most, such as "localhost:4,node2:4".
        hostfile: a file that says the same; not together with ``hosts``.
        host_discovery_script: makes the job elastic: it prints the hosts, and is asked each second.
        start_timeout: how many seconds to wait for the hosts, and then for the ranks to find each other,
            30 by default.
        ssh_port: where sshd listens on other hosts.
        ssh_identity_file: the private key for ssh.
        disable_cache: accepted; the launcher remembers nothing between two jobs.
        output_filename: a folder in which to keep the output of each rank, too.
        verbose: whether to say what is started.
        use_gloo: accepted; the controller that works without MPI is the only one.
        use_mpi: refused: MPI can start a program, and no function. Not together with ``use_gloo``.
        mpi_args: has no effect, and a line says so.
        network_interface: deprecated, use ``network_interfaces``.
        network_interfaces: the interfaces that ranks of several hosts may use, as a list or "eth0,eth1".
        executable: the Python of the ranks, by default that of the caller. It must be of the same version.
        np: deprecated, use ``num_proc``.
        min_np: deprecated, use ``min_num_proc``.
        max_np: deprecated, use ``max_num_proc``.

    Returns:
        What the function returned on each rank, in rank order. In an elastic job, on each that has done its
        work to the end: the ranks of the last generation.

    Raises:
        ValueError: arguments exclude each other or cannot be, or the function cannot be pickled.
        RuntimeError: a rank ended without a result (killed, or by sys.exit), with the launcher's report; or
            this process is itself a rank; or an exception or a result of a rank cannot be pickled.
        KeyboardInterrupt: after an interrupt, when all ranks have ended.
        BaseException: what the function raised on the rank that failed first. Its ``__cause__`` has the
            traceback of that rank.
    """
    given = {name: value for name, value in locals().items() if name not in ("func", "args", "kwargs")}
    if not callable(func):
        raise TypeError(f"horovod.run: the first argument must be a function, not a {type(func).__name__}")
    _refuse_in_rank()
    tracebacks.install()
    return run_job(_words(given), func, args, kwargs or {})


def run_job(
    words: Sequence[str],
    func: Callable[..., Result],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    caller: Caller | None = None,
) -> list[Result]:
    """The job of ``run`` by its command line; ``command`` ends that.

    Args:
        words: options and command of horovodrun.
        func: see ``run``, as are ``args`` and ``kwargs``, results and exceptions.
        caller: what else the launcher has of this process.
    """
    descriptors.open_standard_streams()  # a child loses what it inherits under their numbers
    with nameless_file("horovod-call") as call:
        packing.write_call(call, func, args, kwargs)
        return _run(words, call, caller or Caller())


def run_packed(words: Sequence[str], packed: bytes, caller: Caller) -> list[Any]:
    """Likewise of a call that ``packing.write_call`` has written in another process."""
    descriptors.open_standard_streams()
    with nameless_file("horovod-call") as call:
        call.write(packed)
        call.flush()
        return _run(words, call, caller)


def _run(words: Sequence[str], call: BinaryIO, caller: Caller) -> list[Any]:
    with nameless_file("horovod-results") as results:
        with Child(words, call, results, caller) as child:
            end = child.wait()
        sent = content(results.fileno())
        _raise_failure(end, sent)
        return _results(end.outcome, sent)


def command(executable: str | None = None) -> list[str]:
    """What each rank runs."""
    return python_command(executable or sys.executable, "worker")


_OLD_NAMES = {
    "np": "num_proc",
    "min_np": "min_num_proc",
    "max_np": "max_num_proc",
    "network_interface": "network_interfaces",
}


def _words(given: dict[str, Any]) -> list[str]:
    """The command line of horovodrun."""
    for old, new in _OLD_NAMES.items():
        if (value := given.pop(old)) is not None:
            warnings.warn(f"horovod.run: {old} is deprecated, use {new}", DeprecationWarning, stacklevel=3)
            given[new] = value
    fewest = given["min_num_proc"]
    if given["num_proc"] is _ONE and fewest is None:
        print("horovod.run: num_proc is not given, so there is 1 rank", file=sys.stderr)
    given["num_proc"] = max(given["num_proc"], fewest or 0)
    executable = given.pop("executable")
    return [*arguments.words(given), "--", *command(executable)]


def _refuse_in_rank() -> None:
    """A rank that starts another job would wait for it in the middle of its own."""
    identity = from_environment(os.environ)
    if is_elastic(os.environ):
        raise RuntimeError(
            "horovod.run cannot be called in a worker of an elastic job. Call it in the program that starts "
            "everything"
        )
    if identity.launcher == HOROVODRUN or identity.size > 1:
        raise RuntimeError(
            f"horovod.run cannot be called in a rank of a job: this process is rank {identity.rank} of "
            f"{identity.size}, or was started by it. Call it in the program that starts everything"
        )


def _raise_failure(end: End, sent: memoryview) -> None:
    """Raises what the rank raised that failed first, or the reason why there is no such thing."""
    outcome = end.outcome
    if outcome.refusal:
        raise ValueError(arguments.refusal(outcome.refusal))
    errors = [rank for rank, (kind, _, _) in outcome.sent.items() if kind == Kind.ERROR]
    culprit = errors[0] if errors and outcome.culprit is None else outcome.culprit
    if culprit in errors:
        raise packing.read_error(_sent_by(culprit, outcome, sent), culprit)
    if outcome.report:
        raise RuntimeError(re.sub("^horovodrun: ", "", outcome.report.strip(), flags=re.MULTILINE))
    if end.complaints:
        raise RuntimeError(arguments.refusal("; ".join(end.complaints)))
    if end.status != 0 or not outcome.size:  # a process that ignores SIGCHLD learns no status of its children
        raise RuntimeError(f"horovod.run: the launcher {_how(end.status)}, and the job with it")


def _results(outcome: Outcome, sent: memoryview) -> list[Any]:
    absent = [rank for rank in range(outcome.size) if rank not in outcome.sent]
    if absent:
        names = f"rank{'s' if len(absent) > 1 else ''} {', '.join(map(str, absent))}"
        raise RuntimeError(
            f"{names} ended with exit status 0 before the function returned: does something in it call "
            "sys.exit() or os._exit()?"
        )
    return [packing.read_result(_sent_by(rank, outcome, sent), rank) for rank in range(outcome.size)]


def _sent_by(rank: int, outcome: Outcome, sent: memoryview) -> memoryview:
    _, offset, size = outcome.sent[rank]
    return sent[offset : offset + size]


def _how(status: int) -> str:
    """By the status of a process as subprocess has it, or as a shell has it."""
    if not status:
        return "has ended without telling of any results"
    number = -status if status < 0 else status - 128
    try:
        return f"was ended by {signal.Signals(number).name}"
    except ValueError:
        return f"ended with status {status}"
