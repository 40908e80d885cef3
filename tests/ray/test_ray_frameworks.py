"""The same training by a RayExecutor and by horovod.run, with each framework: the same bits."""

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import ray
from load import within

import horovod
from horovod.ray import RayExecutor

pytest.importorskip("sklearn")
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
cloudpickle.register_pickle_by_value(sys.modules[__name__])
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def torch_digits() -> tuple[float, str]:
    """Accuracy, and all bits of the model."""
    import hashlib

    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(hvd.rank())
    images, labels = map(torch.tensor, load_digits_of(hvd))
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    for _ in range(40):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    right = (model(images).argmax(1) == labels).float().mean()
    weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    return hvd.allreduce(right).item(), hashlib.sha256(weights).hexdigest()


def load_digits_of(hvd: Any) -> Any:
    """This rank's part."""
    import numpy
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    mine = slice(hvd.rank(), len(labels) // hvd.size() * hvd.size(), hvd.size())
    return (images[mine] / 16).astype(numpy.float32), labels[mine]


def keras_digits() -> tuple[float, str]:
    """Likewise."""
    import hashlib

    import keras

    import horovod.keras as hvd

    hvd.init()
    keras.utils.set_random_seed(hvd.rank())
    images, labels = load_digits_of(hvd)
    layers = keras.layers
    model = keras.Sequential([keras.Input((64,)), layers.Dense(128, activation="relu"), layers.Dense(10)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, metrics=["accuracy"])
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    history = model.fit(images, labels, batch_size=64, epochs=3, callbacks=callbacks, verbose=0)
    weights = b"".join(each.tobytes() for each in model.get_weights())
    return history.history["accuracy"][-1], hashlib.sha256(weights).hexdigest()


def mxnet_digits(example: str) -> tuple[float, str]:
    """Likewise."""
    functions = runpy.run_path(example)
    import mxnet

    import horovod.mxnet as hvd

    hvd.init()
    mxnet.random.seed(hvd.rank())
    (images, labels), (test_images, test_labels) = functions["load_data"]()
    net = functions["make_model"]()
    options = {"learning_rate": 0.04, "momentum": 0.9}
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", options)
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    mine = slice(hvd.rank(), len(labels) // hvd.size() * hvd.size(), hvd.size())
    for _ in range(4):
        functions["train_epoch"](net, trainer, images[mine], labels[mine], 32)
    right = net(mxnet.nd.array(test_images)).argmax(axis=1).asnumpy() == test_labels
    return float(right.mean()), functions["digest"](net)


# What is between Ray and a rank is the same with all of them; two frameworks take longer to import than one.
CASES = [
    pytest.param(torch_digits, "torch", (), {}, marks=pytest.mark.slow, id="torch"),
    pytest.param(
        keras_digits, "torch", (), {"KERAS_BACKEND": "torch"}, marks=pytest.mark.full, id="keras-torch"
    ),
    pytest.param(
        keras_digits,
        "tensorflow",
        (),
        {"KERAS_BACKEND": "tensorflow"},
        marks=pytest.mark.full,
        id="keras-tensorflow",
    ),
    pytest.param(
        mxnet_digits, "mxnet", (str(EXAMPLES / "mxnet_digits.py"),), {}, marks=pytest.mark.full, id="mxnet"
    ),
]


@pytest.mark.parametrize(("train", "needs", "arguments", "variables"), CASES)
def test_the_same_bits(
    cluster: Any, monkeypatch: Any, train: Any, needs: str, arguments: Any, variables: dict[str, str]
) -> None:
    if needs == "mxnet":
        pytest.importorskip("horovod.mxnet", exc_type=ImportError)
    pytest.importorskip(needs)
    variables = {**variables, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    settings = RayExecutor.create_settings(timeout_s=within(60), placement_group_timeout_s=within(30))
    executor = RayExecutor(settings, num_hosts=2)
    executor.start(extra_env_vars=variables)
    try:
        by_ray = executor.run(train, arguments)
    finally:
        executor.shutdown()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert by_ray == horovod.run(train, arguments, num_proc=2, start_timeout=int(within(60)))
    assert by_ray[0] == by_ray[1] and by_ray[0][0] > 0.9
    print(f"accuracy {by_ray[0][0]:.4f}")
