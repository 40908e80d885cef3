"""horovodrun on three "hosts" by a real sshd: addresses of this machine, each with ranks of its own."""

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import sshd
from launch import PROGRAMS, ROOT
from load import within
from sshd import Hosts

from horovod.runner.hosts import allocate, parse

HOSTS = ",".join(f"{host}:2" for host in sshd.HOSTS)
pytestmark = pytest.mark.skipif(bool(sshd.missing()), reason=sshd.missing())


def test_ranks_know_their_places_and_agree_with_torch_distributed(hosts: Hosts, tmp_path: Path) -> None:
    script = tmp_path / "places.py"
    script.write_text(
        "import json, os, sys, torch, torch.distributed as dist\n"
        "import horovod.torch as hvd\n"
        "hvd.init()\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.tensor([hvd.rank() + 1.0]); dist.all_reduce(total)\n"
        "ours = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum)\n"
        "assert dist.get_rank() == hvd.rank() and torch.equal(total, ours)\n"
        "where = [hvd.rank(), os.environ['HOROVOD_HOSTNAME'], hvd.local_rank(), hvd.local_size(),\n"
        "         hvd.cross_rank(), hvd.cross_size()]\n"
        "print(json.dumps([where, os.getcwd(), os.environ['PLANTED'], ours.item()]))\n"
        "dist.destroy_process_group()\n"
    )
    status, stdout, stderr = hosts.run(
        *hosts.command("-np", "5", "-H", "127.0.0.1:2,127.0.0.2:1,127.0.0.3:2"),
        *(sys.executable, str(script)),
        PLANTED="épi $HOME 'x'",
    )
    assert status == 0, stderr.decode()
    places = allocate(parse("127.0.0.1:2,127.0.0.2:1,127.0.0.3:2"), 5)
    for place in places:
        (line,) = re.findall(rf"^\[{place.rank}\]<stdout>:(.*)$", stdout.decode(), re.MULTILINE)
        expected = [place.rank, place.host, place.local_rank, place.local_size]
        expected += [place.cross_rank, place.cross_size]
        assert json.loads(line) == [expected, os.getcwd(), "épi $HOME 'x'", 15.0]


def test_a_job_of_other_hosts_alone_meets_at_rank_0(hosts: Hosts) -> None:
    """Where the launcher runs, there is no rank."""
    script = (
        "import os, torch, torch.distributed as dist, horovod.torch as hvd\n"
        "hvd.init(); dist.init_process_group('gloo')\n"
        "total = torch.tensor([hvd.rank() + 1.0]); dist.all_reduce(total)\n"
        "print(os.environ['MASTER_ADDR'], total.item()); dist.destroy_process_group()\n"
    )
    words = ("-np", "2", "-H", "127.0.0.2:1,127.0.0.3:1", sys.executable, "-c", script)
    status, stdout, stderr = hosts.run(*hosts.command(*words))
    assert status == 0, stderr.decode()
    assert sorted(stdout.decode().splitlines()) == [f"[{rank}]<stdout>:127.0.0.2 3.0" for rank in range(2)]


def test_a_function_runs_on_several_hosts(hosts: Hosts, ssh: sshd.Ssh, tmp_path: Path) -> None:
    script = tmp_path / "call.py"
    script.write_text(
        "import sys, horovod\n"
        "def work(first):\n"
        "    import os, torch, horovod.torch as hvd\n"
        "    hvd.init()\n"
        "    total = hvd.allreduce(torch.tensor([first + hvd.rank()]), op=hvd.Sum).item()\n"
        "    return hvd.rank(), os.environ['HOROVOD_HOSTNAME'], total\n"
        "if __name__ == '__main__':\n"
        "    print(horovod.run(work, (3,), num_proc=3, hosts='127.0.0.1:1,127.0.0.2:2',\n"
        "                      ssh_port=int(sys.argv[1]), ssh_identity_file=sys.argv[2]))\n"
    )
    process = hosts.popen(
        [sys.executable, str(script), str(ssh.port), str(ssh.folder / "user")], env=hosts.environment
    )
    result = hosts.finish(process, 60)
    assert result.returncode == 0, result.output
    expected = [(0, "127.0.0.1", 12), (1, "127.0.0.2", 12), (2, "127.0.0.2", 12)]
    assert result.stdout.decode().splitlines()[-1] == str(expected)


