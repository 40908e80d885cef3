"""Jobs on hosts that dial the launcher: namespaces that stand for pods, where nobody logs in."""

import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import networks
import pytest
import yaml
from launch import MODULE
from load import within
from pods import ADDRESS, PORT, Pods, break_connection, break_stores, running

REASON = networks.why_not()
pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no hosts with networks of their own: {REASON}")

PROGRAM = """
import os, sys, time
from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import objects
hvd.init()
assert objects.allgather_object(hvd.rank()) == list(range(hvd.size()))
print(hvd.rank(), hvd.local_size(), hvd.cross_size(), os.environ["MASTER_ADDR"], flush=True)
"""
STAYS = PROGRAM + "time.sleep(60)\n"
STEPS = 60
WRITES = (
    PROGRAM
    + f"""
for step in range({STEPS}):
    print("line", hvd.rank(), step, "x" * 2000, flush=True)
    time.sleep(0.05)
sys.exit(5 if hvd.rank() == 3 else 0)
"""
)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    with running(tmp_path) as made:
        yield made


def lines(stdout: bytes) -> list[str]:
    return sorted(line.partition(">:")[2] for line in stdout.decode().splitlines())


def test_hosts_that_come_early_and_late_make_a_job(pods: Pods) -> None:
    early = pods.join(1)
    time.sleep(1.0)
    job = pods.lead("-np", "4", sys.executable, "-c", PROGRAM)
    time.sleep(1.0)
    late = pods.join(0)
    result = pods.finish(job, 20)
    assert result.returncode == 0, result.output
    assert lines(result.stdout) == [f"{rank} 2 2 10.77.0.1" for rank in range(4)]
    for agent in (early, late):
        end = pods.finish(agent, 5)
        assert end.returncode == 0 and b"has joined" in end.stderr


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("is_told", [False, True], ids=["auto", "ranks"])
def test_the_same_command_on_each_host_makes_a_job(tmp_path: Path, seed: int, is_told: bool) -> None:
    chance = random.Random(10 * seed + is_told)
    options = ["--nnodes", "4", "--nproc-per-node", "2", "--rendezvous", "10.77.0.2:29500"]
    places = {1: 0, 2: 1, 0: 2, 3: 3}  # pod 1 has the address
    nodes = {}
    with running(tmp_path, 4) as pods:
        for pod in chance.sample(range(4), 4):
            own = ["--node-rank", str(places[pod]) if is_told else "auto"]
            program = f"{PROGRAM}sys.exit(hvd.rank() == 4)"
            nodes[pod] = pods.alike(pod, *options, *own, sys.executable, "-c", program)
            time.sleep(chance.choice((0.0, 0.6)))
        ends = {pod: pods.finish(node, 30) for pod, node in nodes.items()}
    assert [end.returncode for end in ends.values()] == [1] * 4, [end.output for end in ends.values()]
    assert lines(ends[1].stdout) == [f"{rank} 2 4 10.77.0.2" for rank in range(8)]
    assert f"rank 4 (pod-{0 if is_told else 2}" in ends[1].output


def test_the_manifest_of_an_indexed_job_makes_one(pods: Pods) -> None:
    path = Path(__file__).parents[3] / "examples" / "kubernetes" / "indexed_job.yaml"
    _, manifest = yaml.safe_load_all(path.read_text())
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    told = {"--nnodes=4": "--nnodes=3", "--rendezvous=train-0.train:29500": "--rendezvous=10.77.0.1:29500"}
    options = [told.get(word, word) for word in container["command"][1:-2]]
    nodes = {}
    for pod in (2, 0, 1):
        own = [word.replace("$(JOB_COMPLETION_INDEX)", str(pod)) for word in options]
        nodes[pod] = pods.alike(pod, *own, sys.executable, "-c", PROGRAM)
    ends = {pod: pods.finish(node, 30) for pod, node in nodes.items()}
    assert [end.returncode for end in ends.values()] == [0, 0, 0], [end.output for end in ends.values()]
    assert lines(ends[0].stdout) == [f"{rank} 1 3 10.77.0.1" for rank in range(3)]


def test_who_proves_nothing_disturbs_nothing(pods: Pods, tmp_path: Path) -> None:
    wrong = pods.join(2, HOROVOD_SECRET_FILE=pods.new_secret(tmp_path / "another"))
    job = pods.lead("-np", "4", "--start-timeout", "90", sys.executable, "-c", PROGRAM)
    end = pods.finish(wrong, 20)
    assert end.returncode == 1 and b"does not hold this host's secret" in end.stderr
    flood = pods.popen(pods.hosts.nodes[2].command(sys.executable, "-c", _FLOOD, "1000"))
    assert pods.finish(flood, 20).returncode == 0
    agents = [pods.join(0)]
    assert agents[0].stderr is not None and b"has joined" in agents[0].stderr.readline()
    twin = pods.finish(pods.join(0, "--start-timeout", "3"), 10)
    assert twin.returncode == 1 and b"a host of the name pod-0 has joined already" in twin.stderr
    agents.append(pods.join(1))
    result = pods.finish(job, 30)
    assert result.returncode == 0 and len(lines(result.stdout)) == 4, result.output
    assert [pods.finish(agent, 5).returncode for agent in agents] == [0, 0]


