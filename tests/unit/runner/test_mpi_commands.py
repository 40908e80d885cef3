"""The command lines of MPI launchers and jsrun: pure functions of what is found and what is asked for."""

import re
from dataclasses import replace

import pytest

from horovod.runner.hosts import Host
from horovod.runner.mpi import jsrun, launchers
from horovod.runner.mpi.launchers import Kind, Launcher
from horovod.runner.mpi.order import LauncherError, Order, exported_names, launcher_environment

# What launchers print for --version. Of the first four, the first line or lines.
VERSIONS = {
    "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n": (
        Kind.OPEN_MPI,
        (4, 1, 4),
    ),
    "mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n": (
        Kind.OPEN_MPI,
        (4, 1, 4),
    ),
    "mpirun (Open MPI) 5.0.3\n\nReport bugs to https://www.open-mpi.org/community/help/\n": (
        Kind.OPEN_MPI,
        (5, 0, 3),
    ),
    "mpirun (IBM Spectrum MPI) 10.3.1.02rtm0\n": (Kind.SPECTRUM, (10, 3, 1, 2)),
    "HYDRA build details:\n    Version:                                 4.0.2\n"
    "    Release Date:                            Thu Apr  7 12:34:45 CDT 2022\n": (Kind.MPICH, (4, 0, 2)),
    "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307 (id: d82b3071db)\n"
    "Copyright 2003-2023, Intel Corporation.\n": (Kind.INTEL, (2021, 9)),
}
OPEN_MPI = Launcher(Kind.OPEN_MPI, (4, 1, 4), "/bin/mpirun")
MPICH = Launcher(Kind.MPICH, (4, 0, 2), "/bin/mpirun")
JOB = Order(["python", "train.py"], 3)
EVERYTHING = replace(
    JOB,
    hosts=[Host("a", 2), Host("b", 1)],
    exported=["SEED", "TOKEN"],
    ssh_port=2222,
    ssh_identity_file="/k/id",
    interfaces="eth0",
    stdin_rank=0,
    binding=["--map-by", "numa"],
    extra=["-v"],
)


@pytest.mark.parametrize("text", VERSIONS)
def test_every_launcher_is_recognised(text: str) -> None:
    found = launchers.recognise("/bin/mpirun", text)
    assert (found.kind, found.version) == VERSIONS[text] and str(found).startswith(found.kind.value)


@pytest.mark.parametrize("text", ["", "slurm 23.02\n", "Open MPI\n"])
def test_another_program_is_refused(text: str) -> None:
    with pytest.raises(LauncherError, match=r"^/bin/mpirun is none of Open MPI, .* first on PATH$"):
        launchers.recognise("/bin/mpirun", text)


def test_open_mpi() -> None:
    plain = launchers.start(OPEN_MPI, JOB)
    assert " ".join(plain.words) == (
        "/bin/mpirun -np 3 --bind-to none --map-by slot --tag-output python train.py"
    )
    full = launchers.start(OPEN_MPI, replace(EVERYTHING, is_root=True))
    assert full.words == [
        *("/bin/mpirun", "-np", "3", "--allow-run-as-root", "--host", "a:2,b:1", "--map-by", "numa"),
        *("--tag-output", "--stdin", "0", "--mca", "plm_rsh_args", "-p 2222 -i /k/id"),
        *("--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"),
        *("-x", "SEED", "-x", "TOKEN", "-v", "python", "train.py"),
    ]
    passes_stop_on = {"OMPI_MCA_orte_forward_job_control": "1"}
    assert plain.environment == full.environment == passes_stop_on


def test_open_mpi_5_has_another_option_for_tags() -> None:
    start = launchers.start(replace(OPEN_MPI, version=(5, 0, 3)), JOB)
    words = start.words
    assert not start.environment
    assert "--tag-output" not in words and words[words.index("--output") + 1] == "tag"


def test_spectrum_mpi_is_an_open_mpi() -> None:
    spectrum = replace(OPEN_MPI, kind=Kind.SPECTRUM, version=(10, 3))
    assert launchers.start(spectrum, EVERYTHING).words == launchers.start(OPEN_MPI, EVERYTHING).words


