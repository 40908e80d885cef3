"""The indices of this rank's samples, for loops of any framework and of none."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

from horovod.common import basics
from horovod.elastic.sampling import Epoch, Processed, Progress, Uneven, processed_by


class ElasticIndices:
    """The indices of this rank's samples in an epoch; what was processed before the ranks changed is not
    processed again.

    Make it an attribute of the state, and tell it of every batch::

        state = hvd.elastic.TensorFlowKerasState(model, indices=ElasticIndices(len(samples)), epoch=0)

        @hvd.elastic.run
        def train(state):
            for state.epoch in range(state.epoch, epochs):
                state.indices.set_epoch(state.epoch)
                for number, batch in enumerate(batches(state.indices, 32)):
                    train_on(samples[batch])
                    state.indices.record_batch(number, 32)
                    state.commit()

    Record each batch once, on all ranks alike, before the next ``commit``. An iterator begins where the last
    recorded batch has ended.

    Args:
        samples: how many samples there are, or what has them.
        shuffle: whether each epoch has an order of its own.
        seed: of these orders; equal on all ranks.
        uneven: what becomes of the last samples of an epoch when there are not enough for all ranks: "pad"
            (some are repeated, so that all ranks make equally many batches), "drop" or "keep"; see
            ``horovod.elastic.sampling.Epoch``.

    Attributes:
        epoch: its number.
        num_replicas, rank: among which ranks the samples were dealt out, and this one.
        remaining_indices: of all ranks, when they were dealt out.
        num_samples: of this rank, when they were dealt out.
        total_size: of all ranks together, when they were dealt out.
        processed_num: how many samples of this epoch all ranks have processed.
        processed_indices: these.
    """

    def __init__(
        self, samples: int | Sized, shuffle: bool = True, seed: int = 0, uneven: Uneven = "pad"
    ) -> None:
        self._epoch = Epoch(samples if isinstance(samples, int) else len(samples), shuffle, seed, uneven)
        self.uneven = uneven
        self._is_exhausted = False
        self.reset()

    @property
    def epoch(self) -> int:
        return self._epoch.epoch

    @property
    def num_replicas(self) -> int:
        return self._epoch.ranks

    @property
    def rank(self) -> int:
        return self._epoch.rank

    @property
    def remaining_indices(self) -> list[int]:
        return self._epoch.remaining()

    @property
    def num_samples(self) -> int:
        return len(self._epoch.share)

    @property
    def total_size(self) -> int:
        return self._epoch.dealt

    @property
    def processed_num(self) -> int:
        processed = self._epoch.processed
        return processed.first + len(processed.more)

    @property
    def processed_indices(self) -> set[int]:
        processed, order = self._epoch.processed, self._epoch.order
        return {*order[: processed.first], *(order[place] for place in processed.more)}

    @property
    def indices(self) -> list[int]:
        """This rank's, when they were dealt out."""
        return self._epoch.share

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: all of its samples are left. Call it before the loop over the batches, or after,
        for the next epoch. The epoch that it is in already goes on.
        """
        self._epoch.begin(epoch, *self._where())
        self._is_exhausted = False

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Notes that this rank, as all others, has processed one more batch.

        Args:
            batch_idx: its number; accepted and not needed.
            batch_size: how many samples it had. For the last batch of an epoch the size of the others will
                do.
        """
        self._epoch.record(batch_size)

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """The indices of a batch of this rank, counted from where the samples were dealt out."""
        return self.indices[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    def state_dict(self) -> dict[str, Any]:
        """How far all ranks have come, for a checkpoint."""
        processed = self._epoch.processed
        state: dict[str, Any] = {"epoch": self.epoch, "processed_num": self.processed_num}
        if processed.more:
            state["processed_indices"] = sorted(self.processed_indices)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from there, with the ranks that there are now.

        Args:
            state_dict: of ``state_dict``.
        """
        self._epoch.resume(
            state_dict["epoch"],
            state_dict.get("processed_num", 0),
            state_dict.get("processed_indices"),
            *self._where(),
        )
        self._is_exhausted = False

    @property
    def progress(self) -> Progress:
        """How far this rank has come, for ``go_back``."""
        return self._epoch.progress

    @property
    def report(self) -> Progress:
        """How far this rank has come, for ``unite``."""
        return self._epoch.report

    def processed_at(self, progress: Progress) -> Processed:
        """The places that all ranks had processed when this one had come so far."""
        return processed_by(self._epoch.length, progress)

    def go_back(self, progress: Progress) -> None:
        """Makes this rank's share and position what they were."""
        self._epoch.load(progress)
        self._is_exhausted = False

    def unite(self, winner: Progress, others: Iterable[Progress]) -> None:
        """Goes on where the winner of an election is, less what the others have processed.

        Args:
            winner: its report.
            others: the reports of all ranks that hold the winner's commit.
        """
        self._epoch.unite(winner, others, *self._where())
        self._is_exhausted = False

    def reset(self) -> None:
        """Deals out what is left among the ranks that there are now."""
        self._epoch.deal(*self._where())
        self._is_exhausted = False

    def __iter__(self) -> Iterator[int]:
        if self._is_exhausted and self._epoch.is_done:
            warnings.warn(
                f"All samples of epoch {self.epoch} were processed: call set_epoch() to begin another one.",
                stacklevel=2,
            )
        yield from self._epoch.left()
        self._is_exhausted = True

    def __len__(self) -> int:
        return self.num_samples

    def _where(self) -> tuple[int, int]:
        return basics.rank(), basics.size()
