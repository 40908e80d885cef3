"""jsrun of IBM's LSF systems: its command line."""

import re

from .order import LauncherError, Order, Start

# It tells nobody whose a line is.
NO_TAG = re.compile(rb"(?!)()")


def start(path: str, job: Order) -> Start:
    """How jsrun starts the job: one resource set on each host, with all cores and GPUs of the host.

    ``job.binding`` replaces these options: whoever gives it says how resources are cut.

    Raises:
        LauncherError: jsrun cannot do what the job asks for.
    """
    if job.stdin_rank is not None:
        raise LauncherError("--stdin-rank: jsrun passes no terminal to a single rank; use horovodrun --gloo")
    words = [path, *(job.binding if job.binding is not None else _resources(job))]
    return Start([*words, *job.extra, *job.command])


def _resources(job: Order) -> list[str]:
    if not job.hosts:
        raise LauncherError(
            "--jsrun: horovodrun does not know the hosts, because this is no LSF job: start it with bsub, or "
            'say how to cut resources, for example --binding-args="--nrs 2 --tasks_per_rs 4"'
        )
    slots = min(host.slots for host in job.hosts)
    even = [count for count in range(1, len(job.hosts) + 1) if not job.size % count]
    hosts = next((count for count in even if job.size // count <= slots), None)
    if hosts is None:
        raise LauncherError(
            f"-np {job.size} cannot be dealt evenly to hosts with {slots} slots each: change it, or say how "
            "with --binding-args"
        )
    return [
        *("--nrs", str(hosts), "--rs_per_host", "1", "--tasks_per_rs", str(job.size // hosts)),
        *("--cpu_per_rs", "ALL_CPUS", "--gpu_per_rs", "ALL_GPUS", "--bind", "none"),
    ]
