"""horovodrun on a terminal: colours, progress bars, the start line, and a debugger on one rank."""

import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch import MODULE, Launcher
from load import within

from horovod.runner.nodes import guard

BAR = (
    "import sys, time\n"
    "for done in range(20):\n"
    "    sys.stderr.write('\\r%3d%%|' % (5 * done) + '#' * done); sys.stderr.flush(); time.sleep(0.05)\n"
    "sys.stderr.write('\\r100%\\n'); print('done')\n"
)
# As above, and each version stays until a file says that it was seen: the machine may be busy.
SEEN_BAR = (
    "import os, sys, time\n"
    "for done in (25, 50, 75):\n"
    "    sys.stderr.write('\\r%3d%%|' % done + '#' * done); sys.stderr.flush()\n"
    "    while not os.path.exists(f'{__file__}.{done}'): time.sleep(0.01)\n"
    "sys.stderr.write('\\r100%\\n'); print('done')\n"
)
DEBUGGED = "import os\nif os.environ['RANK'] == '1':\n    x = 41; breakpoint()\n    print('x is', x)\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


class Terminal:
    """horovodrun with a terminal of its own as standard input and outputs."""

    def __init__(self, *arguments: str, **changes: str) -> None:
        self.master, slave = pty.openpty()
        environment = {**Launcher().environment, "TERM": "xterm", **changes}
        environment = {name: value for name, value in environment.items() if value}
        self.process = subprocess.Popen(
            [*MODULE, *arguments], stdin=slave, stdout=slave, stderr=slave, env=environment
        )
        os.close(slave)
        self.shown = ""

    def read_until(self, text: str) -> None:
        """Reads on until a text is there."""
        while text not in self.shown:
            self.shown += os.read(self.master, 4096).decode(errors="replace")

    def type(self, text: str) -> None:
        """Presses keys."""
        os.write(self.master, text.encode())

    def finish(self) -> int:
        """Reads to the end."""
        try:
            while data := os.read(self.master, 4096):
                self.shown += data.decode(errors="replace")
        except OSError:  # nobody has the terminal any more
            pass
        os.close(self.master)
        return self.process.wait(within(30))


def test_prefixes_have_a_colour_for_each_rank_and_a_line_tells_of_the_start(script: Path) -> None:
    script.write_text("print('hello')\n")
    terminal = Terminal("-np", "2", str(script), OMP_NUM_THREADS="3", NO_COLOR="")
    assert terminal.finish() == 0
    assert "\x1b[36m[0]<stdout>:\x1b[0mhello\r\n" in terminal.shown
    assert "\x1b[33m[1]<stdout>:\x1b[0mhello\r\n" in terminal.shown
    host = re.escape(os.uname().nodename)
    outline = rf"horovodrun: 2 ranks on {host} \(\d+ cores?\), over shared memory, 3 threads each\r\n"
    assert re.match(outline, terminal.shown), terminal.shown
    assert re.search(r"\r\nhorovodrun: 2 ranks, \d+\.\d s\r\n$", terminal.shown), terminal.shown


def test_a_line_tells_of_the_start_of_an_elastic_job(script: Path) -> None:
    script.write_text("import plain_horovod as hvd\nhvd.init()\n")
    programs = str(Path(__file__).parent.parent / "programs")
    terminal = Terminal("-np", "2", "--min-np", "1", "--spares", "1", str(script), PYTHONPATH=programs)
    assert terminal.finish() == 0, terminal.shown
    outline = "horovodrun: elastic job of 2 ranks and 1 spare; it goes on with 1 rank or more\r\n"
    assert terminal.shown.startswith(outline), terminal.shown


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb", "NO_COLOR": ""}])
def test_colours_can_be_declined(script: Path, variables: dict[str, str]) -> None:
    script.write_text("print('hello')\n")
    terminal = Terminal("-np", "1", str(script), **variables)
    assert terminal.finish() == 0 and "\x1b[3" not in terminal.shown


def test_a_progress_bar_is_shown_while_it_runs(script: Path) -> None:
    script.write_text(SEEN_BAR)
    terminal = Terminal("-np", "2", "--ranks", "1", str(script), NO_COLOR="1")
    for done in (25, 50, 75):
        terminal.read_until(f"\r\x1b[K[1]<stderr>: {done}%|#")
        script.with_name(f"{script.name}.{done}").touch()
    assert terminal.finish() == 0
    versions = re.findall(r"\r\x1b\[K\[1\]<stderr>: *(\d+)%\|#*(?=\r)", terminal.shown)
    assert sorted(set(versions), key=int) == ["25", "50", "75"], terminal.shown
    assert versions == sorted(versions, key=int), terminal.shown
    assert terminal.shown.count("[1]<stderr>:100%\r\n") == 1 and "[0]<" not in terminal.shown


def test_a_progress_bar_is_shown_in_a_log_too(script: Path) -> None:
    script.write_text(BAR)
    process = Launcher().start("-np", "1", str(script))
    assert process.stdout is not None and process.stderr is not None
    first = os.read(process.stderr.fileno(), 4096)
    assert first.startswith(b"[0]<stderr>:\r") and b"100%" not in first
    process.communicate(timeout=within(30))


