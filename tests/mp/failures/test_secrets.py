"""The job's secret is nowhere to be seen, nor are the user's, and objects without it are not unpickled."""

import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch import PROGRAMS, Launcher, carries

import horovod.torch as hvd
from horovod.bootstrap import start
from horovod.common.collective import objects
from horovod.common.exceptions import HorovodInternalError

CHILDREN = 6  # of each rank of secret_keeper.py


def _owned_by(marker: bytes) -> list[Path]:
    return [folder for folder in Path("/proc").glob("[0-9]*") if carries(folder, marker)]


def _read_until_ready(process: subprocess.Popen[bytes], count: int) -> bytes:
    text = b""
    while text.count(b"ready") < count:
        line = process.stdout.readline()
        assert line, text
        text += line
    return text


def _links(folder: Path) -> list[str]:
    return [os.readlink(entry) for entry in (folder / "fd").iterdir()]


@pytest.mark.parametrize("wrapper", [[], ["sh", "-c", '"$@"; exit $?', "sh"]], ids=["plain", "in a shell"])
def test_no_process_of_a_job_shows_the_secret(wrapper: list[str]) -> None:
    job = Launcher()
    command = [*wrapper, sys.executable, str(PROGRAMS / "secret_keeper.py")]
    process = job.start("-np", "2", "--verbose", *command, HOROVOD_LOG_LEVEL="trace", OMP_NUM_THREADS="1")
    text = _read_until_ready(process, 2)
    holders = [
        path for path in Path(f"/proc/{process.pid}/fd").iterdir() if "horovod-secret" in os.readlink(path)
    ]
    assert len(holders) == 1
    secret = holders[0].read_bytes()
    assert len(bytes.fromhex(secret.decode())) == 32
    folders = _owned_by(job.marker)
    assert len(folders) >= 2 * (1 + CHILDREN)
    for folder in folders:
        shown = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
        assert secret not in shown and bytes.fromhex(secret.decode()) not in shown, folder
        if int(folder.name) != process.pid:
            assert not any("horovod-secret" in link for link in _links(folder)), folder
    process.send_signal(signal.SIGTERM)
    rest = job.finish(process, 60)
    assert secret not in text + rest.stdout + rest.stderr
    job.wait_until_gone(10)


def test_values_of_the_users_secrets_are_not_printed() -> None:
    job = Launcher()
    values = {
        name: f"value-of-{name.lower()}" for name in ("API_KEY", "HUB_TOKEN", "DB_SECRET", "HOROVOD_X_KEY")
    }
    program = "import plain_horovod as hvd; hvd.init(); hvd.allreduce_(1 / 0)"
    process = job.start(
        "-np", "2", "--verbose", sys.executable, "-c", program, HOROVOD_LOG_LEVEL="trace", **values
    )
    result = job.finish(process, 60)
    assert result.returncode == 1 and "ZeroDivisionError" in result.output
    assert [value for value in values.values() if value in result.output] == []


class Bomb:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.path,)


def ranks_send_objects_under_wrong_keys(folder: str) -> list[str]:
    """Rank 1 has another key than the others, so what it sends could be anybody's."""
    hvd.init()
    rank, texts = hvd.rank(), []
    right = start.key_for
    path = f"{folder}/{rank}"
    for name in ("weights\x1b", None):
        if rank == 1:
            start.key_for = lambda purpose: b"x" * 32
        for call in (
            lambda: hvd.broadcast_object(Bomb(path), root_rank=1, name=name),  # noqa: B023
            lambda: hvd.allgather_object(Bomb(path) if rank == 1 else rank, name=name),  # noqa: B023
        ):
            try:
                call()
            except HorovodInternalError as error:
                texts.append(str(error))
        start.key_for = right
    assert hvd.allgather_object({"rank": rank}) == [{"rank": r} for r in range(3)]
    return texts


@pytest.mark.parametrize("wire", ["shm", "tcp"])
def test_an_object_with_a_wrong_mac_is_not_unpickled(run_ranks, tmp_path: Path, wire: str) -> None:
    results = run_ranks(
        3, ranks_send_objects_under_wrong_keys, [str(tmp_path)], env={"HOROVOD_TRANSPORT": wire}
    )
    for rank in (0, 2):
        assert len(results[rank]) == 4
        for text in results[rank]:
            assert re.search(r"the object.* of rank 1 is not what that rank has sent", text), text
        assert r"'weights\x1b'" in results[rank][0]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir() and path.name.isdigit()] == []


def ranks_gather_objects_of_a_replay() -> str:
    """Rank 1 repeats, byte for byte, what rank 0 has sent."""
    hvd.init()
    rank = hvd.rank()
    if rank == 1:
        true_rank, objects.basics.rank = objects.basics.rank, lambda: 0
    try:
        hvd.allgather_object("x", name="replay")
    except HorovodInternalError as error:
        return str(error)
    finally:
        if rank == 1:
            objects.basics.rank = true_rank
    return "accepted"


def test_an_object_does_not_pass_for_that_of_another_rank(run_ranks) -> None:
    results = run_ranks(2, ranks_gather_objects_of_a_replay)
    assert all("come from the ranks [0, 0]" in text for text in results), results


def test_the_bomb_would_go_off(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(str(tmp_path / "crater"))))
    assert (tmp_path / "crater").is_dir()
