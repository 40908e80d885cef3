"""Checkpoints that are not what was written: they are named, and the one before is used."""

import errno
import json
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from checkpoint_jobs import names, steps_of, train

from horovod.elastic.checkpoint import layout
from horovod.elastic.checkpoint.errors import CheckpointError
from horovod.elastic.checkpoint.folder import opened
from horovod.elastic.checkpoint.formats import ArrayFormat
from horovod.elastic.checkpoint.layout import File, Manifest
from horovod.elastic.checkpoint.reader import newest


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "checkpoints"
    assert train(place, 4)[0] == 0
    return place


def read(folder):
    """(commit of the checkpoint that is used, complaints)."""
    complaints = []
    with opened(str(folder), create=False) as place:
        found = newest(place, [ArrayFormat()], complaints.append)
    return None if found is None else found.manifest.commit, complaints


def files(folder):
    return sorted((folder / names(folder)[0]).iterdir())


def test_the_newest_is_used_when_all_is_well(folder):
    assert read(folder) == (4, [])
    assert [path.name for path in files(folder)] == ["manifest.json", "state.json", "tensors-0.npz"]


@pytest.mark.parametrize("index", range(3))
def test_a_file_truncated_at_any_length_is_refused(folder, index):
    path = files(folder)[index]
    data = path.read_bytes()
    lengths = range(len(data)) if len(data) < 2000 else [*range(64), *range(64, len(data), 97), len(data) - 1]
    for length in lengths:
        path.write_bytes(data[:length])
        commit, complaints = read(folder)
        assert commit == 3 and len(complaints) == 1
        assert f"{names(folder)[0]} is not used: {path.name}" in complaints[0]
    path.write_bytes(data + b"\0")
    assert read(folder)[0] == 3
    path.write_bytes(data)
    assert read(folder) == (4, [])


@pytest.mark.parametrize("index", range(3))
def test_flipped_bits_are_found(folder, index):
    path = files(folder)[index]
    data = path.read_bytes()
    bits = range(len(data) * 8)
    for place in bits if path.name == layout.MANIFEST else random.Random(index).sample(bits, 300):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        commit, complaints = read(folder)
        if commit == 4:
            assert path.name == layout.MANIFEST and json.loads(flipped) == json.loads(data)
        else:
            assert commit == 3 and len(complaints) == 1, complaints


@pytest.mark.parametrize("index", range(3))
def test_a_file_that_is_missing_or_something_else(folder, index):
    path = files(folder)[index]
    data = path.read_bytes()
    path.unlink()
    assert read(folder)[0] == 3
    path.mkdir()
    assert read(folder)[0] == 3
    path.rmdir()
    os.mkfifo(path)
    assert read(folder)[0] == 3
    path.unlink()
    elsewhere = folder.parent / "elsewhere"
    elsewhere.write_bytes(data)
    path.symlink_to(elsewhere)  # the right content, but somebody else may change it
    assert read(folder)[0] == 3


def test_all_damaged_is_the_same_as_none(folder):
    for name in names(folder):
        (folder / name / "state.json").write_bytes(b"")
    commit, complaints = read(folder)
    assert commit is None and len(complaints) == 3


def test_a_checkpoint_of_another_framework_is_an_error_and_stays(folder):
    with (
        opened(str(folder)) as place,
        pytest.raises(CheckpointError, match=r"tensors-0.npz is of a framework"),
    ):
        newest(place, [], pytest.fail)


def test_what_cannot_be_read_now_is_not_removed_as_damaged(folder):
    path = folder / names(folder)[0] / "state.json"
    path.rename(folder / "elsewhere")
    assert train(folder, 5)[0] == 3
    assert len(names(folder)) == 3 and path.parent.name in names(folder)


def test_an_empty_folder(tmp_path):
    assert read(tmp_path) == (None, [])


def test_a_folder_that_is_a_link_is_not_a_checkpoint(folder):
    name = names(folder)[0]
    shutil.move(folder / name, folder.parent / name)
    (folder / name).symlink_to(folder.parent / name)
    assert read(folder)[0] == 3


def test_what_others_own_is_used_where_they_alone_may_write(folder, monkeypatch):
    """As containers and network file systems show it, which give files other owners."""
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert read(folder)[0] == 4
    assert train(folder, 6)[0] == 4


def test_what_this_user_makes_is_used_whoever_owns_it_there(folder, monkeypatch):
    """Where root is nobody, in a folder of somebody else."""
    folder.chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert train(folder, 6)[0] == 4
    assert read(folder)[0] == 6 and not list(folder.glob(".owner-*"))


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


@needs_root
def test_what_others_may_have_planted_is_not_used(folder):
    folder.chmod(0o777)
    planted = folder / names(folder)[0]
    os.chown(planted, 12345, -1)
    commit, (complaint,) = read(folder)
    assert commit == 3 and "belongs to user 12345, not to 0" in complaint
    assert "anybody can have put it there" in complaint
    folder.chmod(0o775)
    assert read(folder) == (4, [])


