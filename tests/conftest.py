"""Every Python test has a limit, stretched where the machine is busy."""

import pytest
from load import within

LIMIT = 120.0  # seconds for a test on an idle machine


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Sets the limit of pytest-timeout, unless the command line has one."""
    if config.getoption("timeout", None) is None:
        config.option.timeout = within(LIMIT)
