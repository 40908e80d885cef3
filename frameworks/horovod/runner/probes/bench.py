"""What each rank of ``horovodrun bench`` does: collectives of floats by size, beside what the links and the
memory can carry in the same run.

The columns are those that users of NCCL's tests know. *algbw* is the size of the tensor divided by the time;
*busbw* is what the slowest link carries for it, whatever the number of ranks: algbw times 2 (n - 1) / n for
an allreduce, (n - 1) / n for a reducescatter or an allgather, 1 for a broadcast.
"""

import argparse
import json
import time
from collections.abc import Callable

from horovod.bootstrap.text import escaped
from horovod.common import basics
from horovod.common.collective.byte_objects import ByteGlue, objects
from horovod.common.collective.collectives import Collectives
from horovod.common.collective.tensor_glue import DTYPES
from horovod.common.reduce_ops import Sum

from .checks import Finding, links
from .links import measured, own_host

_FLOAT_BYTES = 4
_SECONDS = 0.3  # for each size
_MOST_ROUNDS = 2000
_COPY_BYTES = 64 << 20


class FloatGlue(ByteGlue):
    """A bytearray as a one-dimensional tensor of floats of 32 bits."""

    dtype = DTYPES["float32"]
    width = _FLOAT_BYTES


operations = Collectives(FloatGlue())
Operation = Callable[[bytearray], object]


def _operations(size: int) -> dict[str, tuple[Operation, float]]:
    """By name, and what of algbw the slowest link carries."""
    others = (size - 1) / size
    return {
        "allreduce": (lambda data: operations.allreduce_(data, op=Sum, name="bench"), 2 * others),
        "allgather": (lambda data: operations.allgather(data, name="bench"), others),
        "reducescatter": (lambda data: operations.reducescatter(data, op=Sum, name="bench"), others),
        "broadcast": (lambda data: operations.broadcast_(data, 0, name="bench"), 1.0),
    }


def main() -> None:
    """Prints a table on rank 0, or a JSON object in each line."""
    arguments = _parse()
    basics.init()
    size, me = basics.size(), basics.rank()
    slow = _slow_links()
    if me == 0:
        for each in slow:
            row = {"link": each.name, "speed": each.value, "remedy": each.remedy}
            print(
                json.dumps(row) if arguments.json else escaped(f"! {each.name} {each.value}: {each.remedy}")
            )
    if me == 0 and not arguments.json:
        print(f"{size} ranks; memory copies at {_copy_rate():.1f} GB/s; float32, sum; rates in GB/s")
        print(_row("operation", "bytes", "count", "time us", "algbw", "busbw"))
    for name, (operation, share) in _operations(size).items():
        if arguments.operation not in (None, name):
            continue
        length = max(arguments.min_bytes, _FLOAT_BYTES * size)
        while length <= arguments.max_bytes:
            count = length // (_FLOAT_BYTES * size) * size
            # An allgather gives all together: each rank has its part.
            part = count // size if name == "allgather" else count
            seconds = _measured(operation, bytearray(_FLOAT_BYTES * part))
            if me == 0:
                _show(name, count, seconds, share, arguments.json)
            length *= arguments.factor
    basics.shutdown()


def _slow_links() -> list[Finding]:
    """Hosts, and links between two of them, that all collectives wait for."""
    places = objects.allgather_object((own_host(), basics.local_rank()))
    firsts = {rank: host for rank, (host, local) in enumerate(places) if local == 0}
    return [each for each in links(measured(firsts)) if each.remedy]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="horovodrun bench [options] --", allow_abbrev=False)
    parser.add_argument(
        "--operation", choices=_operations(1), metavar="NAME", help="this one only, such as allreduce"
    )
    parser.add_argument("--min-bytes", type=int, default=1 << 10, metavar="N", help="the least size (1 KiB)")
    parser.add_argument("--max-bytes", type=int, default=64 << 20, metavar="N", help="the largest (64 MiB)")
    parser.add_argument("--factor", type=int, default=4, metavar="N", help="from one size to the next (4)")
    parser.add_argument("--json", action="store_true", help="print a JSON object in each line")
    found = parser.parse_args()
    if found.factor < 2 or found.min_bytes < 1:
        parser.error("--factor is at least 2, and --min-bytes at least 1")
    return found


def _measured(operation: Operation, data: bytearray) -> float:
    """The median over rounds of what the slowest rank took."""
    operation(data)
    begin = time.monotonic()
    operation(data)
    rounds = objects.broadcast_object(_rounds(time.monotonic() - begin))
    times = []
    for _ in range(rounds):
        begin = time.monotonic()
        operation(data)
        times.append(time.monotonic() - begin)
    return max(sorted(mine)[rounds // 2] for mine in objects.allgather_object(times))


def _rounds(seconds: float) -> int:
    return max(5, min(_MOST_ROUNDS, int(_SECONDS / max(seconds, 1e-6))))


def _copy_rate() -> float:
    data, to = bytearray(_COPY_BYTES), bytearray(_COPY_BYTES)
    times = []
    for _ in range(5):
        begin = time.monotonic()
        to[:] = data
        times.append(time.monotonic() - begin)
    return _COPY_BYTES / min(times) / 1e9


def _show(name: str, count: int, seconds: float, share: float, is_json: bool) -> None:
    length = count * _FLOAT_BYTES
    rate = length / seconds / 1e9
    if is_json:
        row = {"operation": name, "bytes": length, "count": count, "type": "float32"}
        print(json.dumps({**row, "time_us": seconds * 1e6, "algbw_gbs": rate, "busbw_gbs": rate * share}))
    else:
        speeds = f"{seconds * 1e6:.1f}", f"{rate:.3f}", f"{rate * share:.3f}"
        print(_row(name, str(length), str(count), *speeds))


def _row(name: str, *cells: str) -> str:
    return f"{name:<13}" + "".join(f" {cell:>10}" for cell in cells)


if __name__ == "__main__":
    main()
