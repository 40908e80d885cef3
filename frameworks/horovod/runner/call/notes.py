"""What a rank tells the caller of horovod.run while it works: bytes, which the caller takes one by one."""

from horovod.bootstrap.start import launchers_store

from .transfer import NOTE_KEY


def send(note: bytes) -> None:
    """On a rank. Raises BootstrapError when the launcher does not take it."""
    with launchers_store() as store:
        store.set(NOTE_KEY, note)
