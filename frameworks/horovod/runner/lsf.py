"""The hosts of an LSF job, from the variables that LSF sets for it."""

from collections.abc import Mapping

from .hosts import Host, HostsError

JOB, HOST_FILE, HOST_LIST = "LSB_JOBID", "LSB_DJOB_HOSTFILE", "LSB_MCPU_HOSTS"
_LAUNCH_NODE = "CSM_ALLOCATION_ID"  # of systems whose jobs run their script on a node of its own


def hosts(environ: Mapping[str, str]) -> tuple[list[Host], str] | None:
    """The hosts of the job and the variable that names them; None: this is no LSF job.

    The first host of a job on an IBM CSM cluster is the launch node, which has one slot and runs no ranks.

    Raises:
        HostsError: the variables say nothing that can be used.
    """
    if JOB not in environ:
        return None
    variable = next((name for name in (HOST_FILE, HOST_LIST) if environ.get(name)), None)
    if variable is None:
        return None
    text = environ[variable]
    names = _of_file(text) if variable == HOST_FILE else _of_list(text)
    found = list(names.items())
    if _LAUNCH_NODE in environ and len(found) > 1 and found[0][1] == 1:
        found = found[1:]
    return [Host(name, slots) for name, slots in found], variable


def _of_file(path: str) -> dict[str, int]:
    """A line for each slot, which has the name of its host."""
    slots: dict[str, int] = {}
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                for name in line.split()[:1]:
                    slots[name] = slots.get(name, 0) + 1
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text in UTF-8"
        raise HostsError(f"{HOST_FILE}={path}: {reason}") from None
    if not slots:
        raise HostsError(f"{HOST_FILE}={path}: no host in it")
    return slots


def _of_list(text: str) -> dict[str, int]:
    """Names and numbers of slots in turns."""
    words = text.split()
    slots: dict[str, int] = {}
    for name, count in zip(words[::2], words[1::2], strict=False):
        if not count.isdecimal() or len(count) > 7:
            raise HostsError(f"{HOST_LIST}: {text[:200]!r} is no list of hosts and slots, such as 'a 4 b 4'")
        slots[name] = slots.get(name, 0) + int(count)
    if len(words) % 2 or not slots:
        raise HostsError(f"{HOST_LIST}: {text[:200]!r} is no list of hosts and slots, such as 'a 4 b 4'")
    return slots
