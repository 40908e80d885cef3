"""Checkpoints of torch in a job of one rank: what comes back is what was committed, bit by bit."""

import contextlib
import threading

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from horovod.elastic.checkpoint import layout, writer
from horovod.elastic.checkpoint.errors import CheckpointError, UnstorableObjectError
from horovod.torch.elastic.state import StateHandler, get_handler_registry, set_handler_registry

OPTIMIZERS = ["Adadelta", "Adagrad", "Adam", "AdamW", "LBFGS", "NAdam", "RMSprop", "Rprop", "SGD"]


@pytest.fixture(autouse=True)
def alone():
    hvd.init()
    yield
    hvd.shutdown()


class Stopped(Exception):
    """The training ends as a process that is killed."""


class Net(nn.Module):
    """With a normalization, a parameter of another type, and one that has two names."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        self.small = nn.Parameter(torch.randn(3).bfloat16(), requires_grad=False)
        self.tied = self.layers[2]

    def forward(self, data):
        return self.layers(data)


class Program:
    """A program that trains; each run of it begins with other numbers."""

    def __init__(self, seed, name="Adam", **options):
        torch.manual_seed(seed)
        self.net = Net()
        options = {"lr": 0.01, **({"momentum": 0.9} if name == "SGD" else {}), **options}
        self.optimizer = getattr(torch.optim, name)(self.net.parameters(), **options)
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [2, 4])
        self.sampler = hvd.elastic.ElasticSampler(range(50), seed=3)
        self.state = hvd.elastic.TorchState(
            self.net, self.optimizer, schedule=self.schedule, sampler=self.sampler, step=0, log=[(0, "begin")]
        )

    def run(self, folder, steps, ends=True, **options):
        @hvd.elastic.run(checkpoint_dir=folder, **{"every_commits": 1, **options})
        def train(state):
            self.began = state.step
            while state.step < steps:
                self.step()
                state.commit()
                if state.durability._writer is not None:
                    state.durability._writer.wait()
            if not ends:
                raise Stopped

        with contextlib.nullcontext() if ends else contextlib.suppress(Stopped):
            train(self.state)
        return self

    def step(self):
        data = torch.randn(6, 3, generator=torch.Generator().manual_seed(self.state.step))

        def closure():
            self.optimizer.zero_grad()
            loss = self.net(data).pow(2).sum()
            loss.backward()
            return loss

        self.optimizer.step(closure)
        self.schedule.step()
        self.sampler.record_batch(0, 3)
        self.state.step += 1
        self.state.log.append((self.state.step, 0.1))

    @property
    def contents(self):
        tensors = {
            key: value.contiguous().view(torch.uint8).tolist() for key, value in self._tensors().items()
        }
        return [
            tensors,
            self.schedule.state_dict(),
            self.sampler.state_dict(),
            self.state.step,
            self.state.log,
        ]

    def _tensors(self):
        found = dict(self.net.state_dict())
        for number, parameter in enumerate(self.net.parameters()):
            for key, value in self.optimizer.state.get(parameter, {}).items():
                for index, each in enumerate(value if isinstance(value, list) else [value]):
                    found[f"{number}.{key}.{index}"] = torch.as_tensor(
                        float("nan") if each is None else each
                    ).reshape(-1)
        return {key: value.reshape(-1) for key, value in found.items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_goes_on_bit_by_bit(tmp_path, name):
    straight = Program(0, name).run(tmp_path / "straight", 6)
    first = Program(0, name).run(tmp_path / "broken", 3, ends=False)
    second = Program(1, name)
    second.run(tmp_path / "broken", 3, ends=False)
    assert second.began == 3 and second.contents == first.contents
    third = Program(2, name).run(tmp_path / "broken", 6)
    assert third.began == 3 and third.contents == straight.contents


def test_the_file_is_one_of_torch(tmp_path):
    program = Program(0).run(tmp_path, 2)
    folder = tmp_path / layout.complete(path.name for path in tmp_path.iterdir())[0]
    loaded = torch.load(folder / "tensors-0.pt", weights_only=True)
    state = {key.removeprefix("model/"): value for key, value in loaded.items() if key.startswith("model/")}
    other = Program(1)
    other.net.load_state_dict(state)
    for key, value in program.net.state_dict().items():
        assert torch.equal(other.net.state_dict()[key], value)


def test_commits_during_a_write_do_not_reach_it(tmp_path, monkeypatch):
    may_go_on, inner = threading.Event(), writer._write_part

    def slow(*arguments):
        may_go_on.wait(20)
        return inner(*arguments)

    monkeypatch.setattr(writer, "_write_part", slow)
    program, first = Program(0), []

    @hvd.elastic.run(checkpoint_dir=tmp_path, every_commits=1)
    def train(state):
        for _ in range(4):
            program.step()
            state.commit()
            first.append(program.contents)
        state.restore()
        assert program.contents[0] == first[3][0]
        may_go_on.set()
        state.durability._writer.wait()
        raise Stopped

    with contextlib.suppress(Stopped):
        train(program.state)
    again = Program(1).run(tmp_path, 1, ends=False)
    assert again.began == 1 and again.contents[0] == first[0][0]


def test_another_model_is_an_error(tmp_path):
    Program(0).run(tmp_path, 1)
    state = hvd.elastic.TorchState(nn.Linear(7, 7), None, step=0)
    with pytest.raises(CheckpointError, match="does not fit this program"):
        hvd.elastic.run(lambda state: None, checkpoint_dir=tmp_path)(state)
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD([{"params": [net.weight]}, {"params": [net.bias]}], lr=1)
    with pytest.raises(CheckpointError, match="groups of"):
        hvd.elastic.run(checkpoint_dir=tmp_path)(lambda state: None)(
            hvd.elastic.TorchState(optimizer=optimizer)
        )


def test_a_handler_that_cannot_write_is_named(tmp_path):
    class Mine(StateHandler):
        def __init__(self, value):
            super().__init__(value)
            self.save()

        def save(self):
            pass

        def sync(self):
            pass

    kept = get_handler_registry()
    set_handler_registry([(frozenset, Mine), *kept])
    try:
        state = hvd.elastic.TorchState(thing=frozenset({1}))
        with pytest.raises(UnstorableObjectError, match="thing of the state: Mine cannot write a frozenset"):
            hvd.elastic.run(lambda state: state.commit(), checkpoint_dir=tmp_path)(state)
    finally:
        set_handler_registry(kept)


def test_the_decorator_refuses_wrong_numbers(tmp_path):
    for options in ({"every_commits": 0}, {"every_seconds": -1.0}, {"keep": 0}):
        with pytest.raises(ValueError, match="at least"):
            hvd.elastic.run(checkpoint_dir=tmp_path, **options)


def test_a_scaler_and_tensors_among_plain_values(tmp_path):
    def state_of(fill):
        scaler = torch.amp.GradScaler("cpu", init_scale=fill)
        values = {"best": torch.full((2,), fill), "seen": [torch.tensor(fill), {"x": fill}]}
        return scaler, hvd.elastic.TorchState(scaler=scaler, **values)

    def loop(state):
        state.commit()

    hvd.elastic.run(loop, checkpoint_dir=tmp_path)(state_of(4.0)[1])
    scaler, state = state_of(8.0)
    hvd.elastic.run(loop, checkpoint_dir=tmp_path)(state)
    assert scaler.get_scale() == 4.0
    assert state.best.tolist() == [4.0, 4.0] and state.seen[0].item() == state.seen[1]["x"] == 4.0
