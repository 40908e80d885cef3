"""What each rank of ``horovodrun bench`` does: collectives of floats by size, beside what the links and the
memory can carry in the same run.

The columns are those that users of NCCL's tests know. *algbw* is the size of the tensor divided by the time;
*busbw* is what the slowest link carries for it, whatever the number of ranks: algbw times 2 (n - 1) / n for
an allreduce, (n - 1) / n for a reducescatter, an allgather or an alltoall, 1 for a broadcast.
"""

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod.bootstrap.text import escaped
from horovod.common import basics
from horovod.common.collective.byte_objects import ByteGlue, objects
from horovod.common.collective.collectives import Collectives
from horovod.common.collective.tensor_glue import DTYPES
from horovod.common.reduce_ops import Sum

from .checks import links, wrapped
from .command import parse
from .links import measured, own_host

_FLOAT_BYTES = 4
_SECONDS = 0.3  # for each size
_MOST_ROUNDS = 2000
_COPY_BYTES = 64 << 20


class FloatGlue(ByteGlue):
    """A bytearray as a one-dimensional tensor of floats of 32 bits."""

    dtype = DTYPES["float32"]
    width = _FLOAT_BYTES

    def integer_tensor(self, values: Sequence[int], like: Any) -> bytearray:
        return bytearray()  # how much an alltoall brings from each rank, which nobody asks


operations = Collectives(FloatGlue())
Operation = Callable[[bytearray], object]


def _operations(size: int) -> dict[str, tuple[Operation, float]]:
    """By name, and what of algbw the slowest link carries."""
    others = (size - 1) / size
    return {
        "allreduce": (lambda data: operations.allreduce_(data, op=Sum, name="bench"), 2 * others),
        "allgather": (lambda data: operations.allgather(data, name="bench"), others),
        "reducescatter": (lambda data: operations.reducescatter(data, op=Sum, name="bench"), others),
        "alltoall": (lambda data: operations.alltoall(data, name="bench"), others),
        "broadcast": (lambda data: operations.broadcast_(data, 0, name="bench"), 1.0),
    }


def main() -> None:
    """Prints a table on rank 0, or a JSON object in each line."""
    arguments = parse("bench", sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C leaves the figures as the last lines
    basics.init()
    size, me = basics.size(), basics.rank()
    rates = _between_hosts()
    copies = _copy_rate() if me == 0 else 0.0
    if me == 0:
        _begin(rates, copies, arguments.json)
    rows = []
    for name, (operation, share) in _operations(size).items():
        if arguments.operation not in (None, name):
            continue
        length = max(arguments.min_bytes, _FLOAT_BYTES * size)
        while length <= arguments.max_bytes:
            count = length // (_FLOAT_BYTES * size) * size
            # An allgather gives all together: each rank has its part.
            part = count // size if name == "allgather" else count
            seconds = _measured(operation, bytearray(_FLOAT_BYTES * part))
            rows.append(_figures(name, count, seconds, share))
            if me == 0:
                _show(rows[-1], arguments.json)
            length *= arguments.factor
    if me == 0 and arguments.plot:
        _draw(rows, {"memory copies": copies, **_slowest(rates)}, arguments.plot)
    basics.shutdown()


def _between_hosts() -> Mapping[tuple[str, str], float]:
    """Bytes a second between the first ranks of hosts."""
    places = objects.allgather_object((own_host(), basics.local_rank()))
    return measured({rank: host for rank, (host, local) in enumerate(places) if local == 0})


def _slowest(rates: Mapping[tuple[str, str], float]) -> dict[str, float]:
    return {"slowest link of hosts": min(rates.values()) / 1e9} if rates else {}


def _begin(rates: Mapping[tuple[str, str], float], copies: float, is_json: bool) -> None:
    """What limits the figures, measured in this run; and hosts or links that all collectives wait for."""
    slow = [f"{each.name} {each.value}: {each.remedy}" for each in links(rates) if each.remedy]
    if is_json:
        speeds = {f"{one} to {other}": rate / 1e9 for (one, other), rate in rates.items()}
        print(json.dumps({"memory_copies_gbs": copies, "links_gbs": speeds, "slow": slow}))
        return
    for line in slow:
        print(wrapped(f"! {line}"))
    hosts = len({host for pair in rates for host in pair}) or 1
    print(f"ranks: {basics.size()}, hosts: {hosts}; float32, sum; rates in GB/s")
    between = f"; links between hosts: {_slowest_and_fastest(rates)}" if rates else ""
    print(f"ceiling: memory copies: {copies:.1f}{between}")
    print(_row("operation", "bytes", "count", "time us", "algbw", "busbw"))


def _slowest_and_fastest(rates: Mapping[tuple[str, str], float]) -> str:
    slowest, fastest = min(rates.values()) / 1e9, max(rates.values()) / 1e9
    return f"{slowest:.3f}" if len(rates) == 1 else f"{slowest:.3f} to {fastest:.3f}"


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


def _figures(name: str, count: int, seconds: float, share: float) -> dict[str, Any]:
    length = count * _FLOAT_BYTES
    rate = length / seconds / 1e9
    row = {"operation": name, "bytes": length, "count": count, "type": "float32"}
    return {**row, "time_us": seconds * 1e6, "algbw_gbs": rate, "busbw_gbs": rate * share}


def _show(row: Mapping[str, Any], is_json: bool) -> None:
    if is_json:
        print(json.dumps(row))
        return
    speeds = f"{row['time_us']:.1f}", f"{row['algbw_gbs']:.3f}", f"{row['busbw_gbs']:.3f}"
    print(_row(row["operation"], str(row["bytes"]), str(row["count"]), *speeds))


def _draw(rows: Sequence[Mapping[str, Any]], ceilings: Mapping[str, float], path: str) -> None:
    """busbw by size, a line for each operation; ceilings are dashed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for name in dict.fromkeys(row["operation"] for row in rows):
        own = [row for row in rows if row["operation"] == name]
        axes.plot([row["bytes"] for row in own], [row["busbw_gbs"] for row in own], "o-", label=name)
    for grey, (name, rate) in zip(("0.2", "0.6"), ceilings.items(), strict=False):
        axes.axhline(rate, color=grey, linestyle="--", label=f"ceiling: {name}")
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="busbw, GB/s")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:  # such as an ending that is no kind of picture
        sys.exit(f"! {escaped(path)}: {getattr(error, 'strerror', None) or error}")


def _row(name: str, *cells: str) -> str:
    return f"{name:<13}" + "".join(f" {cell:>10}" for cell in cells)


if __name__ == "__main__":
    main()
