"""Many ranks on one host or, as far as they say, on several, with the number of open files that most systems
allow by default.
"""

import re
import shlex
import sys

import pytest
from launch import MODULE, PROGRAMS, Launcher, Result
from load import within

OPEN_FILES = 1024
# A rank alone takes about 70 ms of a core to start, so this is twice what 2 idle cores need.
START_SECONDS_PER_RANK = 0.07


@pytest.mark.parametrize(
    ("ranks", "hosts"),
    [(64, 1), (16, 2), (16, 4), (32, 16)]
    + [pytest.param(256, hosts, marks=pytest.mark.full) for hosts in (1, 16)],
)
def test_many_ranks_start_reduce_and_end(ranks: int, hosts: int) -> None:
    launcher = Launcher()
    limit = within(2 + START_SECONDS_PER_RANK * ranks)  # before the ranks themselves make the machine busy
    result = _run(launcher, ranks, str(hosts))
    assert result.returncode == 0, result.output
    (line,) = re.findall(rf"{ranks} ranks: init .*", result.output)
    (numbers,) = re.findall(r"at most (\d+) descriptors, (\d+) sockets at the start and (\d+)", line)
    descriptors, sockets, _ = map(int, numbers)
    # The wakers of the host's ranks, and besides them only what grows with the logarithm of the ranks.
    assert ranks // hosts <= descriptors < ranks // hosts + 90, line
    circles = [max(8, 2 * (count - 1).bit_length()) for count in (ranks, hosts, hosts)]
    assert sockets <= sum(circles) + ranks.bit_length() + 4, line
    print(f"{line}; limit of init {limit:.0f} s")
    assert float(re.findall(r"init ([0-9.]+) s", line)[0]) < limit, line
    assert "refused" not in result.output  # no rank takes a slow one for a stranger
    launcher.wait_until_gone(5)


@pytest.mark.parametrize(("ranks", "victim"), [(32, 21), pytest.param(256, 100, marks=pytest.mark.full)])
def test_a_killed_rank_is_named_by_all_on_many_hosts(ranks: int, victim: int) -> None:
    launcher = Launcher()
    result = _run(launcher, ranks, "16", str(victim))
    assert len(re.findall(rf"after .* s: names rank {victim}\n", result.output)) == ranks - 1, result.output
    assert result.returncode == 137 and f"horovodrun: rank {victim} " in result.output, result.output
    assert "refused" not in result.output
    launcher.wait_until_gone(5)


def _run(launcher: Launcher, ranks: int, *arguments: str) -> Result:
    program = [sys.executable, str(PROGRAMS / "many_ranks.py"), *arguments]
    horovodrun = [*MODULE, "-np", str(ranks), "--start-timeout", "100", *program]
    command = f"ulimit -Hn {OPEN_FILES}; ulimit -Sn {OPEN_FILES}; exec {shlex.join(horovodrun)}"
    environment = {**launcher.environment, "OMP_NUM_THREADS": "1"}
    return launcher.finish(launcher.popen(["bash", "-c", command], env=environment), 60)
