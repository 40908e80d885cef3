"""The sampler of elastic training, for ``torch.utils.data.DataLoader``."""

from __future__ import annotations

from collections.abc import Sized

import torch.utils.data

from horovod.common.basics import rank, size
from horovod.elastic.indices import ElasticIndices
from horovod.elastic.sampling import Uneven


class ElasticSampler(ElasticIndices, torch.utils.data.Sampler):
    """Deals out the samples of an epoch to the ranks, and what is left of them when the ranks have changed,
    so that what was processed is not processed again.

    Make it an attribute of the state. Call ``set_epoch`` for each epoch, and ``record_batch`` for each batch
    before the next ``state.commit()``, on all ranks alike.

    Each epoch processes all samples; by default at most one less than there are ranks of them twice, in the
    last batch, so that all ranks make the same number of batches: a rank with one more would wait for the
    others in ``optimizer.step()`` for ever. ``uneven="drop"`` leaves that many out instead. With
    ``uneven="keep"`` each is processed exactly once, and the loop has to let ranks run out of batches::

        while state.epoch < epochs:
            for number, batch in enumerate(loader):
                ...
            hvd.join()
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            state.commit()

    Args:
        dataset: what has a length.
        shuffle: whether each epoch has an order of its own.
        seed: of these orders; equal on all ranks.
        uneven: "pad", "drop" or "keep"; see above.

    Attributes:
        epoch: its number.
        num_replicas, rank: among which ranks the samples were dealt out, and this one.
        remaining_indices: of all ranks, when they were dealt out.
        num_samples: of this rank, when they were dealt out; also ``len(sampler)``.
        total_size: of all ranks together, when they were dealt out.
        processed_num: how many samples of this epoch all ranks have processed.
        processed_indices: these.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0, uneven: Uneven = "pad") -> None:
        self.dataset = dataset
        super().__init__(dataset, shuffle, seed, uneven)

    def _where(self) -> tuple[int, int]:
        return rank(), size()
