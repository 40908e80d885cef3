"""What goes wrong with checkpoints."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be used, or a folder of checkpoints cannot be; the text says what to do."""


class UnstorableObjectError(CheckpointError, ValueError):
    """A part of the state has no form on disk; the attribute is named."""


class DamagedError(CheckpointError):
    """A checkpoint is not what was written, or of a newer version. The one before it may do."""