def test_a_debugger_on_one_rank(script: Path) -> None:
    script.write_text(DEBUGGED)
    terminal = Terminal("-np", "2", "--stdin-rank", "1", str(script), NO_COLOR="1")
    terminal.read_until("[1]<stdout>:(Pdb) ")
    terminal.type("p x + 1\n")
    terminal.read_until("[1]<stdout>:42\r\n[1]<stdout>:(Pdb) ")
    terminal.type("x = 7\n")
    terminal.read_until("x = 7\r\n[1]<stdout>:(Pdb) ")
    terminal.type("c\n")
    assert terminal.finish() == 0 and "[1]<stdout>:x is 7\r\n" in terminal.shown


@pytest.mark.parametrize("line", ["breakpoint()", "input('? ')"])
def test_without_it_the_report_says_how(script: Path, line: str) -> None:
    script.write_text(f"import os\nif os.environ['RANK'] == '1':\n    {line}\n    print()\n")
    command = [*MODULE, "-np", "2", str(script)]
    done = subprocess.run(command, env=Launcher().environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "to use breakpoint() or input() there, add --stdin-rank 1" in done.stderr, done.stderr


def test_the_answer_may_come_through_a_pipe() -> None:
    code = "import os; print(len(input('? ')) if os.environ['RANK'] == '0' else 'no')"
    command = [*MODULE, "-np", "2", "--stdin-rank", "0", sys.executable, "-c", code]
    done = subprocess.run(command, env=Launcher().environment, capture_output=True, input=b"four\n")
    assert done.returncode == 0 and b"4\n" in done.stdout and b"[1]<stdout>:no\n" in done.stdout


_PROMPT = "shell% "


class Shell:
    """A shell for people, with jobs."""

    def __init__(self) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            look = {"TERM": "xterm", "NO_COLOR": "1", "PS1": _PROMPT}
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**Launcher().environment, **look})
        self._shown = ""

    def type(self, text: str) -> None:
        """Presses keys."""
        os.write(self.master, text.encode())

    def wait_for(self, text: str, presses: str = "") -> None:
        """Reads until a text is there, and presses keys meanwhile."""
        deadline = time.monotonic() + within(20)
        while text not in self._shown:
            assert time.monotonic() < deadline, self._shown
            if select.select([self.master], [], [], 0.3)[0]:
                self._shown += os.read(self.master, 4096).decode(errors="replace")
            else:
                self.type(presses)
        self._shown = self._shown.partition(text)[2]

    def end(self) -> None:
        """Ends it, and what it has left."""
        guard.signal_all(guard.descendants(self.pid), signal.SIGKILL)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.master)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_in_the_background_no_rank_takes_what_is_typed_for_the_shell() -> None:
    """As any program that reads the terminal there, the job is stopped, however it has come there."""
    shell = Shell()
    command = shlex.join([*MODULE, "-np", "1", "--stdin-rank", "0", "sh", "-c", "echo ready; head -n 1"])
    try:
        shell.wait_for(_PROMPT)
        shell.type(f"{command} &\n")
        shell.wait_for("Stopped", presses="\n")
        shell.wait_for(_PROMPT)
        shell.type("fg\n")
        shell.wait_for(">:ready")
        shell.type("\x1a")
        shell.wait_for("Stopped")
        shell.wait_for(_PROMPT)
        shell.type("bg\n")
        shell.wait_for("Stopped", presses="\n")
        shell.wait_for(_PROMPT)
        shell.type("echo $((6 * 7))\n")
        shell.wait_for("42\r\n")
        shell.wait_for(_PROMPT)
        shell.type("fg\n")
        shell.type("for the rank\n")
        shell.wait_for(">:for the rank")
    finally:
        shell.end()


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "events"])
def test_a_full_disk_in_its_place_is_told(options: list[str]) -> None:
    job = Launcher()
    command = [*MODULE, *options, "-np", "2", "sh", "-c", "echo one; sleep 0.2; echo two"]
    with open("/dev/full", "wb") as full:
        result = job.finish(job.popen(command, stdout=full), 30)
    lost = b"horovodrun: warning: stdout: No space left on device; the rest of the output is lost\n"
    assert result.returncode == 1 and result.stderr.startswith(lost), result.stderr


def test_a_pipe_that_somebody_makes_non_blocking_takes_all_the_same() -> None:
    """Whoever has it, too, as the shell's other programs do. The reader is slow."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    line = "0123456789" * 10
    command = [*MODULE, "-np", "2", "sh", "-c", f"yes {line} | head -n 5000; echo last"]
    process = Launcher().popen(command, stdout=writer)
    os.close(writer)
    time.sleep(0.5)
    with open(reader, "rb") as file:
        lines = file.read().splitlines()
    _, said = process.communicate(timeout=within(20))
    assert process.returncode == 0 and len(lines) == 10002, (len(lines), said)
