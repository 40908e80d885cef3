"""Elastic training with MXNet: what comes back, whose state all get, and what a lost rank raises."""

import os
import signal
import time

import numpy as np
import pytest

import horovod.mxnet as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.mxnet.native import mx


def made(seed: int = 0):
    """A trained layer, its trainer, a step and the values of the layer."""
    mx.random.seed(seed)
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    trainer = hvd.DistributedTrainer(net.collect_params(), "adam", {"learning_rate": 0.1})

    def step() -> None:
        with mx.autograd.record():
            loss = net(mx.nd.ones((4, 3))).square().sum()
        loss.backward()
        trainer.step(4)

    return net, trainer, step


def values(net) -> list[list[float]]:
    return [p.list_data()[0].asnumpy().ravel().tolist() for p in net.collect_params().values()]


@pytest.mark.parametrize("form", ["block", "params"])
def test_parameters_and_trainer_come_back(form: str) -> None:
    hvd.init()
    net, trainer, step = made()
    given = net if form == "block" else net.collect_params()
    state = hvd.elastic.MXNetState(given, trainer, batch=0, indices=hvd.elastic.ElasticIndices(10))
    step()
    state.batch = 1
    state.commit()
    saved, runs = values(net), []
    for _ in range(2):
        for _ in range(3):
            step()
            trainer.set_learning_rate(0.01)
        state.batch = 9
        runs.append(values(net))
        state.restore()
        assert values(net) == saved
        assert (state.batch, trainer.learning_rate) == (1, 0.1)
    assert runs[0] == runs[1]  # so the moments and the count of updates came back, too
    state.sync()
    assert values(net) == saved


def test_arrays() -> None:
    hvd.init()
    arrays = {"a": mx.nd.array([1.0, 2.0]), "b": mx.nd.array([3], dtype="int64")}
    state = hvd.elastic.MXNetState(arrays)
    arrays["a"][:] = 0
    arrays["b"][:] = 0
    state.restore()
    assert arrays["a"].asnumpy().tolist() == [1.0, 2.0]
    assert arrays["b"].asnumpy().tolist() == [3]


def ranks_sync(commits: list[int]) -> list[object]:
    hvd.init()
    net, trainer, _ = made(hvd.rank())
    net.weight.set_data(mx.nd.array(np.full((2, 3), 1.0 + hvd.rank())))
    trainer.set_learning_rate(0.1 * (1 + hvd.rank()))
    state = hvd.elastic.MXNetState(net, trainer, batch=hvd.rank())
    state._age = (0, commits[hvd.rank()])
    state.sync()
    return [values(net)[0], trainer.learning_rate, state.batch]


@pytest.mark.parametrize("commits", [[0, 0], [1, 0, 2]], ids=str)
def test_the_newest_commit_wins(run_ranks, commits: list[int]) -> None:
    winner = commits.index(max(commits))
    expected = [[1.0 + winner] * 6, 0.1 * (1 + winner), winner]
    assert run_ranks(len(commits), ranks_sync, [commits]) == [expected] * len(commits)


def ranks_sync_on_devices_of_their_own() -> list[list[float]]:
    """As on GPUs. Returns the values after a step more."""
    hvd.init()
    device = mx.cpu(hvd.rank())
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize(mx.init.One(), ctx=device)
    trainer = hvd.DistributedTrainer(net.collect_params(), "adam", {"learning_rate": 0.1})
    state = hvd.elastic.MXNetState(net, trainer)
    for number in range(4):
        if number == 3:
            state.sync()
        with mx.autograd.record():
            loss = net(mx.nd.ones((4, 3), ctx=device)).square().sum()
        loss.backward()
        trainer.step(4)
    return values(net)


def test_the_counts_of_updates_are_not_those_of_a_device(run_ranks) -> None:
    (alone,) = run_ranks(1, ranks_sync_on_devices_of_their_own)
    for told in run_ranks(2, ranks_sync_on_devices_of_their_own):
        assert np.allclose(told[0], alone[0], rtol=1e-5) and np.allclose(told[1], alone[1], rtol=1e-5)


