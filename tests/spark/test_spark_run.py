"""``horovod.spark.run`` on two executors: results, output, the environment, and what is refused."""

import io
import os
import sys
from typing import Any

import pytest
import spark_programs as programs
from load import within

import horovod.spark
from horovod.runner.common.util.timeout import TimeoutException


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