_FLOOD = f"""
import os, socket, sys
kept = []
for number in range(int(sys.argv[1])):
    connection = socket.create_connection({(ADDRESS, PORT)!r}, 5)
    connection.sendall((b"HVDLINK\\0" + os.urandom(64), b"GET / HTTP/1.0", os.urandom(300))[number % 3])
    kept = [*kept[-100:], connection]
"""


def test_who_has_left_before_the_job_begins_is_not_waited_for(pods: Pods) -> None:
    job = pods.lead("-np", "4", "--start-timeout", "60", sys.executable, "-c", PROGRAM)
    gone = pods.join(0)
    assert gone.stderr is not None
    while b"has joined" not in gone.stderr.readline():
        assert gone.poll() is None
    pods.signal(gone, signal.SIGTERM)
    assert pods.finish(gone, 5).returncode == 128 + signal.SIGTERM
    agents = [pods.join(pod) for pod in (1, 2)]
    result = pods.finish(job, 30)
    assert result.returncode == 0 and len(lines(result.stdout)) == 4, result.output
    assert [pods.finish(agent, 5).returncode for agent in agents] == [0, 0]


def test_the_launcher_says_how_long_a_host_may_be_away(pods: Pods) -> None:
    agent = pods.join(0, HOROVOD_HOST_TIMEOUT="1")
    program = f"{PROGRAM}import time; time.sleep(6); print('to the end', flush=True)"
    job = pods.lead("-np", "1", "--host-timeout", "60", sys.executable, "-c", program, hosts=1)
    assert job.stdout is not None and b"0 1 1" in job.stdout.readline()
    pod = pods.hosts.nodes[0]
    pod.run("ip", "link", "set", "eth0", "down")
    pod.run("ss", "-HKtn", "dport", "=", str(PORT))
    time.sleep(4.0)
    pod.run("ip", "link", "set", "eth0", "up")
    result = pods.finish(job, 30)
    assert result.returncode == 0 and b"to the end" in result.stdout, result.output
    assert pods.finish(agent, 5).returncode == 0


def test_a_job_goes_on_where_the_connections_of_agents_break(pods: Pods) -> None:
    agents = [pods.join(pod) for pod in (0, 1)]
    job = pods.lead("-np", "4", sys.executable, "-c", WRITES)
    assert job.stdout is not None
    begun = [job.stdout.readline() for _ in range(12)]
    for pod in (0, 1, 0):
        break_connection(pods.hosts.nodes[pod])
    result = pods.finish(job, 40)
    assert result.returncode == 5 and "rank 3 (pod-1" in result.output, result.output
    assert [pods.finish(agent, 5).returncode for agent in agents] == [5, 5]
    written = [line.split() for line in lines(b"".join(begun) + result.stdout) if line.startswith("line")]
    assert sorted((int(rank), int(step)) for _, rank, step, _ in written) == [
        (rank, step) for rank in range(4) for step in range(STEPS)
    ]
    assert {text for *_, text in written} == {"x" * 2000}


WAITS = """
import os, sys, time
from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import objects
hvd.init()
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
if open(sys.argv[1]).read() == "die" and hvd.rank() == 3:
    os._exit(int(sys.argv[2]))  # of 0 only the others can tell that it was too early
objects.allgather_object(hvd.rank())
"""


@pytest.mark.parametrize("kind", ["static", "elastic"])
@pytest.mark.parametrize("end", ["die", "go on"])
def test_a_rank_whose_connection_to_the_store_broke_belongs_to_the_job(
    pods: Pods, tmp_path: Path, kind: str, end: str
) -> None:
    agents = [pods.join(pod, "--slots", "2") for pod in (0, 1)]
    options = ["--min-np", "4", "--max-np", "4", "--reset-limit", "1"] if kind == "elastic" else []
    words = [sys.executable, "-c", WAITS, str(tmp_path / "go"), "0" if kind == "static" else "7"]
    job = pods.lead("-np", "4", *options, *words)
    assert job.stdout is not None
    for _ in range(4):
        job.stdout.readline()
    for pod in (0, 1, 0):
        break_stores(pods.hosts.nodes[pod], 2)
    (tmp_path / "told").write_text(end)
    (tmp_path / "told").rename(tmp_path / "go")
    result = pods.finish(job, 40)
    assert "the launcher is gone" not in result.output, result.output
    if end == "die":
        assert result.returncode and "rank 3" in result.output, result.output
    else:
        assert result.returncode == 0, result.output
    assert all(pods.finish(agent, 5).returncode == result.returncode for agent in agents)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_launcher(pods: Pods, number: signal.Signals) -> None:
    agents = [pods.join(pod, HOROVOD_HOST_TIMEOUT="2") for pod in (0, 1)]
    job = pods.lead("-np", "4", sys.executable, "-c", STAYS)
    assert job.stdout is not None
    for _ in range(4):
        job.stdout.readline()
    job.send_signal(number)
    assert pods.finish(job, 20).returncode == (-number if number == signal.SIGKILL else 128 + number)
    expected = 1 if number == signal.SIGKILL else 128 + number
    assert [pods.finish(agent, 20).returncode for agent in agents] == [expected, expected]


