"""Jobs on three hosts that have networks of their own: namespaces, two ranks in each, joined by a bridge."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
import torch
from load import within
from torch import nn

import horovod.torch as hvd

REASON = networks.why_not()
# Jobs on a few hosts are tried by test_ssh.py.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(REASON), reason=f"no hosts with networks of their own: {REASON}"),
]

SWITCH = "10.77.0.254"  # where the launcher is
PLACES = [0, 0, 1, 1, 2, 2]
STEPS, BATCH, RATE = 30, 24, 0.5


@pytest.fixture
def hosts() -> Iterator[networks.Hosts]:
    with networks.hosts(3) as made:
        yield made


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shuffled; in a file, since the module that has them takes long to load."""
    from sklearn.datasets import load_digits

    found, path = load_digits(), tmp_path_factory.mktemp("digits") / "digits.npz"
    order = np.random.default_rng(7).permutation(len(found.target))
    np.savez(path, inputs=(found.data[order] / 16).astype(np.float32), labels=found.target[order])
    return path


def ranks_learn_digits(digits: str) -> dict[str, Any]:
    """A linear classifier of digits; each rank takes its share of every batch."""
    began = time.monotonic()
    hvd.init()
    seconds = time.monotonic() - began
    net = nn.Linear(64, 10)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(float(hvd.rank()))  # until rank 0 tells its own
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    data = np.load(digits)
    inputs, labels = torch.from_numpy(data["inputs"]), torch.from_numpy(data["labels"])
    for step in range(STEPS):
        own = slice(step * BATCH + hvd.rank(), (step + 1) * BATCH, hvd.size())
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs[own]), labels[own]).backward()
        optimizer.step()
    large = torch.arange(3e6) % 1000 + hvd.rank()  # more than any buffer on the way holds
    total = hvd.allreduce(large, op=hvd.Sum)
    expected = np.arange(3e6, dtype=np.float32) % 1000 * 6 + 15
    return {
        "weight": net.weight.detach().double().tolist(),
        "large": bool((total.numpy() == expected).all()),
        "seconds": seconds,
    }


def weight_of_one_process(digits: Path) -> np.ndarray:
    """By numpy, in double precision."""
    weight, bias = np.zeros((10, 64)), np.zeros(10)
    data = np.load(digits)
    inputs, labels = data["inputs"], data["labels"]
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        scores = inputs[rows] @ weight.T + bias
        odds = np.exp(scores - scores.max(1, keepdims=True))
        error = odds / odds.sum(1, keepdims=True) - np.eye(10)[labels[rows]]
        weight -= RATE / BATCH * error.T @ inputs[rows]
        bias -= RATE / BATCH * error.sum(0)
    return weight


def check_training(results: list[dict[str, Any]], digits: Path) -> None:
    weights = [np.array(result["weight"]) for result in results]
    assert all((weight == weights[0]).all() for weight in weights)
    np.testing.assert_allclose(weights[0], weight_of_one_process(digits), atol=1e-5)
    assert np.abs(weights[0]).max() > 0.1
    assert all(result["large"] for result in results)


@pytest.fixture
def learn(run_ranks, hosts: networks.Hosts, digits: Path) -> Callable[..., None]:
    """Trains with the store at an address of the switch, and checks the outcome. At most a second of the
    start goes into addresses that lead nowhere.
    """

    def run(store: str, **env: str) -> None:
        request = hosts.request(PLACES, [store])
        arguments = [str(digits)]
        results = run_ranks(6, ranks_learn_digits, arguments, hosts=PLACES, network=request, env=env)
        check_training(results, digits)
        assert max(result["seconds"] for result in results) < within(2.0)

    return run


def join(hosts: networks.Hosts) -> None:
    hosts.join("br0", "eth0", [f"10.77.0.{number}/24" for number in (1, 2, 3)], f"{SWITCH}/24")


def test_training_over_ipv4(learn, hosts: networks.Hosts) -> None:
    join(hosts)
    learn(SWITCH)


def test_training_over_ipv6_alone(learn, hosts: networks.Hosts) -> None:
    hosts.join("br0", "eth0", [f"fd77::{number}/64" for number in (1, 2, 3)], "fd77::fe/64")
    learn("fd77::fe")


def islands(hosts: networks.Hosts) -> None:
    """Beside a network that joins all, each host has an interface whose address leads nowhere: packets to it
    go to a router that drops them.
    """
    join(hosts)
    hosts.join("br1", "eth1", [f"10.88.{number}.1/24" for number in (1, 2, 3)])
    for node in hosts.nodes:
        node.run("sysctl", "-qw", "net.ipv6.conf.eth1.disable_ipv6=1")
        node.run("ip", "route", "add", "default", "via", SWITCH)


