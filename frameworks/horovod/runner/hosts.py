"""The hosts of a job, and which rank runs where. Pure but for reading a file: texts in, placements out."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

_MOST_SLOTS = 1_000_000
_MOST_NAME = 253  # of a name in the domain name system
_NAME = re.compile(r"[A-Za-z0-9_]([\w.-]*\w)?", re.ASCII)  # a dash in front would be an option of ssh
_COUNT = re.compile(r"[0-9]{1,7}", re.ASCII)
# name:slots, or [address]:slots; the address of a host may have colons of its own.
_ENTRY = re.compile(r"(?P<name>\[[^\]]*\]|[^:\[\]]*)(:(?P<slots>.*))?", re.DOTALL)
_LIMIT = re.compile(r"max[-_]slots", re.IGNORECASE)
_SLOTS = re.compile(r"slots", re.IGNORECASE)


class HostsError(ValueError):
    """The hosts cannot be used; the text says where and what to do."""


@dataclass(frozen=True)
class Host:
    """A host by the name under which it is reached, and how many ranks it may run."""

    name: str
    slots: int

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{name}:{self.slots}"


@dataclass(frozen=True)
class Placement:
    """Where a rank runs, and its position there.

    ``local_rank`` counts the ranks of the host; ``cross_rank`` counts the hosts that have this local rank.
    """

    rank: int
    host: str
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def parse(text: str) -> list[Host]:
    """Hosts from a text such as "a:2,b:2,[fe80::1]:4".

    A host that is named twice has the slots of both, at its first place.

    Raises:
        HostsError: an entry is not host:slots, or there are no slots at all.
    """
    where = f"-H {text!r}"
    found = []
    for entry in text.split(","):
        match = _ENTRY.fullmatch(entry.strip())
        if match is None or not _is_count(match["slots"]):
            advice = "write for example -H localhost:2, and an IPv6 address in brackets, -H [fe80::1]:2"
            raise HostsError(f"{where}: {entry!r} is not host:slots; {advice}")
        found.append(Host(checked_name(where, match["name"]), _count(where, match["slots"])))
    return _merged(found, f"{where} has no slots; write for example -H localhost:2")


def read_hostfile(path: str) -> list[Host]:
    """Hosts from a file with a line for each.

    A line is "name slots=N"; without slots it has one. "name:N" (MPICH) and max-slots= (Open MPI; a limit
    that slots= keeps anyhow) are understood too. ``#`` begins a comment. A host that has several lines has
    the slots of all of them, at its first place.

    Raises:
        HostsError: the file cannot be read, or a line is no host.
    """
    found = []
    for number, line in enumerate(lines_of(f"--hostfile {path}", path), 1):
        if words := line.partition("#")[0].split():
            found.append(_of_line(f"{path}:{number}", line.strip(), words))
    return _merged(found, f'{path} has no slots; write for example "localhost slots=2"')


def lines_of(where: str, path: str) -> list[str]:
    """Of a file. Raises HostsError, which says ``where``, for one that cannot be read."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text in UTF-8"
        raise HostsError(f"{where}: {reason}") from None


def allocate(hosts: Sequence[Host], np: int) -> list[Placement]:
    """Places ``np`` ranks: the hosts are filled in their order.

    Raises:
        HostsError: there are fewer slots than ranks.
    """
    check_slots(hosts, np)
    sizes = []
    left = np
    for host in hosts:
        sizes.append(min(host.slots, left))
        left -= sizes[-1]
    return _placed([host.name for host in hosts], sizes)


def checked_name(where: str, name: str) -> str:
    """The name of a host, or its address without brackets. Raises HostsError, which says ``where``."""
    if name.startswith("["):
        return _address(where, name[1:-1])
    if len(name) > _MOST_NAME or _NAME.fullmatch(name) is None:
        user, at, host = name.partition("@")
        advice = f"; write User {user} under Host {host} in ~/.ssh/config, and {host} here" if at else ""
        raise HostsError(f"{where}: {name!r} is not the name of a host{advice}")
    return name


def by_host(placements: Iterable[Placement]) -> dict[str, list[Placement]]:
    """The placements of each host, in their order."""
    found: dict[str, list[Placement]] = {}
    for place in placements:
        found.setdefault(place.host, []).append(place)
    return found


def check_slots(hosts: Sequence[Host], np: int) -> None:
    """Raises HostsError where there are fewer slots than ranks."""
    slots = sum(host.slots for host in hosts)
    if np > slots:
        listed = ",".join(map(str, hosts[:4])) + (",..." if len(hosts) > 4 else "")
        raise HostsError(
            f"-np {np} is more than the {_many(slots, 'slot')} of {listed}: raise one or lower the other"
        )


def select(
    hosts: Sequence[Host],
    include: Collection[str] | None,
    exclude: Collection[str],
    same: Callable[[str], str] = str.lower,
) -> list[Host]:
    """The hosts of ``include`` (None: all) but those of ``exclude``, in their order; a name of the latter may
    be of no host. ``same`` makes names alike that mean one host.

    Raises:
        HostsError: there is no such host, or none is left.
    """
    check_names("--include", include or (), hosts, same)
    wanted = {same(name) for name in ([host.name for host in hosts] if include is None else include)}
    found = [host for host in hosts if same(host.name) in wanted - set(map(same, exclude))]
    if not found:
        raise HostsError(f"--exclude {','.join(exclude)}: no host is left of {_listed(hosts)}")
    return found


