"""The checks of a step in MXNet: NaN and Inf, and models that have drifted apart."""

import numpy as np
import pytest
from check_mxnet import mx

import horovod.mxnet as hvd
from horovod.common import remarks
from horovod.common.exceptions import NonfiniteGradientError, ParameterDivergenceError

NONFINITE = {"HOROVOD_CHECK_NONFINITE": "1"}


def trained_by_trainer():
    """A step of a trainer, and its parameters. The names of the parameters differ between the ranks."""
    for _ in range(hvd.rank()):
        mx.gluon.nn.Dense(1)
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(3, in_units=2), mx.gluon.nn.Dense(1, in_units=3))
    net.initialize(mx.init.One())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.01})

    def step(factor):
        with mx.autograd.record():
            loss = net(mx.nd.ones((2, 2))).sum() * factor
        loss.backward()
        trainer.step(2)

    return step, [parameter.data() for parameter in net.collect_params().values()]


def trained_by_optimizer():
    """The same of an optimizer that is called for one parameter after the other, as a Module does."""
    weights = [mx.nd.ones((2, 3)), mx.nd.ones((3,))]
    plain = mx.optimizer.create("sgd", learning_rate=0.01, param_idx2name={0: "first", 1: "second"})
    optimizer = hvd.DistributedOptimizer(plain)

    def step(factor):
        for index, weight in enumerate(weights):
            gradient = mx.nd.ones(weight.shape) * (factor if index == 1 else 1.0)
            optimizer.update(index, weight, gradient, None)

    return step, weights


TRAININGS = {"trainer": trained_by_trainer, "optimizer": trained_by_optimizer}


def ranks_train(training, drifting):
    """NaN on rank 1 in step 2 and Inf on both in step 4; or one element of rank 2 that differs by one unit in
    the last place, from step 3 on.
    """
    hvd.init()
    step, weights = TRAININGS[training]()
    poisons = {(2, 1): np.nan, (4, 0): np.inf, (4, 1): np.inf}
    errors = []
    for at in range(1, 6):
        if drifting and at == 3 and hvd.rank() == 2:
            value = weights[1].asnumpy()
            value[1] = np.nextafter(value[1], np.float32(9))
            weights[1][:] = value
        try:
            step(1.0 if drifting else poisons.get((at, hvd.rank()), 1.0))
        except (NonfiniteGradientError, ParameterDivergenceError) as error:
            errors.append([at, str(error)])
    return errors, np.concatenate([weight.asnumpy().ravel() for weight in weights]).tolist()


@pytest.mark.parametrize("training", TRAININGS)
def test_gradients_that_are_no_numbers_are_found(run_ranks, training) -> None:
    (one, values), (other, others) = run_ranks(2, ranks_train, [training, False], env=NONFINITE)
    assert one == other and values == others and np.isfinite(values).all()
    (second, nan), (fourth, inf) = one
    assert (second, fourth) == (2, 4)
    name = "second" if training == "optimizer" else "dense"
    assert nan.startswith(f"In step 2 the gradient of '{name}")
    assert "' on rank 1 has NaN. No rank has applied it." in nan
    assert "' on rank 0 has Inf; so have gradients on rank 1 ('" in inf


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize(("every", "found"), [(1, [3, 4, 5]), (2, [3, 5]), (3, [4]), (9, [])])
def test_a_model_that_drifted_by_one_bit_is_found(run_ranks, training, every, found) -> None:
    env = {"HOROVOD_CHECK_PARAMETERS_EVERY": str(every)}
    results = [errors for errors, _ in run_ranks(3, ranks_train, [training, True], env=env)]
    assert results[0] == results[1] == results[2]
    assert [at for at, _ in results[0]] == found
    for at, text in results[0]:
        assert text.startswith(f"Before step {at} the parameters are not equal on all ranks: rank 2 differs")
        assert "of 4 do)" in text if training == "trainer" else "'second' (1 of 1 do)" in text


def ranks_start_apart(broadcast):
    """What this rank has said of its weights after three steps."""
    hvd.init()
    step, weights = trained_by_trainer()
    weights[2][:] = hvd.rank()
    for at in range(3):
        if at == broadcast:
            hvd.broadcast_parameters(dict(enumerate(weights)), root_rank=0)
        step(1.0)
    return remarks._texts


@pytest.mark.parametrize("broadcast", [None, 0, 1])
def test_a_forgotten_broadcast_is_told_after_the_first_step(run_ranks, broadcast) -> None:
    told, others = run_ranks(2, ranks_start_apart, [broadcast])
    assert others == [] and len(told) == (broadcast is None)
    assert all("(1 of 4 do)" in text and "Add hvd.broadcast_parameters(" in text for text in told)
