"""Fixtures of the tests of MXNet: ranks with it loaded.

Importing MXNet starts no thread, and it puts its engine right after a fork.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rank_server import RankServer, runner, serve

RunRanks = Callable[..., list[Any]]
GLUE = str(Path(__file__).with_name("mxnet_glue.py"))
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


@pytest.fixture(scope="session")
def rank_server() -> Iterator[RankServer]:
    """The process that the ranks are forked from."""
    with serve(["horovod.mxnet"], HVD_TEST_GLUE=GLUE) as server:
        yield server


@pytest.fixture(scope="session")
def rank_server_of_all() -> Iterator[RankServer]:
    """The same with all frameworks."""
    for framework in ("torch", "tensorflow"):
        pytest.importorskip(framework, reason=f"the package {framework} is not installed beside mxnet")
    with serve(["horovod.mxnet", "horovod.torch", "horovod.tensorflow"], **QUIET) as server:
        yield server


@pytest.fixture
def run_ranks(tmp_path: Path, rank_server: RankServer) -> RunRanks:
    """With MXNet; see rank_server.runner."""
    return runner(tmp_path, rank_server)


@pytest.fixture
def run_ranks_of_all(tmp_path: Path, rank_server_of_all: RankServer) -> RunRanks:
    """With MXNet, torch and TensorFlow; see rank_server.runner."""
    return runner(tmp_path, rank_server_of_all)
