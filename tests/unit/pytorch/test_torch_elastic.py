"""horovod.torch.elastic in a job of one rank: what is saved, where, and what comes back."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from horovod.torch.elastic.state import (
    ModelStateHandler,
    OptimizerStateHandler,
    SamplerStateHandler,
    StateHandler,
    get_handler_registry,
    set_handler_registry,
)

OPTIMIZERS = ["Adadelta", "Adagrad", "Adam", "AdamW", "LBFGS", "NAdam", "RMSprop", "Rprop", "SGD"]


@pytest.fixture(autouse=True)
def alone():
    hvd.init()
    yield
    hvd.shutdown()


def net_of(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def step(net, optimizer):
    def closure():
        optimizer.zero_grad()
        loss = net(torch.randn(6, 3)).pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)


def contents(net, optimizer):
    states = [optimizer.state[p] for p in net.parameters() if p in optimizer.state]
    groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    return copy.deepcopy([net.state_dict(), states, groups])


def equal(first, second):
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(equal(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(equal, first, second))
    return first == second


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_model_and_optimizer_come_back(name, distributed):
    net = net_of()
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.01, **options)
    if distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
    state = hvd.elastic.TorchState(net, optimizer, batch=0)
    saved = contents(net, optimizer)
    for commits in range(3):
        if commits:
            step(net, optimizer)
            optimizer.param_groups[0]["lr"] *= 0.5
            state.batch = commits
            state.commit()
            saved = contents(net, optimizer)
        for _ in range(2):
            step(net, optimizer)
            optimizer.param_groups[0]["lr"] = 7.0
            state.batch = 99
            assert not equal(contents(net, optimizer), saved)
            state.restore()
            assert equal(contents(net, optimizer), saved)
            assert state.batch == commits
            assert all(p.grad is None for p in net.parameters())
    state.sync()
    assert equal(contents(net, optimizer), saved)
    step(net, optimizer)
    state.restore()
    assert equal(contents(net, optimizer), saved)


def test_the_restored_training_goes_on_as_the_first_time():
    net = net_of()
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(net.parameters()), net.named_parameters())
    state = hvd.elastic.TorchState(net, optimizer)
    step(net, optimizer)
    state.commit()
    runs = []
    for _ in range(2):
        torch.manual_seed(5)
        for _ in range(3):
            step(net, optimizer)
        runs.append(contents(net, optimizer))
        state.restore()
    assert equal(*runs)


@pytest.mark.parametrize("back", ["restore", "sync", "on_reset"])
def test_a_half_made_step_is_forgotten(back):
    net = net_of()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters(), backward_passes_per_step=2
    )
    state = hvd.elastic.TorchState(net, optimizer)
    for _ in range(3):
        net(torch.randn(6, 3)).sum().backward()  # the first of two passes
        getattr(state, back)()
    for _ in range(2):
        net(torch.randn(6, 3)).sum().backward()
    optimizer.step()
    net(torch.randn(6, 3)).sum().backward()
    net(torch.randn(6, 3)).sum().backward()  # in flight
    getattr(state, back)()
    assert all(p.grad is None for p in net.parameters())
    optimizer.zero_grad()


def test_memory_is_kept_from_commit_to_commit():
    net = net_of()
    optimizer = torch.optim.Adam(net.parameters())
    state = hvd.elastic.TorchState(net, optimizer)
    step(net, optimizer)
    state.commit()

    def addresses():
        model, second = state._handlers["model"], state._handlers["optimizer"]
        kept = [*model._copies.newest.kept.values(), *second._copies.newest.kept]
        return [tensor.data_ptr() for tensor in kept]

    before = addresses()
    assert not set(before) & {tensor.data_ptr() for tensor in net.state_dict().values()}
    step(net, optimizer)
    state.commit()
    assert addresses() == before


def test_state_in_other_types_than_the_parameters_comes_back_exactly():
    parameter = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    master = torch.tensor([1 / 3, 2 / 3, 1e-4])
    optimizer.state[parameter] = {"master": master.clone(), "count": 3}
    state = hvd.elastic.TorchState(optimizer=optimizer)
    optimizer.state[parameter]["master"].zero_()
    optimizer.state[parameter]["count"] = 4
    state.restore()
    assert torch.equal(optimizer.state[parameter]["master"], master)
    assert optimizer.state[parameter]["count"] == 3


class Counting(nn.Module):
    """With a state that is no tensor."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.counts = {"calls": [0]}

    def get_extra_state(self):
        return self.counts

    def set_extra_state(self, state):
        self.counts = state


