"""Fixtures of the tests of JAX: ranks with it loaded. Importing it starts no thread; its first array does."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rank_server import RankServer, runner, serve

RunRanks = Callable[..., list[Any]]
GLUE = str(Path(__file__).with_name("jax_glue.py"))


@pytest.fixture(scope="session")
def rank_server() -> Iterator[RankServer]:
    """The process that the ranks are forked from."""
    with serve(["horovod.jax"], HVD_TEST_GLUE=GLUE, JAX_ENABLE_X64="1", JAX_PLATFORMS="cpu") as server:
        yield server


@pytest.fixture
def run_ranks(tmp_path: Path, rank_server: RankServer) -> RunRanks:
    """With JAX; see rank_server.runner."""
    return runner(tmp_path, rank_server)
