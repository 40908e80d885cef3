"""Gluon's trainer, optimizers, parameters and compression over ranks."""

import hashlib
import pickle
from typing import Any

import numpy as np
import pytest
import reference
from check_mxnet import mx

import horovod.mxnet as hvd

ROWS, STEPS = 12, 4
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "groups": {"num_groups": 2},
    "more groups than gradients": {"num_groups": 9},
    "predivide": {"gradient_predivide_factor": 2.0},
    "prefix": {"prefix": "mine."},
}


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    """Those of one process, for every step."""
    random = np.random.default_rng(5)
    return [
        (
            random.standard_normal((ROWS, 6), np.float32),
            random.standard_normal((ROWS, 2), np.float32),
        )
        for _ in range(STEPS)
    ]


def make_net(seed: int, **options: Any) -> Any:
    """Two layers with batches normalised between them would see the rank; so there is none."""
    mx.random.seed(seed)
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(5, activation="tanh", **options), mx.gluon.nn.Dense(2))
    net.initialize(mx.init.Normal(0.5))
    net.hybridize()
    return net


def train(net: Any, trainer: Any, part: slice) -> list[np.ndarray]:
    """Returns the parameters."""
    loss_of = mx.gluon.loss.L2Loss()
    for data, target in batches():
        mine = data[part]
        with mx.autograd.record():
            loss = loss_of(net(mx.nd.array(mine)), mx.nd.array(target[part]))
        loss.backward()
        trainer.step(len(mine))
    return [parameter.data().asnumpy() for parameter in net.collect_params().values()]


def digest(arrays: list[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def ranks_train(kind: str) -> list[str]:
    """Deferred initialisation, other random numbers on every rank, a batch split among them; against one
    process.
    """
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    options = {"learning_rate": 0.3, "momentum": 0.9}
    alone = make_net(0)
    expected = train(alone, mx.gluon.Trainer(alone.collect_params(), "sgd", options), slice(None))
    net = make_net(0 if rank == 0 else 100 + rank)
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", options, **OPTIONS[kind])
    trainer.broadcast_parameters()
    found = train(net, trainer, slice(rank, None, size))
    for one, other in zip(found, expected, strict=True):
        assert np.allclose(one, other, rtol=1e-4, atol=1e-5)
    return hvd.allgather_object(digest(found))


@pytest.mark.parametrize("kind", OPTIONS)
def test_ranks_train_as_one_process_on_the_combined_batch(run_ranks, kind: str) -> None:
    for digests in run_ranks(2 if kind == "prefix" else 3, ranks_train, [kind]):
        assert len(set(digests)) == 1


def ranks_compress() -> None:
    """Gradients travel as float16: what arrives is the rounded average of the rounded gradients."""
    hvd.init()
    layer = mx.gluon.nn.Dense(3, in_units=4, use_bias=False)
    layer.initialize()
    trainer = hvd.DistributedTrainer(
        layer.collect_params(), "sgd", {"learning_rate": 0.0}, compression=hvd.Compression.fp16
    )
    gradients = [reference.numbers(rank, "float32", (3, 4)) for rank in range(hvd.size())]
    with mx.autograd.record():
        loss = (layer.weight.data() * mx.nd.array(gradients[hvd.rank()])).sum()
    loss.backward()
    trainer.allreduce_grads()
    halves = [gradient.astype(np.float16) for gradient in gradients]
    wanted = reference.allreduce(halves, "float16", reference.AVERAGE).astype(np.float32)
    assert layer.weight.grad().dtype == np.float32
    assert layer.weight.grad().asnumpy().tolist() == wanted.tolist()


def test_fp16_compression(run_ranks) -> None:
    run_ranks(2, ranks_compress)


def ranks_train_two_nets_at_once() -> None:
    """Their gradients have the same numbers and are in flight together."""
    hvd.init()
    nets = [make_net(seed, in_units=6) for seed in range(4)]
    trainers = [hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1}) for net in nets]
    for trainer in trainers:
        trainer.broadcast_parameters()
    results = [train(*each, slice(hvd.rank(), None, 2)) for each in zip(nets, trainers, strict=True)]
    for data, _ in batches():
        with mx.autograd.record():
            losses = [net(mx.nd.array(data)).square().sum() for net in nets]
        mx.autograd.backward(losses)
        for trainer in trainers:
            trainer.step(1)
    assert len({tuple(each) for each in hvd.allgather_object([digest(result) for result in results])}) == 1
    for net in nets:
        values = [parameter.data().asnumpy() for parameter in net.collect_params().values()]
        assert len(set(hvd.allgather_object(digest(values)))) == 1


def test_several_trainers(run_ranks) -> None:
    run_ranks(2, ranks_train_two_nets_at_once)


