"""What can go wrong before the engine runs.

BootstrapError (RuntimeError)
├── AuthenticationError      the other side does not hold this job's secret
└── StartTimeoutError        somebody did not arrive in time (also a TimeoutError)
"""


class BootstrapError(RuntimeError):
    """The job could not be put together; the message says what to do."""


class AuthenticationError(BootstrapError):
    """The other side of a connection could not prove that it belongs to this job."""


class StartTimeoutError(BootstrapError, TimeoutError):
    """Somebody did not arrive within the start timeout."""
