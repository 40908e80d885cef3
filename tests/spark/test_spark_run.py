"""``horovod.spark.run`` on two executors: results, output, the environment, and what is refused."""

import io
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import spark_programs as programs
from load import within

import horovod.spark
from horovod.runner.common.util.timeout import TimeoutException
from horovod.spark import job, tasks


def test_results_output_and_environment(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLY_OF_THE_DRIVER", "1")
    out, err = io.StringIO(), io.StringIO()
    found = horovod.spark.run(
        programs.identity, ["hello"], num_proc=2, env={"OF_RANKS": "x"}, stdout=out, stderr=err, nics="lo"
    )
    numbers, environments, _ = zip(*found, strict=True)
    assert numbers == ([0, 2, 0, 2, 0, 1], [1, 2, 1, 2, 0, 1])  # two executors on one machine are one host
    for environ in environments:
        assert environ["OF_RANKS"] == "x" and "ONLY_OF_THE_DRIVER" not in environ
        assert environ["OMP_NUM_THREADS"] == str(max(1, len(os.sched_getaffinity(0)) // 2))
        assert environ["HOROVOD_NETWORK_INTERFACES"] == "lo"
        assert not {name for name in environ if name.startswith(("HOROVOD_SECRET", "PYTHON_WORKER_FACTORY"))}
    assert sorted(out.getvalue().splitlines()) == [
        f"[{rank}]<stdout>:hello from rank {rank}" for rank in (0, 1)
    ]
    assert "[1]<stderr>:rank 1 complains" in err.getvalue()


def test_a_training(session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """As many ranks as there are cores; what they print has the time, where it is asked for."""
    run = horovod.spark.run
    losses, parameters = zip(*run(programs.trains, kwargs={"steps": 40}, verbose=2), strict=True)
    assert len(losses) == 2 and max(losses) < 0.3 and parameters[0] == parameters[1]
    assert "2 ranks" in capsys.readouterr().err
    run(programs.identity, ["hi"], num_proc=1, prefix_output_with_timestamp=True, executable=sys.executable)
    assert "[0]<stdout>:hi from rank 0" in (printed := capsys.readouterr().out) and printed[:1] != "["


def test_a_rank_raises(session: Any) -> None:
    with pytest.raises(ZeroDivisionError, match="planted") as caught:
        horovod.spark.run(programs.fails, [1], num_proc=2)
    text = str(caught.value.__cause__)
    assert text.startswith("on rank 1 (") and "spark_programs.py" in text
    assert not session.sparkContext.statusTracker().getActiveJobsIds()


def test_too_few_slots(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_SPARK_START_TIMEOUT", str(within(3)))
    with pytest.raises(TimeoutException) as caught:
        horovod.spark.run(programs.identity, ["never"], num_proc=3)
    text = str(caught.value)
    assert text.startswith("2 of 3 tasks of Spark have started within "), text
    assert "1 wait for a free slot (spark.task.cpus=1) of local-cluster[2,1,1024]" in text, text
    assert "has 2 executors" in text, text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"use_mpi": True}, "MPI can start a program"),
        ({"use_mpi": True, "use_gloo": True}, "exclude each other"),
        ({"num_proc": 0}, "at least 1 rank"),
        ({"env": {"X": 1}}, r"env\['X'\] is a int"),
        ({"env": {"X": None}}, r"env\['X'\] is a NoneType"),
        ({"env": {"X": "a\0b"}}, r"env\['X'\] .* without NUL"),
        ({"env": {"A=B": "x"}}, r"env\['A=B'\] .* without ="),
        ({"env": {"": "x"}}, r"env\[''\]"),
        ({"env": {1: "x"}}, r"env\[1\]"),
        ({"start_timeout": "soon"}, "start_timeout='soon': it is a number of seconds"),
        ({"start_timeout": -1}, "start_timeout=-1: it is a number of seconds, 0 or more"),
        ({"start_timeout": float("inf")}, "start_timeout=inf"),
        ({"start_timeout": float("nan")}, "start_timeout=nan"),
    ],
)
def test_refusals(session: Any, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        horovod.spark.run(programs.identity, ["never"], **arguments)


def test_speculation_is_refused(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = session.sparkContext._conf
    conf.set("spark.speculation", "true")
    try:
        with pytest.raises(ValueError, match="Spark would start ranks twice"):
            horovod.spark.run(programs.identity, ["never"])
    finally:
        conf.set("spark.speculation", "false")


def test_horovod_runner(session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    runner = horovod.spark.HorovodRunner
    numbers, _, _ = runner(np=2, driver_log_verbosity="all").run(programs.identity, greeting="hello")
    assert numbers == [0, 2, 0, 2, 0, 1] and "[1]<stdout>:hello from rank 1" in capsys.readouterr().out
    assert runner(np=0).run(programs.identity, greeting="hello")[0][1] == 2  # as many as there are slots
    assert runner(np=-1).run(programs.identity, greeting="on the driver")[0] == [0, 1, 0, 1, 0, 1]
    assert "hello" not in capsys.readouterr().out
    with pytest.raises(ValueError, match="runs 2 tasks at a time"):
        runner(np=3).run(programs.identity, greeting="never")
    with pytest.raises(ValueError, match="log_callback_only"):
        runner(np=1, driver_log_verbosity="some")


def test_what_cannot_be_sent_starts_no_task(session: Any) -> None:
    tracker = session.sparkContext._jsc.sc().statusStore()
    before = tracker.jobsList(None).size()
    with pytest.raises(ValueError, match="cannot pickle the function"):
        horovod.spark.run(threading.Lock().acquire, num_proc=2)
    assert tracker.jobsList(None).size() == before


def test_tasks_that_are_cancelled_before_spark_has_them(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt may come at once: then nothing may begin later."""
    monkeypatch.setattr(tasks, "_END_SECONDS", 60.0)
    begin = time.monotonic()
    for pause in (0, 0.01, 0.05):
        some = tasks.Tasks(session.sparkContext, 2, lambda _: time.sleep(100) or [])
        some.start()
        time.sleep(pause)
        some.close()
        assert some.has_ended
    assert time.monotonic() - begin < within(20)


def test_tasks_that_still_wait_for_a_slot_do_not_keep_a_job(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_END_SECONDS", 100.0)
    begin = time.monotonic()
    found = horovod.spark.run_elastic(programs.identity, ["hi"], num_proc=2, max_num_proc=6)
    assert len(found) == 2 and time.monotonic() - begin < within(30)


def test_workers_of_spark_keep_nothing_of_a_job(session: Any) -> None:
    """They serve the next jobs, too."""

    def left(_: Any) -> Any:
        yield [
            os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)
        ]

    horovod.spark.run(os.getpid, num_proc=2)
    found = session.sparkContext.parallelize(range(2), 2).mapPartitions(left).collect()
    assert not [path for paths in found for path in paths if "horovod" in path], found
    threads = session.sparkContext.parallelize(range(2), 2).map(lambda _: threading.active_count()).collect()
    assert threads == [1, 1]


def test_executors_without_this_library(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their Python finds no packages but those of Spark."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(session.sparkContext, "pythonExec", str(bare))
    monkeypatch.setitem(session.sparkContext.environment, "PYTHONPATH", "/nowhere")
    with pytest.raises(RuntimeError, match=r"no horovod\. Install it .* PYSPARK_PYTHON") as caught:
        horovod.spark.run(programs.identity, ["never"], num_proc=1)
    assert "Traceback" not in str(caught.value)


def test_a_runner_with_fewer_slots_than_the_default(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """spark.default.parallelism is for shuffles, and no number of slots."""
    context = session.sparkContext
    monkeypatch.setattr(type(context), "defaultParallelism", 8)
    with pytest.raises(ValueError, match="runs 2 tasks at a time"):
        horovod.spark.HorovodRunner(np=3).run(programs.identity, greeting="never")
