"""The table of all options of horovodrun: first those of the launcher, then those that the ranks read."""

import argparse
import os

from horovod.bootstrap.start_settings import (
    HOST_SECONDS,
    HOST_TIMEOUT_VARIABLE,
    PREEMPTION_VARIABLE,
    START_TIMEOUT_VARIABLE,
)

from ..timeouts import ELASTIC_SECONDS, ELASTIC_VARIABLE, START_SECONDS
from . import exports, values
from .compatible import COMPATIBLE
from .option import Option, Table, Value
from .tunables import TUNABLES

CHECKPOINT_VARIABLE = "HOROVOD_CHECKPOINT_DIR"
NOTICE_VARIABLE = "HOROVOD_PREEMPTION_FILE"
METRICS_VARIABLE = "HOROVOD_METRICS"
FAN_OUT_VARIABLE = "HOROVOD_SSH_FAN_OUT"
FAN_OUT = 32
_FAULTHANDLER = "PYTHONFAULTHANDLER"  # with it, a rank can show its stacks also before hvd.init()

_COUNT: Value = ("N", values.integer)
_SECONDS: Value = ("S", values.seconds)
_FOLDER: Value = ("DIR", values.absolute_path)

_MOST_USED = (
    Option(
        "-np -n --num-proc",
        "how many ranks to start; auto starts one for each core, or for each slot of -H",
        ("N", values.rank_count),
        argument="num_proc",
    ),
    Option(
        "-H --hosts",
        "where to start them, and how many at most, such as node1:4,node2:4 (localhost:N)",
        ("HOST:SLOTS", str),
        argument="hosts",
    ),
    Option(
        "-x --env",
        "set NAME for the ranks, or those of HOST; without VALUE, as it is set here (may be repeated)",
        ("[HOST:]NAME[=VALUE]", str),
        adds=True,
    ),
    Option(
        "--min-np --min-num-proc",
        "go on as long as there are N ranks; makes the job elastic",
        _COUNT,
        argument="min_num_proc",
    ),
    Option(
        "--output-filename",
        "keep the output in DIR/rank.<rank>/stdout and stderr, too",
        ("DIR", str),
        argument="output_filename",
    ),
    Option("--verbose", "say what is started", argument="verbose"),
)
_GENERAL = (
    Option(
        "-hostfile --hostfile",
        'the hosts of -H, as lines of FILE such as "localhost slots=4"',
        ("FILE", str),
        argument="hostfile",
    ),
    Option(
        "--include",
        "of the hosts of -H, --hostfile or the batch system, use these only, such as node1,node[3-5]",
        ("HOSTS", values.host_names),
    ),
    Option("--exclude", "leave these out", ("HOSTS", values.host_names)),
    Option("--nnodes", "use the first N hosts; -np ranks are dealt to them evenly", _COUNT),
    Option("--nproc-per-node", "how many ranks to run on each host", _COUNT),
    Option(
        "--start-timeout",
        f"wait S seconds for the hosts, then S seconds for the ranks to find each other ({START_SECONDS:g})",
        ("S", values.start_seconds),
        START_TIMEOUT_VARIABLE,
        "start_timeout",
        argument="start_timeout",
    ),
    Option("--timeout", "end the job after S seconds, with the stacks of all ranks and status 124", _SECONDS),
    Option(
        "--bind-to",
        "pin ranks to their share of the cores of their host: core, numa, or none (default)",
        ("WHAT", values.binding),
    ),
    Option(
        "--gpus-per-rank", "let each rank see N GPUs of its host only, its own (CUDA_VISIBLE_DEVICES)", _COUNT
    ),
    Option("--wdir", "start the ranks in DIR, on every host", _FOLDER),
    Option("--max-restarts", "when a rank fails, start all ranks again, N times at most (0)", _COUNT),
    Option("--grace", "ranks that have to end have S seconds before they are killed (5)", _SECONDS),
    Option("--config-file", "read options from FILE (YAML); those given here come first", ("FILE", str)),
    Option("--print-config", "start nothing: print the value of each option, and where it comes from"),
    Option(
        "--completion",
        "print what SHELL needs to complete options: bash, zsh or fish",
        ("SHELL", values.shell),
    ),
    Option("-v --version", "print the version"),
    Option("-cb --check-build", "print what this installation can do"),
    Option(
        "--json",
        "print what happens as JSON, an object in each line; what --check-build and --print-config say, too",
    ),
)
_CONTROLLER = "controller"
_CONTROLLERS = (
    Option("--gloo", "horovodrun itself (default)", "gloo", dest=_CONTROLLER, argument="use_gloo"),
    Option("--mpi", "the mpirun that is on PATH", "mpi", dest=_CONTROLLER, argument="use_mpi"),
    Option("--jsrun", "jsrun (default in an LSF job that has it)", "jsrun", dest=_CONTROLLER),
    Option(
        "--mpi-args",
        'more options for mpirun: --mpi-args="-v -v"',
        ("ARGS", str),
        key="library_options.mpi_args",
        argument="mpi_args",
    ),
    Option(
        "--binding-args",
        "how mpirun or jsrun places and binds ranks, in place of horovodrun's way",
        ("ARGS", str),
        key="library_options.binding_args",
    ),
)
_SSH = (
    Option("-p --ssh-port", "the port of sshd (22)", ("PORT", values.port), argument="ssh_port"),
    Option("-i --ssh-identity-file", "the private key to use", ("FILE", str), argument="ssh_identity_file"),
    Option(
        "--ssh-fan-out",
        f"log in on N hosts by ssh; with more hosts, they log in on the others; 0: on all ({FAN_OUT})",
        _COUNT,
        FAN_OUT_VARIABLE,
        "ssh_fan_out",
    ),
    Option(
        "--remote-shell",
        'COMMAND in place of ssh, such as "kubectl exec -i {host} --"; {host} stands for the host',
        ("COMMAND", values.remote_shell),
    ),
)
_MEETING = (
    Option(
        "--rendezvous",
        "where they meet; with --nnodes N each of N hosts runs this command, and the one at HOST leads",
        ("HOST:PORT", values.address),
    ),
    Option("--wait-for-hosts", "wait for N hosts that run horovodrun-agent --join HOST:PORT", _COUNT),
    Option(
        "--node-rank",
        "which of the --nnodes hosts this is, 0 the one that leads (auto: the one at HOST leads)",
        ("N", values.place),
    ),
    Option(
        "--host-timeout",
        f"a host counts as lost when its connection is away for S seconds ({HOST_SECONDS:g}, by ssh 8)",
        ("S", values.number),
        HOST_TIMEOUT_VARIABLE,
        "host_timeout",
    ),
)
_ELASTIC = (
    Option(
        "--max-np --max-num-proc",
        "grow to N ranks at most (as many as there are slots)",
        _COUNT,
        argument="max_num_proc",
    ),
    Option(
        "--host-discovery-script",
        "ask SCRIPT each second for the hosts, a line each, such as node1:4; makes the job elastic",
        ("SCRIPT", str),
        argument="host_discovery_script",
    ),
    Option(
        "--slots-per-host --slots",
        "how many ranks a host may run that the script names without a number",
        _COUNT,
        argument="slots",
    ),
    Option(
        "--spares",
        "keep N more processes that have come to hvd.init() and wait to take a lost one's place (0)",
        _COUNT,
    ),
    Option(
        "--elastic-timeout",
        f"end the job when it has been without enough ranks for S seconds ({ELASTIC_SECONDS:g})",
        _SECONDS,
        ELASTIC_VARIABLE,
        "elastic_timeout",
    ),
    Option(
        "--reset-limit",
        "end the job when its ranks have started again N times and would do so once more",
        _COUNT,
        argument="reset_limit",
    ),
    Option(
        "--checkpoint-dir",
        "write commits to DIR now and then; when all ranks are lost, new ones go on from the newest",
        _FOLDER,
        CHECKPOINT_VARIABLE,
        "checkpoint_dir",
    ),
    Option(
        "--preemption-signal",
        "SIGNAL, such as USR1, asks workers to end at their next commit, as SIGTERM does",
        ("SIGNAL", values.preemption_signal),
        PREEMPTION_VARIABLE,
        "preemption_signal",
    ),
    Option(
        "--preemption-file",
        "leave a host when there is a file FILE on it; {host} in FILE stands for the host",
        ("FILE", values.absolute_path),
        NOTICE_VARIABLE,
        "preemption_file",
    ),
    Option(
        "--chaos",
        "bring faults about to see that your training goes on, such as kill:every=20s, or stop:every=60s",
        ("FAULT", values.chaos),
    ),
    Option(
        "--blacklist-cooldown-range",
        "seconds for which a host is left alone where ranks fail again and again (1 60)",
        ("MIN MAX", values.seconds),
        argument="cooldown_range",
        count=2,
    ),
)
_OUTPUT = (
    Option("--ranks", "show the output of these ranks only, such as 0,4-7", ("LIST", values.rank_list)),
    Option("--events", "write what happens to FILE, as --json does, beside the output", ("FILE", str)),
    Option(
        "--metrics",
        "tell how far the job is: Prometheus at PORT or HOST:PORT, a FILE, or trainjob (repeatable)",
        ("WHERE", values.metrics),
        METRICS_VARIABLE,
        "metrics",
        adds=True,
    ),
    Option(
        "-prefix-timestamp --prefix-output-with-timestamp",
        "put the time in front of each line",
        key="prefix_output_with_timestamp logging.prefix_output_with_timestamp",
    ),
    Option(
        "--stdin-rank", "let rank N read your terminal, for breakpoint(); the others read nothing", _COUNT
    ),
)
CONTROLLER_TITLE = "who starts the ranks"
TABLE: Table = {
    "what most jobs need": _MOST_USED,
    "more on the job": _GENERAL,
    CONTROLLER_TITLE: _CONTROLLERS,
    "ssh, which starts ranks on other hosts": _SSH,
    "hosts that dial, where there is no ssh": _MEETING,
    "elastic jobs, which go on when ranks are lost or come": _ELASTIC,
    "output and input of the ranks": _OUTPUT,
    **TUNABLES,
    "of Horovod 0.28": COMPATIBLE,
}
OPTIONS = [option for rows in TABLE.values() for option in rows]
VERBS = {"version", "check_build", "print_config", "completion", "merge_timelines", "json", "config_file"}
"""Attributes of those that say what horovodrun does, not how."""


def add_to(parser: argparse.ArgumentParser) -> None:
    """Makes a parser know all options."""
    for title, rows in TABLE.items():
        group = parser.add_argument_group(title)
        choice = group.add_mutually_exclusive_group() if title == CONTROLLER_TITLE else group
        for option in rows:
            option.add(choice if option.attribute == _CONTROLLER else group)


def environment(arguments: argparse.Namespace) -> dict[str, str]:
    """The variables that the given options set for all ranks; what -x says comes first."""
    carried = sorted({(option.attribute, option.variable) for option in OPTIONS if option.variable})
    given = {variable: getattr(arguments, attribute) for attribute, variable in carried}
    variables = {name: str(value) for name, value in given.items() if value is not None}
    if arguments.timeout is not None:
        variables[_FAULTHANDLER] = os.environ.get(_FAULTHANDLER, "1")
    return variables | exports.of_all(arguments.env or {})
