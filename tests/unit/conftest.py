"""Fixtures of the tests that need one process."""

import pytest


@pytest.fixture
def core(monkeypatch):
    """The fake core under every module of ``horovod.common``: up, one rank. Set ``core.size`` for more."""
    import fake_core  # late: it imports torch, which most tests do without

    yield from fake_core.play(monkeypatch)


@pytest.fixture
def job(monkeypatch):
    """Makes a job whose ranks are threads: ``job(4).run_all(function)`` calls ``function(rank)`` on each."""
    import fake_job

    from horovod.torch.operations import ops

    yield lambda size: fake_job.play_job(monkeypatch, size)
    ops.reset()