@pytest.mark.parametrize("names", ["", "eth1,eth0", "eth0"])
def test_addresses_are_tried_until_one_answers(learn, hosts: networks.Hosts, names: str) -> None:
    islands(hosts)
    learn(SWITCH, HOROVOD_NETWORK_INTERFACES=names)


def test_links_without_addresses_of_their_own(learn, hosts: networks.Hosts) -> None:
    """The interface that is chosen has a link-local address only."""
    join(hosts)
    hosts.join("br1", "eth1", ["", "", ""])
    learn(SWITCH, HOROVOD_GLOO_IFACE="eth1")


def ranks_meet_nobody() -> str:
    try:
        hvd.init()
    except (ValueError, RuntimeError) as error:
        return str(error)
    return "no error"


def test_an_interface_that_leads_nowhere_is_named(run_ranks, hosts: networks.Hosts) -> None:
    islands(hosts)
    env = {"HOROVOD_NETWORK_INTERFACES": "eth1", "HOROVOD_START_TIMEOUT": str(within(4))}
    request = hosts.request(PLACES, [SWITCH])
    texts = run_ranks(6, ranks_meet_nobody, hosts=PLACES, network=request, env=env)
    for rank, text in enumerate(texts):
        assert f"rank {rank}: no link to rank " in text and " on node" in text, text
    assert "rank 3 on node1: 10.88.2.1:" in texts[5] and "(no answer)" in texts[5] and "firewall" in texts[5]


def test_an_interface_that_does_not_exist_is_named(run_ranks, hosts: networks.Hosts) -> None:
    join(hosts)
    env = {"HOROVOD_NETWORK_INTERFACES": "ib0"}
    request = hosts.request(PLACES, [SWITCH])
    for text in run_ranks(6, ranks_meet_nobody, hosts=PLACES, network=request, env=env):
        assert "there is no network interface ib0; this host has eth0, lo" in text


def ranks_lose_a_network(folder: str, victim: int) -> list[Any]:
    """The last rank of a host pulls its interface down while large tensors travel."""
    hvd.init()
    data, pulled = torch.ones(1 << 20), Path(folder) / "pulled"
    began = time.monotonic()
    try:
        while time.monotonic() < began + within(30):
            hvd.allreduce(data, name="large")
            if hvd.rank() == victim and time.monotonic() > began + 0.5:
                pulled.write_text(str(time.monotonic()))
                subprocess.run(["ip", "link", "set", "eth0", "down"], check=True)
    except hvd.HorovodInternalError as error:
        return [str(error), time.monotonic() - float(pulled.read_text())]
    return ["no error", 0.0]


@pytest.mark.parametrize("victim", [1, 5])
def test_an_interface_that_goes_down_is_named_on_both_sides(
    run_ranks, hosts: networks.Hosts, victim: int, tmp_path: Path
) -> None:
    join(hosts)
    request = hosts.request(PLACES, [SWITCH])
    arguments = [str(tmp_path), victim]
    results = run_ranks(6, ranks_lose_a_network, arguments, hosts=PLACES, network=request)
    for rank, (text, seconds) in enumerate(results):
        is_inside = PLACES[rank] == PLACES[victim]
        others = [peer for peer in range(6) if (PLACES[peer] == PLACES[victim]) != is_inside]
        assert any(f"rank {peer} on node{PLACES[peer]} (pid " in text for peer in others), (rank, text)
        assert "has not responded for" in text and "the network leads to it" in text, (rank, text)
        assert seconds < within(10), (rank, seconds)


def ranks_lose_the_launcher(folder: str) -> list[Any]:
    """The launcher's address goes, and the ranks still reach each other."""
    asked: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(time.monotonic()))
    hvd.init()
    cut = Path(folder) / "cut"
    if hvd.rank() == 0:
        cut.touch()
    try:
        while not asked:
            hvd.allreduce(torch.ones(1000), name="small")
            time.sleep(0.01)
    except hvd.HorovodInternalError:  # another one was asked first
        deadline = time.monotonic() + within(5)
        while not asked and time.monotonic() < deadline:
            time.sleep(0.01)
    return [asked[0] - cut.stat().st_mtime + time.time() - time.monotonic() if asked else -1.0]


