"""The state of a training of one rank: what is written when, what comes back, and what cannot be written."""

import contextlib
import errno
import os
import resource
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from checkpoint_jobs import Stopped, names, new_state, object_state, steps_of, train, wait, weights_at

from horovod.elastic.checkpoint import layout, lock, writer
from horovod.elastic.checkpoint.errors import CheckpointError, UnstorableObjectError
from horovod.elastic.checkpoint.folder import opened
from horovod.elastic.checkpoint.options import Options
from horovod.elastic.run import run_fn
from horovod.elastic.state import ObjectState, State


def test_a_training_goes_on_where_it_was(tmp_path):
    folder = tmp_path / "a" / "checkpoints"
    for begin, end in ((0, 3), (3, 3), (3, 8)):
        began, state = train(folder, end)
        assert (began, state.step) == (begin, end)
        assert state.durability is None
    assert steps_of(folder) == list(range(8))
    assert len(names(folder)) == 3


def test_modes(tmp_path):
    folder = tmp_path / "checkpoints"
    train(folder, 2)
    for path in [folder, *folder.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_what_was_recorded_after_the_checkpoint_is_recorded_once(tmp_path):
    train(tmp_path, 3, ends=False)
    assert steps_of(tmp_path) == [0, 1, 2]
    with (tmp_path / layout.HISTORY).open("ab") as file:  # of a write that was interrupted
        file.write(b'{"commit": 4, "step": 3}\n{"commit": 5, "st')
    (tmp_path / "writing-00000099-ab12cd34").mkdir()
    (tmp_path / "writing-00000099-ab12cd34" / "state.json").write_text("{")
    assert train(tmp_path, 5)[0] == 3
    assert steps_of(tmp_path) == list(range(5))
    assert not [name for name in os.listdir(tmp_path) if name.startswith("writing")]


def test_only_some_commits_are_written_and_the_last_when_the_training_ends(tmp_path):
    train(tmp_path, 7, commits=3)
    commits = [
        layout.decode_manifest((tmp_path / name / layout.MANIFEST).read_bytes()).commit
        for name in names(tmp_path)
    ]
    assert commits == [7, 6, 3]
    assert steps_of(tmp_path) == list(range(7))


def test_nothing_after_the_last_commit_is_written(tmp_path):
    def loop(state):
        state.step, state.weights = 1, weights_at(1)
        state.commit()
        state.step, state.weights = 99, weights_at(99)

    run_fn(loop, checkpoints=Options(str(tmp_path), seconds=1000))(new_state())
    assert train(tmp_path, 1)[0] == 1


def test_the_environment_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOROVOD_CHECKPOINT_DIR", str(tmp_path))

    @run_fn
    def loop(state):
        state.step += 1
        state.commit()
        return state.step

    assert [loop(object_state(step=0)) for _ in range(3)] == [1, 2, 3]


def test_without_a_folder_nothing_is_kept(monkeypatch):
    monkeypatch.delenv("HOROVOD_CHECKPOINT_DIR", raising=False)

    def loop(state):
        state.record(loss=1)
        state.commit()
        return state.durability

    assert run_fn(loop)(object_state(step=0)) is None


def test_a_restore_drops_what_was_recorded_since_the_commit(tmp_path):
    def loop(state):
        state.record(step=0)
        state.commit()
        state.record(step="lost")
        state.restore()
        state.record(step=1)
        state.commit()

    run_fn(loop, checkpoints=Options(str(tmp_path), commits=1))(object_state(step=0))
    assert steps_of(tmp_path) == [0, 1]


def test_values_that_cannot_be_written_are_named_at_the_first_commit(tmp_path):
    def loop(state):
        state.commit()

    for number, (values, place) in enumerate(
        [({"thing": threading.Thread}, "thing"), ({"x": {"y": open}}, "x/y")]
    ):
        folder = tmp_path / str(number)
        with pytest.raises(UnstorableObjectError, match=f"{place} of the state.*allow_pickle"):
            run_fn(loop, checkpoints=Options(str(folder), commits=1000))(object_state(**values))
        run_fn(loop, checkpoints=Options(str(folder), allow_pickle=True))(object_state(**values))
        with pytest.raises(CheckpointError, match="contains pickled objects"):
            run_fn(loop, checkpoints=Options(str(folder)))(object_state(**dict.fromkeys(values)))
        state = object_state(**dict.fromkeys(values))
        run_fn(loop, checkpoints=Options(str(folder), allow_pickle=True))(state)
        assert {name: getattr(state, name) for name in values} == values


def test_a_state_without_attributes_is_refused(tmp_path):
    class Mine(State):
        def sync(self):
            pass

    with pytest.raises(CheckpointError, match="Mine cannot be written"):
        run_fn(lambda state: None, checkpoints=Options(str(tmp_path)))(Mine(lambda v, r=0: v, lambda: 0))


def test_a_commit_does_not_wait_for_the_disk(tmp_path, monkeypatch):
    may_go_on = threading.Event()
    inner = writer._write_part

    def slow(*arguments):
        may_go_on.wait(60)
        return inner(*arguments)

    monkeypatch.setattr(writer, "_write_part", slow)

    def loop(state):
        began = time.monotonic()
        for step in range(1, 6):
            state.step, state.weights[:] = step, weights_at(step)
            state.commit()
        assert time.monotonic() - began < 30
        assert names(tmp_path) == []
        may_go_on.set()
        wait(state)
        (name,) = names(tmp_path)  # the others were skipped
        manifest = layout.decode_manifest((tmp_path / name / layout.MANIFEST).read_bytes())
        assert manifest.commit == 1
        raise Stopped

    with contextlib.suppress(Stopped):
        run_fn(loop, checkpoints=Options(str(tmp_path), commits=1))(new_state())
    assert train(tmp_path, 1)[0] == 1  # with the numbers of that commit, although they were overwritten


def test_a_full_disk_costs_one_warning(tmp_path, capfd):
    train(tmp_path, 2)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        assert train(tmp_path, 6)[0] == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    told = capfd.readouterr().err
    assert told.count("warning") == 1 and "commit 3 was not written" in told and "File too large" in told
    assert not [name for name in os.listdir(tmp_path) if name.startswith("writing")]
    assert train(tmp_path, 7)[0] == 2
    assert steps_of(tmp_path) == list(range(7))


def test_the_disk_is_full_for_a_while(tmp_path, capfd):
    state = new_state()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def loop(state):
        for step in range(1, 7):
            state.record(step=step - 1)
            state.step, state.weights = step, weights_at(step)
            soft = 1000 if 2 <= step <= 4 else before[0]
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, before[1]))
            state.commit()
            wait(state)
        raise Stopped

    try:
        with contextlib.suppress(Stopped):
            run_fn(loop, checkpoints=Options(str(tmp_path), commits=1))(state)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capfd.readouterr().err.count("warning") == 1
    assert steps_of(tmp_path) == list(range(6))


