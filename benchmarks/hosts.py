"""One large allreduce, or another operation, between hosts over a slow network, made on this machine.

python benchmarks/hosts.py [--operation allreduce] [--hosts 2] [--ranks 2,4,8] [--mbit 200] [--mib 64]
                           [--paths 1] [--calls 1] [--rounds 3] [--json FILE]

The hosts are network namespaces, joined by a bridge, whose interfaces send so many Mbit/s on each of their
paths; a connection keeps to one path, by its port, as where links are bonded or a cloud limits each flow.
Three ways take turns in the same processes: ours by host (shared memory within a host, between hosts each
rank its slice), ours over links alone (one ring of all ranks, HOROVOD_TRANSPORT=tcp), and torch.distributed
over gloo. HOROVOD_DATA_LINKS says over how many connections ours sends data to a rank.
"""

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from board import Board
from host_operations import OPERATIONS, Operation

ROOT = Path(__file__).resolve().parent.parent
MASTER = "10.77.0.1"
BY_HOST, FLAT, GLOO = "horovod", "horovod, flat", "gloo"
WAYS = (BY_HOST, FLAT, GLOO)
# Of a frame on the wire, for addresses and numbers: Ethernet, IP, TCP with time stamps.
FRAME, HEADERS = 1514, 66


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", default="2,4,8", help="on each host; several, with commas between")
    parser.add_argument("--mbit", type=float, default=200, help="what each host sends in a second on a path")
    parser.add_argument("--paths", type=int, default=1, choices=(1, 2, 4, 8), help="of each host")
    parser.add_argument("--mib", type=float, default=64, help="size of the tensor")
    parser.add_argument("--operation", choices=OPERATIONS, default="allreduce")
    parser.add_argument("--calls", type=int, default=1, help="so many after each other in a round")
    parser.add_argument("--rounds", type=int, default=3, help="every way is taken once in each")
    parser.add_argument("--quick", action="store_true", help="correctness only: not worth reading")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of a rank
    return parser.parse_args()


def bound(operation: str, way: str, hosts: int, ranks: int, size: int, mbit: float) -> float:
    """Seconds that the slowest link needs for what a ring must send over it.

    By host, the members of the ring are the hosts. Else they are all ranks; neighbours share a host, so one
    of each host sends to the other.
    """
    members = hosts if way == BY_HOST else hosts * ranks
    return OPERATIONS[operation].share(members) * size * 8 / (mbit * 1e6)


def take_turns(args: argparse.Namespace) -> None:
    """As a rank: rank 0 writes the seconds of each way, which all ranks have agreed on."""
    import torch

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    board = Board(args.folder / "board", rank, size)
    torch.set_num_threads(1)
    operation = OPERATIONS[args.operation]
    ways = ways_of(operation)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(args.rounds):
        turn = number % len(ways)
        for way in (*ways[turn:], *ways[:turn]):
            start = start_gloo if way == GLOO else start_ours
            run, stop = start(way, operation, args.folder / f"gloo.{number}", rank, size)
            for elements in (size, 25_000 * size):
                check(run, operation, elements, rank, size)
            tensor = torch.ones(int(args.mib * (1 << 18)) // size * size)
            for _ in range(args.calls):
                board.barrier()
                began = time.perf_counter()
                run(tensor)
                times[way].append(board.max(time.perf_counter() - began))
            stop()
    if rank == 0:
        (args.folder / "times.json").write_text(json.dumps(times), encoding="utf-8")


def ways_of(operation: Operation) -> tuple[str, ...]:
    """Those by which it can be done."""
    return tuple(way for way in WAYS if way != GLOO or operation.gloo is not None)


Run = Callable[[Any], Any]
Stop = Callable[[], None]


def start_ours(way: str, operation: Operation, _folder: Path, _rank: int, _size: int) -> tuple[Run, Stop]:
    import horovod.torch as hvd

    os.environ["HOROVOD_TRANSPORT"] = "tcp" if way == FLAT else "shm"
    hvd.init()
    return lambda tensor: operation.ours(hvd, tensor), hvd.shutdown


def start_gloo(_way: str, operation: Operation, folder: Path, rank: int, size: int) -> tuple[Run, Stop]:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}", rank=rank, world_size=size)
    assert operation.gloo is not None
    call = operation.gloo
    return lambda tensor: call(dist, tensor), dist.destroy_process_group


def check(run: Run, operation: Operation, elements: int, rank: int, size: int) -> None:
    """Also warms up."""
    import torch

    pattern = torch.arange(float(elements)) % 1000
    expected = operation.expected(pattern, rank, size)
    assert bool((run(pattern + rank) == expected).all()), "wrong result"


