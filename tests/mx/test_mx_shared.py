"""Gradients, errors, joins and objects in MXNet."""

import check_mxnet  # noqa: F401  # skips
from shared_tests import *
