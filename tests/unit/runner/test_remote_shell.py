"""The command in place of ssh: its words, and what its end means."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch import MODULE
from load import within

from horovod.runner.nodes import remote_shell, ssh


def test_the_name_of_the_host_is_put_in_wherever_it_stands() -> None:
    words = remote_shell.parse("kubectl exec -n jobs -i 'pod/{host}' -c {host}.main --")
    found = remote_shell.command(words, "w-0")
    assert found[:9] == ["kubectl", "exec", "-n", "jobs", "-i", "pod/w-0", "-c", "w-0.main", "--"]


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_shell_on_the_way_takes_no_word_apart(is_installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: is_installed)
    words = ssh.command(ssh.Target("n", shell=("rsh", "{host}")))[2:]
    assert " ".join(words).split() == words and not set("".join(words)) & set(";&|<>()$`\\\"'*?[#~!{}")


@pytest.mark.parametrize("text", ["", "kubectl exec -i pod --", "echo '{host}"])
def test_what_names_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\{host\}|quotation"):
        remote_shell.parse(text)


@pytest.mark.parametrize(
    ("status", "errors", "meaning"),
    [
        (1, 'Error: pods "w-0" not found\n', '1 (Error: pods "w-0" not found)'),
        (1, f"{sys.executable}: No module named horovod.runner\n", "horovod is not installed"),
        (127, "", "install Python and horovod at the same place"),
        (0, "", "does it pass on stdin?"),
        (1, "\x1b[2J\n", "(\\x1b[2J)"),
    ],
)
def test_an_end_becomes_a_remedy(status: int, errors: str, meaning: str) -> None:
    text = ssh.explain(ssh.Target("w-0", shell=("kubectl", "{host}")), status, errors)
    assert meaning in text and text.isprintable() and "ssh" not in text


def test_the_end_of_the_way_to_an_agent_is_said() -> None:
    node = ssh.Target("w-0", shell=("kubectl", "{host}"))
    assert "killed by signal 9" in ssh.farewell(node, -9, "")
    assert "ended with 137 (command terminated)" in ssh.farewell(node, 137, "command terminated\n")


def test_only_ssh_is_tried_again_for_its_words() -> None:
    errors = "Connection closed by remote host"
    assert ssh.was_dropped(ssh.Target("n"), errors)
    assert not ssh.was_dropped(ssh.Target("n", shell=("kubectl", "{host}")), errors)


@pytest.mark.parametrize("given", ["</dev/null", "<&-", "<{file}"])
def test_a_command_that_passes_no_input_on_is_told_so(given: str, tmp_path: Path) -> None:
    shell, file = tmp_path / "exec.sh", tmp_path / "file"
    file.write_text("no launcher\n")
    shell.write_text(f'#!/bin/sh\nshift\nexec "$@" {given.format(file=file)}\n')
    shell.chmod(0o755)
    words = [*MODULE, "-np", "1", "-H", "other:1", "--remote-shell", f"{shell} {{host}}", "true"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=within(30), check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("horovodrun: error: other: ") and "docker exec -i" in done.stderr


# The system forbids signals to what sudo runs; tests may be root, whom it forbids nothing.
OF_ROOT = """
import os
kill = os.kill
def checked(pid, number):
    try:
        with open(f"/proc/{pid}/environ") as file:
            is_of_root = "HVD_TEST_SUDO=1" in file.read().split(chr(0))
    except ProcessLookupError:  # it has ended, and nobody has looked yet
        is_of_root = True
    if is_of_root:
        raise PermissionError(1, "Operation not permitted")
    kill(pid, number)
os.kill = checked
from horovod.runner import launch
launch.run_commandline()
"""


@pytest.mark.parametrize("status", [0, 3])
def test_a_command_that_is_another_users_ends_with_its_job(status: int, tmp_path: Path) -> None:
    shell = tmp_path / "sudo.sh"
    shell.write_text('#!/bin/sh\nshift\n"$@"\necho $? > ended.new\nsleep 2\nmv ended.new ended\n')
    shell.chmod(0o755)
    words = ["-np", "1", "-H", "other:1", "--remote-shell", f"env HVD_TEST_SUDO=1 {shell} {{host}}"]
    words = [sys.executable, "-c", OF_ROOT, *words, "sh", "-c", f"exit {status}"]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=within(30), check=False, cwd=tmp_path
    )
    assert done.returncode == status and "Operation not permitted" not in done.stderr, done.stderr
    deadline = time.monotonic() + within(5)
    while not (tmp_path / "ended").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
