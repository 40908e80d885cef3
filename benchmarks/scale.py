"""Real processes beside the model: what jobs of 2 to 256 ranks on this machine open, send, take and hold,
and what the simulator and the rule of the links say of the same jobs.

python benchmarks/scale.py --ranks 2 4 8 16 32 64 128 256 --json scale.json --plot scale.svg

The ranks are plain Python on this machine, and act as if each eight of them had a host of their own: these
share memory, and the others are reached over TCP on the loopback interface.
"""

import argparse
import contextlib
import json
import os
import socket
import stat
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SETTING = "HOROVOD_LEARNED_SCHEDULE"
RANKS_PER_HOST = 8
WARM_UP = 12  # steps, in which a schedule is learned
LAUNCHER = 1  # the link to it
PATIENCE_S = 300

Numbers = dict[str, float]


# One rank.


def act_as_on_hosts() -> None:
    """Which host this rank is on, in place of what its launcher says."""
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    hosts = -(-size // RANKS_PER_HOST)
    host = rank // RANKS_PER_HOST
    place = {
        "HOSTNAME": f"node{host}",
        "LOCAL_RANK": rank % RANKS_PER_HOST,
        "LOCAL_SIZE": min(RANKS_PER_HOST, size - host * RANKS_PER_HOST),
        "CROSS_RANK": host,
        "CROSS_SIZE": hosts,
    }
    os.environ.update({f"HOROVOD_{name}": str(value) for name, value in place.items()})


def links() -> int:
    """How many sockets this process has to others: none that listens, of which a host has as many as it has
    addresses.
    """
    found = 0
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # that of the list itself
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                with socket.socket(fileno=os.dup(descriptor)) as copy:
                    found += not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return found


def memory() -> float:
    """MiB that are this process's own, and its share of what ranks share; what Linux calls its proportional
    set, without the files that it maps.
    """
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    kib = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return sum(int(kib[name]) for name in ("Pss_Anon", "Pss_Shmem")) / 1024


def measure_steps(tensors: int, steps: int, name: str) -> Numbers:
    """Of a step: its median time, and the messages of negotiation that this rank sends."""
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import operations
    from horovod.common.reduce_ops import Max

    vectors = [bytearray(64) for _ in range(tensors)]

    def step() -> None:
        handles = [
            operations.allreduce_async_(vector, op=Max, name=f"{name}.{number}")
            for number, vector in enumerate(vectors)
        ]
        for handle in handles:
            operations.synchronize(handle)

    for _ in range(WARM_UP):
        step()
    before, times = hvd.counters(), []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    after = hvd.counters()
    sent = (after["control_messages"] - before["control_messages"]) / steps
    scheduled = (after["scheduled"] - before["scheduled"]) / steps / tensors
    return {"seconds": statistics.median(times), "messages": sent, "scheduled": scheduled}


def be_a_rank(tensors: int, steps: int, launched: float) -> None:
    """Rank 0 prints what all have found."""
    act_as_on_hosts()
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import objects

    own = memory()
    os.environ[SETTING] = "0"
    processor = time.process_time()
    hvd.init()
    found = {
        "start": time.time() - launched,
        "start_processor": time.process_time() - processor,
        "links_at_start": links(),
    }
    by_ids = measure_steps(tensors, steps, "by ids")
    hvd.shutdown()
    os.environ[SETTING] = "1"
    hvd.init()
    learned = measure_steps(tensors, steps, "learned")
    found |= {f"by_ids_{name}": value for name, value in by_ids.items()}
    found |= {f"learned_{name}": value for name, value in learned.items()}
    found |= {"links": links(), "memory": memory() - own}
    everybody = objects.allgather_object(found)
    if hvd.rank() == 0:
        print(json.dumps(everybody), flush=True)
    hvd.shutdown()


# The one that starts them.


def measure(ranks: int, tensors: int, steps: int) -> Numbers:
    """Most, over the ranks of a job; of memory and processor the mean."""
    program = [sys.executable, __file__, "--rank", str(time.time()), "--tensors", str(tensors)]
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(ranks), "--start-timeout", "100"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [*command, *program, "--steps", str(steps)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if result.returncode != 0:
        sys.exit(result.stdout + result.stderr)
    (line,) = (line for line in result.stdout.splitlines() if "[{" in line)
    everybody = json.loads(line[line.index("[{") :])
    found = {name: max(rank[name] for rank in everybody) for name in everybody[0]}
    for name in ("memory", "start_processor"):
        found[name] = statistics.mean(rank[name] for rank in everybody)
    return found


def model(ranks: int, tensors: int) -> Numbers:
    """The same, of the simulator; and the links that follow from the rule of the links."""
    simulate = [sys.executable, str(ROOT / "scripts/simulate.py"), "--json", "--tensors", str(tensors)]
    output = subprocess.run(
        [*simulate, "--scale", str(ranks)], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    (row,) = (row for row in map(json.loads, output.splitlines()) if row["network"] == "TCP")
    at_start, others = links_by_rule(ranks)
    return {
        "links_at_start": at_start,
        "links": others + row["most_peers"] + row["more_data_links"],
        "by_ids_messages": row["cached"]["most_messages"],
        "learned_messages": row["learned"]["most_messages"],
    }


def links_by_rule(ranks: int) -> tuple[int, int]:
    """Of rank 0, which has most of every kind: its links at the start, and those over which it does not
    negotiate.
    """
    from horovod.bootstrap.mesh.neighbours import at_start
    from horovod.bootstrap.network.auth import Role

    hosts = [rank // RANKS_PER_HOST for rank in range(ranks)]
    made = at_start(0, hosts, shares_memory=True)
    others = [role for _, role in made if role != Role.CONTROL]
    return len(made) + LAUNCHER, len(others) + LAUNCHER


class Column(NamedTuple):
    """Of the table: a number by its name, as it is shown."""

    name: str
    title: str
    decimals: int
    factor: float = 1

    def cell(self, numbers: Numbers | None) -> str:
        value = (numbers or {}).get(self.name)
        return "" if value is None else f"{value * self.factor:.{self.decimals}f}"


COLUMNS = (
    Column("links_at_start", "links at the start", 0),
    Column("links", "links later", 0),
    Column("by_ids_messages", "messages by ids", 1),
    Column("learned_messages", "messages, learned", 1),
    Column("start", "start, s", 1),
    Column("start_processor", "of a rank's processor, ms", 0, 1e3),
    Column("memory", "memory, MiB", 1),
    Column("by_ids_seconds", "step by ids, ms", 1, 1e3),
    Column("learned_seconds", "step, learned, ms", 1, 1e3),
)


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """In Markdown: where there are two numbers, the model's and the measured one."""
    yield "| ranks | " + " | ".join(column.title for column in COLUMNS) + " |"
    yield "|---" * (len(COLUMNS) + 1) + "|"
    for row in rows:
        both = [(column.cell(row["model"]), column.cell(row["measured"])) for column in COLUMNS]
        cells = [" / ".join(cell for cell in pair if cell) for pair in both]
        yield f"| {row['ranks']:,} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 32])
    parser.add_argument("--most", type=int, default=256, help="larger jobs are modelled alone")
    parser.add_argument("--tensors", type=int, default=50, help="of a step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results")
    parser.add_argument("--rank", type=float, metavar="LAUNCHED", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        be_a_rank(args.tensors, args.steps, args.rank)
        return
    rows: list[dict[str, Any]] = []
    for ranks in args.ranks:
        modelled = model(ranks, args.tensors)
        measured = measure(ranks, args.tensors, args.steps) if ranks <= args.most else None
        rows.append({"ranks": ranks, "model": modelled, "measured": measured})
        print(f"{ranks} ranks: done", file=sys.stderr, flush=True)
    print("\n".join(table(rows)))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
