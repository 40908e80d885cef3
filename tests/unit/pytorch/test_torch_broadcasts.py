"""Parameters, optimizer state and objects from one rank to all, over the fake core as rank 1 of two."""

import copy
import pickle

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from horovod.common.collective import objects
from horovod.torch import optimizer_state

BROADCAST = 2
MAC_BYTES = 32


def as_sent_by(rank, request, own):
    """What that rank sends when it has the object that this one sends: every sender seals its own."""
    name, _, part = (request.name or "").rpartition(".")
    if part == "size":
        words = own[0].clone().view(torch.int64)
        words[0] = rank
        return [words.view(torch.uint8)]
    if part != "data" or request.kind == BROADCAST:
        return own
    data = bytes(own[0][MAC_BYTES:].tolist())
    sealed = objects._mac(data, rank, name, hvd.global_process_set) + data
    return [torch.frombuffer(bytearray(sealed), dtype=torch.uint8)]


class Recorder:
    """Plays rank 0: what it sends was recorded when it was this process's turn to be rank 0."""

    def __init__(self, core):
        self.core = core
        core.size = 2
        self.sent = []

    def record(self, function):
        """Runs ``function`` as rank 0 and keeps what it submits."""
        self.core.rank, self.core.peers = 0, self._keep
        return function()

    def replay(self, function):
        """Runs ``function`` as rank 1, with what rank 0 sent."""
        self.core.rank, self.core.peers = 1, self._play
        result = function()
        assert self.sent == []
        return result

    def _keep(self, request, own):
        self.sent.append((request.kind, request.name, own))
        return [own, as_sent_by(1, request, own)]

    def _play(self, request, own):
        kind, name, theirs = self.sent.pop(0)
        assert (kind, name) == (request.kind, request.name)
        if request.kind == BROADCAST:
            assert [t.shape for t in theirs] == [t.shape for t in own]
        return [theirs, own]


@pytest.fixture
def ranks(core):
    return Recorder(core)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))


OPTIMIZERS = {
    name: getattr(torch.optim, name)
    for name in (
        "ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax Muon NAdam RAdam RMSprop Rprop SGD"
    ).split()
    if hasattr(torch.optim, name)
}


def trained(base, steps, **options):
    net = model()
    optimizer = base(net.parameters(), lr=0.01, **options)
    for step in range(steps):
        optimizer.zero_grad()
        net(torch.full((2, 3), 1.0 + step)).pow(2).sum().backward()
        optimizer.step()
    return optimizer


def flat(optimizer):
    """A comparable form of the state dict."""
    return repr(optimizer.state_dict())


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_every_optimizer(ranks, name, steps):
    root = trained(OPTIMIZERS[name], 2)
    root.param_groups[0]["lr"] = 0.5
    ranks.record(lambda: hvd.broadcast_optimizer_state(root, 0))
    mine = trained(OPTIMIZERS[name], steps)
    ranks.replay(lambda: hvd.broadcast_optimizer_state(mine, root_rank=0))
    assert flat(mine) == flat(root)
    assert mine.param_groups[0]["lr"] == 0.5


def test_sparse_adam(ranks):
    def sparse(steps):
        net = nn.Embedding(4, 2, sparse=True)
        optimizer = torch.optim.SparseAdam(net.parameters())
        for _ in range(steps):
            net(torch.tensor([1])).sum().backward()
            optimizer.step()
        return optimizer

    root, mine = sparse(2), sparse(0)
    ranks.record(lambda: hvd.broadcast_optimizer_state(root, 0))
    ranks.replay(lambda: hvd.broadcast_optimizer_state(mine, 0))
    assert flat(mine) == flat(root)


def laid_out(layout):
    """A parameter whose elements do not lie in memory in the order of its dimensions."""
    made = {
        "channels_last": lambda: torch.ones(4, 3, 2, 2).to(memory_format=torch.channels_last),
        "channels_last_3d": lambda: torch.ones(4, 3, 2, 2, 2).to(memory_format=torch.channels_last_3d),
        "transposed": lambda: torch.ones(3, 4).t(),
        "permuted": lambda: torch.ones(2, 3, 4).permute(2, 0, 1),
    }
    return nn.Parameter(made[layout]())