def check_names(
    option: str, names: Iterable[str], hosts: Sequence[Host], same: Callable[[str], str] = str.lower
) -> None:
    """Raises HostsError where ``option`` names a host that is none of ``hosts``."""
    own = {same(host.name) for host in hosts}
    if absent := [name for name in names if same(name) not in own]:
        called = f"{option} {','.join(absent)}: no host of this job is called so"
        raise HostsError(f"{called}; it has {_listed(hosts)}")


def narrow(
    hosts: Sequence[Host], np: int | None, nnodes: int | None, per_node: int | None
) -> tuple[list[Host], int]:
    """The hosts to use, with the slots to use of each, and the number of ranks.

    Args:
        hosts: all that may be used.
        np: ranks in all (-np); None: as many as the others say, or as there are slots.
        nnodes: how many hosts to use, the first ones (--nnodes); ``np`` is then dealt to them evenly.
        per_node: how many ranks to run on each host (--nproc-per-node).

    Raises:
        HostsError: the numbers contradict each other, or the hosts do not have so many slots.
    """
    if nnodes is not None:
        hosts = _first(hosts, nnodes)
        if np is not None and per_node is None:
            per_node = _evenly(np, nnodes)
    if per_node is not None:
        hosts = _limited(hosts, per_node)
        if nnodes is not None and np is not None and np != nnodes * per_node:
            asked = f"--nnodes {nnodes} --nproc-per-node {per_node}"
            raise HostsError(f"{asked} is {_many(nnodes * per_node, 'rank')}, and -np is {np}: leave one out")
    return list(hosts), sum(host.slots for host in hosts) if np is None else np


def _first(hosts: Sequence[Host], nnodes: int) -> Sequence[Host]:
    if nnodes < 1:
        raise HostsError(f"--nnodes {nnodes}: at least 1 host is needed")
    if nnodes > len(hosts):
        there = f"there {'is' if len(hosts) == 1 else 'are'} only {_many(len(hosts), 'host')}"
        raise HostsError(f"--nnodes {nnodes}: {there}: name more with -H or --hostfile")
    return hosts[:nnodes]


def _evenly(np: int, nnodes: int) -> int:
    if np % nnodes:
        raise HostsError(f"-np {np} cannot be dealt evenly to --nnodes {nnodes}: say how with -H")
    return np // nnodes


def _limited(hosts: Sequence[Host], per_node: int) -> list[Host]:
    if per_node < 1:
        raise HostsError(f"--nproc-per-node {per_node}: at least 1 rank is needed on each host")
    for host in hosts:
        if host.slots < per_node:
            raise HostsError(
                f"--nproc-per-node {per_node}: {host.name} has {_many(host.slots, 'slot')}; give it more"
            )
    return [Host(host.name, per_node) for host in hosts]


def _placed(names: Sequence[str], sizes: Sequence[int]) -> list[Placement]:
    """Ranks on hosts that run ``sizes`` ranks each."""
    placements: list[Placement] = []
    widths = [sum(size > local for size in sizes) for local in range(max(sizes, default=0))]
    crossed: Counter[int] = Counter()
    for name, size in zip(names, sizes, strict=True):
        for local in range(size):
            cross, width = crossed[local], widths[local]
            placements.append(Placement(len(placements), name, local, size, cross, width))
            crossed[local] += 1
    return placements


def _of_line(where: str, line: str, words: Sequence[str]) -> Host:
    first, *rest = words
    if first.count(":") > 1 and not first.startswith("["):  # an IPv6 address needs no brackets here
        first = f"[{first}]"
    match = _ENTRY.fullmatch(first)
    fields = _fields("".join(f" {word}" for word in rest))
    slots = match["slots"] if match is not None else None
    if match is None or fields is None or (slots is not None and "slots" in fields):
        raise HostsError(f'{where}: {line!r} is no host; write for example "localhost slots=2"')
    slots = fields.get("slots", "1" if slots is None else slots)
    if not _is_count(slots):
        raise HostsError(f'{where}: {line!r} has no number of slots; write for example "localhost slots=2"')
    return Host(checked_name(where, match["name"]), _count(where, slots))


def _fields(text: str) -> dict[str, str] | None:
    """The values of "slots = 2 max-slots=4"; None: there is something else, too."""
    values = {}
    for word in re.sub(r"\s*=\s*", "=", text).split():
        key, _, value = word.partition("=")
        if _SLOTS.fullmatch(key) and "slots" not in values:
            values["slots"] = value
        elif not (_LIMIT.fullmatch(key) and _is_count(value)):
            return None
    return values


def _address(where: str, text: str) -> str:
    import ipaddress  # only for those who need it: the help is to be quick

    address, percent, interface = text.partition("%")
    try:
        ipaddress.IPv6Address(address)
        if percent and _NAME.fullmatch(interface) is None:
            raise ValueError
    except ValueError:
        raise HostsError(f"{where}: [{text}] is not an IPv6 address, such as [fe80::1]") from None
    return text


def _is_count(text: str | None) -> bool:
    return text is not None and _COUNT.fullmatch(text) is not None


def _count(where: str, text: str) -> int:
    if int(text) > _MOST_SLOTS:
        raise HostsError(f"{where}: {text} slots are more than {_MOST_SLOTS}")
    return int(text)


def _merged(hosts: Iterable[Host], complaint: str) -> list[Host]:
    """Each host once, under the first of the names that differ in case only, as in the domain name system."""
    names: dict[str, str] = {}
    slots: Counter[str] = Counter()
    for host in hosts:
        slots[names.setdefault(host.name.lower(), host.name)] += host.slots
    found = [Host(name, count) for name, count in slots.items() if count]
    if not found:
        raise HostsError(complaint)
    return found


def _listed(hosts: Sequence[Host]) -> str:
    return ",".join(host.name for host in hosts[:8]) + (",..." if len(hosts) > 8 else "")


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