def ranks_train_in_a_set() -> list[str]:
    """Ranks 0 and 2 of three train together, rank 1 alone."""
    members = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[members])
    rank = hvd.rank()
    net = make_net(rank, in_units=6)
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, process_set=members)
    if rank != 1:
        trainer.broadcast_parameters(root_rank=2)
    return hvd.allgather_object(digest(train(net, trainer, slice(rank, None, 3))))


def test_a_process_set_trains(run_ranks) -> None:
    digests = run_ranks(3, ranks_train_in_a_set)[0]
    assert digests[0] == digests[2] != digests[1]


def ranks_broadcast_parameters() -> None:
    hvd.init()
    rank = hvd.rank()

    def net_of(constant: float) -> Any:
        net = mx.gluon.nn.Dense(3, weight_initializer=mx.init.Constant(constant))
        net.initialize()
        return net

    # Known at once on rank 1 alone, deferred elsewhere; called twice before it is known.
    net = net_of(rank + 1)
    if rank == 1:
        net(mx.nd.ones((1, 2)))
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    hvd.broadcast_parameters(net.collect_params(), root_rank=1, prefix="again.")
    with mx.autograd.record():
        result = net(mx.nd.ones((1, 2)))
    result.backward()
    assert result.asnumpy().tolist() == [[2.0] * 3]
    assert net.weight.grad().asnumpy().tolist() == [[1.0, 1.0]] * 3
    arrays = {name: mx.nd.array([rank, number]) for number, name in enumerate("ab")}
    hvd.broadcast_parameters(arrays, root_rank=1)
    assert [arrays[name].asnumpy().tolist() for name in "ab"] == [[1, 0], [1, 1]]
    keys = [10, 2, "2", 30]
    numbers = {key: mx.nd.array([rank, keys.index(key)]) for key in (keys if rank else reversed(keys))}
    hvd.broadcast_parameters(numbers, root_rank=0)
    assert [numbers[key].asnumpy().tolist() for key in keys] == [[0, place] for place in range(4)]
    other = net_of(0)
    for wrong in ([1, 2], "text", {"a": 1}, {"a": None}):
        with pytest.raises(ValueError):
            hvd.broadcast_parameters(wrong)
    with pytest.raises(ValueError, match="initialize"):
        hvd.broadcast_parameters(mx.gluon.nn.Dense(3).collect_params())
    # What one rank alone lacks, all hear of, before anything is sent.
    unlike = mx.gluon.nn.Dense(3, prefix="unlike_")
    if rank:
        unlike.initialize()
    with pytest.raises(ValueError, match="rank 0: Parameter 'unlike_bias' has not been initialized"):
        hvd.broadcast_parameters(unlike.collect_params())
    with pytest.raises(hvd.TensorMismatchError, match=r"'b' \(rank 0: nothing; rank 1: there\)"):
        hvd.broadcast_parameters({name: arrays[name] for name in "ab"[: 1 + rank]})
    hvd.DistributedTrainer(net.collect_params(), "sgd").broadcast_parameters(other.collect_params())
    assert other(mx.nd.ones((1, 2))).asnumpy().tolist() == [[0.0] * 3]


def test_broadcast_parameters(run_ranks) -> None:
    run_ranks(2, ranks_broadcast_parameters)


def ranks_train_differently(kind: str) -> str:
    """Returns the error; then both make the same trainer, of which rank 0 has made more."""
    hvd.init()
    rank = hvd.rank()
    net = mx.gluon.nn.Dense(2 + rank if kind == "shape" else 2, in_units=3)
    net.initialize()
    if kind == "frozen" and rank:
        net.bias.grad_req = "null"
    options = {"num_groups": rank} if kind == "num_groups" else {}
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", **options)
    with mx.autograd.record():
        loss = net(mx.nd.ones((1, 3))).sum()
    loss.backward()
    with pytest.raises(hvd.TensorMismatchError) as caught:
        trainer.step(1)
    for _ in range(1 if rank else 3):
        net = mx.gluon.nn.Dense(2, in_units=3)
        net.initialize(mx.init.Zero())
        trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    with mx.autograd.record():
        loss = net(mx.nd.ones((1, 3)) * rank).sum()
    loss.backward()
    trainer.step(1)
    assert net.weight.data().asnumpy().tolist() == [[-0.5] * 3] * 2
    return str(caught.value)


def test_trainers_that_differ(run_ranks) -> None:
    for kind, said in (
        ("shape", "gradient 1 (rank 0: float32 (2, 3) dense#_weight; rank 1: float32 (3, 3) dense#_weight)"),
        ("frozen", "rank 1: nothing"),
        ("num_groups", "num_groups (rank 0: 0; rank 1: 1)"),
    ):
        texts = run_ranks(2, ranks_train_differently, [kind])
        assert texts[0] == texts[1]
        assert "DistributedTrainer" in texts[0] and said in texts[0]