def ranks_sync_what_numpy_has_computed() -> list[float]:
    """A rate and a schedule: rank 1 has come later, and with others."""
    hvd.init()
    rates = []
    for scheduled in (False, True):
        rate = np.exp(-1.0 - hvd.rank())  # numpy.float64
        net = mx.gluon.nn.Dense(2, in_units=3)
        net.initialize()
        schedule = mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=rate) if scheduled else None
        options = {"lr_scheduler": schedule} if scheduled else {"learning_rate": rate}
        trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", options)
        state = hvd.elastic.MXNetState(net, trainer)
        state._age = (0, 1 - hvd.rank())
        state.sync()
        rates.append(float(trainer.learning_rate))
    return rates


def test_numbers_of_numpy_are_kept(run_ranks) -> None:
    assert run_ranks(2, ranks_sync_what_numpy_has_computed) == [[float(np.exp(-1.0))] * 2] * 2


def ranks_lose_one() -> list[str]:
    hvd.init()
    net, trainer, step = made()
    state = hvd.elastic.MXNetState(net, trainer, batch=0)
    state.sync()
    step()
    state.commit()
    committed = values(net)
    if hvd.rank() == 1:
        time.sleep(0.5)  # until the other has committed, too
        os.kill(os.getpid(), signal.SIGKILL)
    texts = []
    with pytest.raises(HorovodInternalError) as caught, hvd.elastic.internal_errors():
        step()
        values(net)
    texts.append(str(caught.value))
    with pytest.raises(HorovodInternalError) as caught:
        state.sync()
    texts.append(str(caught.value))
    state.batch = 5
    step()
    with pytest.raises(HorovodInternalError) as caught:
        state.commit()
    texts.append(str(caught.value))
    step()  # nobody looks at what becomes of it
    state.restore()
    mx.nd.waitall()  # as MXNet does at the end of the process
    assert state.batch == 0  # the commit has saved nothing
    assert values(net) == committed
    return texts


def test_a_lost_rank_is_the_error_of_elastic_training(run_ranks) -> None:
    texts, _ = run_ranks(2, ranks_lose_one, dies=[1])
    assert all("rank 1" in text for text in texts)


@pytest.mark.parametrize("back", ["restore", "sync"])
@pytest.mark.parametrize("form", ["block", "arrays"])
def test_gradients_that_were_added_up_for_a_step_that_was_not_made_are_dropped(form: str, back: str) -> None:
    hvd.init()
    layer = mx.gluon.nn.Dense(2, in_units=3)
    layer.initialize()
    layer.collect_params().setattr("grad_req", "add")
    array = mx.nd.ones((3,))
    array.attach_grad("add")
    state = hvd.elastic.MXNetState(layer if form == "block" else {"a": array})
    with mx.autograd.record():
        loss = (layer(mx.nd.ones((4, 3))).sum() if form == "block" else (array * array).sum()) * 1.0
    loss.backward()
    gradient = layer.weight.grad() if form == "block" else array.grad
    assert gradient.asnumpy().any()
    getattr(state, back)()
    assert not gradient.asnumpy().any()


@pytest.mark.parametrize("grad_req", ["write", "add"])
def test_parameters_of_numpy_come_back(grad_req: str) -> None:
    """After ``mx.npx.set_np()`` the parameters of gluon are arrays of ``mx.np``, which take no others."""
    hvd.init()
    mx.npx.set_np()
    try:
        net = mx.gluon.nn.Dense(2, in_units=3)
        net.initialize()
        net.collect_params().setattr("grad_req", grad_req)
        array = mx.np.array(3.0)  # without dimensions
        array.attach_grad("add")
        states = [hvd.elastic.MXNetState(net), hvd.elastic.MXNetState({"a": array})]
        saved = values(net)
        for parameter in net.collect_params().values():
            parameter.data()[:] = 7
        array[()] = 7
        for state in states:
            state.restore()
            state.sync()
        assert values(net) == saved and array.item() == 3.0
    finally:
        mx.npx.reset_np()
