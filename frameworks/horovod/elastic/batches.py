"""Batches of a size that all ranks have together, however many ranks there are.

A *global batch* is what one step of the optimizer uses: the next ``batch_size`` samples of the order of the
epoch, which depends on seed and epoch alone. Its samples are split among the ranks, and a rank's share into
equally many *parts* on all ranks, because each part is a backward pass and ranks must make equally many. So
the same steps are made, in the same order, by 4 ranks, by 2, and by 3.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sized
from typing import Any, NamedTuple

from horovod.common import basics
from horovod.elastic.sampling import order_of


class Part(NamedTuple):
    """What one rank computes in one backward pass.

    ``indices``: of its samples. ``weight``: by which their mean loss is multiplied, so that the average of
    the ranks' sums over their parts is the mean loss of the global batch. ``ends_step``: the global batch
    is complete with it.
    """

    indices: list[int]
    weight: float
    ends_step: bool


def split(length: int, parts: int) -> list[range]:
    """``length`` places in ``parts`` runs, whose lengths differ by one at most."""
    bounds = [length * number // parts for number in range(parts + 1)]
    return [range(begin, end) for begin, end in itertools.pairwise(bounds)]


def passes_for(batch_size: int, ranks: int, largest: int | None) -> int:
    """Into how many parts the share of each rank is split, so that none has more than ``largest`` samples."""
    share = -(-batch_size // ranks)
    return 1 if largest is None else -(-share // largest)


def parts_of(batch: list[int], rank: int, ranks: int, passes: int) -> list[Part]:
    """The parts of one rank in a global batch. A part for which no sample is left has one of weight 0."""
    made = []
    share = split(len(batch), ranks)[rank]
    for number, places in enumerate(split(len(share), passes)):
        indices = [batch[share.start + place] for place in places]
        weight = ranks * len(indices) / len(batch)
        made.append(Part(indices or [batch[0]], weight, number + 1 == passes))
    return made


class ElasticBatches:
    """The batches of this rank, when all ranks together use ``batch_size`` samples in each step.

    When ranks come or go, the share of each changes and the steps stay the same. Make it an attribute of the
    state, weight each part's mean loss, and record each step before its commit::

        batches = hvd.elastic.ElasticBatches(len(samples), batch_size=256, largest=64)
        state = hvd.elastic.TorchState(model, optimizer, batches=batches, epoch=0)

        @hvd.elastic.run
        def train(state):
            optimizer.set_backward_passes_per_step(batches.passes)
            while state.epoch < epochs:
                for part in batches.parts():
                    (part.weight * loss_of(samples[part.indices])).backward()
                    if part.ends_step:
                        optimizer.step()
                        optimizer.zero_grad()
                        batches.record_step()
                        state.commit()
                state.epoch += 1
                batches.set_epoch(state.epoch)

    It is a ``batch_sampler`` for PyTorch's ``DataLoader``, too: iterating yields lists of indices, and
    ``parts()`` beside it says what they weigh.

    Args:
        samples: how many samples there are, or what has them.
        batch_size: samples of all ranks in each step.
        largest: samples that a rank computes at once, at most; with more, it takes several backward passes
            for a step. None: one pass, of whatever size.
        shuffle: whether each epoch has an order of its own.
        seed: of these orders; equal on all ranks.
        drop_last: leaves out the last step of an epoch where it has fewer samples.

    Attributes:
        epoch: its number.
        step: how many steps of it have been recorded.
        passes: backward passes for each step, equal on all ranks.

    Raises:
        ValueError: there are no samples, or a size is not positive.
    """

    def __init__(
        self, samples: int | Sized, batch_size: int, largest: int | None = None, shuffle: bool = True,
        seed: int = 0, drop_last: bool = False,
    ) -> None:  # fmt: skip
        self.length = samples if isinstance(samples, int) else len(samples)
        for name, value in (("batch_size", batch_size), ("largest", largest), ("samples", self.length)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is at least 1, not {value}")
        self.batch_size, self.largest = batch_size, largest
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = self.step = 0
        self.reset()

    @property
    def steps(self) -> int:
        """How many steps an epoch has."""
        whole, more = divmod(self.length, self.batch_size)
        return whole + (more > 0 and not self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch. The epoch that it is in already goes on."""
        if epoch != self.epoch:
            self.epoch, self.step = epoch, 0

    def record_step(self) -> None:
        """All ranks have made the next step of the epoch."""
        self.step += 1

    def parts(self) -> Iterator[Part]:
        """The parts of this rank in the steps of this epoch that are left."""
        order = order_of(self.length, self.shuffle, self.seed, self.epoch)
        for step in range(self.step, self.steps):
            batch = order[step * self.batch_size : (step + 1) * self.batch_size]
            yield from parts_of(batch, self._rank, self._ranks, self.passes)

    def __iter__(self) -> Iterator[list[int]]:
        return (part.indices for part in self.parts())

    def __len__(self) -> int:
        return (self.steps - self.step) * self.passes

    def reset(self) -> None:
        """The ranks have changed; called by the state."""
        self._rank, self._ranks = (basics.rank(), basics.size()) if basics.is_initialized() else (0, 1)
        self.passes = passes_for(self.batch_size, self._ranks, self.largest)

    def state_dict(self) -> dict[str, Any]:
        """How far all ranks have come."""
        return {"epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes back, or on, to there, with the ranks that there are now.

        Args:
            state_dict: of ``state_dict``.
        """
        self.epoch, self.step = int(state_dict["epoch"]), int(state_dict["step"])
        self.reset()  # they may have been made before hvd.init()