def test_a_lost_agent_is_a_lost_host(pods: Pods) -> None:
    agents = [pods.join(pod) for pod in (0, 1)]
    job = pods.lead("-np", "4", "--host-timeout", "2", sys.executable, "-c", STAYS)
    assert job.stdout is not None
    for _ in range(4):
        job.stdout.readline()
    pods.signal(agents[1], signal.SIGKILL)
    result = pods.finish(job, 20)
    assert result.returncode and "pod-1" in result.output, result.output
    assert pods.finish(agents[0], 5).returncode == result.returncode
    pods.finish(agents[1], 5)


def test_a_launcher_that_is_started_anew_finds_those_who_wait(pods: Pods) -> None:
    agents = [pods.join(0)]
    first = pods.lead("-np", "4", sys.executable, "-c", PROGRAM)
    assert agents[0].stderr is not None
    agents[0].stderr.readline()
    first.kill()
    pods.finish(first, 5)
    job = pods.lead("-np", "4", sys.executable, "-c", PROGRAM)
    agents.append(pods.join(1))
    result = pods.finish(job, 20)
    assert result.returncode == 0 and len(lines(result.stdout)) == 4, result.output
    assert [pods.finish(agent, 5).returncode for agent in agents] == [0, 0]


def test_who_does_not_come_is_told(pods: Pods) -> None:
    seconds = round(within(4))  # so that the second launcher begins while the first one waits
    agent = pods.join(1)
    job = pods.lead("-np", "4", "--start-timeout", f"{seconds}", sys.executable, "-c", PROGRAM)
    assert agent.stderr is not None and b"has joined" in agent.stderr.readline()
    second = pods.finish(pods.lead("-np", "4", sys.executable, "-c", PROGRAM), 20)
    assert second.returncode == 1 and b"somebody listens at port 29500 already" in second.stderr
    result = pods.finish(job, seconds + 20)
    told = f"1 more host did not dial :29500 within {seconds} s (--start-timeout); here: pod-1"
    assert result.returncode == 1 and told in result.stderr.decode()
    assert pods.finish(agent, 5).returncode == 1


def test_an_agent_ends_when_it_is_told_to(pods: Pods) -> None:
    agent = pods.join(1)
    assert agent.stderr is not None and b"no connection to 10.77.0.254:29500" in agent.stderr.readline()
    pods.signal(agent, signal.SIGTERM)
    assert pods.finish(agent, 5).returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("probe", ("doctor", "bench --nproc-per-node 1 -- --max-bytes 4096"))
def test_a_host_with_a_slow_link_is_named(pods: Pods, probe: str) -> None:
    shape = ("tbf", "rate", "200mbit", "burst", "64kb", "latency", "100ms")
    pods.hosts.nodes[2].run("tc", "qdisc", "add", "dev", "eth0", "root", *shape)
    status, output = look(pods, *probe.split())
    assert status == 0, output
    named = [line for line in output.splitlines() if "times slower than the others" in line]
    assert [line.split()[1] for line in named] == ["pod-2"], output
    assert all(len(line) <= 80 for line in output.splitlines()), output


def test_the_doctor_names_a_firewall_between_hosts(pods: Pods) -> None:
    for one, other in ((0, 2), (2, 0)):
        pods.hosts.nodes[one].run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
        pods.hosts.nodes[one].run("ip", "route", "add", "unreachable", f"10.77.0.{other + 1}/32")
    status, output = look(pods, "doctor", "--start-timeout", "16")  # of which the links have half
    assert status == 1 and "Traceback" not in output, output
    assert "rank 2: no link to rank 0 on pod-0" in output and "a firewall is between" in output


def look(pods: Pods, probe: str, *options: str) -> tuple[int, str]:
    """The status of doctor or bench, with one rank on each of three hosts, and what they say."""
    agents = [pods.join(pod, "--slots", "1") for pod in range(3)]
    words = [probe, "--rendezvous", f":{PORT}", "--wait-for-hosts", "3", *options]
    job = pods.popen(pods.hosts.switch.command(*MODULE, *words), env=pods.environment)
    result = pods.finish(job, 60)
    assert [pods.finish(agent, 5).returncode for agent in agents] == [result.returncode] * 3
    return result.returncode, result.output
