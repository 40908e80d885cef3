"""Files of one folder, opened so that nobody else's links or files are taken for ours.

Every name is looked up in a folder that is open already, and no link is followed. What another user may have
planted is refused: see ``ownership``.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO

from horovod.bootstrap.paths import absolute
from horovod.elastic.checkpoint import ownership
from horovod.elastic.checkpoint.errors import CheckpointError, DamagedError
from horovod.elastic.checkpoint.layout import File

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW
_TRIAL = "trial.txt"
_FOLDER_FLAGS = _SAFE | os.O_DIRECTORY | os.O_RDONLY


class Folder:
    """An open folder. Its methods raise OSError for what the system refuses."""

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self.path = path

    def close(self) -> None:
        """Once."""
        os.close(self.descriptor)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def names(self) -> list[str]:
        """Of everything in it."""
        return os.listdir(self.descriptor)

    def folder(self, name: str) -> Folder:
        """A folder within. Raises DamagedError for one that is planted."""
        return self._open(name, _FOLDER_FLAGS, stat.S_ISDIR)

    def new_folder(self, name: str) -> Folder:
        """A folder within, which may exist."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, _FOLDER_MODE, dir_fd=self.descriptor)
        return self.folder(name)

    def try_to_write(self, name: str) -> None:
        """Makes a folder with a file within, and removes both."""
        try:
            with self.new_folder(name) as place:
                place.write_bytes(_TRIAL, b"checkpoints can be written here\n")
        finally:
            with contextlib.suppress(DamagedError, OSError):
                self.remove_folder(name, _TRIAL)

    def read(self, name: str, longest: int | None = None) -> bytes:
        """A whole file. Raises DamagedError for what is no file, planted, or longer."""
        with self._open(name, _SAFE | os.O_RDONLY | os.O_NONBLOCK, stat.S_ISREG) as found:
            size = os.fstat(found.descriptor).st_size
            if longest is not None and size > longest:
                raise DamagedError(f"{name} has {size} bytes: too many")
            with open(found.descriptor, "rb", closefd=False) as file:
                return file.read()

    def write(self, name: str, write: Callable[[BinaryIO], None]) -> File:
        """A new file, in the place of one that has the name; on disk when this returns, and whole if it is
        there at all. ``write`` puts its content into a file that can only be written to.
        """
        temporary = f".{name}.new"
        self.remove(temporary)
        flags = _SAFE | os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(temporary, flags, _FILE_MODE, dir_fd=self.descriptor)
        try:
            with open(descriptor, "wb", buffering=0) as raw:
                hashing = _Hashing(raw)
                write(hashing)  # type: ignore[arg-type]
                os.fsync(descriptor)
            os.rename(temporary, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except BaseException:
            self.remove(temporary)
            raise
        self.flush()
        return File(name, hashing.size, hashing.hexdigest())

    def write_bytes(self, name: str, data: bytes) -> File:
        """A new file of these bytes; see ``write``."""
        return self.write(name, lambda file: _ignored(file.write(data)))

    def extend(self, name: str, start: int, data: bytes) -> None:
        """Makes the file that of its first ``start`` bytes and ``data``; on disk when this returns. Raises
        DamagedError when the file is shorter than that.
        """
        flags = _SAFE | os.O_RDWR | os.O_CREAT | os.O_NONBLOCK
        with self._open(name, flags, stat.S_ISREG) as found:
            descriptor = found.descriptor
            if os.fstat(descriptor).st_size < start:
                raise DamagedError(f"{name} is shorter than the {start} bytes that it had")
            os.ftruncate(descriptor, start)
            os.lseek(descriptor, start, os.SEEK_SET)
            _write_all(descriptor, data)
            os.fsync(descriptor)
        self.flush()

    def rename(self, name: str, new: str) -> None:
        """On disk when this returns."""
        os.rename(name, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        self.flush()

    def remove(self, name: str) -> None:
        """A file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def remove_folder(self, name: str, first: str) -> None:
        """A folder of files, if it is there; of these, ``first`` goes first."""
        try:
            found = self.folder(name)
        except FileNotFoundError:
            return
        with found:
            found.remove(first)
            for each in found.names():
                found.remove(each)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=self.descriptor)

    def flush(self) -> None:
        """Its names are on disk when this returns."""
        try:
            os.fsync(self.descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some systems cannot, and need not
                raise

    def _open(self, name: str, flags: int, is_kind: Callable[[int], bool]) -> Folder:
        path = os.path.join(self.path, name)
        try:
            descriptor = os.open(name, flags, _FILE_MODE, dir_fd=self.descriptor)
        except PermissionError:
            found = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            _check(found, self.descriptor, path, is_kind)
            raise
        with _closing(descriptor):
            _check(os.fstat(descriptor), self.descriptor, path, is_kind)
        return Folder(descriptor, path)


def opened(path: str, create: bool = True) -> Folder:
    """The folder at ``path``, which is made if it is not there.

    Raises:
        CheckpointError: another user may have planted it.
        OSError: it cannot be opened, or made.
    """
    if create:
        with contextlib.suppress(FileExistsError):
            parent = os.path.dirname(absolute(path))
            os.makedirs(parent, exist_ok=True)
            os.mkdir(path, _FOLDER_MODE)
    descriptor = os.open(path, _FOLDER_FLAGS & ~os.O_NOFOLLOW)  # the user's own word may be a link
    with _closing(descriptor):
        found, around = os.fstat(descriptor), os.stat("..", dir_fd=descriptor)
        try:
            _refuse_planted(found, around, descriptor, path)
        except DamagedError as error:
            raise CheckpointError(f"The folder of checkpoints cannot be used: {error}") from None
    return Folder(descriptor, path)


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(descriptor)
        raise


def _check(found: os.stat_result, around: int, path: str, is_kind: Callable[[int], bool]) -> None:
    """Raises DamagedError for what is planted in the folder ``around``, or of another kind."""
    if not is_kind(found.st_mode):
        raise DamagedError(f"{path} is no {'file' if is_kind is stat.S_ISREG else 'folder'}")
    _refuse_planted(found, os.fstat(around), around, path)


def _refuse_planted(found: os.stat_result, around: os.stat_result, trial: int, path: str) -> None:
    """``trial``: an open folder of the same file system, to find out who this user is there."""
    if ownership.is_planted(found, around) and found.st_uid != ownership.own_user(trial):
        raise DamagedError(
            f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}, who runs this, and is in a "
            "folder that everybody may write to: anybody can have put it there"
        )


class _Hashing:
    """What is written to a file passes through it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes | bytearray | memoryview) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        _write_all(self._file.fileno(), view)
        self.size += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        """Nothing is kept back."""

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def _write_all(descriptor: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        count = os.write(descriptor, view)
        if not count:
            raise OSError(errno.EIO, "nothing was written")
        view = view[count:]


def _ignored(_: object) -> None:
    return None
