"""Every Python test has a limit, stretched where the machine is busy. And the fake libraries for GPUs, which
are compiled once for all.
"""

import importlib.util
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from load import within

_TESTS = Path(__file__).resolve().parent

LIMIT = 120.0  # seconds for a test on an idle machine

# What a script of the shell starts in the background ignores this signal, as do its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Sets the limit of pytest-timeout by how busy the machine is when the test begins.

    A limit of the command line counts as it is, for the tests that have none of their own.
    """
    marker = item.get_closest_marker("timeout")
    seconds = marker.args[0] if marker is not None and marker.args else LIMIT
    if marker is not None or item.config.getoption("timeout", None) is None:
        item.add_marker(pytest.mark.timeout(within(seconds)), append=False)
    return (yield)


@pytest.fixture(scope="session")
def fake_gpu() -> str:
    """The folder of a fake CUDA driver and a fake NCCL, for LD_LIBRARY_PATH."""
    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    spec = importlib.util.spec_from_file_location("fake_gpu_build", _TESTS / "fake_gpu" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.build(_TESTS.parent / "build" / "fake_gpu"))
