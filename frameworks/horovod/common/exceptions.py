"""The exceptions that users see.

::

    Exception
    ├── RuntimeError
    │   ├── HorovodInternalError            a rank or the engine is gone; elastic training recovers
    │   │   └── TensorMismatchError         the ranks disagree about one operation (also a ValueError)
    │   ├── HostsUpdatedInterrupt           the set of hosts changed; nothing is lost
    │   └── ParameterDivergenceError        the ranks' models are not equal any more
    ├── FloatingPointError
    │   └── NonfiniteGradientError          a gradient has NaN or Inf on some rank
    └── ImportError
        └── HorovodVersionMismatchError     built for another version of a framework

What a single caller did wrong is a plain ``ValueError`` or ``TypeError``. The compiled core raises these
classes.
"""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """A collective failed because a rank or the engine is gone. Every rank of the job raises it with the
    first cause.
    """


class TensorMismatchError(HorovodInternalError, ValueError):
    """The ranks asked for different things under one name. The text is the same on every rank; the next
    operation works.
    """

    ag_pass_through = True  # AutoGraph of TensorFlow makes another error of one that does not say so


class Notice(Exception):
    """Some rank has sent a notice in place of an operation, which then took place nowhere. For the library's
    own use: nothing of it reaches a program.

    ``args[0]`` is a number as text: the bits of all notices, and bit 0 if some rank sent the operation.
    """

    @property
    def bits(self) -> int:
        """What the notices say."""
        return int(self.args[0])


class NonfiniteGradientError(FloatingPointError):
    """A gradient has NaN or Inf on some rank. Every rank raises it in the same step, with the same text, and
    none has applied the gradient.
    """


class ParameterDivergenceError(RuntimeError):
    """The ranks of one training hold different parameters. Every rank raises it in the same step, with the
    same text.
    """


class HostsUpdatedInterrupt(RuntimeError):
    """The available hosts changed between two steps of an elastic job.

    ``skip_sync`` is True when only hosts went away, so that the surviving ranks already hold equal state.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Explains that ``name`` is installed in another version than the one this library was built for."""
    return (
        f"Framework {name} installed with version {installed_version} but found version {version}.\n"
        "This can result in unexpected behavior including runtime errors.\n"
        f"Reinstall this library, or install {name} {installed_version} again."
    )


class HorovodVersionMismatchError(ImportError):
    """The installed framework is not the version that this library was built for."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version

    def __reduce__(self) -> tuple[type[HorovodVersionMismatchError], tuple[str | None, str, str]]:
        return type(self), (self.name, self.version, self.installed_version)
