"""Gradients, errors, joins and objects in TensorFlow."""

from shared_tests import *