@pytest.mark.slow
def test_a_training_on_three_hosts(hosts: Hosts, tmp_path: Path) -> None:
    digits = str(ROOT / "examples" / "torch_digits.py")
    report = tmp_path / "report.json"
    ranks = ("-np", "4", "-H", "127.0.0.1:1,127.0.0.2:2,127.0.0.3:1")
    process = hosts.start(
        *hosts.command(*ranks, "--output-filename", str(tmp_path / "out")),
        *(sys.executable, digits, "--epochs", "8", "--json", str(report)),
        OMP_NUM_THREADS="1",
    )
    result = hosts.finish(process, 180)
    assert result.returncode == 0, result.output
    last = json.loads(report.read_text().splitlines()[-1])
    assert (last["processes"], last["identical"]) == (4, True) and last["accuracy"] > 0.85
    assert "bit-identical" in (tmp_path / "out" / "rank.0" / "stdout").read_text()


def test_output_of_another_host_arrives_whole_and_waits_for_its_reader(hosts: Hosts) -> None:
    script = "import sys\nfor n in range(400000): print(n, 'x' * 90)\nprint('done', file=sys.stderr)"
    process = hosts.start(*hosts.command("-np", "1", "-H", "127.0.0.2:1", sys.executable, "-c", script))
    agent, *_ = _wait_for(hosts.agents, 1)  # a child that is being started looks like it
    time.sleep(within(1.0))
    assert agent.memory_info().rss < 200 << 20  # nobody reads: 38 MB wait where they were made
    result = hosts.finish(process, 120)
    expected = b"".join(b"[0]<stdout>:%d %s\n" % (n, b"x" * 90) for n in range(400000))
    assert result.returncode == 0 and result.stdout == expected and b"done" in result.stderr