_OTHER_USER = """
import os, sys, tempfile
from pathlib import Path
from checkpoint_jobs import train
with tempfile.TemporaryDirectory() as other:  # what is imported late may be closed to the other user
    for _ in range(2):
        train(Path(other), 1)
if os.geteuid() == 0:  # whom nothing is forbidden
    os.setuid(int(sys.argv[2]))
print("began at", train(Path(sys.argv[1]), 5)[0])
"""


def test_a_folder_that_cannot_be_written_to():
    user = os.geteuid() or 12345
    with tempfile.TemporaryDirectory() as top:  # not of pytest, whose folders are closed to others
        folder = Path(top) / "checkpoints"
        train(folder, 2)
        Path(top).chmod(0o755)
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, user, -1)
            path.chmod(0o500 if path.is_dir() else 0o400)
        paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        result = subprocess.run(
            [sys.executable, "-c", _OTHER_USER, folder, str(user)],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o700)
    assert result.returncode == 1, result.stdout
    assert "CheckpointError: No checkpoints can be written to" in result.stderr
    assert "Permission denied" in result.stderr and "give the job another" in result.stderr


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"No checkpoints can be written to .*Not a directory"):
        train(tmp_path / "file" / "checkpoints", 2)


@pytest.mark.parametrize("call", ["open", "mkdir"])
def test_a_disk_that_is_full_at_the_start_costs_one_warning(tmp_path, monkeypatch, capfd, call):
    train(tmp_path, 2)
    inner, is_full = getattr(os, call), True

    def full(path, *arguments, **options):
        is_new = call == "mkdir" or arguments[0] & os.O_CREAT
        if is_full and is_new and "dir_fd" in options:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return inner(path, *arguments, **options)

    monkeypatch.setattr(os, call, full)

    def loop(state):
        nonlocal is_full
        assert state.step == 2
        for step in range(3, 7):
            is_full = step < 5
            state.step = step
            state.commit()
            wait(state)
        raise Stopped

    with contextlib.suppress(Stopped):
        run_fn(loop, checkpoints=Options(str(tmp_path), commits=1))(object_state(step=0, weights=None))
    told = capfd.readouterr().err
    assert "No space left" in told and "the newest one is of commit 2" in told, told
    assert told.count("warning") == (1 if call == "open" else 2), told  # of the folder, of the writer
    newest = tmp_path / names(tmp_path)[0] / layout.MANIFEST
    assert layout.decode_manifest(newest.read_bytes()).commit == 6


