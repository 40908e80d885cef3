"""The working directory has been removed: what needs it says so, instead of showing a traceback."""

import os
import sys

import pytest

from horovod.bootstrap import paths
from horovod.elastic.checkpoint.errors import CheckpointError
from horovod.elastic.checkpoint.options import Options
from horovod.elastic.run import run_fn
from horovod.elastic.state import ObjectState
from horovod.runner import launch
from horovod.runner.call import packing
from horovod.runner.nodes import ssh

REASON = "the working directory has been removed: change to one that exists"


@pytest.fixture(autouse=True)
def removed(tmp_path, monkeypatch):
    folder = tmp_path / "removed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()


def test_only_what_is_relative_needs_it(tmp_path):
    assert paths.absolute(f"{tmp_path}/a/../b") == f"{tmp_path}/b"
    for call in (paths.working_directory, lambda: paths.absolute("b")):
        with pytest.raises(FileNotFoundError, match=REASON):
            call()


def test_an_option_that_is_given_to_the_ranks(capsys):
    with pytest.raises(SystemExit):
        launch.parse_args(["-np", "2", "--checkpoint-dir", "folder", "true"])
    assert REASON in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--output-filename", "--events"])
def test_an_option_of_the_launcher(option, capsys):
    assert launch.start_job(launch.parse_args(["-np", "2", option, "there", "true"])) == 2
    assert f"{option}" in (said := capsys.readouterr().err) and REASON in said


def test_hosts_are_told_it_before_anybody_logs_in(capsys):
    command = ["-np", "2", "-H", "localhost:1,other:1", "--remote-shell", "false {host}", "true"]
    assert launch.start_job(launch.parse_args(command)) == 1
    assert REASON in capsys.readouterr().err


def test_the_configuration_of_ssh():
    with pytest.raises(FileNotFoundError, match=REASON):
        ssh.target("host", None, "key")
    assert ssh.target("host", None, "~/key").identity_file == "~/key"


def test_what_a_function_is_sent_with(monkeypatch):
    monkeypatch.setattr(sys, "path", ["", "/somewhere"])
    with pytest.raises(FileNotFoundError, match=REASON):
        packing.surroundings()


def test_checkpoints_of_a_rank():
    state = ObjectState(lambda value, root=0: value, lambda: 0, step=0)
    with pytest.raises(CheckpointError, match=REASON):
        run_fn(lambda state: state.commit(), checkpoints=Options("folder"))(state)
    assert not os.path.exists("folder")
