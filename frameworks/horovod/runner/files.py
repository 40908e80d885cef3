"""Opens files for output that another user cannot have pointed elsewhere. Twin: core/settings/output_file.h.

In a folder where everybody may write, somebody else may have been there first. So a folder is held by its
descriptor, names below it are looked up there and never followed, and a file that exists is emptied only when
it is one that this user may lose.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_TRIES = 8
_FILE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class RefusedError(OSError):
    """What is there under the name is not this user's to write; the text says what it is."""


def open_folder(path: Path) -> int:
    """A descriptor of the folder, which is made, with those above it, where it is missing.

    A symbolic link is followed only where it belongs to this user or to root.
    """
    path.mkdir(parents=True, exist_ok=True)
    folder = os.open(path, _FOLDER)
    # What was opened, looked at afterwards: a link that is exchanged for a folder in between is no way in.
    named = os.lstat(path)
    if stat.S_ISLNK(named.st_mode):
        trusted = named.st_uid in (os.geteuid(), 0)
    else:
        trusted = os.path.samestat(named, os.fstat(folder))
    if not trusted:
        os.close(folder)
        raise RefusedError(f"{path} is a symbolic link of another user")
    return folder


def open_folder_in(folder: int, name: str) -> int:
    """A descriptor of the folder ``name`` in ``folder``, which is made where it is missing; never a link."""
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        made = False
    else:
        made = True
    try:
        found = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        raise RefusedError(f"{_path(folder, name)} is a symbolic link, or no folder") from None
    if not made and not _is_ours(os.fstat(found), folder):
        os.close(found)
        raise RefusedError(f"{_path(folder, name)} belongs to another user")
    return found


def open_file_in(folder: int, name: str) -> BinaryIO:
    """The file ``name`` in ``folder``, made or emptied, unbuffered.

    Raises:
        RefusedError: it is a link, has a second name, belongs to another user, or is no regular file.
        OSError: it cannot be written.
    """
    path = _path(folder, name)
    descriptor, made = _open_or_make(folder, name, path)
    try:
        if not made:
            _check(os.fstat(descriptor), folder, path)
            os.ftruncate(descriptor, 0)
        return open(path, "wb", buffering=0, opener=lambda *_: descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def _open_or_make(folder: int, name: str, path: str) -> tuple[int, bool]:
    """The descriptor, and whether the file is new. Somebody may make or remove it in between."""
    for _ in range(_TRIES):
        try:
            return os.open(name, _FILE | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder), True
        except FileExistsError:
            pass
        try:
            return os.open(name, _FILE, dir_fd=folder), False
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise RefusedError(f"{path} is a symbolic link") from None
            if error.errno == errno.ENXIO:
                raise RefusedError(f"{path} is no regular file") from None
            raise
    raise RefusedError(f"{path} is being replaced all the time")


def _check(file: os.stat_result, folder: int, path: str) -> None:
    if not stat.S_ISREG(file.st_mode):
        raise RefusedError(f"{path} is no regular file")
    if file.st_nlink > 1:
        raise RefusedError(f"{path} has a second name (a hard link), whose content would be lost")
    if not _is_ours(file, folder):
        raise RefusedError(f"{path} belongs to another user")


def _is_ours(found: os.stat_result, folder: int) -> bool:
    """Or that of the owner of the folder, to whom some file systems map every user."""
    return found.st_uid in (os.geteuid(), os.fstat(folder).st_uid)


def _path(folder: int, name: str) -> str:
    """For messages."""
    return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
