"""Elastic states of MXNet on disk: what comes back, in another process and after damage."""

from pathlib import Path

import numpy as np
import pytest

import horovod.mxnet as hvd
from horovod.elastic.checkpoint.durability import kept
from horovod.elastic.checkpoint.errors import CheckpointError
from horovod.elastic.checkpoint.options import Options
from horovod.mxnet.native import mx

OPTIMIZERS = {
    "adam": {},
    "sgd": {"momentum": 0.9, "multi_precision": True},
    "nag": {"momentum": 0.5},
    "rmsprop": {"centered": True},
    "nadam": {},
    "adagrad": {},
    "ftrl": {},
    "signum": {"momentum": 0.9},
}


class Training:
    """A layer and its trainer; every step has a batch of its own."""

    def __init__(self, kind: str, seed: int) -> None:
        mx.random.seed(seed)
        self.net = mx.gluon.nn.Dense(2, in_units=3)
        self.net.initialize(mx.init.Normal(1.0))
        rates = mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.1)
        options = {"lr_scheduler": rates, **OPTIMIZERS[kind]}
        self.trainer = hvd.DistributedTrainer(self.net.collect_params(), kind, options)
        self.state = hvd.elastic.MXNetState(self.net, self.trainer, step=0)

    def step(self) -> None:
        batch = np.random.default_rng(self.state.step).normal(size=(4, 3))
        with mx.autograd.record():
            loss = (self.net(mx.nd.array(batch)) - 1).square().sum()
        loss.backward()
        self.trainer.step(4)
        self.state.step += 1

    def run_to(self, steps: int) -> list[np.ndarray]:
        while self.state.step < steps:
            self.step()
        return [p.data().asnumpy() for p in self.net.collect_params().values()]


@pytest.fixture(autouse=True)
def alone() -> None:
    hvd.init()


def same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all(map(np.array_equal, first, second))


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_training_goes_on_as_if_nothing_had_happened(kind: str, tmp_path: Path) -> None:
    expected = Training(kind, 1).run_to(9)
    options = Options(str(tmp_path / "kept"), commits=1)
    first = Training(kind, 1)
    with kept(first.state, options):
        first.state.sync()
        first.run_to(5)
        first.state.commit()
    first.run_to(7)
    first.state.restore()  # in memory
    assert first.state.step == 5
    assert same(first.run_to(9), expected)

    second = Training(kind, 2)  # with other values
    with kept(second.state, options):
        second.state.sync()
        assert second.state.step == 5
        assert same(second.run_to(9), expected)


def test_the_files_are_of_mxnet(tmp_path: Path) -> None:
    training = Training("adam", 1)
    with kept(training.state, Options(str(tmp_path), commits=1)):
        training.state.sync()
        training.run_to(3)
        training.state.commit()
    (path,) = tmp_path.glob("checkpoint-*/*.params")
    arrays = mx.nd.load(str(path))
    weights = [array.asnumpy() for name, array in arrays.items() if name.startswith("params/")]
    assert same(weights, training.run_to(3))


def test_a_damaged_file_is_told_and_the_checkpoint_before_it_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = Options(str(tmp_path), commits=1)
    training = Training("sgd", 1)
    states = []
    for steps in (2, 4):
        with kept(training.state, options):
            training.state.sync()
            states.append(training.run_to(steps))
            training.state.commit()
    newest = sorted(tmp_path.glob("checkpoint-*/*.params"))[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    again = Training("sgd", 2)
    with kept(again.state, options):
        again.state.sync()
        assert again.state.step == 2
        assert same(again.run_to(2), states[0])
    assert newest.name in capfd.readouterr().err


def test_another_optimizer_is_told(tmp_path: Path) -> None:
    options = Options(str(tmp_path), commits=1)
    training = Training("adam", 1)
    with kept(training.state, options):
        training.state.sync()
        training.run_to(1)
        training.state.commit()
    other = Training("sgd", 1)
    with pytest.raises(CheckpointError, match="another optimizer than SGD"), kept(other.state, options):
        other.state.sync()


@pytest.mark.parametrize("everywhere", [False, True])
def test_arrays_of_numpy_come_back_from_a_file(everywhere: bool, tmp_path: Path) -> None:
    if everywhere:
        mx.npx.set_np()
    try:
        values = [np.array(3.0, np.float32), np.arange(6, dtype=np.float64).reshape(2, 3)]
        for seed in (1, 0):  # the second one is given what the first has committed
            arrays = {str(place): mx.np.array(seed * each) for place, each in enumerate(values)}
            state = hvd.elastic.MXNetState(arrays, extra=mx.np.array(seed * values[1]))
            with kept(state, Options(str(tmp_path), commits=1)):
                state.sync()
                assert type(state.extra) is mx.np.ndarray
                assert np.array_equal(state.extra.asnumpy(), values[1])
                assert arrays["0"].asnumpy() == 3.0
                assert np.array_equal(arrays["1"].asnumpy(), values[1])
                state.commit()
    finally:
        if everywhere:
            mx.npx.reset_np()
