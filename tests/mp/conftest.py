"""Fixtures of the tests that start several processes: ranks with torch."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sshd
from rank_server import RankServer, runner, serve

GLUE = str(Path(__file__).with_name("torch_glue.py"))


@pytest.fixture(scope="session")
def rank_server() -> Iterator[RankServer]:
    """The process that the ranks are forked from."""
    # What the first optimizer of a process imports takes it two seconds.
    loaded = ["torch", "torch._dynamo", "torch.utils.data", "horovod.torch"]
    with serve(loaded, HVD_TEST_GLUE=GLUE) as server:
        yield server


@pytest.fixture
def run_ranks(tmp_path: Path, rank_server: RankServer) -> Callable[..., list[Any]]:
    """See rank_server.runner."""
    return runner(tmp_path, rank_server)


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Ssh]:
    """A real sshd. Tests that use it are skipped where ``sshd.missing()`` says why there is none."""
    with sshd.serving(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def hosts(ssh: sshd.Ssh) -> Iterator[sshd.Hosts]:
    """Starts jobs on its hosts; nothing may be left of them."""
    hosts = sshd.Hosts(ssh)
    yield hosts
    hosts.wait_until_gone(5.0)
