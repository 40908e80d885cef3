"""Fixtures of the tests of TensorFlow and Keras: ranks with one of them loaded.

Importing TensorFlow starts no thread; its thread pools start with the first operation, in the rank.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rank_server import RankServer, runner, serve

GLUE = str(Path(__file__).with_name("tensorflow_glue.py"))
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2"}
RunRanks = Callable[..., list[Any]]
OTHER_KERAS = {"run_legacy_keras_ranks", "run_torch_keras_ranks"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What every Keras passes is tried with the newest one on TensorFlow by default; the others are slow."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == Path(__file__).parent:
            values = item.callspec.params.values() if hasattr(item, "callspec") else ()
            asked = {*item.fixturenames, *(value for value in values if isinstance(value, str))}
            if asked & OTHER_KERAS:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def rank_server() -> Iterator[RankServer]:
    """The process that ranks with TensorFlow are forked from; their ``tf.keras`` is the newest there is."""
    loaded = ["tensorflow", "keras", "horovod.tensorflow"]
    with serve(loaded, HVD_TEST_GLUE=GLUE, **QUIET) as server:
        yield server


@pytest.fixture(scope="session")
def legacy_keras_server() -> Iterator[RankServer]:
    """The same with ``tf_keras`` as ``tf.keras``."""
    pytest.importorskip("tf_keras", reason="the package tf_keras is not installed")
    with serve(["tensorflow", "tf_keras", "horovod.tensorflow"], TF_USE_LEGACY_KERAS="1", **QUIET) as server:
        yield server


@pytest.fixture(scope="session")
def torch_keras_server() -> Iterator[RankServer]:
    """The process that ranks with Keras 3 on torch are forked from."""
    pytest.importorskip("torch", reason="Keras on torch needs torch")
    with serve(["torch", "torch.utils.data", "keras", "horovod.torch"], KERAS_BACKEND="torch") as server:
        yield server


@pytest.fixture
def run_ranks(tmp_path: Path, rank_server: RankServer) -> RunRanks:
    """With TensorFlow and the newest Keras; see rank_server.runner."""
    return runner(tmp_path, rank_server)


@pytest.fixture
def run_legacy_keras_ranks(tmp_path: Path, legacy_keras_server: RankServer) -> RunRanks:
    """With TensorFlow and tf_keras as tf.keras; see rank_server.runner."""
    return runner(tmp_path, legacy_keras_server)


@pytest.fixture
def run_torch_keras_ranks(tmp_path: Path, torch_keras_server: RankServer) -> RunRanks:
    """With Keras 3 on torch, without TensorFlow; see rank_server.runner."""
    return runner(tmp_path, torch_keras_server)