def test_a_checkpoint_of_another_program_is_an_error(tmp_path):
    train(tmp_path, 1)

    class Picky(ObjectState):
        def load_values(self, values):
            raise ValueError("other shapes")

    state = Picky(lambda value, root=0: value, lambda: 0, step=0)
    with pytest.raises(CheckpointError, match="does not fit this program: other shapes"):
        run_fn(lambda state: None, checkpoints=Options(str(tmp_path)))(state)


def test_attributes_that_came_later_keep_their_first_values(tmp_path):
    train(tmp_path, 2)
    state = object_state(step=0, more="new")
    run_fn(lambda state: None, checkpoints=Options(str(tmp_path)))(state)
    assert (state.step, state.more) == (2, "new")


_HOLDER = """
import sys, time
from horovod.elastic.checkpoint import lock
from horovod.elastic.checkpoint.folder import opened
held = lock.acquire(opened(sys.argv[1]), 0)
print("held", flush=True)
time.sleep(60)
"""


def test_one_job_at_a_time(tmp_path, monkeypatch):
    from horovod.elastic.checkpoint import durability

    monkeypatch.setattr(durability, "_LOCK_SECONDS", 0.2)
    with subprocess.Popen([sys.executable, "-c", _HOLDER, tmp_path], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError, match=f"in use by another job \\(process {holder.pid} on "):
            train(tmp_path, 1)
        with opened(str(tmp_path)) as place:
            assert len(lock.token_in(place)) == 16
        holder.kill()
    assert train(tmp_path, 1)[0] == 0
    with opened(str(tmp_path)) as place:
        held = lock.acquire(place, 0)
        with pytest.raises(CheckpointError, match="of this process"):
            train(tmp_path, 1)
        held.release()
    assert train(tmp_path, 2)[0] == 1


def test_a_lock_with_any_text_names_nobody(tmp_path):
    for text in ("[" * 4000, "[1]", "x", ""):
        (tmp_path / layout.LOCK).write_text(text)
        with opened(str(tmp_path)) as place:
            assert lock.token_in(place) == ""


def test_links_of_others_are_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in (layout.LOCK, layout.HISTORY):
        folder = tmp_path / f"for-{name}"
        folder.mkdir()
        (folder / name).symlink_to(victim)
        is_lock = name == layout.LOCK
        with pytest.raises(CheckpointError, match="links") if is_lock else contextlib.nullcontext():
            train(folder, 1)
        assert victim.read_text() == "precious"
        assert (folder / name).is_symlink()


def test_arrays_are_as_they_were_at_the_commit(tmp_path):
    state = object_state(array=np.arange(10.0))

    def loop(state):
        state.commit()
        state.array += 100
        wait(state)
        raise Stopped

    with contextlib.suppress(Stopped):
        run_fn(loop, checkpoints=Options(str(tmp_path), commits=1))(state)
    fresh = object_state(array=None)
    run_fn(lambda state: None, checkpoints=Options(str(tmp_path)))(fresh)
    assert fresh.array.tolist() == list(range(10))
