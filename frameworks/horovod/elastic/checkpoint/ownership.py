"""Whose files and folders are taken for checkpoints.

Containers and network file systems give a folder other owners than the user who works there: that of the
host, or nobody. So what can be read and written may belong to anybody, but in a folder that everybody may
write to: there another user could plant a checkpoint. The kernel's fs.protected_regular has the same rule.
"""

from __future__ import annotations

import contextlib
import os
import stat

_ROOT = 0


def is_planted(found: os.stat_result, around: os.stat_result) -> bool:
    """Whether just anybody can have put something there, unless ``own_user`` says that it was this user.

    Args:
        found: what is there.
        around: the folder that it is in.
    """
    trusted = (os.geteuid(), _ROOT, around.st_uid)
    return bool(around.st_mode & stat.S_IWOTH) and found.st_uid not in trusted


def own_user(folder: int) -> int:
    """To whom a new file in an open folder belongs, which may be "nobody"; -1 where none can be made."""
    name = f".owner-{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    except OSError:
        return -1
    try:
        return os.fstat(descriptor).st_uid
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
