"""Every Python test has a limit, stretched where the machine is busy. And the fake libraries for GPUs, which
are compiled once for all.
"""

import importlib.util
import shutil
from pathlib import Path

import pytest
from load import within

_TESTS = Path(__file__).resolve().parent

LIMIT = 120.0  # seconds for a test on an idle machine


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Sets the limit of pytest-timeout, unless the command line has one."""
    if config.getoption("timeout", None) is None:
        config.option.timeout = within(LIMIT)


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