class AtWork:
    """A job of six ranks in the middle of its work."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self._hosts = hosts
        program = [sys.executable, str(PROGRAMS / "at_work.py"), str(folder)]
        self.launcher = hosts.start(*hosts.command("-np", "6", "-H", HOSTS, *program))
        files = _wait_for(lambda: sorted(folder.glob("rank.*")), 6)
        self.pids = [int(file.read_text()) for file in files]

    def agent_of(self, rank: int) -> int:
        return psutil.Process(self.pids[rank]).ppid()

    def end(self, seconds: float) -> tuple[int, str]:
        return self._hosts.end(self.launcher, seconds)


@pytest.fixture
def at_work(hosts: Hosts, tmp_path: Path) -> AtWork:
    return AtWork(hosts, tmp_path)


def test_a_killed_rank_is_the_culprit(at_work: AtWork) -> None:
    os.kill(at_work.pids[3], signal.SIGKILL)
    status, text = at_work.end(20)
    assert status == 137
    killed = f"horovodrun: rank 3 (127.0.0.2, pid {at_work.pids[3]}) failed first: killed by SIGKILL"
    assert text.startswith(killed) and len(text.splitlines()) <= 12


def test_a_killed_agent_is_the_culprit(at_work: AtWork) -> None:
    os.kill(at_work.agent_of(2), signal.SIGKILL)
    status, text = at_work.end(20)
    assert status == 1 and "host 127.0.0.2 of ranks 2, 3: the agent of horovodrun there was killed" in text


def test_a_guard_on_another_host_that_somebody_has_ended_is_told_and_replaced(at_work: AtWork) -> None:
    agent = psutil.Process(at_work.agent_of(2))

    def guards() -> list[psutil.Process]:
        found = []
        for child in agent.children():
            with contextlib.suppress(psutil.Error):  # it has ended
                found += [child] if any("guard.py" in word for word in child.cmdline()) else []
        return found

    (first,) = guards()
    first.kill()
    (second,) = _wait_for(lambda: [each for each in guards() if each != first], 1)
    agent.kill()
    result = at_work._hosts.finish(at_work.launcher, 20)
    at_work._hosts.wait_until_gone(4.0)  # its ranks, which the second has ended
    assert result.returncode == 1 and f"process {second.pid} has taken its place" in result.output


def test_an_agent_that_does_not_answer_is_the_culprit(at_work: AtWork) -> None:
    agent = at_work.agent_of(4)
    os.kill(agent, signal.SIGSTOP)
    try:
        result = at_work._hosts.finish(at_work.launcher, 40)
    finally:
        os.kill(agent, signal.SIGCONT)  # it finds its launcher gone, and ends its ranks
    assert result.returncode == 1
    assert "host 127.0.0.3 of ranks 4, 5: its agent has not answered for 8 s" in result.output


def test_a_host_that_loses_everything_is_the_culprit(at_work: AtWork) -> None:
    agent = at_work.agent_of(4)
    for pid in (*at_work.pids[4:], agent, psutil.Process(agent).ppid()):
        with contextlib.suppress(ProcessLookupError):  # it has ended after those before it
            os.kill(pid, signal.SIGKILL)
    status, text = at_work.end(20)
    assert status in (1, 137) and ("host 127.0.0.3 of ranks 4, 5" in text or "(127.0.0.3, pid" in text)


def test_a_killed_launcher_leaves_nothing_anywhere(at_work: AtWork) -> None:
    at_work.launcher.kill()
    assert at_work.end(10) == (-signal.SIGKILL, "")


def test_ctrl_c_ends_all_hosts(at_work: AtWork) -> None:
    at_work.launcher.send_signal(signal.SIGINT)
    status, text = at_work.end(20)
    assert status == 130 and text == "horovodrun: SIGINT: ending all ranks (a second one: at once)"


def test_a_paused_job_pauses_everywhere_and_goes_on(at_work: AtWork) -> None:
    at_work.launcher.send_signal(signal.SIGTSTP)
    _wait_for(lambda: [pid for pid in at_work.pids if psutil.Process(pid).status() == "stopped"], 6)
    at_work.launcher.send_signal(signal.SIGCONT)
    _wait_for(lambda: [pid for pid in at_work.pids if psutil.Process(pid).status() != "stopped"], 6)
    at_work.launcher.terminate()
    assert at_work.end(20)[0] == 143


@pytest.mark.slow
def test_a_timeout_shows_the_stacks_of_every_host(hosts: Hosts, tmp_path: Path) -> None:
    script = tmp_path / "stuck.py"
    script.write_text(
        "import time\nfrom horovod.common import basics as hvd\nhvd.init()\n"
        "def stuck():\n    time.sleep(600)\nstuck()\n"
    )
    seconds = str(round(within(6)))
    status, _, stderr = hosts.run(
        *hosts.command("-np", "2", "-H", "127.0.0.1:1,127.0.0.3:1", "--timeout", seconds, sys.executable),
        str(script),
    )
    assert status == 124
    for rank in range(2):
        assert re.search(rf"^\[{rank}\]<stderr>:.* in stuck$", stderr.decode(), re.MULTILINE), stderr.decode()


def test_secrets_are_seen_nowhere(hosts: Hosts, tmp_path: Path) -> None:
    """Neither the job's nor one that the user's environment has."""
    planted = "planted-4f1d"
    script = (
        "import os, sys, time, pathlib, plain_horovod as hvd\n"
        "text = pathlib.Path(os.environ['HOROVOD_SECRET_FILE']).read_text()\n"
        "hvd.init()\n"
        "hvd.allreduce_(bytearray(3))\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "fresh = folder / f'new.{hvd.rank()}'; fresh.write_text(text)\n"
        "fresh.rename(folder / f'secret.{hvd.rank()}')\n"
        "while not (folder / 'go').exists(): time.sleep(0.05)\n"
    )
    program = [sys.executable, "-c", script, str(tmp_path)]
    process = hosts.start(
        *hosts.command("-np", "4", "--verbose", "-H", "127.0.0.1:2,127.0.0.2:2", *program),
        MY_TOKEN=planted,
        HOROVOD_LOG_LEVEL="trace",
    )
    _wait_for(lambda: sorted(tmp_path.glob("secret.*")), 4)
    (job_secret,) = {file.read_text() for file in tmp_path.glob("secret.*")}
    assert len(job_secret) == 64
    lines = b"\0".join(_command_lines())
    (tmp_path / "go").touch()
    result = hosts.finish(process, 60)
    assert result.returncode == 0, result.output
    for text in (lines.decode(errors="replace"), result.output):
        assert planted not in text and job_secret not in text


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes()
        except OSError:
            continue


def _wait_for(look, count: int) -> list:
    """What ``look`` returns once there are ``count``."""
    deadline = time.monotonic() + within(30)
    while len(found := look()) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def test_no_rank_of_another_host_reads_the_terminal(hosts: Hosts) -> None:
    status, _, stderr = hosts.run(
        *hosts.command("-np", "2", "-H", "127.0.0.2:2", "--stdin-rank", "1", "true")
    )
    assert status == 2 and b"that rank runs on 127.0.0.2; only a rank of this host" in stderr