def ranks_use_an_optimizer(num_groups: int) -> None:
    """By an updater, as Module does it."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    inner = mx.optimizer.create("sgd", learning_rate=0.5)
    optimizer = hvd.DistributedOptimizer(inner, num_groups=num_groups)
    updater = mx.optimizer.get_updater(optimizer)
    weights = [mx.nd.ones((2,)) * number for number in range(5)]
    gradients = [mx.nd.ones((2,)) * (rank + number) for number in range(5)]
    updater(list(range(5)), gradients, weights)
    average = sum(range(size)) / size
    for number, weight in enumerate(weights):
        assert weight.asnumpy().tolist() == [number - 0.5 * (average + number)] * 2
    updater("by name", mx.nd.ones((2,)) * rank, weights[0])
    optimizer.set_learning_rate(0.25)
    optimizer.rescale_grad = 2.0
    assert (inner.learning_rate, inner.rescale_grad, optimizer.learning_rate) == (0.25, 2.0, 0.25)
    assert optimizer.momentum == inner.momentum
    copied = pickle.loads(pickle.dumps(optimizer))
    assert (type(copied), copied.lr, copied.rescale_grad) == (hvd.DistributedOptimizer, 0.25, 2.0)


@pytest.mark.parametrize("num_groups", [0, 2])
def test_an_optimizer(run_ranks, num_groups: int) -> None:
    run_ranks(2, ranks_use_an_optimizer, [num_groups])


def ranks_train_a_module() -> None:
    """The symbolic interface: a line through points of which each rank has half."""
    hvd.init()
    x = np.arange(8, dtype=np.float32).reshape(8, 1) / 8
    rows = slice(hvd.rank(), None, hvd.size())
    data = mx.io.NDArrayIter(x[rows], 3 * x[rows, 0] + 1, batch_size=4, label_name="y_label")
    output = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1)
    output = mx.sym.LinearRegressionOutput(output, mx.sym.Variable("y_label"))
    module = mx.mod.Module(output, label_names=["y_label"])
    module.bind(data.provide_data, data.provide_label)
    module.init_params(mx.init.Normal(hvd.rank() + 1))
    hvd.broadcast_parameters(module.get_params()[0])
    module.set_params(*module.get_params())
    optimizer = hvd.DistributedOptimizer(mx.optimizer.create("sgd", learning_rate=0.5, rescale_grad=0.25))
    module.fit(data, num_epoch=60, kvstore=None, optimizer=optimizer, eval_metric="mse")
    weight, bias = (
        value.asnumpy().item() for _, value in sorted(module.get_params()[0].items(), reverse=True)
    )
    assert (weight, bias) == (pytest.approx(3, abs=0.1), pytest.approx(1, abs=0.1))
    assert len(set(hvd.allgather_object((weight, bias)))) == 1


def test_a_module(run_ranks) -> None:
    run_ranks(2, ranks_train_a_module)


def ranks_add_up_gradients() -> None:
    """Through operations, in arrays that ask for it, and beside an array that wants no gradient."""
    hvd.init()
    size = hvd.size()
    wanting, other = mx.nd.ones((2,)), mx.nd.ones((3,))
    wanting.attach_grad(grad_req="add")
    for _ in range(3):
        with mx.autograd.record():
            results = hvd.grouped_allreduce([other, wanting], op=hvd.Sum)
            loss = results[1].sum() + results[0].sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert wanting.grad.asnumpy().tolist() == [6.0 * size] * 2


def test_gradients_are_added_up(run_ranks) -> None:
    run_ranks(2, ranks_add_up_gradients)


def ranks_average_metrics() -> None:
    hvd.init()
    rank, mean = hvd.rank(), (hvd.size() - 1) / 2
    get = hvd.metric.get_global_mean
    assert get(rank) == mean and isinstance(get(rank), float)
    assert get(np.array([rank, 1])).tolist() == [mean, 1.0]
    assert get(np.array([rank], np.float32)).dtype == np.float32
    result = get(mx.nd.array([rank, 1], dtype="int32"))
    assert result.asnumpy().tolist() == [mean, 1.0]
    assert get(mx.nd.array([rank], dtype="float64")).dtype == np.float64
    with pytest.raises(ValueError, match="shapes"):
        get(np.ones(rank + 1))


def test_metrics(run_ranks) -> None:
    run_ranks(2, ranks_average_metrics)


class Squares(mx.gluon.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return np.array([index * index, int(hvd.is_initialized())], np.float32)


def ranks_load_data() -> None:
    """Worker processes are forked while operations are in flight, and are no ranks."""
    hvd.init()
    for number in range(2):
        result = hvd.allreduce(mx.nd.ones(100_000), op=hvd.Sum, name=f"beside {number}")
        loader = mx.gluon.data.DataLoader(Squares(), batch_size=2, num_workers=2)
        rows = np.concatenate([batch.asnumpy() for batch in loader])
        assert rows.tolist() == [[index * index, 0] for index in range(8)]
        assert (result.asnumpy() == hvd.size()).all()


def test_worker_processes_beside_operations(run_ranks) -> None:
    run_ranks(2, ranks_load_data)
