"""Gradients, errors, joins and objects in JAX."""

import check_jax  # noqa: F401  # skips
from shared_tests import *
