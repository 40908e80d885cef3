"""Layer P: what happens to the process of a rank."""

import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fault_case import NotHere, case, elsewhere
from stage import Stage

KILLED = 128 + signal.SIGKILL
WHO = r"rank {} \(localhost, pid \d+\)"
WHO_1 = WHO.format(1)
SENTENCE = {"HOROVOD_HEARTBEAT_SECONDS": "0.5", "HOROVOD_PEER_TIMEOUT_SECONDS": "2"}
TCP = {"HOROVOD_TRANSPORT": "tcp"}


@case(1, "P", "a rank is killed between two steps", limit=1.0, quick=True)
def killed_between_steps(stage: Stage) -> None:
    job = stage.job(3, "process:train", env=TCP)
    job.send(signal.SIGKILL, 1)
    stage.fails(job, KILLED, rf"{WHO_1} .*killed by SIGKILL")


@case(
    2,
    "P",
    "a rank is killed in the middle of a collective: 16 KiB, 64 MiB, an early and a late chunk",
    limit=1.0,
)
def killed_in_a_collective(stage: Stage) -> None:
    for elements, chunk, transport in (
        (4096, 10, "tcp"),
        (16 << 20, 40, "shm"),
        (16 << 20, 40, "tcp"),
        (16 << 20, 95, "tcp"),
    ):
        env = {"HOROVOD_TRANSPORT": transport, "HOROVOD_FAILPOINT": f"chunk@{chunk}:rank1:stop"}
        job = stage.job(3, "process:one_large", elements, env=env)
        job.wait_for(r"failpoint chunk@\d+ on rank 1")
        time.sleep(0.3)
        job.kill(job.pids()[1])
        stage.fails(job, KILLED, rf"{WHO_1} .*killed by SIGKILL", r"rank [02] failed at .*'large'")


@case(3, "P", "rank 0, which coordinates, is killed", limit=1.0, quick=True)
def coordinator_killed(stage: Stage) -> None:
    job = stage.job(3, "process:train")
    job.send(signal.SIGKILL, 0)
    stage.fails(job, KILLED, rf"{WHO.format(0)} .*killed by SIGKILL")


@case(4, "P", "two ranks at once, and all but one, are killed", limit=2.0)
def several_killed(stage: Stage) -> None:
    for ranks, victims in ((4, (1, 3)), (4, (0, 1, 2))):
        job = stage.job(ranks, "process:train")
        job.send(signal.SIGKILL, *victims)
        listed = ", ".join(map(str, victims))
        stage.fails(
            job, KILLED, rf"rank [{listed}] .*killed by SIGKILL", *(rf"rank.* {rank}\b" for rank in victims)
        )


@case(5, "P", "user code crashes (SIGSEGV)", limit=2.0, quick=True)
def crash(stage: Stage) -> None:
    job = stage.job(3, "process:misdeed", "crash")
    stage.fails(job, 128 + signal.SIGSEGV, rf"{WHO_1} .*SIGSEGV", "in user_code_that_crashes")


