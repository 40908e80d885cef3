"""Datasets that compute workers serve: real jobs of both kinds, over TensorFlow's own data service."""

import argparse
import dataclasses
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import tensorflow as tf
from launch import Launcher
from load import within
from run_program import ranks_program

from horovod.tensorflow.data import compute_service, compute_worker, registry
from horovod.tensorflow.data.compute_service import TfDataServiceConfig

HOROVODRUN = Path(sys.executable).with_name("horovodrun")
READS = str(Path(__file__).with_name("reads_from_service.py"))
QUIET = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
KEY = bytes(range(32))
ALL = [number * number for number in range(100)]


def a_config(**changes) -> TfDataServiceConfig:
    return dataclasses.replace(TfDataServiceConfig(1, 2, "compute", "127.0.0.1:1", KEY, 5), **changes)


@pytest.fixture
def meeting():
    service = registry.ComputeService(KEY)
    yield a_config(addresses=service.addresses)
    service.close()


def elements_of_ranks(run_ranks: Callable, file: str, how: str) -> list[list[int]]:
    """What each rank of a training has got from the service, which ends then."""
    told, other = run_ranks(2, ranks_program, [READS, [file, how]], timeout=120)
    assert not other
    return [[*map(int, line.split()[2:])] for line in told.splitlines()]


@contextmanager
def serving(run_ranks: Callable, file: str, workers: int) -> Iterator[None]:
    """Ranks that serve, until the training tells them that it is done."""
    program = [compute_worker.__file__, [file, "--timeout", "200"]]
    with ThreadPoolExecutor(1) as pool:
        service = pool.submit(run_ranks, workers, ranks_program, program, timeout=150)
        yield
        service.result()
    assert not Path(file).exists()


# Each of these two imports TensorFlow in two processes.
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("side", [pytest.param("compute", marks=pytest.mark.full), "training"])
def test_each_rank_gets_every_element_once(run_ranks, tmp_path, side):
    launcher, file = Launcher(), str(tmp_path / "service.json")
    options = ["--timeout", "200", "--dispatchers", "2", "--dispatcher-side", side]
    worker = [sys.executable, "-m", "horovod.tensorflow.data.compute_worker", file, *options]
    service = launcher.popen([str(HOROVODRUN), "-np", "2", *worker], env={**launcher.environment, **QUIET})
    how = side if side == "training" else "each"
    assert elements_of_ranks(run_ranks, file, how) == [ALL, ALL]
    served = launcher.finish(service, within(30))
    assert served.returncode == 0 and not Path(file).exists(), served.output


@pytest.mark.timeout(300)
def test_ranks_that_share_a_dataset_get_each_element_once(run_ranks, tmp_path):
    file = str(tmp_path / "service.json")
    with serving(run_ranks, file, 2):
        first, second = elements_of_ranks(run_ranks, file, "shared")
    assert sorted(first + second) == ALL


@pytest.mark.full
@pytest.mark.timeout(300)
def test_ranks_that_take_turns_get_equally_many(run_ranks, tmp_path):
    file = str(tmp_path / "service.json")
    with serving(run_ranks, file, 1):
        first, second = elements_of_ranks(run_ranks, file, "turns")
    assert len(first) == len(second) == 70


def test_the_file_is_for_its_owner(tmp_path):
    file = tmp_path / "service.json"
    a_config().write(str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["service.json"]
    assert TfDataServiceConfig.read(str(file)) == a_config()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"key": "x"}'])
def test_another_file_is_refused(tmp_path, text):
    file = tmp_path / "service.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="does not describe a data service"):
        TfDataServiceConfig.read(str(file))


def test_the_key_is_not_printed():
    assert "addresses" in repr(a_config()) and "key" not in repr(a_config())


def test_a_file_that_never_comes(tmp_path, monkeypatch):
    monkeypatch.setattr(compute_service, "_PATIENCE", 0.1)
    with pytest.raises(TimeoutError, match=r"gone.json was not written within 0.1 s"):
        TfDataServiceConfig.read(str(tmp_path / "gone.json"), wait_for_file_creation=True)


def test_who_meets_there(meeting):
    client = meeting.compute_client()
    client.register_dispatcher(3, "host:1")
    assert client.wait_for_dispatcher_registration(3, 5) == "host:1"
    with pytest.raises(TimeoutError, match=r"dispatcher 4 of the data service at .* within 0.2 s"):
        client.wait_for_dispatcher_registration(4, 0.2)
    client.register_worker_for_dispatcher(3, 0)
    client.register_worker_for_dispatcher(3, 0)  # one that was started again
    with pytest.raises(TimeoutError, match="all 2 workers of dispatcher 3"):
        client.wait_for_dispatcher_worker_registration(3, 0.2)
    client.register_worker_for_dispatcher(3, 1)
    client.wait_for_dispatcher_worker_registration(3, 5)
    client.shutdown()
    client.wait_for_shutdown()


def test_another_key_gets_nothing(meeting):
    stranger = dataclasses.replace(meeting, key=bytes(32), timeout=1).compute_client()
    with pytest.raises(Exception, match=r"secret|key|proof|prove"):
        stranger.register_dispatcher(0, "elsewhere:1")
    with pytest.raises(TimeoutError):
        meeting.compute_client().wait_for_dispatcher_registration(0, 0.2)


def test_a_service_that_has_ended_by_itself_is_no_error_at_the_end():
    service = registry.ComputeService(KEY)
    gone = a_config(addresses=service.addresses, timeout=1, dispatcher_side="training")
    client = gone.compute_client()
    client.register_worker_for_dispatcher(0, 0)
    client.register_worker_for_dispatcher(0, 1)
    with compute_service.tf_data_service(gone, 0) as address:
        assert address.startswith("grpc://")
        service.close()


def test_a_service_that_is_ended_takes_its_file_along(tmp_path):
    file = tmp_path / "service.json"
    args = argparse.Namespace(configfile=str(file), dispatchers=1, dispatcher_side="compute", timeout=5)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end, compute_worker.serving(args, 2):
            assert file.exists()
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert end.value.code == 128 + signal.SIGTERM and not file.exists()


def test_arguments_that_make_no_sense():
    dataset = tf.data.Dataset.range(3)
    with pytest.raises(RuntimeError, match="run in the training"):
        dataset.send_to_data_service(a_config(dispatcher_side="training"), 0)
    with pytest.raises(ValueError, match="reuse_dataset=True and size"):
        dataset.send_to_data_service(a_config(), 0, round_robin=True)
    with pytest.raises(ValueError, match="dispatcher_side is 'both'"):
        a_config(dispatcher_side="both")
    with pytest.raises(ValueError, match="dispatchers is 0"):
        a_config(dispatchers=0)
