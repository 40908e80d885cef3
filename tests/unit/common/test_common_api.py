"""The public names and their signatures, against the table; and what belongs to no framework."""

import importlib
import inspect
import os
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path

import fake_core
import pytest
import torch
from api_table import ELSEWHERE, MPI_OPS, TORCH, TORCH_ELASTIC, UTIL
from public_api import METRIC, VALUES, check_elastic, check_mpi_ops, written

import horovod
import horovod.torch as hvd
from horovod.bootstrap import libraries
from horovod.bootstrap.errors import SharedMemoryError, StartTimeoutError
from horovod.common import builds, exceptions, reduce_ops, util
from horovod.common.collective.compression import NoneCompressor, resolve_compression
from horovod.common.collective.gradients import RULES
from horovod.common.collective.operations import FUNCTIONS, OPERATIONS, REQUIRED
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.training.gradient_options import GradientSettings
from horovod.torch import mpi_ops

ROOT = Path(__file__).resolve().parents[3]
FRAMEWORKS = "torch tensorflow keras mxnet numpy cloudpickle"


@pytest.mark.parametrize("name", TORCH)
def test_signature(name):
    function = getattr(hvd, name)
    assert written(function) == TORCH[name]
    assert inspect.getdoc(function)


@pytest.mark.parametrize("name", [name for name, parameters in TORCH.items() if parameters])
def test_every_argument_and_result_is_documented(name):
    function = getattr(hvd, name)
    _, found, rest = inspect.getdoc(function).partition("\nArgs:\n")
    arguments = re.split(r"\n(?=\S)", rest)[0]
    documented = re.findall(r"^ {4}(\w[\w, ]*):", arguments, re.MULTILINE)
    assert found
    assert ", ".join(documented).split(", ") == [part.split("=")[0] for part in TORCH[name].split(", ")]
    made = isinstance(function, type)
    returns = not made and inspect.signature(function).return_annotation not in {"None", None}
    assert ("\nReturns:\n" in rest) == returns


def test_elastic():
    check_elastic(hvd.elastic, TORCH_ELASTIC)


@pytest.mark.parametrize("name", METRIC)
def test_metric_signature(name):
    assert written(getattr(hvd.metric, name)) == METRIC[name]


@pytest.mark.parametrize("name", UTIL)
def test_util_signature(name):
    assert written(getattr(util, name)) == UTIL[name]


def test_every_exported_function_is_in_the_table():
    functions = {name for name in hvd.__all__ if callable(getattr(hvd, name))}
    classes = {"Compression", "HorovodInternalError", "TensorMismatchError", "TrialPruned", "search"}
    assert functions - classes == set(TORCH)


def test_dir_shows_the_api_and_nothing_else():
    others = {"Compression", "HorovodInternalError", "TensorMismatchError", "TrialPruned", "search"}
    others |= {"elastic", "global_process_set", "metric", "__version__"}
    assert set(dir(hvd)) == {*TORCH, *VALUES, *others}
    assert len(set(hvd.__all__)) == len(hvd.__all__)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_the_list_of_operations_says_what_the_functions_take(operation):
    for name in operation.functions:
        parameters = inspect.signature(getattr(hvd, name)).parameters
        first, *rest = parameters.values()
        assert first.name == ("tensors" if operation.grouped else "tensor")
        taken = {each.name: each.default for each in rest if each.name != "compression"}
        assert list(taken.items()) == list(operation.arguments.items())
        assert ("compression" in parameters) == (name == operation.name and "reduce" in name)
    assert (REQUIRED in operation.arguments.values()) == (operation.name == "broadcast")


def test_every_argument_of_the_optimizer_is_a_setting_or_used_otherwise():
    """Settings are found by name (``GradientSettings.among``), so a misspelled one would have no effect."""
    taken = set(inspect.signature(hvd.DistributedOptimizer).parameters)
    assert taken - {"optimizer", "named_parameters"} <= set(inspect.signature(GradientSettings).parameters)


def test_mpi_ops_has_every_operation_of_the_list():
    assert [name for name in FUNCTIONS if getattr(mpi_ops, name, None) != getattr(mpi_ops._ops, name)] == []


def test_every_operation_has_a_rule_of_its_gradient_and_a_function_of_autograd():
    assert list(RULES) == [operation.name for operation in OPERATIONS]
    for name, function in mpi_ops._ops.functions.items():
        assert getattr(mpi_ops, function.__name__) is function
        assert function.__name__.lower() == "horovod" + name.replace("_", "")


