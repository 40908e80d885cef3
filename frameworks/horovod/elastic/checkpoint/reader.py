"""Finds the newest checkpoint that can be used, and reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from horovod.bootstrap.text import escaped, shown
from horovod.elastic.checkpoint import layout, plain
from horovod.elastic.checkpoint.errors import CheckpointError, DamagedError
from horovod.elastic.checkpoint.folder import Folder
from horovod.elastic.checkpoint.formats import Format
from horovod.elastic.checkpoint.layout import Manifest


@dataclass
class Found:
    """A checkpoint: its folder's name, what it says of itself, its values and tensors. ``damaged``: names of
    newer ones that cannot be used, and never will be.
    """

    name: str
    manifest: Manifest
    document: Any
    tensors: dict[str, Any]
    damaged: frozenset[str] = field(default_factory=frozenset)

    def value(self, attribute: str, allow_pickle: bool) -> Any:
        """Of an attribute. Raises CheckpointError for what may not be unpickled."""
        return plain.decode(self.document[attribute], self.tensors, allow_pickle)

    @property
    def attributes(self) -> list[str]:
        """Their names."""
        return list(self.document)


def newest(folder: Folder, formats: Sequence[Format], say: Callable[[str], None]) -> Found | None:
    """The newest complete checkpoint that is as it was written; None when there is none.

    Args:
        folder: of checkpoints.
        formats: of the tensors that are expected.
        say: is called with a warning for each newer one that cannot be used.

    Raises:
        CheckpointError: the newest is of another program, or this user may not read it.
        OSError: the folder cannot be read.
    """
    damaged: set[str] = set()
    names = folder.names()
    for name in layout.unreached(names):
        say(f"{shown(folder.path)}/{name} is no checkpoint: no job can have reached its number. Remove it")
    for name in layout.complete(names):
        try:
            found = _read(folder, name, formats)
        except PermissionError as error:
            raise CheckpointError(_forbidden(folder, name, error)) from error
        except (DamagedError, OSError) as error:
            say(f"the checkpoint {shown(folder.path)}/{name} is not used: {escaped(str(error))}")
            if not isinstance(error, (layout.NewerFormatError, OSError)):  # these may be read another time
                damaged.add(name)
        else:
            found.damaged = frozenset(damaged)
            return found
    return None


def of_newer_formats(folder: Folder) -> set[str]:
    """The names of the complete checkpoints that a newer version of this library has written."""
    found = set()
    for name in layout.complete(folder.names()):
        try:
            with folder.folder(name) as place:
                _manifest(place)
        except layout.NewerFormatError:
            found.add(name)
        except (DamagedError, OSError):
            continue
    return found


def _forbidden(folder: Folder, name: str, error: PermissionError) -> str:
    owner = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False).st_uid
    return (
        f"The checkpoint {shown(folder.path)}/{name}, of user {owner}, cannot be read by user "
        f"{os.geteuid()}, who runs this: {escaped(str(error))}. Run the job as the user who wrote it, let "
        "this one read it, or give the job another folder"
    )


def newest_manifest(folder: Folder) -> Manifest | None:
    """That of the newest complete checkpoint of this job; its files are not read."""
    for name in layout.complete(folder.names()):
        try:
            with folder.folder(name) as place:
                return _manifest(place)
        except (DamagedError, OSError):
            continue
    return None


def _read(folder: Folder, name: str, formats: Sequence[Format]) -> Found:
    with folder.folder(name) as place:
        manifest = _manifest(place)
        document, tensors = None, {}
        for file in manifest.files:
            data = _bytes(place, file)
            if file.name == layout.STATE:
                document = _document(data)
            else:
                tensors.update(_tensors(file.name, data, formats))
    if not isinstance(document, dict):
        raise DamagedError(f"it has no {layout.STATE}")
    return Found(name, manifest, document, tensors)


def _manifest(place: Folder) -> Manifest:
    try:
        return layout.decode_manifest(place.read(layout.MANIFEST, layout.LONGEST_MANIFEST))
    except layout.NewerFormatError:
        raise
    except DamagedError as error:
        raise DamagedError(f"{layout.MANIFEST}: {error}") from None


def _bytes(place: Folder, file: layout.File) -> bytes:
    data = place.read(file.name, max(file.size, 0) + 1)
    layout.check(file, data)
    return data


def _document(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (RecursionError, ValueError) as error:
        raise DamagedError(f"{layout.STATE}: {error}") from None


def _tensors(name: str, data: bytes, formats: Sequence[Format]) -> dict[str, Any]:
    suffix = name.rpartition(".")[2]
    form = next((form for form in formats if form.suffix == suffix), None)
    if form is None:
        raise CheckpointError(f"{name} is of a framework that this state does not use")
    try:
        return form.read(data)
    except Exception as error:  # frameworks raise anything
        raise DamagedError(f"{name} cannot be read: {type(error).__name__}: {error}") from error