def test_ranks_end_when_the_host_of_the_launcher_is_gone(run_ranks, hosts: networks.Hosts, tmp_path) -> None:
    join(hosts)

    def cut() -> None:
        while not (tmp_path / "cut").exists():
            time.sleep(0.01)
        hosts.switch.run("ip", "address", "flush", "dev", "br0")

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(cut)
        request = hosts.request(PLACES, [SWITCH])
        times = run_ranks(6, ranks_lose_the_launcher, [str(tmp_path)], hosts=PLACES, network=request)
        done.result()
    assert all(0 < seconds < within(20) for [seconds] in times), times


def ranks_among_strangers(digits: str) -> dict[str, Any]:
    """The last rank is late, so that the others are found while they listen."""
    time.sleep(3.0 * (int(os.environ["HOROVOD_RANK"]) == 5))
    result = ranks_learn_digits(digits)
    time.sleep(1.0)
    return {**result, "sum": hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist()}


@contextlib.contextmanager
def strangers(hosts: networks.Hosts) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """On every host a program without the secret that bothers all open ports. Gives what they tell at their
    end.
    """
    program = [sys.executable, str(Path(networks.__file__).with_name("stranger.py")), "200"]
    paths = {**os.environ, "PYTHONPATH": str(Path(hvd.__file__).parents[2])}
    everywhere = (hosts.switch, *hosts.nodes)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    started = [subprocess.Popen(host.command(*program), env=paths, **pipes) for host in everywhere]
    try:
        yield lambda: [json.loads(stranger.communicate(b"", within(10))[0]) for stranger in started]
    finally:
        for stranger in started:
            stranger.kill()
            stranger.communicate()


def test_strangers_get_nothing_and_disturb_nothing(
    run_ranks, hosts: networks.Hosts, digits: Path, tmp_path: Path
) -> None:
    join(hosts)
    env = {"HOROVOD_LOG_LEVEL": "warning"}
    with strangers(hosts) as told:
        request = hosts.request(PLACES, [SWITCH])
        arguments = [str(digits)]
        results = run_ranks(6, ranks_among_strangers, arguments, hosts=PLACES, network=request, env=env)
        reports = told()
    check_training(results, digits)
    assert all(result["sum"] == [6, 6, 6] for result in results)
    # The store, and on every host what a rank or two listen at: its address, and both of loopback.
    assert [host for host, _port in reports[0]["ports"]] == [SWITCH]
    for report in reports[1:]:
        assert len(report["ports"]) >= 3 and sum(report["made"].values()) > 100, report["ports"]
    for report in reports:
        # A well-formed greeting is answered with a random number and a proof of the secret, and no more.
        assert not report["heard"]["silent"] and not report["heard"]["garbage"]
        for said in (*report["heard"]["half"], *report["heard"]["forged"]):
            assert len(bytes.fromhex(said)) == 76 and bytes.fromhex(said)[:8] == b"HVDLINK\0", said
    assert int(next(tmp_path.rglob("refused")).read_text()) > 100
    output = "".join(path.read_text() for path in tmp_path.rglob("*.out"))
    assert "refused a connection from" in output


@pytest.mark.full
def test_the_benchmark_of_hosts_runs(tmp_path: Path) -> None:
    program = Path(__file__).resolve().parents[3] / "benchmarks" / "hosts.py"
    out = tmp_path / "rows.json"
    command = [sys.executable, str(program), "--quick", "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=within(100), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert [row["way"] for row in rows] == ["horovod", "horovod, flat", "gloo"]
    # What the bucket lets through at once is a part of so small a tensor.
    assert all(0 < row["of_bound"] < 1.5 for row in rows), rows


HOLDS = """
import networks, time
with networks.hosts(2) as hosts:
    hosts.join("br0", "eth0", ["10.77.0.1/24", "10.77.0.2/24"])
    print(*(host.holder.pid for host in (hosts.switch, *hosts.nodes)), flush=True)
    time.sleep(60)
"""


def test_nothing_is_left_of_hosts_whose_test_is_killed() -> None:
    folder = str(Path(networks.__file__).parent)
    command = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": folder}) as test:
        holders = [Path("/proc", pid) for pid in test.stdout.readline().decode().split()]
        assert len(holders) == 3 and all(holder.exists() for holder in holders)
        test.kill()
    deadline = time.monotonic() + within(5)
    while any(holder.exists() and (holder / "cmdline").read_bytes() for holder in holders):
        assert time.monotonic() < deadline, holders
        time.sleep(0.01)
