"""The public names of the MXNet adapter, and their signatures, against the table."""

import inspect

import check_mxnet
import mx_api_table as table
import pytest
from public_api import BATCHES, INDICES, METRIC, RUN, VALUES, check_elastic, check_mpi_ops, written

import horovod
import horovod.mxnet as hvd
from horovod.mxnet import mpi_ops


@pytest.mark.parametrize("name", table.MXNET)
def test_signature(name: str) -> None:
    function = getattr(hvd, name)
    assert written(function) == table.MXNET[name]
    assert inspect.getdoc(function)


def test_every_exported_function_is_in_the_table() -> None:
    functions = {name for name in hvd.__all__ if callable(getattr(hvd, name))}
    classes = {"Compression", "HorovodInternalError", "TensorMismatchError", "TrialPruned", "search"}
    assert functions - classes == set(table.MXNET)


def test_values() -> None:
    assert {name: getattr(hvd, name) for name in VALUES} == VALUES
    assert hvd.__version__ == horovod.__version__
    assert {"none", "fp16"} <= set(vars(hvd.Compression))
    assert {name: written(getattr(hvd.metric, name)) for name in METRIC} == METRIC
    for name, signature in table.TRAINER_METHODS.items():
        assert written(getattr(hvd.DistributedTrainer, name)) == signature
    assert issubclass(hvd.DistributedTrainer, check_mxnet.mx.gluon.Trainer)


def test_elastic() -> None:
    state = "params=None, trainer=None, **kwargs"
    scale = "trainer, ranks=None, rule='linear', warmup_steps=100"
    expected = {"ElasticBatches": BATCHES, "ElasticIndices": INDICES, "LearningRateScale": scale}
    expected |= {"CheckpointError": "*args, **kwargs", "MXNetState": state, "run": RUN}
    check_elastic(hvd.elastic, expected)


def test_names_that_scripts_import_from_mpi_ops() -> None:
    elsewhere = {"broadcast_parameters", "broadcast_object", "allgather_object"}
    elsewhere |= {"DistributedOptimizer", "DistributedTrainer"}
    check_mpi_ops(hvd, mpi_ops, table.MXNET.keys() - elsewhere)
