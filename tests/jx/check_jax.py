"""Imported first by the tests of JAX: skips a file where JAX is not installed. One that is installed and does
not work is a failure.
"""

import importlib.util

import pytest

if importlib.util.find_spec("jax") is None:
    pytest.skip("the package jax is not installed", allow_module_level=True)

import jax

__all__ = ["jax"]