def test_extra_state():
    net = Counting()
    state = hvd.elastic.TorchState(net)
    net.counts["calls"].append(1)
    state.commit()
    for _ in range(2):
        net.counts["calls"].append(2)
        state.restore()
        assert net.counts == {"calls": [0, 1]}
    state.sync()
    assert net.counts == {"calls": [0, 1]}


def test_schedules_and_scalers_stay_what_they_are():
    net = net_of()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    state = hvd.elastic.TorchState(net, optimizer, schedule=schedule, scaler=scaler)
    step(net, optimizer)
    schedule.step()
    state.commit()
    step(net, optimizer)
    schedule.step()
    scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0})
    state.restore()
    assert state.schedule is schedule and schedule.optimizer is optimizer
    assert (schedule.last_epoch, optimizer.param_groups[0]["lr"]) == (1, 0.5)
    assert scaler.get_scale() == 8.0
    state.sync()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_another_model_in_place_of_the_first():
    state = hvd.elastic.TorchState(net_of(0), None, epoch=0)
    other = state.model = net_of(1)
    state.optimizer = torch.optim.SGD(other.parameters(), lr=1.0)
    before = contents(other, state.optimizer)
    step(other, state.optimizer)
    state.restore()
    assert state.model is other
    assert equal(contents(other, state.optimizer), before)


def test_handlers():
    net = net_of()
    sampler = hvd.elastic.ElasticSampler(range(10))
    state = hvd.elastic.TorchState(net, torch.optim.SGD(net.parameters(), lr=1.0), sampler=sampler)
    kinds = [type(handler) for handler in state._handlers.values()]
    assert kinds == [ModelStateHandler, OptimizerStateHandler, SamplerStateHandler]
    before = get_handler_registry()

    class Mine(StateHandler):
        def __init__(self, value):
            super().__init__(value)
            self.save()

        def save(self):
            self.saved = list(self.value)

        def restore(self):
            self.value[:] = self.saved

        def sync(self):
            self.value[:] = hvd.broadcast_object(self.value, self.winner.rank, "mine")

    try:
        set_handler_registry([*before, (list, Mine)])
        numbers = [1, 2]
        state = hvd.elastic.TorchState(numbers=numbers)
        numbers.append(3)
        state.commit()
        numbers.append(4)
        state.restore()
        assert state.numbers is numbers and numbers == [1, 2, 3]
        state.sync()
        assert numbers == [1, 2, 3]
    finally:
        set_handler_registry(before)


def test_sampler_in_a_loader():
    sampler = hvd.elastic.ElasticSampler(range(10), seed=4)
    state = hvd.elastic.TorchState(sampler=sampler)
    loader = torch.utils.data.DataLoader(range(10), batch_size=3, sampler=sampler)
    assert len(loader) == 4
    seen = []
    for number, batch in enumerate(loader):
        assert batch.tolist() == sampler.get_indices(number, 3)
        seen += batch.tolist()
        sampler.record_batch(number, 3)
        if number == 1:
            state.commit()
            break
    state.on_reset()
    assert sampler.num_samples == 4
    seen += [index for batch in loader for index in batch.tolist()]
    assert sorted(seen) == list(range(10))


def test_sampler_in_a_loader_with_workers():
    sampler = hvd.elastic.ElasticSampler(range(10), shuffle=False)
    loader = torch.utils.data.DataLoader(range(10), batch_size=2, sampler=sampler, num_workers=1)
    seen = []
    for number, batch in enumerate(loader):
        seen += batch.tolist()
        sampler.record_batch(number, 2)
    assert seen == list(range(10))
    assert sampler.processed_num == 10


def test_the_milestones_of_a_schedule_are_not_counted_twice():
    net = net_of()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
    state = hvd.elastic.TorchState(net, optimizer, schedule=schedule)
    for _ in range(3):
        state.commit()
        state.restore()
    assert schedule.milestones == {2: 1, 4: 1}


def test_a_spare_imports_what_an_optimizer_needs_before_it_waits():
    """Once it has a place all ranks wait for it."""
    program = (
        "import sys, torch, horovod.torch\n"
        "before = set(sys.modules)\n"
        "torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)\n"
        "print(len(set(sys.modules) - before))"
    )
    environment = {**os.environ, "HOROVOD_ELASTIC": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert int(done.stdout) < 20, done.stderr