@pytest.mark.parametrize("layout", ["channels_last", "channels_last_3d", "transposed", "permuted"])
@pytest.mark.parametrize("had", ["nothing", "contiguous"])
def test_state_lies_in_memory_as_its_parameter(ranks, layout, had):
    """A fused step goes through both in the order of their memory."""

    def optimizer(filled):
        parameter = laid_out(layout)
        made = torch.optim.AdamW([parameter])
        if filled:
            values = torch.arange(1.0, 1.0 + parameter.numel()).reshape(parameter.shape)
            state = {"exp_avg": values, "exp_avg_sq": values.clone(), "step": torch.tensor(2.0)}
            made.state[parameter] = {**state, "of_another_shape": torch.ones(3, 2)}
        return made, parameter

    (root, of_root), (mine, parameter) = optimizer(True), optimizer(had == "contiguous")
    ranks.record(lambda: hvd.broadcast_optimizer_state(root, 0))
    ranks.replay(lambda: hvd.broadcast_optimizer_state(mine, 0))
    assert flat(mine) == flat(root)
    for held, by in ((root, of_root), (mine, parameter)):
        state = held.state[by]
        assert state["exp_avg"].stride() == state["exp_avg_sq"].stride() == by.stride()
        assert state["exp_avg"].flatten()[1] == 2.0
        assert state["of_another_shape"].is_contiguous()


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {}])
def test_root_without_state_clears_the_others(ranks, options):
    root, mine = trained(torch.optim.SGD, 0, **options), trained(torch.optim.SGD, 2, **options)
    ranks.record(lambda: hvd.broadcast_optimizer_state(root, 0))
    ranks.replay(lambda: hvd.broadcast_optimizer_state(mine, 0))
    assert flat(mine) == flat(root)


def test_tensors_are_overwritten_in_place_and_keep_their_type(ranks):
    root, mine = trained(torch.optim.Adam, 2), trained(torch.optim.Adam, 1)
    parameter = mine.param_groups[0]["params"][0]
    before = mine.state[parameter]["exp_avg"]
    root_parameter = root.param_groups[0]["params"][0]
    root.state[root_parameter]["extra"] = {"half": torch.ones(2, dtype=torch.float16), "list": [1, "a"]}
    ranks.record(lambda: hvd.broadcast_optimizer_state(root, 0))
    ranks.replay(lambda: hvd.broadcast_optimizer_state(mine, 0))
    assert mine.state[parameter]["exp_avg"] is before
    assert mine.state[parameter]["extra"]["half"].dtype == torch.float16
    assert mine.state[parameter]["extra"]["list"] == [1, "a"]


def test_tensor_learning_rate(ranks):
    root, mine = trained(torch.optim.Adam, 1), trained(torch.optim.Adam, 0)
    root.param_groups[0]["lr"] = torch.tensor(0.75)
    ranks.record(lambda: hvd.broadcast_optimizer_state(root, 0))
    ranks.replay(lambda: hvd.broadcast_optimizer_state(mine, 0))
    assert torch.equal(mine.param_groups[0]["lr"], torch.tensor(0.75))


def test_wrapped_optimizer(ranks):
    root, mine = trained(torch.optim.Adam, 2), trained(torch.optim.Adam, 0)
    ranks.core.rank = 1
    mine = hvd.DistributedOptimizer(mine)
    ranks.record(lambda: hvd.broadcast_optimizer_state(root, 0))
    ranks.replay(lambda: hvd.broadcast_optimizer_state(mine, 0))
    assert flat(mine) == flat(root)


def with_state_only(optimizer):
    """As torch.distributed.checkpoint has it made, before it reads the state of an optimizer."""
    optimizer = hvd.DistributedOptimizer(optimizer)
    (group,) = optimizer.param_groups
    group["lr"], rate = 0.0, group["lr"]
    for parameter in group["params"]:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    group["lr"] = rate
    assert optimizer.state
    return optimizer


def test_state_that_no_step_has_made_is_overwritten_for_good(ranks):
    root, mine = trained(torch.optim.Adam, 2), with_state_only(trained(torch.optim.Adam, 0))
    ranks.record(lambda: hvd.broadcast_optimizer_state(root, 0))
    ranks.replay(lambda: hvd.broadcast_optimizer_state(mine, 0))
    ranks.core.peers = None
    for parameter in mine.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    mine.step()
    assert [state["step"] for state in mine.state.values()] == [3, 3]


