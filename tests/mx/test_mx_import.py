"""What importing horovod.mxnet does, and says where it cannot work; in processes of their own."""

import importlib.util
import os
import subprocess
import sys

import pytest
from launch import ROOT
from load import within


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python process with the library."""
    paths = {"PYTHONPATH": str(ROOT / "frameworks"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", program]
    return subprocess.run(
        command,
        env={**os.environ, **paths, **environment},
        capture_output=True,
        text=True,
        timeout=within(100),
    )


needs_mxnet = pytest.mark.skipif(
    importlib.util.find_spec("mxnet") is None, reason="the package mxnet is not installed"
)


def test_numpy_2_is_an_error_that_says_what_to_do() -> None:
    done = run("import numpy; numpy.__version__ = '2.1.0'; import horovod.mxnet")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ImportError: MXNet") and "numpy 2.1.0" in last and "pip install 'numpy<2'" in last


@needs_mxnet
def test_mxnet_becomes_importable() -> None:
    done = run("import horovod.mxnet, mxnet; print(mxnet.nd.ones(2).asnumpy().sum())")
    assert done.stdout.split() == ["2.0"], done.stderr


@needs_mxnet
def test_without_mxnet_the_error_is_pythons() -> None:
    done = run("import sys; sys.modules['mxnet'] = None; import horovod.mxnet")
    assert "ModuleNotFoundError" in done.stderr.splitlines()[-1]


@needs_mxnet
def test_a_missing_library_is_an_error_that_says_so() -> None:
    program = (
        "import pathlib\n"
        "exists = pathlib.Path.exists\n"
        "pathlib.Path.exists = lambda path: path.name != '_ops.so' and exists(path)\n"
        "import horovod.mxnet"
    )
    last = run(program).stderr.splitlines()[-1]
    assert last.startswith("ImportError") and "_ops.so is missing" in last


@needs_mxnet
def test_the_engine_that_never_overlaps_works_too() -> None:
    program = (
        "import horovod.mxnet as hvd, mxnet as mx\n"
        "hvd.init()\n"
        "x = mx.nd.ones(3)\n"
        "x.attach_grad()\n"
        "with mx.autograd.record():\n"
        "    y = hvd.allreduce(x * 2) + hvd.allgather(x)\n"
        "y.backward()\n"
        "print(y.asnumpy().sum(), x.grad.asnumpy().sum())"
    )
    done = run(program, MXNET_ENGINE_TYPE="NaiveEngine")
    assert done.stdout.split() == ["9.0", "9.0"], done.stderr
