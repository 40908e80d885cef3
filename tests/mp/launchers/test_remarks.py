"""What horovodrun says at the end of jobs that went well and trained nothing, and ranks within ranks."""

import sys

import pytest
from launch import Launcher, alone

from horovod.bootstrap.store import remarks

ELASTIC = ["--min-np", "2"]
INIT = "from horovod.common import basics, remarks; from horovod.common.set_agreement import exchange; "
INIT += "basics.init(); "
MESSAGE = "from horovod.common.collective.byte_objects import operations; "
MESSAGE += "operations.recv(bytearray(1), 0) if basics.rank() else operations.send(bytearray(1), 1)"
SPAWNED = """
import multiprocessing
from horovod.common import basics

def work():
    pass

basics.init()
child = multiprocessing.get_context("spawn").Process(target=work)
child.start()
child.join()
raise SystemExit(child.exitcode)
"""
INNER = """
import os
import subprocess
import sys
from horovod.common import basics

if "TORCHELASTIC_RUN_ID" not in os.environ:
    basics.init()
    numbers = {"TORCHELASTIC_RUN_ID": "inner", "WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}
    within = {**os.environ, **numbers, "LOCAL_WORLD_SIZE": "1"}
    subprocess.run([sys.executable, __file__], env=within, check=True)
else:
    basics.init()
    print("inner", basics.rank(), basics.size())
"""


def run(*words: str, **environment: str) -> tuple[int, str, str]:
    status, stdout, stderr = Launcher().run("-np", "2", *words, **environment)
    return status, stdout.decode(), stderr.decode()


@pytest.mark.parametrize("elastic", [[], ELASTIC], ids=["static", "elastic"])
def test_a_job_that_never_starts_horovod_says_so(elastic: list[str]) -> None:
    assert run(*elastic, "true") == (0, "", alone(2).decode())


@pytest.mark.parametrize("elastic", [[], ELASTIC], ids=["static", "elastic"])
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", remarks.idle(2)),
        ("remarks.parameters_are_broadcast(); exchange([1], 'w')", remarks.REDUCED_NOTHING),
        ("exchange([1], 'w')", None),
        (MESSAGE, None),
        ("exchange([1], 'w'); basics.rank() or remarks.tell('weights differ')", "weights differ"),
    ],
)
def test_a_job_that_exchanges_nothing_says_so(elastic: list[str], words: str, line: str | None) -> None:
    status, _, stderr = run(*elastic, sys.executable, "-c", INIT + words)
    assert (status, stderr) == (0, "" if line is None else f"horovodrun: warning: {line}\n")


def test_operations_that_failed_are_no_idle_job() -> None:
    words = "\ntry: exchange([1], f'w{basics.rank()}')\nexcept Exception as error: print('failed:', error)"
    status, stdout, stderr = run(sys.executable, "-c", INIT + words, HOROVOD_STALL_DEADLOCK_TIME_SECONDS="1")
    assert (status, stdout.count("failed: "), stderr) == (0, 2, ""), stdout + stderr


def test_the_report_names_the_guard_that_a_spawned_worker_needs(tmp_path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SPAWNED)
    status, _, stderr = run(sys.executable, str(script))
    assert status == 1 and "imports the program anew, which calls hvd.init() again" in stderr
    assert "horovodrun: a worker of a DataLoader or pool" in stderr and "__name__ == '__main__':" in stderr


@pytest.mark.parametrize("elastic", [[], ELASTIC], ids=["static", "elastic"])
def test_torchrun_within_a_rank_starts_a_job_of_its_own(tmp_path, elastic: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(INNER)
    status, stdout, stderr = run(*elastic, sys.executable, str(script), TORCHELASTIC_RUN_ID="outer")
    assert status == 0, stderr
    assert sorted(line.partition(":")[2] for line in stdout.splitlines()) == ["inner 0 1"] * 2


VALUES = {
    "HOROVOD_LOG_LEVEL": ["WARN", "warning", "loud"],
    "HOROVOD_STALL_CHECK_TIME_SECONDS": ["0", "60", "-1", "soon"],
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": ["0", "-1"],
    "HOROVOD_STALL_CHECK_DISABLE": ["2", "x"],
    "HOROVOD_FUSION_THRESHOLD": ["0", "64MB", "-1"],
    "HOROVOD_CYCLE_TIME": ["0", "3.5", "abc"],
    "HOROVOD_CACHE_CAPACITY": ["0", "1024", "-1"],
    "HOROVOD_TIMELINE_MARK_CYCLES": ["1", "yes", "?"],
    "HOROVOD_AUTOTUNE": ["0", "maybe"],
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": ["3", "many"],
    "HOROVOD_THREAD_AFFINITY": ["x"],
    "HOROVOD_CPU_OPERATIONS": ["CCL", "host"],
    "HOROVOD_GPU_OPERATIONS": ["MPI", "HOST"],
    "HOROVOD_CONTROLLER": ["gloo", "x"],
    "HOROVOD_MPI_THREADS_DISABLE": ["1", "-"],
    "HOROVOD_START_TIMEOUT": ["-5", "soon"],
    "HOROVOD_TRANSPORT": ["rdma"],
    "HOROVOD_CHECK_FIRST_STEP": ["?"],
}


def test_no_value_of_a_variable_ends_a_job() -> None:
    """Each in a process of its own job, one after the other: what it cannot have is ignored with a line."""
    words = (
        "import os, sys\n"
        f"for name, values in {VALUES!r}.items():\n"
        "    for value in values:\n"
        "        os.environ[name] = value\n"
        f"        {INIT.replace('; ', chr(10) + '        ').rstrip()}\n"
        "        exchange([1], 'w'); basics.shutdown(); os.environ.pop(name, None)\n"
        "print('end')\n"
    )
    status, stdout, stderr = run(sys.executable, "-c", words)
    assert status == 0 and stdout.count("end") == 2, stderr
    assert "HOROVOD_CYCLE_TIME=abc: expected milliseconds from 0 to 60000; it is ignored" in stderr
    assert "HOROVOD_CPU_OPERATIONS=CCL: expected host or gloo or mpi; it is ignored" in stderr
    assert "Traceback" not in stderr and stderr.count("HOROVOD_CYCLE_TIME") == 1