@case(6, "P", "a rank aborts (SIGABRT)", limit=2.0)
def abort(stage: Stage) -> None:
    job = stage.job(3, "process:misdeed", "abort")
    stage.fails(job, 128 + signal.SIGABRT, rf"{WHO_1} .*SIGABRT", r"build [0-9a-f]{6,}|build id")


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A control group with a limit of memory; NotHere where this user may make none."""
    for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root) / f"fault-{uuid.uuid4().hex}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(str(limit))
            yield group
        except PermissionError:
            continue
        finally:
            group.rmdir()
        return
    raise NotHere("needs the right to make a memory control group")


@case(7, "P", "the kernel ends a rank for its memory", limit=4.0)
def out_of_memory(stage: Stage) -> None:
    with memory_group(400 << 20) as group:
        inside = ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh"]
        job = stage.job(3, "process:misdeed", "take-memory", wrap=inside)
        stage.fails(job, KILLED, rf"{WHO_1} .*SIGKILL.*OOM.*400")
        job.must_be_clean()


@case(8, "P", "a rank is stopped for two seconds, and goes on")
def stopped_for_a_while(stage: Stage) -> None:
    job = stage.job(3, "process:train", 2500)
    job.send(signal.SIGSTOP, 1)
    time.sleep(2)
    job.send(signal.SIGCONT, 1)
    stage.succeeds(job)


@case(9, "P", "a rank is stopped for ever", limit=10.0)
def stopped_for_ever(stage: Stage) -> None:
    job = stage.job(3, "process:train")
    job.send(signal.SIGSTOP, 1)
    stage.fails(job, 1, rf"{WHO_1} stopped responding \(state T")


@case(11, "P", "native code that never returns holds the interpreter lock", limit=60.0)
def holds_the_lock(stage: Stage) -> None:
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "2"}
    job = stage.job(3, "process:misdeed", "hold-the-lock", options=["--hang-timeout", "8"], env=env)
    assert job.end(60) != 0, job.output
    assert "rank 1" in (job.report() or [""])[0], job.output
    assert "py-spy" in job.output, job.output
    stage.seconds = job.seconds


@case(12, "P", "a Python exception on one rank", limit=1.0, quick=True)
def exception(stage: Stage) -> None:
    job = stage.job(3, "process:misdeed", "raise")
    stage.fails(
        job,
        1,
        rf"{WHO_1} failed first, with exit status 1",
        r"the last lines.*LookupError: the reason of rank 1",
    )


@case(13, "P", "all ranks raise different exceptions within 50 ms", limit=1.0)
def exceptions(stage: Stage) -> None:
    job = stage.job(3, "process:all_raise")
    stage.fails(
        job, 1, r"rank \d .*failed first", r"after it failed: ranks \d, \d", "LookupError: the reason of rank"
    )


@case(14, "P", "a rank ends early with status 0", limit=2.0, quick=True)
def leaves(stage: Stage) -> None:
    for how in ("leave", "leave-at-once"):
        job = stage.job(3, "process:misdeed", how)
        stage.fails(job, 1, rf"{WHO_1} ended too early, with exit status 0")


@case(15, "P", "a rank ends with status 7", limit=1.0)
def leaves_with_7(stage: Stage) -> None:
    stage.fails(stage.job(3, "process:misdeed", "leave-with-7"), 7, rf"{WHO_1} .*exit status 7")


@case(17, "P", "a hook raises during backward", limit=2.0)
def hook_raises(stage: Stage) -> None:
    job = stage.job(2, "with_torch:hook_that_raises")
    stage.fails(job, 1, rf"{WHO_1} failed first", "LookupError: the hook of weight", r"\[0\]<stdout>:told at")


@case(18, "P", "the interpreter ends with operations in flight", limit=5.0)
def ends_in_flight(stage: Stage) -> None:
    for how in ("plain", "atexit", "thread") * 4:
        job = stage.job(3, "process:leave_in_flight", how)
        assert job.end(30) in (0, 1), job.output
        assert "SIG" not in job.output, job.output
        stage.seconds = max(stage.seconds or 0.0, job.seconds)


@case(19, "P", "a rank forks, and the child uses the library")
def forks(stage: Stage) -> None:
    stage.succeeds(stage.job(3, "process:fork", env=TCP))


@case(20, "P", "eight forked DataLoader workers per rank")
def data_loader(stage: Stage) -> None:
    stage.succeeds(stage.job(2, "with_torch:data_loader", 1000), timeout=120)


@case(21, "P", "children by spawn and forkserver import the library")
def children(stage: Stage) -> None:
    for method in ("spawn", "forkserver"):
        stage.succeeds(stage.job(2, "process:children", method))


@case(23, "P", "32 threads use the library, also during shutdown")
def threads(stage: Stage) -> None:
    for transport in ("shm", "tcp"):
        stage.succeeds(stage.job(2, "process:threads", 32, env={"HOROVOD_TRANSPORT": transport}))


@case(25, "P", "a rank is ten times slower than the others")
def slow_rank(stage: Stage) -> None:
    job = stage.job(3, "process:slow_rank", 10)
    stage.succeeds(job, "rank 1 .*(late|slow|behind)")


@case(26, "P", "a rank takes long for its first step")
def slow_first_step(stage: Stage) -> None:
    stage.succeeds(stage.job(3, "process:slow_first_step"), "not by rank 1")


elsewhere(24, "P", "an error of a GPU", "a GPU")