def test_mpich() -> None:
    assert launchers.start(MPICH, JOB).words == [
        *("/bin/mpirun", "-n", "3", "-bind-to", "none", "-prepend-pattern", "[horovodrun,%r]:", "-genvall"),
        *("python", "train.py"),
    ]
    full = launchers.start(MPICH, EVERYTHING)
    assert full.words == [
        *("/bin/mpirun", "-n", "3", "-hosts", "a:2,b:1", "--map-by", "numa"),
        *("-prepend-pattern", "[horovodrun,%r]:", "-iface", "eth0", "-genvall", "-v", "python", "train.py"),
    ]
    assert full.environment["HYDRA_LAUNCHER_EXTRA_ARGS"] == "-p 2222 -i /k/id"


def test_intel_mpi() -> None:
    start = launchers.start(Launcher(Kind.INTEL, (2021, 9), "/bin/mpirun"), JOB)
    assert start.words == ["/bin/mpirun", "-n", "3", "-prepend-rank", "-genvall", "python", "train.py"]


@pytest.mark.parametrize(
    ("launcher", "change", "said"),
    [
        (OPEN_MPI, {"hosts": [Host("fe80::1", 2)]}, "names and IPv4 addresses only"),
        (MPICH, {"hosts": [Host("fe80::1", 2)]}, "names and IPv4 addresses only"),
        (OPEN_MPI, {"ssh_identity_file": "my key"}, "no file with spaces"),
        (MPICH, {"ssh_identity_file": ""}, "no file with spaces"),
        (MPICH, {"stdin_rank": 1}, "to rank 0 only"),
        (MPICH, {"interfaces": "eth0,eth1"}, "takes one interface"),
        (OPEN_MPI, {"command": ["prog", ":", "x"]}, "cuts its command line"),
    ],
)
def test_what_a_launcher_cannot_do_is_refused(
    launcher: Launcher, change: dict[str, object], said: str
) -> None:
    with pytest.raises(LauncherError, match=re.escape(said)):
        launchers.start(launcher, replace(JOB, **change))  # type: ignore[arg-type]


def test_jsrun_takes_whole_hosts() -> None:
    job = replace(JOB, size=8, hosts=[Host(name, 4) for name in "abc"])
    resources = "--nrs 2 --rs_per_host 1 --tasks_per_rs 4 --cpu_per_rs ALL_CPUS --gpu_per_rs ALL_GPUS"
    assert jsrun.start("/bin/jsrun", job).words == [
        *["/bin/jsrun", *resources.split(), "--bind", "none", "python", "train.py"]
    ]
    assert "6" in jsrun.start("j", replace(job, size=6, hosts=[Host("a", 6), Host("b", 6)])).words
    own = jsrun.start("/bin/jsrun", replace(job, binding=["-n", "8"], extra=["--smpiargs", "-gpu"]))
    assert own.words == ["/bin/jsrun", "-n", "8", "--smpiargs", "-gpu", "python", "train.py"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hosts": None}, "no LSF job"),
        ({"size": 7, "hosts": [Host("a", 4), Host("b", 4)]}, "cannot be dealt evenly"),
        ({"size": 2, "hosts": [Host("a", 4)], "stdin_rank": 0}, "no terminal"),
    ],
)
def test_what_jsrun_cannot_do_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(LauncherError, match=said):
        jsrun.start("/bin/jsrun", replace(JOB, **change))  # type: ignore[arg-type]


def test_launcher_has_no_identity_and_no_secret() -> None:
    caller = {"HOROVOD_RANK": "3", "RANK": "3", "HOROVOD_SECRET_KEY": "00", "PATH": "/bin", "A": "1"}
    assert launcher_environment(caller, {"A": "2", "B": "3"}) == {"PATH": "/bin", "A": "2", "B": "3"}
    own = {"HOROVOD_SECRET_FILE": "my.secret"}
    assert launcher_environment(own, {}) == own
    assert launcher_environment({"HOROVOD_SECRET_FILE": "/proc/7/fd/9"}, {}) == {}


def test_other_hosts_get_all_but_what_concerns_this_one() -> None:
    environment = dict.fromkeys("PATH HOME A PWD SSH_AUTH_SOCK OMPI_MCA_x PMI_FD TMPDIR bad-name".split(), "")
    assert exported_names(environment, []) == ["A", "HOME", "PATH"]
    assert exported_names(environment, ["TMPDIR"]) == ["A", "HOME", "PATH", "TMPDIR"]
