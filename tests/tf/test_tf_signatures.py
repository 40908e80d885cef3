"""The public names of the TensorFlow and Keras adapters, and their signatures, against the tables."""

import importlib
import inspect

import pytest
import tensorflow as tf
import tf_api_table as table
from public_api import METRIC, VALUES, check_elastic, check_mpi_ops, written

import horovod
import horovod.keras
import horovod.tensorflow as hvd
import horovod.tensorflow.keras
from horovod.common.training.gradient_options import GradientSettings

ADAPTERS = {
    "tensorflow": table.TENSORFLOW,
    "tensorflow.keras": table.TENSORFLOW_KERAS,
    "keras": table.KERAS,
}
KERAS = ["tensorflow.keras", "keras"]
FUNCTIONS = [(adapter, name) for adapter, functions in ADAPTERS.items() for name in functions]


def adapter_of(name):
    return importlib.import_module(f"horovod.{name}")


@pytest.mark.parametrize(("adapter", "name"), FUNCTIONS)
def test_signature(adapter, name):
    function = getattr(adapter_of(adapter), name)
    assert written(function) == ADAPTERS[adapter][name]
    assert inspect.getdoc(function)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_exported_function_is_in_the_table(adapter):
    module = adapter_of(adapter)
    functions = {name for name in module.__all__ if callable(getattr(module, name))}
    classes = {"Compression", "HorovodInternalError", "TensorMismatchError", "TrialPruned", "search"}
    assert functions - classes == set(ADAPTERS[adapter])


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_values(adapter):
    module = adapter_of(adapter)
    assert {name: getattr(module, name) for name in VALUES} == VALUES
    assert module.__version__ == horovod.__version__
    assert {"none", "fp16", "bf16"} <= set(vars(module.Compression))
    assert {name: written(getattr(module.metric, name)) for name in METRIC} == METRIC


@pytest.mark.parametrize(
    ("adapter", "functions"),
    [
        ("tensorflow", table.TENSORFLOW_ELASTIC),
        ("tensorflow.keras", {**table.KERAS_ELASTIC, "indices_dataset": "indices"}),
        ("keras", table.KERAS_ELASTIC),
    ],
)
def test_elastic(adapter, functions):
    check_elastic(adapter_of(adapter).elastic, functions)


def test_names_that_scripts_import_from_mpi_ops():
    operations = ["allgather", "alltoall", "barrier", "broadcast", "broadcast_", "join", "rank_op", "size_op"]
    check_mpi_ops(hvd, importlib.import_module("horovod.tensorflow.mpi_ops"), operations)


@pytest.mark.parametrize("adapter", KERAS)
@pytest.mark.parametrize("name", table.CALLBACKS)
def test_callback(adapter, name):
    assert written(getattr(adapter_of(adapter).callbacks, name)) == table.CALLBACKS[name]


@pytest.mark.parametrize("adapter", KERAS)
def test_best_model_checkpoint(adapter):
    assert written(adapter_of(adapter).callbacks.BestModelCheckpoint) == table.BEST_MODEL[adapter]


@pytest.mark.parametrize("adapter", KERAS)
def test_dir_shows_the_callbacks_and_nothing_else(adapter):
    shown = {name for name in dir(adapter_of(adapter).callbacks) if not name.startswith("_")}
    assert shown == {*table.CALLBACKS, "BestModelCheckpoint"}


SETTINGS = set(inspect.signature(GradientSettings).parameters)
TAPES = ["DistributedGradientTape", "PartialDistributedGradientTape"]
OPTIMIZERS = ["DistributedOptimizer", "PartialDistributedOptimizer"]
REDUCING = [("tensorflow", name) for name in [*TAPES, OPTIMIZERS[0]]] + [
    (a, o) for a in KERAS for o in OPTIMIZERS
]


@pytest.mark.parametrize(("adapter", "name"), REDUCING)
def test_every_argument_is_a_setting_or_used_otherwise(adapter, name):
    """Settings are found by name (``GradientSettings.among``), so a misspelled one would have no effect."""
    others = {"optimizer", "gradtape", "name", "use_locking", "local_layers"}
    taken = set(inspect.signature(getattr(adapter_of(adapter), name)).parameters)
    assert taken - others <= SETTINGS


@pytest.mark.parametrize("name", table.TENSORFLOW_UTIL)
def test_util(name):
    from horovod.tensorflow import util

    assert written(getattr(util, name)) == table.TENSORFLOW_UTIL[name]


@pytest.mark.parametrize("path", table.AGGREGATION)
def test_aggregation(path):
    module, name = path.split(".")
    module = importlib.import_module(f"horovod.tensorflow.{module}")
    assert written(getattr(module, name)) == table.AGGREGATION[path]


def test_methods():
    hvd.init()
    tape = hvd.DistributedGradientTape(tf.GradientTape())
    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
    for of, methods in ((tape, table.TAPE_METHODS), (optimizer, table.V1_OPTIMIZER_METHODS)):
        assert {name: written(getattr(type(of), name)) for name in methods} == methods
