"""Fixtures of the tests of launchers."""

from collections.abc import Iterator

import pytest
from launch import Launcher


@pytest.fixture
def job() -> Iterator[Launcher]:
    """Starts horovodrun; nothing may be left of it."""
    job = Launcher()
    yield job
    job.wait_until_gone(1.0)
