"""horovod.run with real ranks: results, exceptions, and ranks that end in every other way."""

import atexit
import io
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from launch import PROGRAMS, Launcher, carries
from load import within

import horovod
from horovod.common.exceptions import HorovodInternalError
from horovod.runner.call.packing import RemoteTraceback

MARKER = "HVD_TEST_MARK"


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every process that a test starts carries a marker, and is gone at its end."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARKER, mark)
    yield
    deadline = time.monotonic() + within(2.0)
    while left := [f for f in Path("/proc").glob("[0-9]*") if carries(f, f"{MARKER}={mark}".encode())]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def own_rank() -> int:
    return int(os.environ["HOROVOD_RANK"])


def summed(values: np.ndarray, factor: float = 1.0) -> tuple:
    """The sum over the ranks of what each scales by its rank and ``factor``, as torch has it."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    tensor = hvd.allreduce(torch.from_numpy(values) * hvd.rank() * factor, op=hvd.Sum)
    return hvd.rank(), hvd.size(), tensor, tensor.numpy()


def misbehave(how: str) -> int:
    """On rank 1; the others wait for it in the library."""
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import operations

    hvd.init()
    if hvd.rank() == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit":
            sys.exit(7)
        if how == "quiet exit":
            sys.exit()
        raise KeyError(how)
    operations.barrier()
    return hvd.rank()


def test_results_come_in_rank_order_and_what_ranks_print_is_shown(capsys):
    values = np.random.default_rng().standard_normal(1000)
    results = horovod.run(summed, (values,), {"factor": 2.0}, num_proc=3)
    assert [result[:2] for result in results] == [(0, 3), (1, 3), (2, 3)]
    for _, _, tensor, array in results:
        np.testing.assert_allclose(array, values * 2.0 * (1 + 2))
        np.testing.assert_array_equal(tensor.numpy(), array)
    assert capsys.readouterr() == ("", "")


def test_output_goes_to_the_streams_of_the_caller_behind_its_prefixes(capsys):
    def talk() -> None:
        print("öut", own_rank())
        print("err", own_rank(), file=sys.stderr)

    horovod.run(talk, num_proc=2, verbose=True)
    shown = capsys.readouterr()
    assert sorted(shown.out.splitlines()) == ["[0]<stdout>:öut 0", "[1]<stdout>:öut 1"]
    ranks = [line for line in shown.err.splitlines() if not line.startswith("horovodrun: ")]
    assert sorted(ranks) == ["[0]<stderr>:err 0", "[1]<stderr>:err 1"]
    assert "horovodrun: rank 1 of 2: pid " in shown.err


def test_a_stream_that_takes_no_umlauts_or_nothing_at_all_ends_no_job(monkeypatch):
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", plain)
    monkeypatch.setattr(sys, "stderr", None)
    assert horovod.run(lambda: print("öut") or print("err", file=sys.stderr), num_proc=1) == [None]
    plain.seek(0)
    assert plain.read() == "[0]<stdout>:\\xf6ut\n"
    plain.close()
    assert horovod.run(lambda: print("more") or 1, num_proc=1) == [1]


def test_lambdas_closures_and_methods_are_called():
    offset = 3
    assert horovod.run(lambda *words, end: (own_rank() + offset, words, end), "ab", {"end": "c"}, 2) == [
        (3, ("a", "b"), "c"),
        (4, ("a", "b"), "c"),
    ]
    assert horovod.run("-".join, ([["a", "b"]][0],)) == ["a-b"]


def test_the_exception_of_the_first_rank_that_failed_is_raised(capsys):
    with pytest.raises(KeyError, match="a reason") as caught:
        horovod.run(misbehave, ("a reason",), num_proc=3)
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback) and cause.rank == 1
    assert "in misbehave" in cause.text and "worker.py" not in cause.text
    assert __file__ in cause.text and "raise KeyError(" in cause.text
    shown = capsys.readouterr().err
    assert "[1]<stderr>:KeyError: 'a reason'" in shown and "HorovodInternalError" in shown
    assert "failed first" not in shown


def test_an_exception_that_all_ranks_share_is_raised_as_it_is():
    def collide() -> None:
        from horovod.common import basics as hvd
        from horovod.common.collective.byte_objects import operations

        hvd.init()
        operations.allreduce_(bytearray(2 + hvd.rank()), op=1, name="shape")

    with pytest.raises(HorovodInternalError, match="shape") as caught:
        horovod.run(collide, num_proc=2)
    assert type(caught.value).__name__ == "TensorMismatchError"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("kill", r"^rank 1 \(localhost, pid \d+\) failed first: killed by SIGKILL"),
        ("exit", r"^rank 1 \(localhost, pid \d+\).*exit status 7"),
        ("quiet exit", r"^rank 1 \(localhost, pid \d+\) ended too early, with exit status 0"),
    ],
)
def test_a_rank_that_ends_without_a_result_is_reported(how, said):
    with pytest.raises(RuntimeError, match=said) as caught:
        horovod.run(misbehave, (how,), num_proc=2)
    assert "horovodrun: " not in str(caught.value)


def test_a_rank_that_leaves_early_without_harm_is_named():
    with pytest.raises(RuntimeError, match="rank 1 ended with exit status 0 before the function returned"):
        horovod.run(lambda: os._exit(0) if own_rank() == 1 else 3, num_proc=2)


def test_what_cannot_be_pickled_names_rank_and_type():
    with pytest.raises(RuntimeError, match="the function returned a lock that cannot be pickled") as caught:
        horovod.run(lambda: threading.Lock() if own_rank() == 1 else 1, num_proc=2)
    assert str(caught.value.__cause__).startswith("on rank 1 (localhost, pid ")
    with pytest.raises(RuntimeError, match=r"horovod\.run cannot unpickle the result of rank 0 "):
        horovod.run(of_a_module_that_the_caller_lacks)


@pytest.mark.parametrize("fails", [False, True])
def test_a_child_that_a_function_forks_sends_no_result(fails):
    def fork() -> str:
        if child := os.fork():
            atexit.register(os.waitpid, child, 0)  # after the rank has sent its own
            return f"rank {own_rank()}"
        time.sleep(0.5)
        return [][1] if fails else "child"

    assert horovod.run(fork, num_proc=2) == ["rank 0", "rank 1"]


def leave_nothing_as_it_was(how: str) -> int:
    rank = own_rank()
    if how == "no environment":
        os.environ.clear()
    elif how == "no streams":
        sys.stdout = sys.stderr = None
    else:
        os.closerange(0, 3)
    if how != "no environment":
        raise LookupError(how)
    return rank


def test_what_a_function_does_to_its_process_does_not_keep_its_result_or_error():
    assert horovod.run(leave_nothing_as_it_was, ("no environment",), num_proc=2) == [0, 1]
    for how in ("no streams", "closed streams"):
        with pytest.raises(LookupError, match=how):
            horovod.run(leave_nothing_as_it_was, (how,), num_proc=2)


def of_a_module_that_the_caller_lacks() -> object:
    import types

    sys.modules["made_here"] = module = types.ModuleType("made_here")
    exec("class Made: pass", module.__dict__)
    return module.Made()


@pytest.mark.parametrize("mib", [20, pytest.param(200, marks=pytest.mark.full)])
def test_many_mib_go_there_and_come_back(mib):
    data = np.random.default_rng().integers(0, 256, mib << 20, dtype=np.uint8)
    began = time.monotonic()
    (result,) = horovod.run(lambda array: array[::-1].copy(), (data,))
    print(f"{time.monotonic() - began:.1f} s")
    np.testing.assert_array_equal(result, data[::-1])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"use_mpi": True}, "use_mpi: "),
        ({"num_proc": 0}, "num_proc=0: at least 1 rank"),
        ({"num_proc": 3, "hosts": "localhost:2"}, "localhost"),
        ({"min_num_proc": 3, "max_num_proc": 2}, "=3 is more than max_num_proc=2: lower min_num_proc or"),
        ({"host_discovery_script": "hosts.sh", "hosts": "localhost:1"}, "leave hosts and hostfile out"),
        ({"hostfile": "no-such-file"}, "no-such-file"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_horovodrun_refuses_is_an_error_that_names_the_argument(arguments, reason):
    with pytest.raises(ValueError, match=r"^horovod\.run: ") as caught:
        horovod.run(own_rank, **arguments)
    assert reason in str(caught.value)
    assert "horovodrun --help" not in str(caught.value)


@pytest.mark.parametrize("old", ["np", "min_np", "max_np", "network_interface"])
def test_old_names_warn_and_mean_the_new_ones(old):
    value = "lo" if old == "network_interface" else 2
    with pytest.warns(DeprecationWarning, match=rf"{old} is deprecated, use ") as warned:
        if old == "max_np":
            assert horovod.run(lambda: 7, num_proc=2, max_np=2) == [7, 7]
        elif old == "min_np":
            assert horovod.run(lambda: 7, min_np=2) == [7, 7]
        else:
            assert horovod.run(own_rank, **{old: value}) == ([0, 1] if old == "np" else [0])
    assert warned[0].filename == __file__


def test_output_is_kept_and_another_python_is_taken(tmp_path, capsys):
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    wrapper = tmp_path / "own_python"
    wrapper.write_text(f'#!/bin/sh\necho "by own_python"\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    kept = tmp_path / "kept"
    horovod.run(own_rank, num_proc=2, executable=str(wrapper), output_filename=str(kept))
    assert (kept / "rank.1" / "stdout").read_text() == "by own_python\n"
    assert "[0]<stdout>:by own_python" in capsys.readouterr().out


def test_what_the_launcher_cannot_do_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match=r"^horovod\.run: output_filename: "):
        horovod.run(own_rank, output_filename=str(tmp_path / "file"))
    with pytest.raises(RuntimeError, match=r"no-such-python: command not found"):
        horovod.run(own_rank, executable="no-such-python")


def test_a_run_within_a_run_is_refused():
    with pytest.raises(RuntimeError, match=r"this process is rank 0 of 1"):
        horovod.run(lambda: horovod.run(own_rank))


def test_several_threads_run_jobs_at_once():
    results: dict[int, list[int]] = {}

    def start(number: int) -> None:
        results[number] = horovod.run(lambda: number + own_rank(), num_proc=2)

    threads = [threading.Thread(target=start, args=(number,)) for number in (0, 10, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: [0, 1], 10: [10, 11], 20: [20, 21]}


class Script:
    """programs/run_function.py, with all that it starts."""

    def __init__(self, what: str) -> None:
        self.launcher = Launcher()
        command = [sys.executable, str(PROGRAMS / "run_function.py"), what]
        self.process = self.launcher.popen(command, stdin=subprocess.PIPE)

    def read_until(self, text: bytes, count: int) -> None:
        seen = b""
        while seen.count(text) < count:
            line = self.process.stdout.readline()
            assert line, (seen, self.process.stderr.read())
            seen += line

    def finish(self) -> str:
        result = self.launcher.finish(self.process, 30)
        self.launcher.wait_until_gone(2.0)
        assert b"Exception ignored" not in result.stderr
        return result.output


def test_ctrl_c_ends_the_ranks_and_is_raised():
    script = Script("wait")
    script.read_until(b"waiting", 2)
    script.process.send_signal(signal.SIGINT)
    output = script.finish()
    assert "interrupted\n" in output and "horovodrun: SIGINT: ending all ranks" in output
    assert script.process.returncode == 0


def test_a_second_ctrl_c_ends_ranks_that_ignore_the_first():
    script = Script("shrug")
    script.read_until(b"waiting", 2)
    began = time.monotonic()
    script.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    script.process.send_signal(signal.SIGINT)
    assert "interrupted\n" in script.finish()
    assert time.monotonic() - began < within(4.0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("what", ["wait", "daemon"])
def test_the_end_of_the_caller_is_the_end_of_the_job(what, number):
    script = Script(what)
    script.read_until(b"waiting", 2)
    script.process.send_signal(number)
    script.finish()
    assert script.process.returncode == -number


def test_an_interpreter_that_ends_leaves_no_job_of_its_daemon_threads():
    script = Script("daemon")
    script.read_until(b"waiting", 2)
    script.process.stdin.write(b"\n")
    script.process.stdin.close()
    script.process.stdin = None
    script.finish()
    assert script.process.returncode == 0


def test_the_interpreter_waits_for_a_thread_that_runs_a_job():
    assert Script("thread").finish().startswith("[['thread'], ['thread']]\n")


def test_exceptions_of_the_script_are_caught_by_their_class():
    output = Script("classes").finish()
    assert "caught ('rank 1 is in trouble', 7) RemoteTraceback" in output
    assert "copied True fail_on_rank_1\n" in output


def test_function_and_results_are_seen_by_no_other_process(tmp_path, monkeypatch):
    token, go = uuid.uuid4().hex, tmp_path / "go"
    done: list[str] = []

    def hold(text: str) -> str:
        print("holding", flush=True)
        while not go.exists():
            time.sleep(0.05)
        return text

    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    thread = threading.Thread(target=lambda: done.extend(horovod.run(hold, (token,), num_proc=2)))
    thread.start()
    try:
        deadline = time.monotonic() + within(30.0)
        while shown.getvalue().count("holding") < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        mark = f"{MARKER}={os.environ[MARKER]}".encode()
        folders = [folder for folder in Path("/proc").glob("[0-9]*") if carries(folder, mark)]
        assert len(folders) == 3
        holders = 0
        for folder in folders:
            assert token.encode() not in (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
            links = [os.readlink(entry) for entry in (folder / "fd").iterdir()]
            holders += any("horovod-call" in link or "horovod-results" in link for link in links)
        assert holders == 1  # the launcher
    finally:
        go.touch()
        thread.join()
    assert done == [token, token] and token not in shown.getvalue()


def test_a_launcher_that_is_killed_is_an_error_and_leaves_nothing():
    def kill_launcher() -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(RuntimeError, match="the launcher was ended by SIGKILL, and the job with it"):
        horovod.run(kill_launcher)