@needs_root
def test_a_folder_that_others_may_have_planted_is_refused():
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o1777)
        folder = Path(top) / "checkpoints"
        folder.mkdir(mode=0o777)
        os.chown(folder, 12345, -1)
        with pytest.raises(CheckpointError, match="belongs to user 12345, not to 0"):
            train(folder, 1)
        os.chmod(top, 0o755)
        assert train(folder, 1)[0] == 0


def test_what_may_not_be_read_is_an_error_that_says_whose_it_is(folder, monkeypatch):
    """A training that began anew instead would lose what the checkpoint holds."""
    path = folder / names(folder)[0]
    real = os.open

    def refuse(name, *arguments, **options):
        if name == path.name:
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(CheckpointError, match=f"{path.name}, of user .* cannot be read by user"):
        train(folder, 6)


def rewritten(folder, change):
    """The newest manifest, changed and sealed anew."""
    path = folder / names(folder)[0] / layout.MANIFEST
    told = json.loads(path.read_bytes())
    change(told)
    content = {key: value for key, value in told.items() if key not in ("format", "sha256")}
    sealed = json.loads(layout.sealed(content))
    path.write_text(json.dumps({**sealed, "format": told["format"]}))


def test_a_newer_format_is_left_alone(folder, capfd):
    newer = names(folder)[0]
    rewritten(folder, lambda told: told.update(format=layout.FORMAT + 1))
    commit, (complaint,) = read(folder)
    assert commit == 3 and f"its format is {layout.FORMAT + 1}" in complaint
    assert train(folder, 5)[0] == 3
    assert capfd.readouterr().err.count("is not used") == 1
    assert newer in names(folder) and read(folder)[0] == 5


def test_a_manifest_that_leads_out_of_the_folder(folder):
    secret = folder / "secret.txt"
    secret.write_text("x")
    rewritten(folder, lambda told: told["manifest"]["files"][0].update(name="../secret.txt"))
    assert read(folder)[0] == 3


def test_tensors_that_would_be_unpickled(folder):
    """A file with the right checksum, made by somebody who wants programs to run."""
    import hashlib
    import io

    import numpy as np

    class Evil:
        def __reduce__(self):
            return pytest.fail, ("it ran",)

    data = io.BytesIO()
    np.savez(data, **{"0": np.array([Evil()], dtype=object)})
    place = folder / names(folder)[0]
    (place / "tensors-0.npz").write_bytes(data.getvalue())
    told = layout.decode_manifest((place / layout.MANIFEST).read_bytes())
    forged = File("tensors-0.npz", len(data.getvalue()), hashlib.sha256(data.getvalue()).hexdigest())
    kept = tuple(file for file in told.files if file.name == layout.STATE)
    (place / layout.MANIFEST).write_bytes(Manifest(told.commit, (*kept, forged), told.history).encode())
    commit, complaints = read(folder)
    assert commit == 3 and "tensors-0.npz cannot be read" in complaints[0]


def test_training_goes_on_from_the_one_before_and_the_history_with_it(folder, capfd):
    damaged = names(folder)[0]
    (folder / damaged / "state.json").write_bytes(b"{}")
    began, _ = train(folder, 3, ends=False)
    assert began == 3
    assert "0] warning: the checkpoint" in capfd.readouterr().err
    assert steps_of(folder) == [0, 1, 2]
    assert damaged in names(folder)  # until a newer one is complete
    assert train(folder, 6)[0] == 3
    assert steps_of(folder) == list(range(6))
    assert damaged not in names(folder) and read(folder) == (6, [])


def test_a_newer_format_is_never_removed(folder):
    newer = names(folder)[0]
    rewritten(folder, lambda told: told.update(format=layout.FORMAT + 1))
    assert train(folder, 12, keep=2)[0] == 3
    assert len(names(folder)) == 3 and newer in names(folder)


def test_a_number_that_no_job_can_have_reached_is_no_checkpoint(folder, capfd):
    shutil.copytree(folder / names(folder)[0], folder / f"checkpoint-{10**18 - 1}")
    (folder / f"writing-{10**18 - 1}-ab").mkdir()
    assert train(folder, 6)[0] == 4
    assert capfd.readouterr().err.count("is no checkpoint: no job can have reached its number") == 2
    assert read(folder)[0] == 6 and len(names(folder)) == 3
    assert (folder / f"checkpoint-{10**18 - 1}").exists()


def test_the_last_number_is_an_error_that_names_the_folder(folder):
    last = f"checkpoint-{10**17 - 1}"
    (folder / last).mkdir()
    with pytest.raises(CheckpointError, match=f"{last} leaves no number.*: remove or rename it"):
        train(folder, 6)
