"""The launchers of MPI: which one a version text tells of, and the command line that it takes."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from .order import LauncherError, Order, Start


class Kind(Enum):
    """Launchers of one family of options."""

    OPEN_MPI = "Open MPI"
    SPECTRUM = "Spectrum MPI"
    MPICH = "MPICH"
    INTEL = "Intel MPI"


@dataclass(frozen=True)
class Launcher:
    """An mpirun: what it is, its version, and where it lies."""

    kind: Kind
    version: tuple[int, ...]
    path: str

    def __str__(self) -> str:
        number = ".".join(map(str, self.version))
        return f"{self.kind.value} {number}".strip()

    @property
    def tag(self) -> "re.Pattern[bytes]":
        """What it puts in front of the output of a rank; the group is the rank."""
        return _TAG_OF_PRRTE if self.uses_prrte else _TAGS[self.kind]

    @property
    def uses_prrte(self) -> bool:
        """Whether this is an Open MPI of version 5 or later."""
        return self.kind == Kind.OPEN_MPI and self.version >= (5,)

    @property
    def passes_stop_on(self) -> bool:
        """Whether it stops the ranks of all hosts when it gets SIGTSTP."""
        return self.kind == Kind.OPEN_MPI and not self.uses_prrte


# In this order: Spectrum MPI is an Open MPI, and Intel MPI has a Hydra.
_VERSIONS = (
    (Kind.SPECTRUM, re.compile(r"IBM Spectrum MPI\)? *v?([\d.]*)")),
    (Kind.INTEL, re.compile(r"Intel\(R\) MPI Library.*?Version ([\d.]*)", re.DOTALL)),
    (Kind.OPEN_MPI, re.compile(r"\((?:Open MPI|OpenRTE|PRRTE|PRTE)\) *v?([\d.]*)")),
    (Kind.MPICH, re.compile(r"HYDRA build details:.*?Version: +([\d.]*)", re.DOTALL)),
)
_TAG_OF_PRRTE = re.compile(rb"\[(?:[^\][,\s]{1,80}@)?1,(\d{1,7})\]<std(?:out|err|diag)>: ")
_TAGS = {
    Kind.OPEN_MPI: re.compile(rb"\[1,(\d{1,7})\]<std(?:out|err|diag)>:"),
    Kind.SPECTRUM: re.compile(rb"\[1,(\d{1,7})\]<std(?:out|err|diag)>:"),
    Kind.MPICH: re.compile(rb"\[horovodrun,(\d{1,7})\]:"),
    Kind.INTEL: re.compile(rb"\[(\d{1,7})\] "),
}


def recognise(path: str, text: str) -> Launcher:
    """The launcher at ``path``, from what it prints when asked for its version.

    Raises:
        LauncherError: this is none that horovodrun knows.
    """
    for kind, pattern in _VERSIONS:
        if found := pattern.search(text):
            return Launcher(kind, tuple(int(part) for part in found[1].split(".") if part), path)
    known = ", ".join(kind.value for kind in Kind)
    raise LauncherError(f"{path} is none of {known}: put the mpirun of one of them first on PATH")


def start(launcher: Launcher, job: Order) -> Start:
    """How this launcher starts the job.

    Raises:
        LauncherError: it cannot do what the job asks for.
    """
    if ":" in job.command:
        raise LauncherError("the command has the word ':', at which an MPI launcher cuts its command line")
    return _STARTS[launcher.kind](launcher, job)


def _open_mpi(launcher: Launcher, job: Order) -> Start:
    words = [launcher.path, "-np", str(job.size)]
    if job.is_root:  # as in most containers; who starts this as root has decided
        words.append("--allow-run-as-root")
    if job.hosts is not None:
        words += ["--host", _hosts(job)]
    words += job.binding if job.binding is not None else ["--bind-to", "none", "--map-by", "slot"]
    words += ["--output", "tag"] if launcher.uses_prrte else ["--tag-output"]
    words += [] if job.stdin_rank is None else ["--stdin", str(job.stdin_rank)]
    if ssh := _ssh(job):
        words += ["--mca", "plm_rsh_args", " ".join(ssh)]
    if job.interfaces is not None:
        words += [
            "--mca",
            "btl_tcp_if_include",
            job.interfaces,
            "--mca",
            "oob_tcp_if_include",
            job.interfaces,
        ]
    for name in job.exported:
        words += ["-x", name]
    return Start([*words, *job.extra, *job.command], _PASSES_STOP_ON if launcher.passes_stop_on else {})


def _hydra(launcher: Launcher, job: Order) -> Start:
    if job.stdin_rank not in (None, 0):
        raise LauncherError(f"--stdin-rank {job.stdin_rank}: {launcher} passes standard input to rank 0 only")
    words = [launcher.path, "-n", str(job.size)]
    if job.hosts is not None:
        words += ["-hosts", _hosts(job)]
    if job.binding is not None:
        words += job.binding
    elif launcher.kind == Kind.MPICH:  # Intel MPI gives each rank its share of the cores
        words += ["-bind-to", "none"]
    words += ["-prepend-rank"] if launcher.kind == Kind.INTEL else ["-prepend-pattern", "[horovodrun,%r]:"]
    if job.interfaces is not None:
        if "," in job.interfaces:
            raise LauncherError(f"--network-interfaces {job.interfaces}: {launcher} takes one interface")
        words += ["-iface", job.interfaces]
    ssh = " ".join(_ssh(job))
    environment = dict.fromkeys(_EXTRA_ARGUMENTS, ssh) if ssh else {}
    return Start([*words, "-genvall", *job.extra, *job.command], environment)


_PASSES_STOP_ON = {"OMPI_MCA_orte_forward_job_control": "1"}
_EXTRA_ARGUMENTS = ("HYDRA_LAUNCHER_EXTRA_ARGS", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS")
_STARTS: dict[Kind, Callable[[Launcher, Order], Start]] = {
    Kind.OPEN_MPI: _open_mpi,
    Kind.SPECTRUM: _open_mpi,
    Kind.MPICH: _hydra,
    Kind.INTEL: _hydra,
}


def _hosts(job: Order) -> str:
    """The hosts as all of these launchers take them: name:slots,name:slots."""
    for host in job.hosts or ():
        if ":" in host.name:
            raise LauncherError(f"-H {host}: an MPI launcher takes names and IPv4 addresses only")
    return ",".join(map(str, job.hosts or ()))


def _ssh(job: Order) -> list[str]:
    """Options of ssh, which the launchers cut at spaces."""
    identity = job.ssh_identity_file
    if identity is not None and identity.split() != [identity]:
        raise LauncherError(f"-i {identity!r}: an MPI launcher takes no file with spaces in its name")
    words = [] if job.ssh_port is None else ["-p", str(job.ssh_port)]
    return words if identity is None else [*words, "-i", identity]
