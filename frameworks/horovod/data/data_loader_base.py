"""The base of data loaders, and what has one of them read ahead of the program."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any

from horovod.data.read_ahead import ReadAhead


class BaseDataLoader:
    """Gives the batches of a pass to the program; a subclass says where they come from."""

    def __len__(self) -> int:
        """The number of batches of a pass."""
        raise NotImplementedError

    def _iterate(self) -> Iterator[Any]:
        """Reads the batches of one pass."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)

    def _process_batch(self, batch: Any) -> Any:
        """What becomes of a batch in the program's own thread, for example on its way to a GPU."""
        return batch


class AsyncDataLoaderMixin:
    """Has a loader read in a thread of its own, ahead of the program.

    Stands before the loader: ``class AsyncLoader(AsyncDataLoaderMixin, Loader)``. Each pass starts a thread,
    which ends with it, also where the program leaves the pass early. What reading raises is raised in the
    program, behind the batches that were read before.

    Args:
        async_loader_queue_size: so many batches are read ahead at most; 0 or less: none, and no thread.
        debug_data_loader: says at the end of each pass, on stderr, how often and how long the program waited.
        args, kwargs: go to the loader.
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._passes: weakref.WeakSet[ReadAhead[Any]] = weakref.WeakSet()
        super().__init__(*args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size <= 0:
            yield from super().__iter__()  # type: ignore[misc]  # of the loader that this stands before
            return
        ahead = ReadAhead(self._iterate, self.async_loader_queue_size)  # type: ignore[attr-defined]
        self._passes.add(ahead)
        try:
            for batch in ahead:
                yield self._process_batch(batch)  # type: ignore[attr-defined]
        finally:
            ahead.close()
            if self.debug_data_loader:
                self._tell(ahead)

    def close_async_loader(self) -> None:
        """Ends the threads of passes that are not over; iterating over those ends, too."""
        for ahead in list(self._passes):
            ahead.close()

    def _tell(self, ahead: ReadAhead[Any]) -> None:
        sys.stderr.write(
            f"{type(self).__name__}: {ahead.given} batches; the program waited {ahead.waited:.3f} s in all, "
            f"for {ahead.waits} of them\n"
        )
