"""What a folder of checkpoints contains, as names and bytes. Pure.

::

    lock                        held by the job that writes
    history.jsonl               what the training has recorded; each checkpoint says how much of it is its own
    checkpoint-00000007/        complete, since it has this name
        state.json              Python values, and where each tensor is
        tensors-0.pt, ...       tensors, in files of their framework; each rank may write some
        manifest.json           commit, version of the format, size and checksum of each file
    writing-00000008-1f2e3d/    being written, or left by who was interrupted
        part-0.json             rank 0 has written its files

A number is one more than the greatest that any of these names has, so the newest has the greatest. A folder
whose number no job can have reached is none of these: nothing could come after it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from horovod.elastic.checkpoint.errors import CheckpointError, DamagedError

FORMAT = 1
LOCK, HISTORY, MANIFEST, STATE = "lock", "history.jsonl", "manifest.json", "state.json"
_MOST_DIGITS = 17  # of a number: 3,000 years, with a checkpoint each microsecond
_COMPLETE = re.compile(rf"checkpoint-([0-9]{{8,{_MOST_DIGITS}}})")
_WRITING = re.compile(rf"writing-([0-9]{{8,{_MOST_DIGITS}}})-[0-9a-f]{{1,32}}")
_UNREACHED = re.compile(rf"(?:checkpoint|writing)-[0-9]{{{_MOST_DIGITS + 1},}}(?:-[0-9a-f]*)?")
_FILE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9]+")
LONGEST_MANIFEST = 64 << 20


@dataclass(frozen=True)
class File:
    """A file of a checkpoint: its name, its size in bytes, its SHA-256 in hex."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Extent:
    """How much of the history belongs to a checkpoint: the first so many bytes, in so many lines."""

    size: int = 0
    lines: int = 0


@dataclass(frozen=True)
class Manifest:
    """``commit``: how many commits the training had made. ``time``: of the system's clock."""

    commit: int
    files: tuple[File, ...]
    history: Extent = field(default_factory=Extent)
    ranks: int = 1
    time: float = 0.0

    def encode(self) -> bytes:
        """With a checksum of itself."""
        return sealed({"manifest": asdict(self)})


def decode_manifest(data: bytes) -> Manifest:
    """Raises DamagedError for what ``Manifest.encode`` has not made."""
    told = unsealed(data, "manifest")
    try:
        files = tuple(File(**file) for file in told["files"])
        manifest = Manifest(**{**told, "files": files, "history": Extent(**told["history"])})
    except (KeyError, TypeError, ValueError):
        raise DamagedError("the manifest is incomplete") from None
    if not all(_FILE.fullmatch(file.name) and file.name != MANIFEST for file in files):
        raise DamagedError("the manifest names files that no checkpoint has")
    return manifest


@dataclass(frozen=True)
class Part:
    """What one rank has written, and the tensors that are in its files."""

    rank: int
    files: tuple[File, ...]
    tensors: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """With a checksum of itself."""
        return sealed({"part": asdict(self)})


def decode_part(data: bytes) -> Part:
    """Raises DamagedError for what ``Part.encode`` has not made."""
    told = unsealed(data, "part")
    try:
        files = tuple(File(**file) for file in told["files"])
        return Part(told["rank"], files, tuple(told["tensors"]))
    except (KeyError, TypeError, ValueError):
        raise DamagedError("the report of a rank is incomplete") from None


def sealed(content: Mapping[str, Any]) -> bytes:
    """As JSON, with the version of the format and a checksum."""
    return json.dumps({"format": FORMAT, "sha256": _digest(content), **content}, indent=1).encode()


def unsealed(data: bytes, key: str) -> Any:
    """What ``sealed`` was given for ``key``. Raises DamagedError for what it has not made."""
    try:
        told = json.loads(data)
        version, digest = told.pop("format"), told.pop("sha256")
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise DamagedError("it is no JSON of a checkpoint: truncated, or overwritten") from None
    if not isinstance(version, int) or version > FORMAT:
        raise NewerFormatError(
            f"its format is {version!r}; this version of Horovod reads formats up to {FORMAT}"
        )
    # The checksum is that of the rest.
    if version < 1 or digest != _digest(told) or key not in told:
        raise DamagedError("its checksum is wrong")
    return told[key]


class NewerFormatError(DamagedError):
    """A newer version of this library has written it."""


def check(file: File, data: bytes) -> None:
    """Raises DamagedError when ``data`` is not what was written to the file."""
    if len(data) != file.size:
        raise DamagedError(f"{file.name} has {len(data)} bytes, not {file.size}")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise DamagedError(f"the checksum of {file.name} is wrong")


def complete_name(number: int) -> str:
    """Of a checkpoint's folder."""
    return f"checkpoint-{number:08}"


def writing_name(number: int, token: str) -> str:
    """Of the folder of a checkpoint that is being written."""
    return f"writing-{number:08}-{token}"


def part_name(rank: int) -> str:
    """Of the file that says that a rank has written its part."""
    return f"part-{rank}.json"


def tensor_name(rank: int, suffix: str) -> str:
    """Of the file with a rank's tensors. ``suffix``: of their framework's files, such as pt."""
    return f"tensors-{rank}.{suffix}"


def number_of(name: str) -> int | None:
    """Of a checkpoint, complete or not; None for any other name."""
    match = _COMPLETE.fullmatch(name) or _WRITING.fullmatch(name)
    return int(match[1]) if match else None


def complete(names: Iterable[str]) -> list[str]:
    """Those of complete checkpoints, newest first."""
    found = [name for name in names if _COMPLETE.fullmatch(name)]
    return sorted(found, key=lambda name: number_of(name) or 0, reverse=True)


def unfinished(names: Iterable[str]) -> list[str]:
    """Those of checkpoints that are being written, or were left."""
    return [name for name in names if _WRITING.fullmatch(name)]


def unreached(names: Iterable[str]) -> list[str]:
    """Those that look like checkpoints and have a number that no job can have reached."""
    return sorted(name for name in names if _UNREACHED.fullmatch(name))


def next_number(names: Iterable[str]) -> int:
    """For the next checkpoint. Raises CheckpointError where none is left."""
    numbers = {number_of(name) or 0: name for name in names}
    last = max(numbers, default=0)
    if last + 1 >= 10**_MOST_DIGITS:
        raise CheckpointError(f"{numbers[last]} leaves no number for a later checkpoint: remove or rename it")
    return last + 1


def superfluous(names: Collection[str], newest: str, keep: int, damaged: Collection[str] = ()) -> list[str]:
    """Which folders to remove when the checkpoint ``newest`` is complete, of which ``keep`` are kept, itself
    among them. ``damaged``: complete ones that cannot be used.
    """
    last = number_of(newest) or 0
    older = [name for name in complete(names) if (number_of(name) or 0) < last]
    kept = [name for name in older if name not in damaged][: max(keep - 1, 0)]
    left = [name for name in unfinished(names) if (number_of(name) or 0) <= last]
    return sorted([*left, *(name for name in older if name not in kept)])


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
