"""What each rank of ``horovodrun doctor`` does; rank 0 tells."""

import os
import time
from collections.abc import Mapping, Sequence

from horovod.bootstrap.text import escaped
from horovod.common import basics
from horovod.common.collective.byte_objects import objects, operations

from . import checks
from .checks import Finding

_BYTES = 8 << 20
_ROUNDS = 3
_MOST_PAIRS = 64


def main() -> None:
    """Looks at this host and at its links."""
    basics.init()
    name = os.environ.get("HOROVOD_HOSTNAME") or os.uname().nodename
    names = objects.allgather_object(
        f"{name}" if basics.local_size() == 1 else f"{name}.{basics.local_rank()}"
    )
    told = dict(zip(names, objects.allgather_object(checks.look_at_host()), strict=True))
    operations.barrier()
    clocks = objects.allgather_object(time.time())
    rates = _rates(names)
    if basics.rank() == 0:
        skews = [checks.skew(name, clock - clocks[0]) for name, clock in zip(names, clocks, strict=True)]
        _tell(told, [*skews[1:], *checks.differences(told), *checks.links(rates)])
    operations.barrier()
    basics.shutdown()


def _rates(names: Sequence[str]) -> Mapping[tuple[str, str], float]:
    """Bytes for each second over the links, one after the other: of all pairs, or of a ring."""
    size, me = len(names), basics.rank()
    pairs = [(one, other) for one in range(size) for other in range(one + 1, size)]
    if len(pairs) > _MOST_PAIRS:
        pairs = [(rank, (rank + 1) % size) for rank in range(size)]
    data, own = bytearray(_BYTES), {}
    for pair in pairs:
        operations.barrier()
        if me in pair:
            own[pair] = min(_seconds(data, pair) for _ in range(_ROUNDS))
    merged: dict[tuple[int, int], float] = {}
    for found in objects.allgather_object(own):
        merged |= {pair: max(seconds, merged.get(pair, 0.0)) for pair, seconds in found.items()}
    return {(names[one], names[other]): 2 * _BYTES / seconds for (one, other), seconds in merged.items()}


def _seconds(data: bytearray, pair: tuple[int, int]) -> float:
    """There and back."""
    one, other = pair
    begin = time.monotonic()
    if basics.rank() == one:
        operations.send(data, other)
        operations.recv(data, other)
    else:
        operations.recv(data, one)
        operations.send(data, one)
    return time.monotonic() - begin


def _tell(hosts: Mapping[str, Sequence[Finding]], between: Sequence[Finding]) -> None:
    for host, found in hosts.items():
        versions = ", ".join(each.value for each in found if each.name == checks.VERSION)
        print(f"{escaped(host)}: {escaped(versions)}")
        for each in [each for each in found if each.name != checks.VERSION]:
            _show(each)
    if between:
        print("between the hosts:")
    for each in between:
        _show(each)
    bad = sum(bool(each.remedy) for each in [*between, *(one for found in hosts.values() for one in found)])
    print(f"{bad} thing{'s' if bad != 1 else ''} to do" if bad else "all is well")


def _show(finding: Finding) -> None:
    mark = "!" if finding.remedy else " "
    text = f"{mark} {finding.name:<12} {finding.value}"
    print(escaped(f"{text}: {finding.remedy}" if finding.remedy else text))


if __name__ == "__main__":
    main()
