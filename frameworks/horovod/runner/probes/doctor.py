"""What each rank of ``horovodrun doctor`` does; rank 0 tells."""

import dataclasses
import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from horovod.bootstrap.errors import BootstrapError
from horovod.common import basics
from horovod.common.collective.byte_objects import objects, operations

from . import checks
from .checks import Finding
from .command import parse
from .links import measured, own_host


def main() -> None:
    """Looks at this host and at its links."""
    arguments = parse("doctor", sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C leaves the figures as the last lines
    try:
        basics.init()
    except BootstrapError as error:  # says which hosts do not reach each other
        sys.exit(f"! {error}")
    name = own_host()
    names = objects.allgather_object(name if basics.local_size() == 1 else f"{name}.{basics.local_rank()}")
    told = dict(zip(names, objects.allgather_object(checks.look_at_host()), strict=True))
    operations.barrier()
    clocks = objects.allgather_object(time.time())
    rates = measured(dict(enumerate(names)))
    if basics.rank() == 0:
        skews = [checks.skew(name, clock - clocks[0]) for name, clock in zip(names, clocks, strict=True)]
        between = [*skews[1:], *checks.differences(told), *checks.links(rates)]
        if arguments.json:
            _tell_programs(told, between)
        else:
            _tell(told, between)
    operations.barrier()
    basics.shutdown()


def _tell(hosts: Mapping[str, Sequence[Finding]], between: Sequence[Finding]) -> None:
    for host, found in hosts.items():
        versions = ", ".join(each.value for each in found if each.name == checks.VERSION)
        print(checks.wrapped(f"{host}: {versions}"))
        for each in [each for each in found if each.name != checks.VERSION]:
            _show(each)
    if between:
        print("between the hosts:")
    for each in between:
        _show(each)
    bad = sum(bool(each.remedy) for each in [*between, *(one for found in hosts.values() for one in found)])
    print(f"{bad} thing{'s' if bad != 1 else ''} to do" if bad else "all is well")


def _tell_programs(hosts: Mapping[str, Sequence[Finding]], between: Sequence[Finding]) -> None:
    """The same as JSON; what is said of no host alone has none."""
    for host, found in [*hosts.items(), (None, between)]:
        for each in found:
            print(json.dumps({"host": host, **dataclasses.asdict(each)}))


def _show(finding: Finding) -> None:
    mark = "!" if finding.remedy else " "
    text = f"{mark} {finding.name:<12} {finding.value}"
    print(checks.wrapped(f"{text}: {finding.remedy}" if finding.remedy else text, indent=15))


if __name__ == "__main__":
    main()
