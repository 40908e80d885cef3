"""Steps of gluon's trainer for which the ranks have different batches, gradients or names."""

import numpy as np
import pytest
from check_mxnet import mx

import horovod.mxnet as hvd


def ranks_lack_gradients(at_once: bool) -> None:
    """Each leaves out another layer, or all leave out one, which momentum then does not move."""
    hvd.init()
    layers = [mx.gluon.nn.Dense(1, in_units=1, use_bias=False) for _ in range(3)]
    for layer in layers:
        layer.initialize(mx.init.Zero())
    parameters = [layer.weight for layer in layers]
    trainer = hvd.DistributedTrainer(parameters, "sgd", {"learning_rate": 1.0, "momentum": 0.5})
    values, velocities = np.zeros(3), np.zeros(3)
    for parts in [("012", "012"), ("02", "12"), ("0", "0"), ("1", "02")]:
        with mx.autograd.record():
            used = [10.0 ** int(part) * parameters[int(part)].data().sum() for part in parts[hvd.rank()]]
            loss = sum(used[1:], used[0])
        loss.backward()
        if at_once:
            trainer.step(1, ignore_stale_grad=True)
        else:  # as where gradients are clipped in between
            trainer.allreduce_grads()
            trainer.update(1, ignore_stale_grad=True)
        for place in range(3):
            if share := sum(str(place) in each for each in parts) / 2:
                velocities[place] = 0.5 * velocities[place] - share * 10.0**place
                values[place] += velocities[place]
        found = [parameter.data().asnumpy().item() for parameter in parameters]
        assert np.allclose(found, values), (parts, found, values)


@pytest.mark.parametrize("at_once", [True, False])
def test_gradients_that_ranks_lack(run_ranks, at_once: bool) -> None:
    run_ranks(2, ranks_lack_gradients, [at_once])


def ranks_lack_a_gradient_of_another_trainer() -> None:
    """Rank 1 has one that a trainer before this has used."""
    hvd.init()
    layer = mx.gluon.nn.Dense(1, in_units=1, use_bias=False)
    layer.initialize(mx.init.Zero())
    for steps in range(2):
        trainer = hvd.DistributedTrainer(layer.collect_params(), "sgd", {"learning_rate": 1.0})
        if steps == 0 or hvd.rank() == 0:
            with mx.autograd.record():
                loss = 10.0 * layer.weight.data().sum()
            loss.backward()
        trainer.step(1, ignore_stale_grad=True)
    assert layer.weight.data().asnumpy().item() == -15.0


def test_a_gradient_that_another_trainer_has_used(run_ranks) -> None:
    run_ranks(2, ranks_lack_a_gradient_of_another_trainer)


def ranks_have_batches_of_other_sizes() -> None:
    """As at the end of an epoch, in the first step and after a join. The models stay equal: ``step`` counts
    the mean of each rank alike, ``update`` each sample.
    """
    hvd.init()
    rank = hvd.rank()
    layer = mx.gluon.nn.Dense(1, in_units=1, use_bias=False)
    layer.initialize(mx.init.Zero())
    trainer = hvd.DistributedTrainer(layer.collect_params(), "sgd", {"learning_rate": 1.0})
    expected = 0.0
    for sizes in [(3, 4), (4, 4), (4, 1), (2, 4), (7, 7), "join", (5, 7), (4, 1)]:
        if sizes == "join":
            hvd.join()
            continue
        for at_once in (True, False):
            with mx.autograd.record():
                loss = (layer(mx.nd.ones((sizes[rank], 1))) * (rank + 1)).sum()
            loss.backward()
            if at_once:
                trainer.step(sizes[rank])
                expected -= 1.5
            else:
                trainer.allreduce_grads()
                trainer.update(sizes[rank])
                expected -= (sizes[0] + 2 * sizes[1]) / sum(sizes)
            (found,) = layer.weight.data().asnumpy()[0]
            assert np.allclose(found, expected), (sizes, at_once, found, expected)
            assert len(set(hvd.allgather_object(found))) == 1


def test_batches_of_other_sizes(run_ranks) -> None:
    run_ranks(2, ranks_have_batches_of_other_sizes)


def ranks_number_their_layers_differently(form: str, made_before: int) -> list[float] | str:
    """Returns the weights after a step, or why it was refused."""
    hvd.init()
    with mx.name.NameManager():
        for _ in range(made_before * hvd.rank()):
            mx.gluon.nn.Dense(1)
        layers = [mx.gluon.nn.Dense(1, in_units=1, use_bias=False) for _ in range(3)]
    net = mx.gluon.nn.Sequential()
    net.add(*layers)
    net.initialize(mx.init.Zero())
    params = net.collect_params()
    given = params if form == "dict" else list(reversed(params.values()))
    trainer = hvd.DistributedTrainer(given, "sgd", {"learning_rate": 1.0, "momentum": 0.5})
    with mx.autograd.record():
        losses = [10.0**place * layer.weight.data().sum() for place, layer in enumerate(layers)]
    mx.autograd.backward(losses)
    try:
        trainer.step(1)
    except hvd.TensorMismatchError as error:
        return str(error)
    return [layer.weight.data().asnumpy().item() for layer in layers]


@pytest.mark.parametrize("form", ["dict", "list"])
def test_layers_with_other_numbers(run_ranks, form: str) -> None:
    """Of dense8, dense9 and dense10 the last is the first of texts, as gluon sorts them."""
    assert run_ranks(2, ranks_number_their_layers_differently, [form, 2]) == [[-1.0, -10.0, -100.0]] * 2
    said, also = run_ranks(2, ranks_number_their_layers_differently, [form, 8])
    assert said == also
    assert "float32 (1, 1) dense#_weight (1 of 3); rank 1: float32 (1, 1) dense#_weight (3 of 3)" in said


def ranks_name_their_layers_differently() -> str:
    """Each in another order. Returns the error."""
    hvd.init()
    net = mx.gluon.nn.Sequential()
    prefixes = ["first_", "second_"]
    for prefix in prefixes if hvd.rank() else reversed(prefixes):
        net.add(mx.gluon.nn.Dense(1, in_units=1, use_bias=False, prefix=f"{prefix}{hvd.rank()}_"))
    net.initialize()
    if hvd.rank():
        net[1].weight.name = "third_1_weight"
    trainer = hvd.DistributedTrainer([layer.weight for layer in net], "sgd")
    with mx.autograd.record():
        loss = net(mx.nd.ones((1, 1))).sum()
    loss.backward()
    with pytest.raises(hvd.TensorMismatchError) as caught:
        trainer.step(1)
    return str(caught.value)


def test_layers_with_other_names(run_ranks) -> None:
    texts = run_ranks(2, ranks_name_their_layers_differently)
    assert texts[0] == texts[1]
    assert "gradient 1" in texts[0] and "third_#_weight" in texts[0]


def ranks_differentiate_arrays_of_numpy() -> None:
    """MXNet gives the gradients of these as arrays of the other class."""
    hvd.init()
    mx.npx.set_np()
    rank = hvd.rank()
    for op, value in ((hvd.Max, 1), (hvd.Min, 0), (hvd.Product, 0)):
        for given in (mx.np.array([rank, 1 - rank]), mx.np.array(rank)):
            given.attach_grad()
            with mx.autograd.record():
                loss = hvd.allreduce(given, op=op).sum()
            loss.backward()
            expected = 2.0 * (given.asnumpy() == value)
            assert given.grad.asnumpy().tolist() == expected.tolist(), (op, given)


def test_gradients_of_arrays_of_numpy(run_ranks) -> None:
    run_ranks(2, ranks_differentiate_arrays_of_numpy)
