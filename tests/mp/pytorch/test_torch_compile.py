"""Compiled programs: ``torch.compile`` leaves this library alone, says nothing, and compiles once."""

import logging
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from load import within

import horovod.torch as hvd

STEPS = 4
KINDS = ["model", "step", "collective", "gradient", "batch_norm"]


def model(backend: str) -> Callable[[], Any]:
    """A step of a compiled model."""
    net, optimizer, inputs = _training()
    compiled = torch.compile(net, backend=backend)

    def step() -> None:
        optimizer.zero_grad()
        compiled(inputs).square().mean().backward()
        optimizer.step()
        same_everywhere(net)

    return step


def step(backend: str) -> Callable[[], Any]:
    """A compiled step of training, with everything in it."""
    net, optimizer, inputs = _training()

    @torch.compile(backend=backend)
    def compiled() -> None:
        optimizer.zero_grad()
        net(inputs).square().mean().backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()

    def checked() -> None:
        compiled()
        same_everywhere(net)

    return checked


def collective(backend: str) -> Callable[[], Any]:
    """Collectives and questions between compiled parts."""

    @torch.compile(backend=backend)
    def compiled(tensor: torch.Tensor) -> torch.Tensor:
        total = hvd.allreduce(tensor * 2, op=hvd.Sum) + hvd.rank()
        handle = hvd.allgather_async(total + 1, name="gathered")
        return hvd.synchronize(handle) / hvd.size()

    def call() -> None:
        size = hvd.size()
        expected = [(2 * size + rank + 1) / size for rank in range(size)]
        assert compiled(torch.ones(1)).tolist() == expected

    return call


def gradient(backend: str) -> Callable[[], Any]:
    """A collective that is differentiated."""

    @torch.compile(backend=backend)
    def compiled(tensor: torch.Tensor) -> torch.Tensor:
        return (hvd.allreduce(tensor * 2, name="reduced") * (hvd.rank() + 1)).sum()

    def call() -> None:
        tensor = torch.ones(3, requires_grad=True)
        compiled(tensor).backward()
        size = hvd.size()
        assert tensor.grad is not None
        assert tensor.grad.tolist() == [2 * sum(range(1, size + 1)) / size] * 3

    return call


def batch_norm(backend: str) -> Callable[[], Any]:
    """Batch normalisation over the ranks, between compiled layers."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    net = hvd.convert_sync_batchnorm(net)
    compiled = torch.compile(net, backend=backend)
    inputs = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(hvd.rank()))

    def step() -> None:
        compiled(inputs).sum().backward()
        same_everywhere(net)

    return step


def _training() -> tuple[torch.nn.Module, Any, torch.Tensor]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(hvd.rank()))
    return net, hvd.DistributedOptimizer(optimizer, net.named_parameters()), inputs


def same_everywhere(net: torch.nn.Module) -> None:
    """Fails where the ranks have different parameters and statistics."""
    values = torch.cat([value.detach().double().flatten() for value in net.state_dict().values()])
    everybodys = hvd.allgather(values.unsqueeze(0))
    assert (everybodys == everybodys[0]).all()


class Said(logging.Handler):
    """What Dynamo logs as a warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        logging.getLogger("torch._dynamo").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def ranks_compile(kinds: list[str], backend: str) -> list[list[str]]:
    """Returns, of each program, what was said and where its graphs end."""
    hvd.init()
    from torch._dynamo.utils import counters

    said = Said()
    torch._dynamo.config.error_on_recompile = True
    found = []
    for kind in kinds:
        torch._dynamo.reset()
        counters.clear()
        run = globals()[kind](backend)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run()
            frames = counters["frames"]["total"]
            for _ in range(STEPS):
                run()
        assert counters["frames"]["total"] == frames, f"{kind} is compiled again"
        texts = [str(each.message) for each in caught if "horovod" in str(each.message)]
        ends = [reason for reason in counters["graph_break"] if not _is_expected(reason)]
        found.append([*texts, *said.texts, *ends])
        said.texts.clear()
    return found


def _is_expected(reason: str) -> bool:
    ours = "horovod waits for other ranks" in reason
    return ours or "Tensor.backward()" in reason


@pytest.mark.slow
def test_the_library_alone_does_not_load_the_compiler() -> None:
    """The ranks of the tests have it loaded."""
    program = "import sys, horovod.torch as hvd; hvd.init(); assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=within(60))


@pytest.mark.slow
def test_compiled_once_and_in_silence(run_ranks: Callable[..., Any]) -> None:
    assert run_ranks(2, ranks_compile, [KINDS, "aot_eager"], timeout=120) == [[[]] * len(KINDS)] * 2


@pytest.mark.full
def test_compiled_by_inductor(run_ranks: Callable[..., Any]) -> None:
    if shutil.which("g++") is None:
        pytest.skip("inductor needs a C++ compiler")
    assert run_ranks(2, ranks_compile, [KINDS, "inductor"], timeout=600) == [[[]] * len(KINDS)] * 2
