"""Gradients, errors, joins and objects in torch."""

from shared_tests import *
