"""What ranks of all frameworks do alike: the batches of a rank, none of which has a single row, with which
BatchNorm cannot be trained; and its checkpoints.
"""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from horovod.spark.common import dataset, training
from horovod.spark.common.store import Store
from horovod.spark.common.training import Plan, Share

PARAMS: dict[str, Any] = {
    "val_batch_size": None,
    "train_steps_per_epoch": None,
    "validation_steps_per_epoch": None,
    "validation": None,
    "data_module": None,
    "random_seed": 3,
    "shuffle_buffer_size": None,
    "transformation_fn": None,
    "transformation_removed_fields": None,
}


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 17, 18, 25])
@pytest.mark.parametrize("batch_size", [1, 2, 8])
@pytest.mark.parametrize("shuffle", [False, True])
def test_no_batch_has_a_single_row(tmp_path: Path, rows: int, batch_size: int, shuffle: bool) -> None:
    """Every row is there once or, where ranks need as many as others, twice; all take the same steps."""
    store = Store.create(str(tmp_path))
    path = Path(store.get_train_data_path())
    path.mkdir(parents=True)
    table = pa.table({"n": np.arange(rows), "pair": [[n, -n] for n in range(rows)]})
    pa.parquet.write_table(table, path / "part.parquet", row_group_size=5)
    plan = Plan(dataset.described(store), store, "run", b"")
    params = {**PARAMS, "batch_size": batch_size, "shuffle": shuffle}
    for size in (1, 2, 3):
        shares = [Share(plan, params, rank, size) for rank in range(size)]
        assert len({share.steps for share in shares}) == 1
        of_ranks = [list(share.train(epoch)) for share, epoch in itertools.product(shares, (0, 1))]
        for batches in of_ranks:
            counts = [len(batch["n"]) for batch in batches]
            assert len(counts) == shares[0].steps and sum(counts) == -(-rows // size)
            assert all(count == batch_size for count in counts[:-1])
            assert batch_size == 1 or sum(counts) == 1 or counts[-1] > 1
            for batch in batches:
                assert (batch["pair"] == np.stack([batch["n"], -batch["n"]], 1)).all()
        for epoch in (0, 1):
            found = itertools.chain.from_iterable(batch["n"] for each in of_ranks[epoch::2] for batch in each)
            assert set(found) == set(range(rows))


def test_a_run_keeps_the_checkpoint_before_its_loss_was_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever rank has the rows to blame, rank 0 has written by then: a run goes on from what it finds."""
    monkeypatch.setattr(training.hvd, "rank", lambda: 0)
    store = Store.create(str(tmp_path))

    class Trained(training.Training):
        def __init__(self) -> None:
            self.plan = Plan(dataset.Dataset("", None, {}, 1, 0), store, "run", b"")
            self.params = {"feature_cols": [], "label_cols": [], "sample_weight_col": None}
            self.share: Any = self
            self.train = lambda epoch: iter(())

        def checkpoint(self) -> bytes:
            return b"%d" % self.done

    one = Trained()
    for epoch, loss in enumerate([0.5, 0.25, math.nan, math.nan]):
        one.end_epoch(epoch, loss)
    path = store.get_checkpoint_path("run")
    assert path is not None and store.read(path) == b"2" and one.result() == b"4"
