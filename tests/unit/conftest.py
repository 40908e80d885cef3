"""Fixtures of the tests that need one process."""

import importlib.util

import hypothesis
import pytest

# An example may wait for a core: on a busy machine 200 ms say nothing.
hypothesis.settings.register_profile("busy", deadline=None)
hypothesis.settings.load_profile("busy")

# These test what is common by means of torch's adapter.
_WITH_TORCH = (
    "pytorch/*.py",
    "common/test_common_api.py",
    "common/test_compression_exchange.py",
    "common/test_handles.py",
    "common/test_dropped_handles.py",
    "common/test_process_sets.py",
)
collect_ignore_glob = [] if importlib.util.find_spec("torch") else list(_WITH_TORCH)


@pytest.fixture
def core(monkeypatch):
    """The fake core under every module of ``horovod.common``: up, one rank. Set ``core.size`` for more."""
    pytest.importorskip("torch", reason="the fake core computes by torch")
    import fake_core

    yield from fake_core.play(monkeypatch)


@pytest.fixture
def two(core):
    """A job of two ranks that send the same."""
    core.size = 2
    return core


@pytest.fixture
def job(monkeypatch):
    """Makes a job whose ranks are threads: ``job(4).run_all(function)`` calls ``function(rank)`` on each."""
    import fake_job

    from horovod.torch.operations import ops

    yield lambda size: fake_job.play_job(monkeypatch, size)
    ops.reset()
    ops.reset_in_child()


@pytest.fixture
def slow(core, monkeypatch):
    """Operations that are complete when ``slow.finish(handle)`` was called."""
    wait, complete = core.wait, set()

    def limited(handle, timeout=None):
        if handle in core.pending and handle not in complete:
            assert timeout is not None, "nobody would ever complete it"
            raise TimeoutError(f"not complete after {timeout} seconds")
        return wait(handle)

    core.wait = limited
    core.poll = lambda handle: handle not in core.pending or handle in complete
    core.finish = complete.add
    return core