def test_values():
    assert {name: getattr(hvd, name) for name in VALUES} == VALUES
    assert all(type(getattr(hvd, name)) is int for name in VALUES)
    assert hvd.__version__ == horovod.__version__
    assert util.is_version_greater_equal_than(horovod.__version__, "0.28.1")


def test_names_that_scripts_import_from_mpi_ops():
    elsewhere = {"DistributedOptimizer", "broadcast_parameters", "broadcast_optimizer_state", "SyncBatchNorm"}
    elsewhere |= {"broadcast_object", "allgather_object", "convert_sync_batchnorm"}
    check_mpi_ops(hvd, mpi_ops, TORCH.keys() - elsewhere)
    assert [name for name in MPI_OPS if not hasattr(mpi_ops, name)] == []


@pytest.mark.parametrize("module", ELSEWHERE)
def test_programs_import_these_names_from_there(module: str) -> None:
    assert [name for name in ELSEWHERE[module] if not hasattr(importlib.import_module(module), name)] == []


@pytest.mark.parametrize("name", ["model", "optimizer", "sampler"])
def test_handlers_of_elastic_states_are_made_by_name(name: str) -> None:
    handler = getattr(importlib.import_module("horovod.torch.elastic.state"), f"{name.title()}StateHandler")
    assert list(inspect.signature(handler).parameters) == [name]


def test_import_of_the_package_imports_no_framework():
    code = f"import sys, horovod; print([m for m in {FRAMEWORKS.split()!r} if m in sys.modules])"
    path = os.path.dirname(os.path.dirname(horovod.__file__))
    environment = {**os.environ, "PYTHONPATH": path}
    output = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert output.strip() == "[]"


def test_exception_tree():
    assert issubclass(exceptions.HorovodInternalError, RuntimeError)
    assert issubclass(exceptions.TensorMismatchError, (exceptions.HorovodInternalError))
    assert issubclass(exceptions.TensorMismatchError, ValueError)
    assert exceptions.HostsUpdatedInterrupt(True).skip_sync is True
    error = exceptions.HorovodVersionMismatchError("torch", "2.1", "2.2")
    assert isinstance(error, ImportError)
    assert error.installed_version == "2.2"
    assert str(error) == exceptions.get_version_mismatch_message("torch", "2.1", "2.2")


