"""The arguments of the Keras adapters' optimizers, and what they refuse."""

import keras
import pytest
import tensorflow as tf
from keras_optimizers import AllRanks, Echo, echoing, fit, net, scaled

import horovod.keras
import horovod.tensorflow.keras as hvd


@pytest.fixture(autouse=True)
def alone():
    hvd.init()


class Gpu:
    device_type = name = "GPU"


def test_auto_does_not_compile_by_xla(monkeypatch, tmp_path):
    net_with_plain = fit(net(), keras.optimizers.SGD())
    net_with_plain.save(tmp_path / "model.keras")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda device_type=None: [Gpu()])
    plan = Echo()
    plan.name = "tensorflow"
    ours, plain = net(), net()
    ours.compile(echoing(keras.optimizers.SGD(), plan), "mse")
    plain.compile(keras.optimizers.SGD(), "mse")
    assert (ours.jit_compile, plain.jit_compile) == (False, True)
    assert hvd.load_model(tmp_path / "model.keras").jit_compile is False


WRONG = [
    ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "op != Average"),
    ({"op": hvd.Adasum, "average_aggregated_gradients": True}, "average_aggregated_gradients"),
    ({"backward_passes_per_step": 0}, "backward_passes_per_step must be > 0"),
    ({"op": 17}, "is not a reduction"),
    ({"groups": "all"}, "groups should be"),
    ({"groups": -1}, "groups should be"),
    ({"compression": "fp16"}, "hvd.Compression.fp16"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_arguments(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), **options)


def test_wrong_optimizers():
    ours = hvd.DistributedOptimizer(keras.optimizers.SGD())
    for wrong in ("adam", None, tf.compat.v1.train.AdamOptimizer()):
        with pytest.raises(ValueError, match="needs an optimizer of Keras"):
            hvd.DistributedOptimizer(wrong)
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(ours)
    accumulating = keras.optimizers.SGD(gradient_accumulation_steps=2)
    for optimizer in (accumulating, scaled(accumulating)):
        with pytest.raises(ValueError, match="use one of them"):
            hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2)
    with pytest.raises(ValueError, match="found a int"):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=[3])


def test_not_before_init():
    hvd.shutdown()
    with pytest.raises(ValueError, match=r"hvd.init\(\)"):
        hvd.DistributedOptimizer(keras.optimizers.SGD())


@pytest.mark.parametrize("adapter", [hvd, horovod.keras])
def test_num_groups_is_deprecated(adapter):
    with pytest.warns(DeprecationWarning, match="groups") as caught:
        optimizer = adapter.DistributedOptimizer(keras.optimizers.SGD(), num_groups=3)
    assert optimizer._plan.settings.groups == 3
    assert [warning.filename for warning in caught] == [__file__]  # where the program is at fault


@pytest.mark.parametrize("adapter", [hvd, horovod.keras])
def test_every_argument_arrives(adapter):
    options = {
        "device_dense": "/cpu:0",
        "device_sparse": "/cpu:1",
        "compression": hvd.Compression.fp16,
        "sparse_as_dense": True,
        "gradient_predivide_factor": 2.0,
        "op": hvd.Average,
        "groups": 5,
    }
    plan = adapter.DistributedOptimizer(keras.optimizers.SGD(), name="mine", **options)._plan
    assert {name: getattr(plan.settings, name) for name in options} == options
    assert plan.name == "mine"
    layer = keras.layers.Dense(1)
    options |= {
        "backward_passes_per_step": 4,
        "average_aggregated_gradients": True,
        "process_set": AllRanks(),
        "scale_local_gradients": False,
    }
    plan = adapter.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=layer, **options)._plan
    assert {name: getattr(plan.settings, name) for name in options} == options
    assert plan.local_layers == (layer,)


@pytest.mark.parametrize("backend", ["openvino", "numpy"])
def test_other_backends(backend, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    for use in (
        lambda: horovod.keras.DistributedOptimizer(keras.optimizers.SGD()),
        lambda: horovod.keras.allreduce(1.0),
        lambda: horovod.keras.Compression,
        lambda: horovod.keras.broadcast_variables([], 0),
    ):
        with pytest.raises(ValueError, match=f"computes by {backend} here.*KERAS_BACKEND"):
            use()
    with pytest.raises(ValueError, match=r"import horovod\.keras instead"):
        hvd.DistributedOptimizer(keras.optimizers.SGD())
