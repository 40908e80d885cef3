"""Imported first by the tests of compiled functions: skips a file where TensorFlow is too old for them."""

import pytest
import tensorflow as tf
from packaging.version import Version

from horovod.tensorflow.compiled import OLDEST

if Version(tf.__version__) < Version(OLDEST):
    pytest.skip(f"XLA calls libraries from TensorFlow {OLDEST} on", allow_module_level=True)
