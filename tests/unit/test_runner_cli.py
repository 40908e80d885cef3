"""The command line of horovodrun, in process; and how long its help takes."""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from load import within

from horovod.runner import launch, options
from horovod.runner.hosts import local_slots
from horovod.runner.launch import parse_args
from horovod.runner.launchers.local_rank import rank_environment

_FRAMEWORKS = Path(__file__).resolve().parents[2] / "frameworks"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(max_size=8), max_size=8))
def test_command_is_never_touched(words: list[str]) -> None:
    command = ["python", *words]
    assert parse_args(["-np", "2", *command]).command == command
    assert parse_args(["-np", "2", "--", *command]).command == command
    assert parse_args(["-H", "localhost:4", "--verbose", "-np", "3", *command]).command == command


@pytest.mark.parametrize("option", ["-np", "-v", "--help", "--verbose", "--lo", "--log-level=X", "--", "-H"])
def test_options_of_the_command_are_its_own(option: str) -> None:
    arguments = parse_args(["-np", "2", "python", "train.py", option, "9"])
    assert arguments.command == ["python", "train.py", option, "9"]
    assert (arguments.num_proc, arguments.hosts, arguments.verbose) == (2, None, False)


def test_double_dash_ends_the_own_options() -> None:
    assert parse_args(["-np", "1", "--", "-weird", "--", "x"]).command == ["-weird", "--", "x"]


def test_values_with_equals_sign() -> None:
    arguments = parse_args(["--num-proc=3", "--hosts=localhost:3", "--cycle-time-ms=2.5", "prog"])
    assert (arguments.num_proc, arguments.command) == (3, ["prog"])
    assert options.environment(arguments) == {"HOROVOD_CYCLE_TIME": "2.5"}


def test_options_become_variables() -> None:
    line = (
        "-np 2 --fusion-threshold-mb 64 --cycle-time-ms 0.5 --cache-capacity 9 --timeline-filename t.json "
        "--timeline-mark-cycles --no-stall-check --stall-check-warning-time-seconds 20 "
        "--stall-check-shutdown-time-seconds 90 --log-level DEBUG --start-timeout 12 prog"
    )
    assert options.environment(parse_args(line.split())) == {
        "HOROVOD_FUSION_THRESHOLD": str(64 * 1024 * 1024),
        "HOROVOD_CYCLE_TIME": "0.5",
        "HOROVOD_CACHE_CAPACITY": "9",
        "HOROVOD_TIMELINE": "t.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "20",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "90",
        "HOROVOD_LOG_LEVEL": "debug",
        "HOROVOD_START_TIMEOUT": "12",
    }
    assert options.environment(parse_args(["-np", "2", "prog"])) == {}


def test_autotune_becomes_variables() -> None:
    line = (
        "-np 2 --autotune --autotune-log-file tune.csv --autotune-warmup-samples 1 "
        "--autotune-steps-per-sample 4 --autotune-bayes-opt-max-samples 30 "
        "--autotune-gaussian-process-noise 0.25 prog"
    )
    assert options.environment(parse_args(line.split())) == {
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": "tune.csv",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "4",
        "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "30",
        "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.25",
    }
    assert options.environment(parse_args(["-np", "2", "--no-autotune", "prog"])) == {"HOROVOD_AUTOTUNE": "0"}


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("", "-np is missing"),
        ("prog", "-np is missing"),
        ("-np", "expected one argument"),
        ("-np two prog", "two"),
        ("-np 0 prog", "at least 1"),
        ("-np -1 prog", "-1"),
        ("-np 2", "command is missing"),
        ("-np 2 --", "command is missing"),
        ("-np 2 --start-time 3 prog", "--start-time"),
        ("-np 2 --fancy prog", "--fancy"),
        ("-np 2 --fusion-threshold-mb -1 prog", "--fusion-threshold-mb"),
        ("-np 2 --cycle-time-ms nan prog", "--cycle-time-ms"),
        ("-np 2 --log-level LOUD prog", "LOUD"),
        ("-np 2 --autotune-gaussian-process-noise 1.5 prog", "from 0 to 1"),
        ("-np 2 --autotune-steps-per-sample -1 prog", "--autotune-steps-per-sample"),
        ("-np 2 --start-timeout 0 prog", "at least 1 second"),
        ("-np 5 -H localhost:2,127.0.0.1:2 prog", "4 slots"),
        ("-np 1 -H far.example:2 prog", "this host only"),
        ("-np 1 -H localhost prog", "localhost:2"),
        ("-np 1 -H localhost:0 prog", "no slots"),
        ("-np 1 -H ::1:2 prog", "host:slots"),
    ],
)
def test_wrong_usage(line: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_args(line.split())
    captured = capsys.readouterr()
    assert caught.value.code == 2 and captured.out == "" and captured.err.count("\n") == 1
    assert hint in captured.err and captured.err.startswith("horovodrun: error: ")


def test_slots_add_up() -> None:
    assert local_slots("localhost:2") == 2
    assert local_slots("localhost:2,127.0.0.1:3") == 5


def test_version_and_check_build_need_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_args(["-v"]).version and parse_args(["--check-build"]).check_build
    launch.check_build()
    text = capsys.readouterr().out
    assert all(name in text for name in ("PyTorch", "TensorFlow", "MXNet", "Shared memory"))


def test_rank_environment_keeps_what_the_user_has_set() -> None:
    own = {"OMP_NUM_THREADS": "9", "MASTER_ADDR": "elsewhere", "RANK": "77", "X": "y"}
    environment = rank_environment(own, 1, 4)
    kept = {name: environment[name] for name in ("OMP_NUM_THREADS", "MASTER_ADDR", "X")}
    assert kept == {"OMP_NUM_THREADS": "9", "MASTER_ADDR": "elsewhere", "X": "y"}
    assert (environment["RANK"], environment["HOROVOD_LOCAL_SIZE"]) == ("1", "4")
    assert int(rank_environment({}, 0, 10**6)["OMP_NUM_THREADS"]) == 1


def test_every_variable_has_one_meaning() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    options.add_general(parser)
    options.add_tunables(parser)
    flags = [flag for action in parser._actions for flag in action.option_strings]
    assert len(flags) == len(set(flags))


def test_help_is_quick_and_imports_little() -> None:
    script = (
        "import sys\n"
        "from horovod.runner import launch\n"
        "sys.argv = ['horovodrun', '--help']\n"
        "try:\n    launch.run_commandline()\n"
        "finally:\n"
        "    heavy = {'torch', 'numpy', 'socket', 'subprocess', 'ctypes', 'psutil', 'yaml'}\n"
        "    print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    times = []
    for _ in range(5):
        begin = time.monotonic()
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(_FRAMEWORKS)})
        times.append(time.monotonic() - begin)
        assert done.returncode == 0 and "--num-proc" in done.stdout
        assert done.stderr == "[]\n"
    assert min(times) < within(0.5)


@pytest.mark.parametrize("options", [["-p", "22"], ["--mpi"], ["--hostfile", "hosts"], ["--min-np", "1"]])
def test_options_of_other_versions_are_refused_by_name(options, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_args(["-np", "2", *options, "python", "train.py"])
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert options[0] in message and "not available in this version" in message and "leave it out" in message


def test_options_that_ask_for_what_is_so_anyway_are_accepted():
    arguments = parse_args(["-np", "2", "--gloo", "--disable-cache", "python", "train.py", "--mpi"])
    assert arguments.command == ["python", "train.py", "--mpi"]
