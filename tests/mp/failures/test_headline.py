"""The first line of the launcher's report names the cause, whichever rank ended first."""

import re
import signal
from pathlib import Path

import pytest
from launch import Job, Result
from load import within

TRANSPORTS = ["shm", "tcp"]
WHO = r"rank 1 \(localhost, pid \d+\)"


def misbehave(misdeed: str, transport: str = "shm", ranks: int = 3, **env: str) -> Result:
    job = Job(ranks, "misbehave.py", misdeed, env={"HOROVOD_TRANSPORT": transport, **env})
    result = job.finish(within(40))
    assert job.survivors() == []
    return result


def report(result: Result) -> list[str]:
    """The launcher's own lines: the report, from its first line on."""
    lines = [line for line in result.output.splitlines() if not line.startswith("[")]
    first = next(index for index, line in enumerate(lines) if "the job's status is" in line)
    assert len(lines) - first <= 12, result.output
    return [line.removeprefix("horovodrun: ") for line in lines[first:]]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("misdeed", "status", "headline"),
    [
        ("leave-at-once", 1, "ended too early, with exit status 0 and without hvd.shutdown()"),
        ("leave", 1, "ended too early, with exit status 0, while other ranks needed it"),
        ("leave-with-7", 7, "failed first, with exit status 7"),
        ("kill", 128 + signal.SIGKILL, "failed first: killed by SIGKILL"),
        ("raise", 1, "failed first, with exit status 1"),
        ("shutdown", 1, "left the job too early, by hvd.shutdown()"),
    ],
)
def test_the_culprit_is_named_with_the_true_status(
    transport: str, misdeed: str, status: int, headline: str
) -> None:
    result = misbehave(misdeed, transport)
    lines = report(result)
    assert re.match(f"{WHO} {re.escape(headline)}", lines[0]), result.output
    assert lines[0].endswith(f"the job's status is {status}")
    assert result.returncode == status
    assert "after it failed: ranks 0, 2" in lines


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_frozen_rank_is_named_and_not_the_one_that_gave_up_first(transport: str) -> None:
    result = misbehave("freeze", transport, HOROVOD_HEARTBEAT_SECONDS="0.5", HOROVOD_PEER_TIMEOUT_SECONDS="2")
    lines = report(result)
    assert re.match(rf"{WHO} stopped responding \(state T: stopped\); the job's status is 1$", lines[0]), (
        lines
    )
    assert "has not responded for" in lines[1] and "rank 1" in lines[1]
    assert result.returncode == 1


@pytest.mark.parametrize(
    ("transport", "link"), [("shm", "watch"), ("tcp", "watch"), ("tcp", "control"), ("tcp", "data")]
)
def test_corrupt_bytes_are_no_broken_link(transport: str, link: str) -> None:
    """Although both live on for a while, and could see links end."""
    result = misbehave(f"garble-{link}", transport, 2, TEST_LINGER_SECONDS="1")
    lines = report(result)
    assert re.match(f"{WHO} sent corrupt data; the job's status is 1$", lines[0]), result.output
    assert "rank 1" in lines[1] and re.search("corrupt|another protocol", lines[1]), lines
    assert "broke" not in result.output and "lost its link" not in result.output
    assert result.returncode == 1


@pytest.mark.parametrize(
    ("transport", "link"), [("shm", "watch"), ("tcp", "watch"), ("tcp", "control"), ("tcp", "data")]
)
def test_a_broken_link_names_both_ends_and_kills_nobody(transport: str, link: str) -> None:
    result = misbehave(f"reset-{link}", transport)
    lines = report(result)
    ends = r"rank 0 \(localhost, pid \d+\) and rank 1 \(localhost, pid \d+\)"
    assert re.match(f"the {link} link between {ends} broke while both were alive; ", lines[0]), result.output
    assert "died" not in result.output and "failed first" not in result.output
    assert result.returncode == 1


def test_where_all_ranks_fail_alike_none_is_the_first(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import plain_horovod as hvd\nhvd.init()\nhvd.alreduce_(bytearray(8))\n")
    result = Job(3, str(script)).finish(within(40))
    lines = report(result)
    assert lines[0] == "all 3 ranks failed with exit status 1 and the same error; the job's status is 1"
    assert "alreduce_" in lines[-1] and not any("after it failed" in line for line in lines)


def test_what_all_ranks_raise_is_told_once_without_calls_of_the_library(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import plain_horovod as hvd\nhvd.init()\nhvd.allreduce_(bytearray(8 * (1 + hvd.rank())), name='w')\n"
    )
    result = Job(4, str(script)).finish(within(40))
    errors = [line for line in result.output.splitlines() if line.startswith("[")]
    assert all(line.startswith("[0-3]<stderr>:") for line in errors), result.output
    text = [line.partition(":")[2] for line in errors]
    assert text[0] == "Traceback (most recent call last):" and "TensorMismatchError" in text[-1]
    assert "hvd.allreduce_(" in text[2] and "within horovod; HOROVOD_FULL" in text[-2], result.output
    assert "<frozen" not in result.output and "collective/" not in result.output
    assert "TensorMismatchError" in report(result)[-1]
