"""A job as a value: from the options of a command line, and made by a program that has none."""

import signal
import subprocess
import sys

import pytest

from horovod.runner.command_line import parser
from horovod.runner.command_line.new_job import new_job
from horovod.runner.hosts import Host
from horovod.runner.job import Job, Reach
from horovod.runner.nodes.node import Work


def job_of(line: str, **environ: str) -> Job:
    return new_job(parser.parse([*line.split(), "train"]), environ)


def test_the_plainest_job_has_nothing_that_nobody_has_asked_for() -> None:
    assert job_of("-np 2") == Job(
        Work(["train"], {}, (), 2), [Host("localhost", 2)], {}, Reach(fan_out=32), warnings=[]
    )


def test_what_options_and_variables_say_of_the_way_to_hosts() -> None:
    line = "-np 3 -H localhost:1,far:2 --ssh-port 2222 --start-timeout 7 --host-timeout 90"
    job = job_of(line, HOROVOD_SSH_FAN_OUT="4", HOROVOD_START_TIMEOUT="9")
    assert job.reach == Reach(2222, fan_out=4, start_seconds=7.0, lost_seconds=90.0)
    words = ["-np", "2", "-H", "far:2", "--remote-shell", "pods {host} --", "train"]
    reach = new_job(parser.parse(words), {"HOROVOD_HOST_TIMEOUT": "5"}).reach
    assert reach == Reach(shell=("pods", "{host}", "--"), fan_out=0, lost_seconds=5.0)


def test_an_elastic_job_has_limits_of_its_own() -> None:
    line = "-np 3 --min-np 2 --max-np 8 --spares 1 --grace 2 --preemption-signal USR1"
    elastic = job_of(line, HOROVOD_ELASTIC_TIMEOUT="50", HOROVOD_CHECKPOINT_DIR="/state").elastic
    assert elastic is not None and elastic.preemption == signal.SIGUSR1
    limits = elastic.limits
    assert (limits.ranks, limits.fewest, limits.most, limits.spares) == (3, 2, 8, 1)
    assert (limits.patience, limits.is_durable, limits.grace) == (50.0, True, 2.0)
    assert job_of("-np 3").elastic is None


def test_ranks_can_be_told_no_more_than_a_day_for_the_start() -> None:
    assert job_of("-np 2 --start-timeout 1000000").variables == {"HOROVOD_START_TIMEOUT": "86400"}


@pytest.mark.parametrize("name", ["HOROVOD_HOST_TIMEOUT", "HOROVOD_SSH_FAN_OUT"])
def test_a_variable_that_cannot_be_used_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: 'soon' is no"):
        job_of("-np 2", **{name: "soon"})


PROGRAM = """
import sys
from horovod.runner.hosts import Host
from horovod.runner.job import Job
from horovod.runner.launchers import direct
from horovod.runner.nodes.node import Work

work = Work(["sh", "-c", "echo $HOROVOD_RANK of $SIZE; exit $HOROVOD_RANK"], {}, (), 2)
sys.exit(direct.launch(Job(work, [Host("localhost", 2)], {"SIZE": "two"})))
"""


def test_a_program_can_run_a_job_without_a_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:0 of two", "[1]<stdout>:1 of two"]
    assert "rank 1" in done.stderr