@pytest.mark.parametrize(
    "error",
    [
        exceptions.TensorMismatchError("the ranks disagree"),
        exceptions.HostsUpdatedInterrupt(True),
        exceptions.HorovodVersionMismatchError("torch", "2.1", "2.2"),
        SharedMemoryError(3, "no memory"),
        StartTimeoutError("rank 1 never arrived", [1]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_reaches_another_process(error):
    arrived = pickle.loads(pickle.dumps(error))
    assert (type(arrived), str(arrived), vars(arrived)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("op", "average", "expected"),
    [(None, None, 0), (1, None, 1), (0, None, 0), (2, None, 2), (5, None, 5)],
)
def test_op(op, average, expected):
    assert reduce_ops.resolve_op(op, average) == expected


@pytest.mark.parametrize(("average", "expected"), [(True, 0), (False, 1)])
def test_average_is_deprecated(average, expected):
    with pytest.warns(DeprecationWarning):
        assert reduce_ops.resolve_op(None, average) == expected


@pytest.mark.parametrize("name", ["allreduce", "allreduce_", "allreduce_async", "grouped_allreduce"])
def test_what_is_deprecated_is_shown_where_the_program_uses_it(core, name):
    tensor = [torch.ones(2)] if "grouped" in name else torch.ones(2)
    with pytest.warns(DeprecationWarning) as caught:
        getattr(hvd, name)(tensor, average=True)
    assert [warning.filename for warning in caught] == [__file__]


def test_wrong_op():
    with pytest.raises(ValueError, match="supersedes average"):
        reduce_ops.resolve_op(1, True)
    with pytest.raises(ValueError, match="op=7"):
        reduce_ops.resolve_op(7)


def test_compression_argument():
    assert resolve_compression(None) is NoneCompressor
    for wrong in ({}, NoneCompressor(), "fp16"):
        with pytest.raises(TypeError, match=r"hvd\.Compression\.fp16"):
            resolve_compression(wrong)


def test_process_set_before_init(core):
    core.up = False
    process_set = ProcessSet([2, 0])
    assert process_set.ranks == [0, 2]
    assert (process_set.size(), process_set.rank(), process_set.included()) == (None, None, None)
    assert (global_process_set.process_set_id, global_process_set.size()) == (0, None)


def test_not_initialized(core):
    core.up = False
    for name in "rank size local_rank local_size cross_rank cross_size is_master counters".split():
        with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd.init\(\)\."):
            getattr(hvd, name)()
    assert hvd.is_initialized() is False


def test_topology(core):
    core.size, core.rank = 4, 2
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (2, 4, 2, 4)
    assert (hvd.cross_rank(), hvd.cross_size(), hvd.is_master()) == (0, 1, False)
    assert mpi_ops.is_homogeneous() is True
    assert hvd.counters()["collectives"] == 0


def test_timeline(core, monkeypatch):
    monkeypatch.delenv("HOROVOD_TIMELINE", raising=False)
    with pytest.raises(ValueError, match="HOROVOD_TIMELINE=DYNAMIC"):
        hvd.start_timeline("a.json")
    monkeypatch.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    hvd.start_timeline("a.json", mark_cycles=True)
    hvd.stop_timeline()
    assert core.timeline == [("a.json", True), None]


def test_init_arguments(core):
    for comm in ([1], [0, 0], [0, 1], object()):
        with pytest.raises(ValueError, match="MPI"):
            hvd.init(comm=comm)
    with pytest.raises(NotImplementedError, match="communicators"):
        hvd.init(comm=[0], process_sets=[ProcessSet(object())])
    with pytest.raises(ValueError, match="dynamic"):
        hvd.init(process_sets="static")
    with pytest.raises(TypeError, match="ProcessSet"):
        hvd.init(process_sets=[[0, 1]])
    hvd.init(comm=[], process_sets=[])  # up already: nothing happens
    with pytest.raises(ValueError, match="add_process_set"):
        hvd.init(process_sets=[ProcessSet([0])])


def test_builds(core):
    assert builds.gloo_built() is True
    assert builds.gloo_enabled() is True
    assert builds.mpi_built() is libraries.built("mpi")
    assert builds.mpi_enabled() is False
    assert bool(builds.nccl_built()) is (builds.cuda_built() or builds.rocm_built())
    with pytest.raises(ValueError, match=r"Ask hvd.mpi_enabled\(\)"):
        builds.mpi_threads_supported()


@pytest.mark.parametrize(("disabled", "supported"), [("", True), ("0", True), ("1", False)])
def test_mpi_as_the_controller_is_called_as_the_user_says(monkeypatch, core, disabled, supported):
    monkeypatch.setenv("HOROVOD_CONTROLLER", "mpi")
    monkeypatch.setenv("HOROVOD_MPI_THREADS_DISABLE", disabled)
    assert builds.mpi_enabled() and not builds.gloo_enabled()
    assert builds.mpi_threads_supported() is supported


def test_util():
    assert util.extension_available("torch") is True
    assert util.extension_available("absent") is False
    assert util.gpu_available("torch") is torch.cuda.is_available()
    assert util.gpu_available("absent") is False
    assert [util.num_rank_is_power_2(n) for n in (0, 1, 2, 3, 4)] == [False, True, True, False, True]
    assert util.split_list(list(range(7)), 3) == [[0, 1, 2], [3, 4], [5, 6]]
    assert util.split_list([1], 2) == [[1], []]
    assert (util.is_iterable("a"), util.is_iterable(1)) == (True, False)
    assert util.is_version_greater_equal_than("2.10.0", "2.9.1")
    assert not util.is_version_greater_equal_than("2.9.0rc1", "2.9.0")
    with pytest.raises(ValueError, match="major"):
        util.is_version_greater_equal_than("2.9.0", "2.9")


def test_util_env(monkeypatch):
    monkeypatch.setenv("HVD_ENV_A", "before")
    with util.env(HVD_ENV_A=None, HVD_ENV_B="1"):
        assert ("HVD_ENV_A" in os.environ, os.environ["HVD_ENV_B"]) == (False, "1")
    assert (os.environ["HVD_ENV_A"], "HVD_ENV_B" in os.environ) == ("before", False)


def test_check_installed_version():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        util.check_installed_version("torch", torch.__version__)
    with pytest.warns(UserWarning, match="torch"):
        util.check_installed_version("torch", "0.1")
    with pytest.raises(exceptions.HorovodVersionMismatchError):
        util.check_installed_version("torch", "0.1", ImportError("x"))


def test_fake_core_has_the_functions_of_the_real_one():
    lines = (ROOT / "frameworks" / "horovod" / "_core.pyi").read_text(encoding="utf-8").splitlines()
    names = [line.split("(")[0].removeprefix("def ") for line in lines if line.startswith("def ")]
    of_bootstrap = {"init", "shutdown", "add_launcher"} | {name for name in names if "link" in name}
    played = [name for name in names if name not in of_bootstrap]
    assert [name for name in played if not hasattr(fake_core.FakeCore(), name)] == []
