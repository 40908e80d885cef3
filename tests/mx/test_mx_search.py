"""A search with MXNet: the trials train on their own ranks."""

import pytest
from check_mxnet import mx

import horovod.mxnet as hvd

pytest.importorskip("optuna", reason="the search needs optuna")


def searched(journal: str) -> list[list[float]]:
    """The values of all trials: each is the mean over the ranks of its team."""
    hvd.init()

    def objective(trial: object) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        total = hvd.allreduce(mx.nd.array([x]), op=hvd.Sum, process_set=trial.process_set)
        trial.report(float(total.asnumpy()[0]), 0)
        return float(total.asnumpy()[0]) + hvd.rank() - trial.process_set.ranks[0]

    result = hvd.search(objective, 6, 2, storage=journal, seed=3)
    return [[trial["values"][0], trial["params"]["x"]] for trial in result.trials]


def test_trials_train_on_their_own_ranks(run_ranks, tmp_path) -> None:
    found = run_ranks(4, searched, [str(tmp_path / "journal")])
    assert found == [found[0]] * 4 and len(found[0]) == 6
    assert [value for value, _ in found[0]] == pytest.approx([2 * x + 0.5 for _, x in found[0]], rel=1e-5)
