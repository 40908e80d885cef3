"""Data loaders with a state of their own as part of a TorchState: one that has no more than the protocol, and
those of torchdata.
"""

import copy

import pytest
import torch

import horovod.torch as hvd
from horovod.elastic.checkpoint.durability import kept
from horovod.elastic.checkpoint.options import Options
from horovod.elastic.handlers import IndicesHandler
from horovod.torch.elastic.loaders import LoaderStateHandler


@pytest.fixture(autouse=True)
def alone():
    hvd.init()
    yield
    hvd.shutdown()


class Counting:
    """Gives the numbers from 0 to 9, in an order that changes with each epoch."""

    def __init__(self):
        self.epoch, self.given = 0, 0

    def __iter__(self):
        while self.given < 10:
            self.given += 1
            yield (self.given - 1) * (self.epoch + 1)
        self.epoch, self.given = self.epoch + 1, 0

    def state_dict(self):
        return {"epoch": self.epoch, "given": self.given}

    def load_state_dict(self, state_dict):
        self.epoch, self.given = state_dict["epoch"], state_dict["given"]


def stateful(data, **options):
    loaders = pytest.importorskip("torchdata.stateful_dataloader", reason="the package torchdata is missing")
    return loaders.StatefulDataLoader(data, **options)


def take(loader, count):
    """The first batches of an iteration."""
    found = []
    for batch in loader:
        found.append(torch.as_tensor(batch).flatten().tolist())
        if len(found) == count:
            break
    return found


def test_a_loader_is_known_by_what_it_can():
    loader, indices = Counting(), hvd.elastic.ElasticSampler(range(3))
    plain = torch.utils.data.DataLoader(range(3))
    state = hvd.elastic.TorchState(loader=loader, sampler=indices, numbers=[1], plain=plain)
    assert type(state._handlers["loader"]) is LoaderStateHandler
    assert isinstance(state._handlers["sampler"], IndicesHandler)
    assert set(state._handlers) == {"loader", "sampler"}


def made(kind, workers=0):
    if kind == "own":
        return Counting()
    torch.manual_seed(7)
    return stateful(range(40), batch_size=4, shuffle=True, num_workers=workers)


@pytest.mark.parametrize(("kind", "workers"), [("own", 0), ("torchdata", 0), ("torchdata", 2)])
def test_it_goes_back_to_the_commit(kind, workers):
    expected = take(made(kind, workers), 10)
    loader = made(kind, workers)
    state = hvd.elastic.TorchState(loader=loader, batch=0)
    seen = []
    for batch in loader:
        seen.append(torch.as_tensor(batch).flatten().tolist())
        if len(seen) == 4:
            state.commit()
        if len(seen) == 7:
            break
    assert seen == expected[:7]
    for _ in range(2):
        state.restore()
        assert take(loader, 3) == expected[4:7]
    state.restore()
    state.sync()
    assert take(loader, 6) == expected[4:]


@pytest.mark.parametrize("kind", ["own", "torchdata"])
def test_it_goes_on_from_disk(tmp_path, kind):
    loader = made(kind)
    expected = take(copy.deepcopy(loader), 10)
    state = hvd.elastic.TorchState(loader=loader)
    with kept(state, Options(str(tmp_path), commits=1)):
        state.sync()
        for number, _ in enumerate(loader):
            if number == 3:
                state.commit()
                break
    other = made(kind)
    state = hvd.elastic.TorchState(loader=other)
    with kept(state, Options(str(tmp_path), commits=1000)):
        state.sync()
        assert take(other, 6) == expected[4:]


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_an_elastic_sampler_says_what_is_left(workers, persistent):
    """Also where batches were made ahead, and in whichever order the attributes are."""
    sampler = hvd.elastic.ElasticSampler(range(40), seed=3)
    order = list(sampler)
    options = {"num_workers": workers, "persistent_workers": persistent}
    loader = stateful(range(40), batch_size=4, sampler=sampler, **options)
    state = hvd.elastic.TorchState(sampler=sampler, loader=loader)
    state.sync()
    for number, batch in enumerate(loader):
        assert batch.tolist() == order[4 * number : 4 * number + 4]
        sampler.record_batch(number, 4)
        if number == 2:
            state.commit()
        if number == 5:
            break
    state.restore()
    state.on_reset()
    state.sync()
    seen = []
    for number, batch in enumerate(loader):
        seen += batch.tolist()
        sampler.record_batch(number, 4)
        state.commit()
    assert seen == order[12:]
    sampler.set_epoch(1)
    assert sorted(index for batch in loader for index in batch.tolist()) == list(range(40))
