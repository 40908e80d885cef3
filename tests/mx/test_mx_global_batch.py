"""Gluon nets with a constant global batch, and a learning rate that follows the number of ranks."""

import math

import numpy as np
import pytest

import horovod.mxnet as hvd
from horovod.elastic import rate
from horovod.mxnet.native import mx


def rank_trains(batch_size: int, largest: int | None) -> list[float]:
    """The parameters after some steps."""
    hvd.init()
    dice = np.random.default_rng(5)
    x, y = dice.normal(size=(50, 4)), dice.normal(size=(50, 1))
    net = mx.gluon.nn.Dense(1, in_units=4)
    net.initialize(mx.init.One())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9})
    for parameter in net.collect_params().values():
        parameter.grad_req = "add"
    batches = hvd.elastic.ElasticBatches(len(x), batch_size, largest, seed=2)
    for epoch in range(2):
        batches.set_epoch(epoch)
        for part in batches.parts():
            with mx.autograd.record():
                error = net(mx.nd.array(x[part.indices])) - mx.nd.array(y[part.indices])
                loss = part.weight * error.square().mean()
            loss.backward()
            if part.ends_step:
                trainer.step(1)
                net.collect_params().zero_grad()
                batches.record_step()
    return [value for p in net.collect_params().values() for value in p.data().asnumpy().ravel().tolist()]


@pytest.mark.parametrize(("batch_size", "largest"), [(12, None), (16, 3)])
def test_ranks_make_the_steps_of_one(run_ranks, batch_size: int, largest: int | None) -> None:
    (alone,) = run_ranks(1, rank_trains, [batch_size, None])
    for ranks in (2, 3):
        for told in run_ranks(ranks, rank_trains, [batch_size, largest]):
            assert np.allclose(told, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_step_has_the_scaled_rate(monkeypatch: pytest.MonkeyPatch, scheduled: bool) -> None:
    hvd.init()

    def made(learning_rate: float):
        schedule = mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=learning_rate) if scheduled else None
        parameters = mx.gluon.ParameterDict()
        parameter = parameters.get("w", shape=(3,), init="ones")
        parameter.initialize()
        options = {"learning_rate": learning_rate, "lr_scheduler": schedule}
        return parameter, mx.gluon.Trainer(parameters, "sgd", options)

    def forward(parameter) -> None:
        with mx.autograd.record():
            loss = parameter.data().square().sum()
        loss.backward()

    scaled, trainer = made(0.1)
    by_hand, other = made(0.1 * math.sqrt(3))
    monkeypatch.setattr(rate, "_size", lambda: 3)
    scale = hvd.elastic.LearningRateScale(trainer, ranks=1, rule="sqrt", warmup_steps=0)
    for _ in range(5):
        forward(scaled)
        scale.step(1)
        forward(by_hand)
        other.step(1)
        assert np.allclose(scaled.data().asnumpy(), by_hand.data().asnumpy(), rtol=1e-6)
        assert math.isclose(trainer.learning_rate * math.sqrt(3), other.learning_rate, rel_tol=1e-9)
