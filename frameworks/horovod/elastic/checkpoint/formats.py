"""How tensors of one kind become files, and are set aside from the values around them."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, Protocol

from horovod.bootstrap.text import escaped


class Format(Protocol):
    """The files of one framework, or of numpy. ``suffix`` is that of their names."""

    suffix: str

    def owns(self, value: Any) -> bool:
        """Whether it writes a value like this."""

    def copy(self, value: Any) -> Any:
        """A copy, which nobody changes."""

    def size(self, value: Any) -> int:
        """In bytes."""

    def write(self, file: BinaryIO, tensors: Mapping[str, Any]) -> None:
        """Writes them, by name."""

    def read(self, data: bytes) -> dict[str, Any]:
        """What ``write`` has written, without running anything that is in it. Raises any exception for what
        it has not.
        """


class Piece(NamedTuple):
    """A tensor, and who writes it."""

    value: Any
    format: Format

    @property
    def size(self) -> int:
        return self.format.size(self.value)


class Pieces:
    """The tensors of one checkpoint, by name. ``is_lent``: those that come are kept as they are; otherwise
    they are copied.
    """

    def __init__(self, formats: Sequence[Format]) -> None:
        self._formats = formats
        self.found: dict[str, Piece] = {}
        self.is_lent = False

    def set_aside(self, path: str, value: Any) -> str | None:
        """See ``plain.SetAside``."""
        form = next((form for form in self._formats if form.owns(value)), None)
        if form is None:
            return None
        name = base = escaped(path)
        number = 1
        while name in self.found:
            number += 1
            name = f"{base}#{number}"
        self.found[name] = Piece(value if self.is_lent else form.copy(value), form)
        return name

    @property
    def sizes(self) -> dict[str, int]:
        """In bytes, by name."""
        return {name: piece.size for name, piece in self.found.items()}


class ArrayFormat:
    """Arrays of numpy, in .npz files."""

    suffix = "npz"

    def owns(self, value: Any) -> bool:
        numpy = sys.modules.get("numpy")
        return numpy is not None and type(value) is numpy.ndarray and not value.dtype.hasobject

    def copy(self, value: Any) -> Any:
        return value.copy(order="K")

    def size(self, value: Any) -> int:
        return int(value.nbytes)

    def write(self, file: BinaryIO, tensors: Mapping[str, Any]) -> None:
        import zipfile

        import numpy

        # Numbers as names: a name in a zip file may not be just any text.
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for index, array in enumerate(tensors.values()):
                with archive.open(f"{index}.npy", "w", force_zip64=True) as entry:
                    numpy.lib.format.write_array(entry, numpy.asanyarray(array), allow_pickle=False)
            archive.writestr("names.txt", "\n".join(tensors))

    def read(self, data: bytes) -> dict[str, Any]:
        import zipfile

        import numpy

        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.read("names.txt").decode().split("\n")
            found = {}
            for index, name in enumerate(names):
                with archive.open(f"{index}.npy") as entry:
                    found[name] = numpy.lib.format.read_array(entry, allow_pickle=False)
        return found
