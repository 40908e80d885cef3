"""horovod.run: its signature, its arguments as options of horovodrun, and what it refuses by itself."""

import inspect
import subprocess
import sys
import threading

import pytest

import horovod
from horovod.runner.call import arguments
from horovod.runner.call import run as call
from horovod.runner.command_line import parser

# The public contract, as scripts for Horovod 0.28 use it.
SIGNATURE = (
    "func, args=(), kwargs=None, num_proc=1, min_num_proc=None, max_num_proc=None, slots=None, "
    "reset_limit=None, cooldown_range=None, hosts=None, hostfile=None, host_discovery_script=None, "
    "start_timeout=None, ssh_port=None, ssh_identity_file=None, disable_cache=None, output_filename=None, "
    "verbose=None, use_gloo=None, use_mpi=None, mpi_args=None, network_interface=None, "
    "network_interfaces=None, executable=None, np=None, min_np=None, max_np=None"
)


def never(*_: object) -> None:
    raise AssertionError("this is not to be called")


def test_the_signature_is_that_of_the_contract():
    parameters = inspect.signature(horovod.run).parameters.values()
    shown = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    assert ", ".join(shown) == SIGNATURE
    described = inspect.getdoc(horovod.run)
    assert [p.name for p in parameters if f"    {p.name}: " not in described] == []


def test_there_are_three_ways_to_it_and_none_is_taken_by_the_import():
    code = (
        "import sys, horovod\n"
        "assert horovod.__version__ and not [n for n in sys.modules if n.startswith('horovod.r')]\n"
        "import horovod.runner\n"
        "assert 'horovod.runner.call' not in sys.modules\n"
        "from horovod import run\n"
        "from horovod.runner import run as other\n"
        "assert run is other is horovod.run is horovod.runner.run\n"
        "assert not hasattr(horovod, 'walk') and not hasattr(horovod.runner, 'walk')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_arguments_become_options_that_horovodrun_reads():
    given = {
        "num_proc": 2,
        "hosts": "localhost:2",
        "start_timeout": 7,
        "output_filename": "--kept",
        "verbose": 2,
        "use_gloo": True,
        "use_mpi": False,
        "disable_cache": True,
        "ssh_port": 22,
        "ssh_identity_file": "key",
        "hostfile": None,
        "network_interfaces": ["lo"],
    }
    words = arguments.words(given)
    assert "--network-interfaces=lo" in words and not any("mpi" in word for word in words)
    read = parser.parse([*words, "--", "true"])
    assert (read.num_proc, read.start_timeout, read.output_filename) == (2, 7, "--kept")
    assert read.verbose and read.command == ["true"]
    assert [host.name for host in read.host_list] == ["localhost"]


def test_every_argument_is_in_the_table_of_options():
    names = set(inspect.signature(horovod.run).parameters) - {"func", "args", "kwargs", "executable"}
    old = {"np", "min_np", "max_np", "network_interface"}
    assert names - old == set(arguments.BY_ARGUMENT)


def test_several_interfaces_are_one_option():
    assert arguments.words({"network_interfaces": ["eth0", "eth1"]}) == ["--network-interfaces=eth0,eth1"]
    assert arguments.words({"network_interfaces": "eth0,eth1"}) == ["--network-interfaces=eth0,eth1"]
    assert arguments.words({"cooldown_range": (1, 5)}) == ["--blacklist-cooldown-range", "1", "5"]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (
            "horovodrun: error: --mpi: MPI is not there; leave --mpi out (see horovodrun --help)\n",
            "horovod.run: use_mpi: MPI is not there; leave use_mpi out",
        ),
        (
            "horovodrun: error: -np 0: at least 1 rank, for example -np 2 (see horovodrun --help)",
            "horovod.run: num_proc=0: at least 1 rank, for example num_proc=2",
        ),
        ("--mpi-args and -H are no --hosts", "horovod.run: mpi_args and hosts are no hosts"),
    ],
)
def test_refusals_of_horovodrun_name_the_arguments(said, meant):
    assert arguments.refusal(said) == meant


def test_a_job_without_a_number_of_ranks_says_that_it_has_one(capfd, monkeypatch):
    monkeypatch.setattr(call, "run_job", lambda words, *_: words)
    note = "horovod.run: num_proc is not given, so there is 1 rank\n"
    for given, said in [({}, note), ({"num_proc": 1}, ""), ({"min_num_proc": 1}, "")]:
        assert "--num-proc=1" in horovod.run(never, **given)
        assert capfd.readouterr().err == said, given


def test_warnings_of_horovodrun_name_the_arguments(capfd):
    assert horovod.run(len, ("ab",), num_proc=1, max_num_proc=2, use_gloo=True) == [2]
    said = capfd.readouterr().err
    assert "max_num_proc has no effect: only in an elastic job; give min_num_proc, too" in said, said


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"hosts": "localhost:1", "hostfile": "hosts"}, ("hosts", "hostfile")),
        ({"use_gloo": True, "use_mpi": True}, ("use_gloo", "use_mpi")),
    ],
)
def test_arguments_that_exclude_each_other_are_refused(given, named):
    with pytest.raises(ValueError, match=rf"{named[0]} and {named[1]} exclude each other"):
        horovod.run(never, **given)


def test_what_is_no_function_or_cannot_be_pickled_is_refused():
    with pytest.raises(TypeError, match="must be a function, not a int"):
        horovod.run(3)
    with pytest.raises(ValueError, match=r"horovod\.run cannot pickle the function or its arguments"):
        horovod.run(never, args=(threading.Lock(),))


@pytest.mark.parametrize(
    "environment",
    [
        {
            **{f"HOROVOD_{name}": "1" for name in ("SIZE", "LOCAL_SIZE", "CROSS_SIZE")},
            **{f"HOROVOD_{name}": "0" for name in ("RANK", "LOCAL_RANK", "CROSS_RANK")},
        },
        {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
    ],
    ids=["horovodrun", "torchrun"],
)
def test_a_rank_cannot_start_a_job(environment, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match="cannot be called in a rank of a job"):
        horovod.run(never)
