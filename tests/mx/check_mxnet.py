"""Imported first by the tests of MXNet: skips a file where MXNet is not installed, and makes it importable
where it is. One that is installed and does not work is a failure.
"""

import importlib.util

import pytest

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("the package mxnet is not installed", allow_module_level=True)

from horovod.mxnet.native import mx

__all__ = ["mx"]
