"""The command line of horovodrun, in process; and how long its help takes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launch import MODULE
from load import within

from horovod.runner import launch, limits
from horovod.runner.command_line import options, parser
from horovod.runner.hosts import Placement
from horovod.runner.launch import parse_args
from horovod.runner.nodes.rank_process import CommandError, rank_environment, runnable

_FRAMEWORKS = Path(__file__).resolve().parents[3] / "frameworks"


@settings(max_examples=30)
@given(st.lists(st.text(max_size=8), max_size=8))
def test_command_is_never_touched(words: list[str]) -> None:
    command = ["prog", *words]
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


def test_the_network_between_hosts() -> None:
    line = "-np 2 -p 2222 -i key --network-interfaces eth0,eth1,eth0 --port-range 20000-20999 prog"
    arguments = parse_args(line.split())
    assert (arguments.ssh_port, arguments.ssh_identity_file) == (2222, "key")
    assert options.environment(arguments) == {
        "HOROVOD_NETWORK_INTERFACES": "eth0,eth1",
        "HOROVOD_PORT_RANGE": "20000-20999",
    }
    repeated = "-np 2 --network-interface eth0 --network-interface eth1 prog"
    assert options.environment(parse_args(repeated.split())) == {"HOROVOD_NETWORK_INTERFACES": "eth0,eth1"}
    nothing = parse_args(["-np", "2", "prog"])
    assert (nothing.ssh_port, nothing.ssh_identity_file) == (None, None)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("", "-np is missing"),
        ("prog", "-np is missing"),
        ("-np", "expected one argument"),
        ("-np two prog", "'two' is neither a number of ranks nor auto"),
        ("-np 0 prog", "at least 1"),
        ("-np -1 prog", "-1"),
        ("-np 2", "command is missing"),
        ("-np 2 --", "command is missing"),
        ("-np 2 --start-time 3 prog", "no option --start-time; did you mean --start-timeout?"),
        ("--np 2 prog", "no option --np; did you mean -np?"),
        ("-np 2 --host a:2 prog", "did you mean --hosts?"),
        ("-np 2 -host a:2 prog", "no option -host; did you mean --hosts?"),
        ("-np 2 -hostfle f prog", "no option -hostfle; did you mean -hostfile?"),
        ("-np 2 --timeline=t.json prog", "did you mean --timeline-filename?"),
        ("-np 2 --fancy prog", "there is no option --fancy (see"),
        ("-np 2 --fusion-threshold-mb -1 prog", "--fusion-threshold-mb"),
        ("-np 2 --fusion-threshold-mb 2.5 prog", "--fusion-threshold-mb: '2.5' is no whole number"),
        ("-np 2 --cycle-time-ms nan prog", "--cycle-time-ms"),
        ("-np 2 --cycle-time-ms fast prog", "--cycle-time-ms: 'fast' is no number"),
        ("-np 2 --log-level LOUD prog", "LOUD"),
        ("-np 2 --autotune-gaussian-process-noise 1.5 prog", "from 0 to 1"),
        ("-np 2 --autotune-gaussian-process-noise half prog", "'half' is no number"),
        ("-np 2 --autotune-steps-per-sample -1 prog", "--autotune-steps-per-sample"),
        ("-np 2 --start-timeout 0 prog", "at least 1 second"),
        ("-np 5 -H localhost:2,127.0.0.1:2 prog", "4 slots"),
        ("-np 1 -H localhost prog", "localhost:2"),
        ("-np 1 -H localhost:0 prog", "no slots"),
        ("-np 1 -H ::1:2 prog", "host:slots"),
        ("-np many prog", "many"),
        ("-np 2 --nnodes 2 prog", "there is only 1 host: name more with -H or --hostfile"),
        ("-np 2 --nnodes 0 prog", "at least 1 host"),
        ("-np 2 --nproc-per-node 1 prog", "needs more hosts than this one: name them with -H"),
        ("-np 2 --ranks 2 prog", "no rank 2"),
        ("-np 2 --ranks 1-0 prog", "1-0"),
        ("-np 2 --ranks x prog", "0,4-7"),
        ("-np 2 --stdin-rank 2 prog", "the last rank is 1"),
        ("-np 2 --thread-affinity first prog", "0,2,4"),
        ("-np 2 --json --events f prog", "give one of them"),
        ("-np 2 --timeout 0 prog", "more than 0 seconds"),
        ("-np 2 --timeout soon prog", "--timeout"),
        ("-np 2 --grace -1 prog", "--grace"),
        ("-np 2 -p 65536 prog", "no port: expected 1 to 65535"),
        ("-np 2 --ssh-port ssh prog", "no port"),
        ("-np 2 --port-range 20000 prog", "20000-20999"),
        ("-np 2 --port-range 20009-20000 prog", "behind the last"),
        ("-np 2 --port-range 0-9 prog", "no port"),
        ("-np 2 --network-interfaces eth0,,eth1 prog", "eth0,eth1"),
    ],
)
def test_wrong_usage(line: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_refusal(line.split(), hint, capsys)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--host-discovery-script", ""], "--host-discovery-script: expected a command"),
        (["--host-discovery-script", "  "], "--host-discovery-script: expected a command"),
        (["--min-np", "2", "--checkpoint-dir", ""], "--checkpoint-dir: expected a path"),
        (["--min-np", "2", "--blacklist-cooldown-range", "60", "1"], "60 1: the first comes behind the last"),
        (["--min-np", "0"], "--min-np 0: at least 1 rank is needed"),
        (["--min-np", "3"], "--min-np 3 is more than -np 2: lower --min-np or raise -np"),
        (["--min-np", "1", "--max-np", "1"], "-np 2 is more than --max-np 1: lower -np or raise --max-np"),
        (["--min-np", "4", "--max-np", "3"], "--min-np 4 is more than --max-np 3: lower --min-np or raise"),
    ],
)
def test_wrong_usage_of_elastic_jobs(
    options: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refusal(["-np", "2", *options, "prog"], hint, capsys)


def check_refusal(line: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_args(line)
    captured = capsys.readouterr()
    assert caught.value.code == 2 and captured.out == "" and captured.err.count("\n") == 1
    assert hint in captured.err and captured.err.startswith("horovodrun: error: ")


def test_numbers_of_ranks_on_each_host() -> None:
    assert parse_args(["--nproc-per-node", "3", "prog"]).num_proc == 3
    assert parse_args(["--nnodes", "1", "-np", "4", "prog"]).num_proc == 4
    assert parse_args(["-H", "localhost:2,far:3", "--nproc-per-node", "2", "prog"]).num_proc == 4


def test_version_and_check_build_need_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_args(["-v"]).version and parse_args(["--check-build"]).check_build
    launch.check_build()
    text = capsys.readouterr().out
    assert all(name in text for name in ("PyTorch", "TensorFlow", "MXNet", "Shared memory"))


def test_rank_environment_keeps_what_the_user_has_set() -> None:
    own = {"OMP_NUM_THREADS": "9", "MASTER_ADDR": "elsewhere", "RANK": "77", "X": "y"}
    environment = rank_environment(own, Placement(1, "localhost", 1, 4, 0, 1), 4)
    kept = {name: environment[name] for name in ("OMP_NUM_THREADS", "MASTER_ADDR", "X")}
    assert kept == {"OMP_NUM_THREADS": "9", "MASTER_ADDR": "elsewhere", "X": "y"}
    assert (environment["RANK"], environment["HOROVOD_LOCAL_SIZE"]) == ("1", "4")
    assert int(rank_environment({}, Placement(0, "localhost", 0, 10**6, 0, 1), 10**6)["OMP_NUM_THREADS"]) == 1


def test_every_variable_has_one_meaning() -> None:
    flags = [flag for action in parser.new_parser()._actions for flag in action.option_strings]
    assert len(flags) == len(set(flags))


def test_help_is_quick_and_imports_little() -> None:
    script = (
        "import sys\n"
        "from horovod.runner import launch\n"
        "sys.argv = ['horovodrun', '--help']\n"
        "try:\n    launch.run_commandline()\n"
        "finally:\n"
        "    heavy = {'torch', 'numpy', 'socket', 'subprocess', 'ctypes', 'psutil', 'yaml'}\n"
        "    heavy |= {'json', 'pathlib', 'shutil', 'threading', 'selectors', 'signal', 'difflib'}\n"
        "    print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    helps, starts = [], []
    for _ in range(5):  # in turns, so that a slow machine and its neighbours slow down both
        seconds, done = seconds_of_python(script)
        assert done.returncode == 0 and "--num-proc" in done.stdout
        assert done.stderr == "[]\n"
        helps.append(seconds)
        starts.append(seconds_of_python("import argparse")[0])
    assert min(helps) < 5 * min(starts), (helps, starts)


def seconds_of_python(script: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    begin = time.monotonic()
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(_FRAMEWORKS)})
    return time.monotonic() - begin, done


def test_auto_is_a_rank_for_each_core_or_slot() -> None:
    assert parse_args(["-np", "auto", "prog"]).num_proc == limits.usable_cores()
    assert parse_args(["-n", "auto", "-H", "localhost:7", "prog"]).num_proc == 7


def test_lists_of_ranks() -> None:
    assert parse_args(["-np", "9", "--ranks", "8,0,2-4,3", "prog"]).ranks == [0, 2, 3, 4, 8]
    assert parse_args(["-np", "9", "--stdin-rank", "8", "prog"]).stdin_rank == 8


def test_many_ranks_for_each_core_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "usable_cores", lambda: 2)
    assert limits.crowding(16) is None
    text = limits.crowding(100)
    assert text is not None and text.startswith("100 ranks share 2 cores: everything takes 50 times as long")


def test_a_script_is_run_by_this_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "data.txt").touch()
    assert runnable(["train.py", "-x"]) == [sys.executable, "train.py", "-x"]
    assert runnable(["sh", "train.py"]) == ["sh", "train.py"]
    for program, status in (("data.txt", 126), ("absent.py", 127)):
        with pytest.raises(CommandError, match=program) as raised:
            runnable([program])
        assert raised.value.status == status
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match=r"^python3: .*; without it, a script runs with the Python of"):
        runnable(["python3", "train.py"])
    (tmp_path / "train.py").chmod(0o755)  # with a first line of its own
    assert runnable(["./train.py"]) == ["./train.py"]
    monkeypatch.chdir("/")  # and in another folder
    assert runnable(["./train.py"], str(tmp_path)) == ["./train.py"]
    (tmp_path / "train.py").chmod(0o644)
    assert runnable(["train.py"], str(tmp_path)) == [sys.executable, "train.py"]
    with pytest.raises(CommandError, match="no such file"):
        runnable(["train.py"])


def test_a_command_is_looked_for_where_the_ranks_do(tmp_path: Path) -> None:
    program = tmp_path / "program-of-ranks"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    words = [*MODULE, "-np", "1", "-x", f"PATH={tmp_path}{os.pathsep}{os.environ['PATH']}", program.name]
    assert subprocess.check_output(words, timeout=within(30)) == b"[0]<stdout>:found\n"


_INTERRUPTED = """
import os, signal, time
from horovod.runner import launch
from horovod.runner.command_line import parser

def slow(words):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

parser.parse = slow
launch.run_commandline()
"""


def test_an_interrupt_before_there_is_a_job_leaves_no_traceback() -> None:
    words = [sys.executable, "-c", _INTERRUPTED]
    result = subprocess.run(words, capture_output=True, timeout=within(30), check=False)
    assert (result.returncode, result.stdout, result.stderr) == (130, b"", b"")


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_what_a_full_disk_has_not_kept_is_an_error(option: str) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "horovod.runner.launch", option]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE)
    assert done.stderr == b"horovodrun: error: stdout: No space left on device\n" and done.returncode == 1


@pytest.mark.parametrize("module", ["horovod", "horovod.runner.launch"])
@pytest.mark.parametrize("option", ["--help", "--version", "--check-build"])
def test_a_reader_may_leave(module: str, option: str) -> None:
    command = f"{sys.executable} -m {module} {option} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, env={"PYTHONPATH": str(_FRAMEWORKS)})
    assert done.stderr == b"" and done.returncode in (0, 141)


def test_closed_outputs_are_no_error() -> None:
    command = f"{sys.executable} -m horovod --help >&-"
    assert subprocess.run(["bash", "-c", command], env={"PYTHONPATH": str(_FRAMEWORKS)}).returncode == 0
