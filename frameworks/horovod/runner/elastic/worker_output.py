"""The output of the workers of an elastic job: under the rank that each has just now, shown and kept."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from ..file_writer import FileWriter, QueuedFile
from ..files import open_file_in, open_folder, open_folder_in
from ..journal import Journal
from ..output import Display
from ..rank_output import Outputs, RankOutput, closing, folder_of
from ..sink import Sink


class KeptFile:
    """A file that is opened, and emptied, by the first bytes for it."""

    def __init__(self, folder: str, own: str, stream: str) -> None:
        self.name = os.path.join(folder, own, stream)
        self._place = folder, own, stream
        self._file: BinaryIO | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Raises OSError where it cannot be opened, or takes no more."""
        if self._file is None:
            self._file = _opened(*self._place)
        return self._file.write(data)

    def close(self) -> None:
        """It may be written to again, and is emptied then."""
        if self._file is not None:
            self._file.close()
            self._file = None


class _Shared(QueuedFile):
    """The file of a rank, which outlives each process that has the rank."""

    def close(self) -> None:
        """It is the job's to close."""


class WorkerOutputs:
    """Makes the output streams of workers, and has each go where those of its rank go.

    Args:
        sinks: of stdout and stderr.
        display: what the user has asked to see.
        journal: gets the lines that are shown, too.
        folder: where output is kept, if it is.
        files: the files of the first ranks, which are open, and what writes to them and others.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        display: Display,
        journal: Journal,
        folder: str | None,
        files: FileWriter,
    ) -> None:
        self._display = display
        self._folder = folder
        self._files = files
        self._made = Outputs(sinks, display, journal)
        self._first = len(files.of_ranks)
        self._of_ranks = {
            (rank, stream): file for rank, mine in enumerate(files.of_ranks) for stream, file in mine.items()
        }

    def new(self, worker: int, stream: str) -> RankOutput:
        """Of a worker that has no rank yet: of those that the user has asked for, it may get none."""
        file = None
        if self._folder is not None:
            file = self._files.queued(KeptFile(self._folder, f"worker.{worker}", stream))
        output = self._made.new(worker, stream, file)
        self.name(output, worker, stream, None)
        return output

    def name(self, output: RankOutput, worker: int, stream: str, rank: int | None) -> None:
        """What comes from now on is that of a rank (None: of a worker)."""
        name = f"w{worker}" if rank is None else None
        if stream == "stderr":
            self._made.repeats.name(output, rank)
        shown = worker if rank is None else rank
        output.relabel(self._display.label(shown, stream, output.sink.is_terminal, name))
        output.show(self._display.ranks is None or (rank is not None and self._display.shows(rank)))
        if self._folder is not None and rank is not None:
            shared = self._file_of(self._folder, rank, stream)
            output.keep_in(_Shared(self._files, shared.file))

    def close(self) -> None:
        """Nothing more is written."""
        for file in self._of_ranks.values():
            file.close()

    def _file_of(self, folder: str, rank: int, stream: str) -> QueuedFile:
        if (rank, stream) not in self._of_ranks:
            file = KeptFile(folder, folder_of(rank, self._first), stream)
            self._of_ranks[rank, stream] = self._files.queued(file)
        return self._of_ranks[rank, stream]


def _opened(folder: str, own: str, stream: str) -> BinaryIO:
    with closing(open_folder(Path(folder))) as top, closing(open_folder_in(top, own)) as place:
        return open_file_in(place, stream)
