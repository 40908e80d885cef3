"""What a small allreduce takes when the hosts are far from each other, on networks made on this machine.

python benchmarks/latency.py [--hosts 2 4 8 16] [--ranks 1] [--delay 10] [--bytes 64 16384] [--calls 30]
                             [--json FILE]

The hosts are network namespaces, and what one sends to another takes --delay milliseconds. So the time of an
allreduce, in delays, is the number of messages that follow each other: it grows with log(hosts). It is the
mean of all calls: who begins a delay later than the others waits two delays and none by turns.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

from hosts import ROOT, run_on

STEPS_TO_LEARN = 12


def be_a_rank(sizes: list[int], calls: int, result: Path) -> None:
    """Rank 0 writes the seconds of each call, by size."""
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import operations
    from horovod.common.reduce_ops import Sum

    hvd.init()
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for size in sizes:
        for call in range(STEPS_TO_LEARN + calls):
            vector = bytearray([1]) * size
            began = time.perf_counter()
            operations.allreduce_(vector, op=Sum, name=f"vector.{size}")
            if call >= STEPS_TO_LEARN:
                times[size].append(time.perf_counter() - began)
            assert vector == bytearray([hvd.size()]) * size, "wrong result"
    if hvd.rank() == 0:
        result.write_text(json.dumps(times), encoding="utf-8")
    hvd.shutdown()


def measure(args: argparse.Namespace, count: int) -> dict[int, list[float]]:
    """The seconds of each call, by size, among so many hosts."""
    sys.path.insert(0, str(ROOT / "tests" / "ranks"))  # where the hosts of the tests are made
    import networks

    if reason := networks.why_not():
        sys.exit(f"no hosts on this machine: {reason}")
    with networks.hosts(count) as hosts, tempfile.TemporaryDirectory() as name:
        result = Path(name) / "times.json"
        with hosts.join_far(args.delay / 1e3, [f"10.77.0.{number + 1}/24" for number in range(count)]):
            run_on(hosts, args.ranks, Path(name), "--result", str(result))
        times = json.loads(result.read_text(encoding="utf-8"))
        return {int(size): seconds for size, seconds in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--ranks", type=int, default=1, help="on each host")
    parser.add_argument("--delay", type=float, default=10, help="of a message, in milliseconds")
    parser.add_argument("--bytes", type=int, nargs="+", default=[64, 16384])
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)  # of a rank
    args = parser.parse_args()
    if args.result:
        be_a_rank(args.bytes, args.calls, args.result)
        return
    print(f"allreduce, {args.ranks} on each host, {args.delay:g} ms from host to host")
    print(f"{'hosts':>6}{'log2':>7}{'bytes':>9}{'mean':>12}{'in delays':>11}")
    found = []
    for count in args.hosts:
        for size, seconds in measure(args, count).items():
            mean = statistics.mean(seconds) * 1e3
            found.append({"hosts": count, "bytes": size, "samples_s": seconds})
            print(
                f"{count:6}{math.log2(count):7.1f}{size:9}{mean:9.1f} ms{mean / args.delay:11.2f}",
                flush=True,
            )
    if args.json:
        args.json.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
