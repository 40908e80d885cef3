"""Fixtures of the tests that need one process."""

import pytest


@pytest.fixture
def core(monkeypatch):
    """The fake core under every module of ``horovod.common``: up, one rank. Set ``core.size`` for more."""
    import fake_core  # late: it imports torch, which most tests do without

    yield from fake_core.play(monkeypatch)