def test_state_that_no_step_has_made_is_not_sent(ranks):
    root, mine = with_state_only(trained(torch.optim.Adam, 0)), trained(torch.optim.Adam, 2)
    ranks.record(lambda: hvd.broadcast_optimizer_state(root, 0))
    ranks.replay(lambda: hvd.broadcast_optimizer_state(mine, 0))
    assert not root.state and not mine.state


def test_a_copy_has_no_state_that_no_step_has_made(two):
    optimizer = with_state_only(trained(torch.optim.Adam, 0))
    assert not copy.deepcopy(optimizer).state


def test_lbfgs_is_refused(core):
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(model().parameters()), 0)
    assert core.requests == []


def test_other_parameter_groups_are_an_error_on_every_rank(ranks):
    root = trained(torch.optim.SGD, 0)
    described = optimizer_state.outline(root)
    mine = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    assert optimizer_state.problems_with(root, described) is None
    ranks.record(lambda: hvd.broadcast_optimizer_state(root, 0))
    with pytest.raises(ValueError, match=r"rank 1: it has groups of \[1\] parameters, the root's has \[2\]"):
        ranks.replay(lambda: hvd.broadcast_optimizer_state(mine, 0))


def test_broadcast_parameters(ranks):
    root, mine = model(), nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))
    for form in (
        lambda net: net.state_dict(),
        lambda net: list(net.named_parameters()),
        lambda net: list(net.parameters()),
    ):
        with torch.no_grad():
            for parameter in mine.parameters():
                parameter.fill_(9)
        ranks.record(lambda form=form: hvd.broadcast_parameters(form(root), 0))
        ranks.replay(lambda form=form: hvd.broadcast_parameters(form(mine), root_rank=0))
        assert all(torch.equal(a, b) for a, b in zip(root.parameters(), mine.parameters(), strict=True))


def test_broadcast_parameters_is_asynchronous(core):
    waits = []
    wait = core.wait
    core.wait = lambda handle, timeout=None: waits.append(len(core.requests)) or wait(handle)
    hvd.broadcast_parameters({"a": torch.ones(1), "b": torch.ones(2, 2).t(), "none": None}, 0)
    assert waits == [0, 2, 2]  # the first is the comparison of what the ranks have


@pytest.mark.parametrize("params", [iter([]), "text", 3, [("a", "text")], {"a": 1.0}])
def test_broadcast_parameters_of_wrong_type(core, params):
    with pytest.raises(ValueError, match=r"invalid params|not a tensor"):
        hvd.broadcast_parameters(params, 0)


OBJECTS = [{"text": "深度学习", "numbers": [1, 2.5, None]}, b"\0" * 5_000_000, None, lambda x: x + 1]


@pytest.mark.parametrize("obj", OBJECTS, ids=["dict", "large", "none", "lambda"])
def test_broadcast_object(ranks, obj):
    assert ranks.record(lambda: hvd.broadcast_object(obj, 0)) is obj
    received = ranks.replay(lambda: hvd.broadcast_object("ignored", root_rank=0))
    assert received(1) == 2 if callable(obj) else received == obj


def test_allgather_object(ranks):
    ranks.record(lambda: hvd.allgather_object(["一", 1], name="a"))
    assert ranks.replay(lambda: hvd.allgather_object({"two": 2}, name="a")) == [["一", 1], {"two": 2}]


def test_unpicklable_object_is_an_error_everywhere(ranks):
    class Unpicklable:
        def __reduce__(self):
            raise RuntimeError("cannot be sent")

    for function in (
        lambda obj: hvd.broadcast_object(obj, 0),
        lambda obj: hvd.allgather_object(obj, name="a"),
    ):
        texts = []
        for play, obj in ((ranks.record, Unpicklable()), (ranks.replay, 1)):
            with pytest.raises(ValueError, match=r"rank 0 .*Unpicklable.*cannot be sent") as caught:
                play(lambda function=function, obj=obj: function(obj))
            texts.append(str(caught.value))
            assert isinstance(caught.value.__cause__, RuntimeError) == isinstance(obj, Unpicklable)
        assert texts[0] == texts[1]
    assert ranks.sent == []


def test_wrong_root(core):
    with pytest.raises(ValueError, match="root_rank"):
        hvd.broadcast_object(1, root_rank=1)


def test_functions_can_be_sent_by_name():
    assert pickle.loads(pickle.dumps(hvd.broadcast_parameters)) is hvd.broadcast_parameters
