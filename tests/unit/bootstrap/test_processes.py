"""A rank sees the end of a launcher that is not ours, also through wrappers, and wakes who is stopped."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from load import within

from horovod.bootstrap import processes
from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.identity import HOROVODRUN, Identity
from horovod.bootstrap.rendezvous import one_host
from horovod.bootstrap.sources import INDEXED_JOB, MPICH, OPEN_MPI, SRUN, TORCHRUN, source_of

_RANK = """
import os, select, sys
from horovod.bootstrap import processes
from horovod.bootstrap.identity import Identity
descriptor = processes.watch(Identity(0, 2, 0, 2, 0, 1, "localhost", sys.argv[1]))
assert not os.get_inheritable(descriptor)
has_ended = [len(select.select([descriptor], [], [], 0)[0])]
print(*processes.launcher_process(sys.argv[1]), *has_ended, flush=True)
print("ended", len(select.select([descriptor], [], [], 60)[0]), flush=True)
"""
# Starts a rank behind a wrapper that has the variables of the rank, too, and waits for it.
_LAUNCHER = """
import os, subprocess, sys
launcher, program, *variables = sys.argv[1:]
wrapper = ["sh", "-c", '"$@"; exit', "sh", sys.executable, "-c", program, launcher]
subprocess.run(wrapper, env=os.environ | dict.fromkeys(variables, "0"), stdin=subprocess.DEVNULL)
"""


def _variables(launcher: str) -> set[str]:
    source = source_of(launcher)
    return {source.rank, source.size, source.mark or source.rank}


@pytest.mark.parametrize("launcher", [TORCHRUN, OPEN_MPI, MPICH, SRUN])
def test_the_end_of_the_launcher_is_seen(launcher: str) -> None:
    _see_its_end(launcher, {})


def test_a_platform_may_have_given_torchrun_a_rank() -> None:
    """Then it is still no rank: what has started it, a script for example, may end before the ranks."""
    _see_its_end(TORCHRUN, {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "1"})


def _see_its_end(launcher: str, own: dict[str, str]) -> None:
    variables = _variables(launcher)
    clean = {name: value for name, value in os.environ.items() if name not in variables}
    command = [sys.executable, "-c", _LAUNCHER, launcher, _RANK, *variables]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean | own)
    assert process.stdout is not None
    pid, _, has_ended = process.stdout.readline().split()
    assert (int(pid), has_ended) == (process.pid, "0")
    process.kill()
    assert process.communicate(timeout=within(20))[0] == "ended 1\n"


@pytest.mark.parametrize("launcher", [HOROVODRUN, INDEXED_JOB, "a launcher for torch.distributed"])
def test_what_may_end_before_its_ranks_is_not_watched(launcher: str) -> None:
    assert processes.watch(Identity(0, 2, 0, 2, 0, 1, "localhost", launcher)) == -1


@pytest.mark.parametrize("launcher", [TORCHRUN, OPEN_MPI, MPICH, SRUN])
def test_a_script_that_sets_the_variables_of_a_launcher_may_go(launcher: str) -> None:
    program = _RANK.partition("assert")[0] + "print(descriptor)"
    exports = "".join(f"export {name}=0; " for name in _variables(launcher))
    script = ["sh", "-c", f'{exports}"$@"; exit', "sh", sys.executable, "-c", program, launcher]
    assert subprocess.run(script, stdout=subprocess.PIPE, check=True).stdout == b"-1\n"


def test_where_nobody_can_tell_a_rank_starts_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its launcher is in another process namespace; the kernel is old."""
    identity = Identity(0, 2, 0, 2, 0, 1, "localhost", OPEN_MPI)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getppid", lambda: 0)
        assert processes.watch(identity) == -1
    monkeypatch.delattr(os, "pidfd_open")
    assert processes.watch(identity) == -1


def test_who_is_stopped_goes_on_and_nobody_else_gets_a_signal() -> None:
    program = "import signal, time; signal.signal(signal.SIGCONT, lambda *_: print('went on', flush=True))"
    command = [sys.executable, "-c", f"{program}\nprint('here', flush=True)\ntime.sleep(60)"]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for child in children:
        assert child.stdout is not None and child.stdout.readline() == "here\n"
    stopped, other, running = [processes._process(child.pid) for child in children]
    for child in children[:2]:
        child.send_signal(signal.SIGSTOP)
        while psutil.Process(child.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
    # The second is another process by now, and the last has ended.
    processes.continue_stopped(
        [stopped, other._replace(start_time="1"), running, stopped._replace(pid=2**22)]
    )
    assert children[0].stdout is not None and children[0].stdout.readline() == "went on\n"
    assert psutil.Process(other.pid).status() == psutil.STATUS_STOPPED
    for child in children:
        child.kill()
    assert [child.communicate(timeout=within(10))[0] for child in children] == ["", "", ""]


def test_a_launcher_outside_of_the_ranks_container_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 0)  # as the kernel has it then
    with pytest.raises(BootstrapError, match=r"rank 1 cannot see the process of srun .* container"):
        one_host.store_address(Identity(1, 2, 1, 2, 0, 1, "localhost", SRUN), {})
    assert processes.watch(Identity(1, 2, 1, 2, 0, 1, "localhost", SRUN)) == -1
