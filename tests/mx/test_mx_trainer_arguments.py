"""What a trainer takes and what it refuses, in one process."""

import pytest
from check_mxnet import mx

import horovod.mxnet as hvd


def test_what_a_trainer_refuses() -> None:
    hvd.init()
    layer = mx.gluon.nn.Dense(2, in_units=2)
    layer.initialize()
    parameters = layer.collect_params()
    for wrong, kind in [
        ({"compression": {"type": "2bit"}}, TypeError),
        ({"compression": hvd.Compression.fp16()}, TypeError),
        ({"num_groups": -1}, ValueError),
        ({"gradient_predivide_factor": 0.0}, ValueError),
    ]:
        with pytest.raises(kind):
            hvd.DistributedTrainer(parameters, "sgd", **wrong)
    with pytest.raises(ValueError, match="takes the place of"):
        hvd.DistributedTrainer(parameters, mx.gluon.Trainer(parameters, "sgd"))
    sparse = mx.gluon.nn.Embedding(4, 2, sparse_grad=True)
    sparse.initialize()
    with pytest.raises(ValueError, match="sparse"):
        hvd.DistributedTrainer(sparse.collect_params(), "sgd")
    spread = mx.gluon.nn.Dense(2, in_units=2)
    spread.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    with pytest.raises(ValueError, match="devices"):
        hvd.DistributedTrainer(spread.collect_params(), "sgd")
    with pytest.raises(ValueError, match="optimizer"):
        hvd.DistributedOptimizer("sgd")
    with pytest.raises(ValueError, match="tostype"):
        hvd.allreduce(mx.nd.ones((2, 2)).tostype("row_sparse"))


def test_a_trainer_takes_what_it_is_given() -> None:
    hvd.init()
    layers = [mx.gluon.nn.Dense(2, in_units=2, prefix=prefix) for prefix in ("b", "a")]
    for layer in layers:
        layer.initialize()
    inner = mx.optimizer.create("sgd", learning_rate=0.5)
    given = [layer.weight for layer in layers]
    with pytest.warns(UserWarning, match="unwrapped"):
        trainer = hvd.DistributedTrainer(given, hvd.DistributedOptimizer(inner))
    assert trainer._optimizer is inner
    assert [parameter.name for parameter in trainer._params] == ["aweight", "bweight"]
    assert hvd.DistributedTrainer(given, "sgd", compression=None).learning_rate == 0.01
