"""horovodrun with real processes. The commands are small scripts that know nothing of horovod."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch import MODULE, Launcher, alone, carries, command_line
from load import within
from rank_scripts import lines_of, rank_script, read_until

from horovod.runner import limits


def test_ranks_get_their_identity_and_the_command_its_options(job: Launcher) -> None:
    names = " ".join(
        f"HOROVOD_{scope}{what}" for scope in ("", "LOCAL_", "CROSS_") for what in ("RANK", "SIZE")
    )
    names += " RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE PYTHONUNBUFFERED OMP_NUM_THREADS"
    script = rank_script(f"print(*[os.environ[n] for n in '{names}'.split()], *sys.argv[1:])")
    words = ["--max", "3", "--lo", "4", "-np", "7", "--", "--version"]
    status, stdout, stderr = job.run("-np", "2", "-H", "localhost:2", *script, *words, OMP_NUM_THREADS="5")
    assert (status, stderr) == (0, alone(2))
    for rank in range(2):
        expected = f"{rank} 2 {rank} 2 0 1 {rank} 2 {rank} 2 1 5 {' '.join(words)}\n".encode()
        assert lines_of(rank, "stdout", stdout) == [expected]


def test_output_keeps_every_byte(job: Launcher) -> None:
    text = "训练 épochs".encode()
    script = rank_script(
        "out, err = sys.stdout.buffer, sys.stderr.buffer\n"
        f"out.write({text!r} + b'\\n' + b'\\xff\\xfe\\x00raw\\r\\n' + b'\\n' + b'x' * 300000 + b'\\n')\n"
        "out.flush()\n"
        "err.write(b'half'); err.flush(); time.sleep(0.1); err.write(b' line\\nno newline'); err.flush()\n"
    )
    status, stdout, stderr = job.run("-np", "2", *script, LANG="C", LC_ALL="C", PYTHONUTF8="0")
    assert status == 0
    for rank in range(2):
        expected = [text + b"\n", b"\xff\xfe\x00raw\r\n", b"\n", b"x" * 300000 + b"\n"]
        lines = [line + b"\n" for line in stdout.split(b"\n")]
        prefix = f"[{rank}]<stdout>:".encode()
        assert [line.removeprefix(prefix) for line in lines if line.startswith(prefix)] == expected
        assert [line.rstrip(b"\n") for line in lines_of(rank, "stderr", stderr)] == [
            b"half line",
            b"no newline",
        ]


def test_lines_of_many_ranks_do_not_mix(job: Launcher) -> None:
    count = 30000
    script = rank_script(f"for i in range({count}): os.write(1 + i % 2, b'%d %d\\n' % (rank, i))")
    status, stdout, stderr = job.run("-np", "3", *script)
    assert status == 0
    for rank in range(3):
        assert lines_of(rank, "stdout", stdout) == [b"%d %d\n" % (rank, i) for i in range(0, count, 2)]
        assert lines_of(rank, "stderr", stderr) == [b"%d %d\n" % (rank, i) for i in range(1, count, 2)]
    assert len(stdout.splitlines()) == 3 * count // 2


def test_slow_reader_holds_back_the_ranks_but_not_the_launcher(job: Launcher) -> None:
    process = job.start("-np", "2", *rank_script("while True: os.write(1, b'y' * 999 + b'\\n')"))
    process.stdout.read(1)  # both ranks run; from here on nobody reads
    time.sleep(1.0)
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(within(10)) == 143
    assert time.monotonic() - begin < within(4)
    process.communicate()


def test_stopped_reader_does_not_hold_up_the_report_on_a_failure(job: Launcher) -> None:
    script = rank_script(
        "if rank == 0:\n    while True: os.write(1, b'y' * 999 + b'\\n')\n"
        "time.sleep(2); print('the reason', file=sys.stderr); sys.exit(7)"
    )
    read_end, write_end = os.pipe()
    process = job.popen([*MODULE, "-np", "2", *script], stdout=write_end)
    os.close(write_end)
    begin = time.monotonic()
    _, stderr = process.communicate(timeout=within(30))
    os.close(read_end)
    assert process.returncode == 7 and time.monotonic() - begin < within(15)
    assert b"horovodrun: rank 1 " in stderr and b"  the reason\n" in stderr
    assert b"nobody reads stdout: at least" in stderr


def test_a_reader_that_reads_nothing_at_all_does_not_hold_up_the_end(job: Launcher) -> None:
    """Of a job that has failed; what people are told at last goes the same way."""
    read_end, write_end = os.pipe()
    script = rank_script("os.write(2, b'y' * 99999); sys.exit(7)")
    process = job.popen([*MODULE, "--verbose", "-np", "1", *script], stdout=write_end, stderr=write_end)
    os.close(write_end)
    assert job.end_within(process, 15) == 7
    os.close(read_end)


def test_slow_reader_gets_all_output_of_a_failed_job(job: Launcher) -> None:
    script = rank_script("for i in range(300): os.write(1, b'%0998d\\n' % i)\nsys.exit(3)")
    process = job.start("-np", "1", *script)
    assert process.stdout is not None
    count = 0
    while data := process.stdout.read1(20000):  # type: ignore[attr-defined]
        count += data.count(b"\n")
        time.sleep(0.2)
    assert process.wait() == 3 and count == 300


@pytest.mark.parametrize("count", ["1000000000", "99999999999999999999"])
def test_too_many_ranks_are_refused_before_anything_is_allocated(job: Launcher, count: str) -> None:
    begin = time.monotonic()
    status, stdout, stderr = job.run("-np", count, "true")
    assert (status, stdout, stderr.count(b"\n")) == (2, b"", 1)
    assert b"more than the" in stderr and time.monotonic() - begin < within(1.5)


def test_a_limit_on_files_is_named_before_anything_starts(job: Launcher) -> None:
    command = " ".join(["ulimit -n 256; exec", *MODULE, "-np", "100", "true"])
    process = job.popen(["bash", "-c", command])
    _, stderr = process.communicate(timeout=within(10))
    assert process.returncode == 2 and stderr.count(b"\n") == 1
    assert b"-np 100 needs 332 open files and the limit is 256: raise it with ulimit -n" in stderr


def test_streams_that_lead_to_one_pipe_do_not_mix(job: Launcher) -> None:
    count = 20000
    script = rank_script(f"for i in range({count}): os.write(1 + i % 2, b'%d' % (i % 10) * 80 + b'\\n')")
    command = [*MODULE, "-np", "2", *script]
    output = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=job.environment
    ).stdout
    lines = [line for line in output.splitlines() if not line.startswith(b"horovodrun: ")]
    assert len(lines) == 2 * count
    assert all(len(line) == len("[0]<stdout>:") + 80 and len(set(line[-80:])) == 1 for line in lines)


def test_stopped_rank_is_named(job: Launcher, tmp_path: Path) -> None:
    script = rank_script(
        "if rank == 0: open(sys.argv[1], 'w').close(); os.kill(os.getpid(), signal.SIGSTOP)\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "time.sleep(0.5)\nif rank == 1: sys.exit(4)"
    )
    begin = time.monotonic()
    status, _, stderr = job.run("-np", "3", *script, str(tmp_path / "stops"))
    assert status == 4 and time.monotonic() - begin < within(6)
    assert b"rank 1 " in stderr.splitlines()[0] and b"horovodrun: rank 0 stopped (state T)" in stderr


def test_output_files_and_timestamps(job: Launcher, tmp_path: Path) -> None:
    script = rank_script("print('out', rank); print('err', rank, file=sys.stderr)")
    status, stdout, _ = job.run(
        "-np", "11", "-prefix-timestamp", "--output-filename", str(tmp_path / "logs"), *script
    )
    assert status == 0
    assert (tmp_path / "logs" / "rank.03" / "stdout").read_bytes() == b"out 3\n"
    assert (tmp_path / "logs" / "rank.10" / "stderr").read_bytes() == b"err 10\n"
    line = next(line for line in stdout.splitlines() if b"[3]<stdout>:" in line)
    time.strptime(line.partition(b"[")[0].decode())


def test_output_file_that_is_a_symbolic_link_is_refused(job: Launcher, tmp_path: Path) -> None:
    (tmp_path / "rank.0").mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "rank.0" / "stdout").symlink_to(victim)
    status, _, stderr = job.run("-np", "1", "--output-filename", str(tmp_path), "true")
    assert (status, victim.read_text(), stderr.count(b"\n")) == (2, "precious", 1)


def test_status_and_report_name_the_first_failure(job: Launcher) -> None:
    script = rank_script(
        "if rank == 1:\n"
        "    time.sleep(0.3); print('the reason', file=sys.stderr); sys.exit(7)\n"
        "try:\n    time.sleep(60)\n"
        "finally:\n    print('never')\n"
    )
    begin = time.monotonic()
    status, stdout, stderr = job.run("-np", "3", *script)
    assert status == 7 and time.monotonic() - begin < within(6)
    report = [line for line in stderr.decode().splitlines() if not line.startswith("[")]
    assert "rank 1 " in report[0] and "status 7" in report[0] and len(report) <= 12
    assert report[-1] == "  the reason"
    assert b"never" not in stdout


def test_killed_rank_gives_137_and_survivors_may_report(job: Launcher, tmp_path: Path) -> None:
    script = rank_script(
        "open(os.path.join(sys.argv[1], str(rank)), 'w').close()\n"
        "while len(os.listdir(sys.argv[1])) < 3: time.sleep(0.01)\n"  # nobody is still about to begin
        "if rank == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "time.sleep(0.5); print('survivor saw it', file=sys.stderr); sys.exit(3)"
    )
    begin = time.monotonic()
    status, _, stderr = job.run("-np", "3", *script, str(tmp_path))
    assert status == 137 and time.monotonic() - begin < within(5)
    assert b"rank 0 " in stderr and b"SIGKILL" in stderr and b"after it failed: ranks 1, 2" in stderr
    assert lines_of(2, "stderr", stderr) == [b"survivor saw it\n"]


def test_deaf_rank_is_killed_after_the_grace_time(job: Launcher) -> None:
    hasty = (
        "from horovod.runner import ending, launch\nending.REPORT_SECONDS, ending.GRACE_SECONDS = 0.3, 0.6\n"
    )
    script = rank_script(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nif rank: sys.exit(9)\ntime.sleep(60)"
    )
    command = [sys.executable, "-c", hasty + "launch.run_commandline()", "-np", "2", *script]
    begin = time.monotonic()
    assert subprocess.run(command, env=job.environment, stderr=subprocess.DEVNULL).returncode == 9
    assert 0.9 < time.monotonic() - begin < within(6)


def test_rank_may_finish_before_the_others(job: Launcher) -> None:
    status, stdout, _ = job.run("-np", "2", *rank_script("time.sleep(0.5 * rank); print('done', rank)"))
    assert status == 0 and lines_of(1, "stdout", stdout) == [b"done 1\n"]


def test_wrong_usage_is_one_line_and_status_2(job: Launcher) -> None:
    cases = [
        (("-np", "0", "true"), b"-np 0"),
        (("-np", "3", "-H", "localhost:2", "true"), b"slots"),
        (("-np", "2"), b"command is missing"),
        (("true",), b"-np is missing"),
        (("-np", "2", "--fancy", "true"), b"--fancy"),
    ]
    for arguments, hint in cases:
        status, stdout, stderr = job.run(*arguments)
        assert (status, stdout, stderr.count(b"\n")) == (2, b"", 1), arguments
        assert hint in stderr


def test_missing_program(job: Launcher) -> None:
    status, _, stderr = job.run("-np", "2", "no-such-program")
    assert status == 127 and b"no-such-program" in stderr and stderr.count(b"\n") == 1


def test_a_script_needs_no_interpreter(job: Launcher, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys; print(sys.executable, *sys.argv[1:])\n")
    status, stdout, stderr = job.run("-n", "2", str(script), "--lr", "1")
    assert (status, stderr) == (0, alone(2))
    assert lines_of(1, "stdout", stdout) == [f"{sys.executable} --lr 1\n".encode()]


def test_many_ranks_for_each_core_are_warned_of(job: Launcher) -> None:
    cores = limits.usable_cores()
    status, _, stderr = job.run("-np", str(8 * cores + 1), "true")
    assert status == 0 and stderr.startswith(b"horovodrun: warning: %d ranks share " % (8 * cores + 1))


def test_only_some_ranks_are_shown_and_all_are_kept(job: Launcher, tmp_path: Path) -> None:
    script = rank_script("print('rank', rank); sys.exit(3 if rank == 2 else 0)")
    status, stdout, stderr = job.run("-np", "3", "--ranks", "0", "--output-filename", str(tmp_path), *script)
    assert status == 3 and stdout == b"[0]<stdout>:rank 0\n"
    assert (tmp_path / "rank.1" / "stdout").read_bytes() == b"rank 1\n"
    assert stderr.startswith(b"horovodrun: rank 2 ") and stderr.endswith(b"  rank 2\n")


def test_secret_is_in_nocommand_line_and_no_output(job: Launcher) -> None:
    script = rank_script("print('ready'); time.sleep(60)")
    process = job.start("-np", "2", "--verbose", *script)
    read_until(process, b"ready", 2)
    folders = list(Path("/proc").glob("[0-9]*"))
    entries = [(f / "environ").read_bytes().split(b"\0") for f in folders if carries(f, job.marker)]
    prefix = b"HOROVOD_SECRET_FILE="
    files = {e.removeprefix(prefix) for entry in entries for e in entry if e.startswith(prefix)}
    assert len(files) == 1
    secret = Path(files.pop().decode()).read_bytes()
    assert len(bytes.fromhex(secret.decode())) == 32
    assert secret not in b"".join(e for entry in entries for e in entry)
    command_lines = b"".join(map(command_line, folders))
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=within(10))
    assert secret not in command_lines + stdout + stderr
