"""Fixtures of the tests that need one process."""

import importlib.util

import pytest

# These test what is common by means of torch's adapter.
_WITH_TORCH = (
    "test_torch_*.py",
    "test_common_api.py",
    "test_compression_exchange.py",
    "test_handles.py",
    "test_process_sets.py",
)
collect_ignore_glob = [] if importlib.util.find_spec("torch") else list(_WITH_TORCH)


@pytest.fixture
def core(monkeypatch):
    """The fake core under every module of ``horovod.common``: up, one rank. Set ``core.size`` for more."""
    pytest.importorskip("torch", reason="the fake core computes by torch")
    import fake_core

    yield from fake_core.play(monkeypatch)


@pytest.fixture
def job(monkeypatch):
    """Makes a job whose ranks are threads: ``job(4).run_all(function)`` calls ``function(rank)`` on each."""
    import fake_job

    from horovod.torch.operations import ops

    yield lambda size: fake_job.play_job(monkeypatch, size)
    ops.reset()
    ops.reset_in_child()
