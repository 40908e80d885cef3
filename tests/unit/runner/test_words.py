"""Commands that cannot have been meant, and what completes options in a shell."""

import shutil
import subprocess

import pytest

from horovod.runner import launch
from horovod.runner.command_line import completion
from horovod.runner.command_line.options import OPTIONS
from horovod.runner.command_line.words import remark


@pytest.mark.parametrize(
    ("command", "reads", "said"),
    [
        (["help"], False, "--help describes all options"),
        (["run", "python", "train.py"], False, "leave it out"),
        (["check"], False, "--check-build"),
        (["check-build"], False, "--check-build"),
        (["python"], False, "name a script"),
        (["/usr/bin/python3.12"], False, "--stdin-rank 0"),
        (["python"], True, None),
        (["python", "train.py"], False, None),
        (["train"], False, None),
        ([], False, None),
    ],
)
def test_what_leads_nowhere_is_answered(command: list[str], reads: bool, said: str | None) -> None:
    found = remark(command, reads)
    assert found is None if said is None else said in (found or "")


def test_a_program_of_that_name_is_a_program(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "check"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert remark(["check"], False) is None


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_option_is_completed(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["horovodrun", "--completion", shell])
    with pytest.raises(SystemExit) as ended:
        launch.run_commandline()
    text = capsys.readouterr().out
    assert not ended.value.code
    shown = [option.long_flags[0].lstrip("-") for option in OPTIONS if option.help is not None]
    assert [name for name in shown if name not in text] == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to ask")
def test_bash_completes_what_has_begun() -> None:
    ask = 'COMP_WORDS=(horovodrun --min); COMP_CWORD=1; _horovodrun; echo "${COMPREPLY[@]}"'
    lines = f"{completion.script('bash')}\n{ask}"
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["--min-np", "--min-num-proc"]