def measure(args: argparse.Namespace, ranks: int) -> dict[str, list[float]]:
    """On hosts of its own."""
    sys.path.insert(0, str(ROOT / "tests" / "ranks"))  # where the hosts of the tests are made
    import networks

    if reason := networks.why_not():
        sys.exit(f"no hosts on this machine: {reason}")
    with networks.hosts(args.hosts) as hosts, tempfile.TemporaryDirectory() as name:
        hosts.join("br0", "eth0", [f"10.77.0.{number + 1}/24" for number in range(args.hosts)])
        for number in range(args.hosts):
            shape(hosts.nodes[number], number, args)
        folder = Path(name)
        Board.create(folder / "board", args.hosts * ranks)
        run_on(hosts, ranks, folder, "--folder", name)
        return json.loads((folder / "times.json").read_text(encoding="utf-8"))


def shape(node: Any, number: int, args: argparse.Namespace) -> None:
    """Limits what the interface of host ``number`` sends."""

    def tc(kind: str, *words: object) -> None:
        node.run("tc", kind, "add", "dev", "eth0", *map(str, words))

    limit = ("tbf", "rate", f"{args.mbit}mbit", "burst", "128kb", "latency", "50ms")
    if args.paths == 1:
        return tc("qdisc", "root", *limit)
    tc("qdisc", "root", "handle", "1:", "htb", "default", 10)
    for path in range(args.paths):
        tc("class", "parent", "1:", "classid", f"1:{10 + path}", "htb", "rate", "100gbit", "quantum", 60000)
        tc("qdisc", "parent", f"1:{10 + path}", *limit)
        for other in set(range(args.hosts)) - {number}:
            # Of two ranks the higher one calls; Linux gives callers every other port.
            called = "sport" if other < number else "dport"
            port = (called, 2 * path, 2 * (args.paths - 1))
            flow = ("match", "ip", "dst", f"10.77.0.{other + 1}/32", "match", "ip", *port)
            tc("filter", "parent", "1:", "protocol", "ip", "u32", *flow, "flowid", f"1:{10 + path}")


def run_on(hosts: Any, ranks: int, folder: Path, *words: str) -> None:
    """Runs this program with ``words`` added as so many ranks on each host, until all have ended."""
    count = len(hosts.nodes)
    started = [
        subprocess.Popen(
            hosts.nodes[rank // ranks].command(sys.executable, *sys.argv, *words),
            env=environment(folder, rank, count, ranks),
        )
        for rank in range(count * ranks)
    ]
    try:
        if sum(process.wait() != 0 for process in started):
            sys.exit("a rank has failed")
    finally:
        for process in started:
            process.kill()


def environment(folder: Path, rank: int, hosts: int, ranks: int) -> dict[str, str]:
    """As a launcher for torch.distributed has it."""
    secret = folder / "secret"
    if not secret.exists():
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(32), encoding="ascii")
    own = {
        "RANK": rank,
        "WORLD_SIZE": hosts * ranks,
        "LOCAL_RANK": rank % ranks,
        "LOCAL_WORLD_SIZE": ranks,
        "MASTER_ADDR": MASTER,
        "MASTER_PORT": 29500,
        "HOROVOD_SECRET_FILE": secret,
        "GLOO_SOCKET_IFNAME": "eth0",
        "HOROVOD_START_TIMEOUT": 300,  # ranks that share cores load torch one after the other
        "OMP_NUM_THREADS": 1,
        "PYTHONPATH": ROOT / "frameworks",
    }
    return {**os.environ, **{name: str(value) for name, value in own.items()}}


def rows(args: argparse.Namespace, ranks: int, times: dict[str, list[float]]) -> list[dict[str, object]]:
    flat = statistics.median(times[FLAT])
    found = []
    for way in times:
        median = statistics.median(times[way])
        best = bound(args.operation, way, args.hosts, ranks, int(args.mib * (1 << 20)), args.mbit)
        found.append(
            {
                "operation": args.operation,
                "hosts": f"{args.hosts}x{ranks}",
                "way": way,
                "min_s": min(times[way]),
                "median_s": median,
                "bound_s": best,
                "of_bound": best / median,
                "times_flat": flat / median,
                "samples_s": times[way],
            }
        )
    return found


def heading(args: argparse.Namespace) -> str:
    most = (FRAME - HEADERS) / FRAME
    return (
        f"{args.operation} of {args.mib:g} MiB, {args.mbit:g} Mbit/s between hosts "
        f"({most:.0%} of it can be data)\n"
        f"{'hosts':6} {'way':14} {'min':>8} {'median':>8} {'ring bound':>11} {'of bound':>9} {'x flat':>7}"
    )


def line(row: dict[str, object]) -> str:
    return (
        f"{row['hosts']:6} {row['way']:14} {row['min_s']:6.3f} s {row['median_s']:6.3f} s "
        f"{row['bound_s']:9.3f} s {row['of_bound']:9.0%} {row['times_flat']:6.2f}x"
    )


def main() -> None:
    args = arguments()
    if args.quick:
        args.ranks, args.mib, args.rounds = "2", 1.0, 1
    if args.folder:
        take_turns(args)
        return
    print(heading(args), flush=True)
    found = []
    for ranks in map(int, args.ranks.split(",")):
        measured = rows(args, ranks, measure(args, ranks))
        print(*map(line, measured), sep="\n", flush=True)
        found += measured
    if args.json:
        args.json.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
