"""What can go wrong before the engine runs.

BootstrapError (RuntimeError)
├── AbandonedError           the launcher has given this start up
├── AnotherUserError         a process of another user listens there
├── AuthenticationError      the other side does not hold this job's secret
│   └── StrangerError        it speaks another protocol altogether
├── LauncherEndedError       the launcher of an elastic job has ended
├── PortTakenError           no TCP port to listen at is free (also an OSError)
├── SharedMemoryError        the system refuses it to a rank
└── StartTimeoutError        somebody did not arrive in time (also a TimeoutError)
    └── NobodyListensError   at no time while it was tried
"""

from collections.abc import Sequence


class BootstrapError(RuntimeError):
    """The job could not be put together; the message says what to do. ``absent``: the ranks that others
    waited for in vain.
    """

    def __init__(self, message: str, absent: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.absent = tuple(absent)


class AnotherUserError(BootstrapError):
    """A process of another user listens at the address of this job."""


class AuthenticationError(BootstrapError):
    """The other side of a connection could not prove that it belongs to this job."""


class StrangerError(AuthenticationError):
    """The other side speaks another protocol, as a proxy does: it is no part of any job."""


class TooEarlyError(AuthenticationError):
    """The other side asks for what this one will have in a moment; it asks again."""


class LauncherEndedError(BootstrapError):
    """The launcher of this elastic job has ended, so nobody says which ranks there are."""


class PortTakenError(BootstrapError, OSError):
    """Somebody else listens at the port, or all ports are taken."""


class AbandonedError(BootstrapError):
    """The launcher has given this start up, or has ended: in an elastic job, as a rank has ended."""


class SharedMemoryError(BootstrapError):
    """The system refuses shared memory to ``rank``."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(f"the system refuses shared memory to rank {rank}: {reason}")
        self.rank = rank
        self.reason = reason

    def __reduce__(self) -> "tuple[type[SharedMemoryError], tuple[int, str]]":
        return type(self), (self.rank, self.reason)


class StartTimeoutError(BootstrapError, TimeoutError):
    """Somebody did not arrive within the start timeout."""


class NobodyListensError(StartTimeoutError):
    """The host is there, and nobody listens at the address: who did, has ended."""
