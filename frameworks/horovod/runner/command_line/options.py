"""The options that concern the launcher itself, and the variables that options become for the ranks."""

import argparse
import os

from horovod.bootstrap.start_settings import HOST_SECONDS, HOST_TIMEOUT_VARIABLE

from . import values
from .exports import Export
from .tunables import TUNABLES

_FAULTHANDLER = "PYTHONFAULTHANDLER"  # with it, a rank can show its stacks also before hvd.init()
# Options that the launcher and the ranks use: the attribute, and the variable.
VARIABLES = {
    "start_timeout": "HOROVOD_START_TIMEOUT",
    "ssh_fan_out": "HOROVOD_SSH_FAN_OUT",
    "host_timeout": HOST_TIMEOUT_VARIABLE,
    "elastic_timeout": "HOROVOD_ELASTIC_TIMEOUT",
    "checkpoint_dir": "HOROVOD_CHECKPOINT_DIR",
    "preemption_signal": "HOROVOD_PREEMPTION_SIGNAL",
    "preemption_file": "HOROVOD_PREEMPTION_FILE",
}
FAN_OUT = 32


def add_general(parser: argparse.ArgumentParser) -> None:
    """Options that concern the launcher itself."""
    add = parser.add_argument
    ranks = "how many ranks to start; auto starts one for each core, or for each slot of -H"
    add("-np", "-n", "--num-proc", type=values.rank_count, metavar="N", help=ranks)
    places = "where to start them, and how many at most, such as node1:4,node2:4 (localhost:N)"
    add("-H", "--hosts", metavar="HOST:SLOTS", help=places)
    add(
        "-hostfile",
        "--hostfile",
        metavar="FILE",
        help='the same, as lines of FILE such as "localhost slots=4"',
    )
    include = "of the hosts of -H, --hostfile or the batch system, use these only, such as node1,node[3-5]"
    add("--include", type=values.host_names, metavar="HOSTS", help=include)
    add("--exclude", type=values.host_names, metavar="HOSTS", help="leave these out")
    nodes = "use the first N hosts; -np ranks are dealt to them evenly"
    add("--nnodes", type=values.integer, metavar="N", help=nodes)
    add("--nproc-per-node", type=values.integer, metavar="N", help="how many ranks to run on each host")
    start = "wait S seconds for the hosts, then S seconds for the ranks to find each other (30)"
    add("--start-timeout", type=values.integer, metavar="S", help=start)
    timeout = "end the job after S seconds, with the stacks of all ranks and status 124"
    add("--timeout", type=values.seconds, metavar="S", help=timeout)
    binding = "pin ranks to their share of the cores of their host: core, numa, or none (default)"
    add("--bind-to", type=values.binding, metavar="WHAT", help=binding)
    gpus = "let each rank see N GPUs of its host only, its own (CUDA_VISIBLE_DEVICES)"
    add("--gpus-per-rank", type=values.integer, metavar="N", help=gpus)
    add("--wdir", type=values.absolute_path, metavar="DIR", help="start the ranks in DIR, on every host")
    restarts = "when a rank fails, start all ranks again, N times at most (0)"
    add("--max-restarts", type=values.integer, metavar="N", help=restarts)
    grace = "ranks that are to end have S seconds before they are killed (5)"
    add("--grace", type=values.seconds, metavar="S", help=grace)
    export = "set NAME for the ranks; without VALUE, as it is set here (may be repeated)"
    add("-x", "--env", action=Export, metavar="NAME[=VALUE]", help=export)
    add("--config-file", metavar="FILE", help="read options from FILE (YAML); those given here come first")
    origins = "start nothing: print the value of each option, and where it comes from"
    add("--print-config", action="store_true", help=origins)
    add("--verbose", action="store_true", help="say what is started")
    add("-v", "--version", action="store_true", help="print the version")
    add("-cb", "--check-build", action="store_true", help="print what this installation can do")
    json = (
        "print what happens as JSON, an object in each line; what --check-build and --print-config say, too"
    )
    add("--json", action="store_true", help=json)


def add_controller(parser: argparse.ArgumentParser) -> None:
    """Options that choose who starts the ranks."""
    group = parser.add_argument_group("who starts the ranks")
    choice = group.add_mutually_exclusive_group()
    for name, who in (("gloo", "horovodrun itself (default)"), ("mpi", "the mpirun that is on PATH")):
        choice.add_argument(f"--{name}", dest="controller", action="store_const", const=name, help=who)
    jsrun = "jsrun (default in an LSF job that has it)"
    choice.add_argument("--jsrun", dest="controller", action="store_const", const="jsrun", help=jsrun)
    group.add_argument("--mpi-args", metavar="ARGS", help='more options for mpirun: --mpi-args="-v -v"')
    binding = "how mpirun or jsrun places and binds ranks, in place of horovodrun's way"
    group.add_argument("--binding-args", metavar="ARGS", help=binding)


def add_ssh(parser: argparse.ArgumentParser) -> None:
    """Options for the way to other hosts."""
    add = parser.add_argument_group("ssh, which starts ranks on other hosts").add_argument
    add("-p", "--ssh-port", type=values.port, metavar="PORT", help="the port of sshd (22)")
    add("-i", "--ssh-identity-file", metavar="FILE", help="the private key to use")
    fan_out = f"log in on N hosts by ssh; with more hosts, they log in on the others; 0: on all ({FAN_OUT})"
    add("--ssh-fan-out", type=values.integer, metavar="N", help=fan_out)
    shell = 'COMMAND in place of ssh, such as "kubectl exec -i {host} --"; {host} stands for the host'
    add("--remote-shell", type=values.remote_shell, metavar="COMMAND", help=shell)


def add_meeting(parser: argparse.ArgumentParser) -> None:
    """Options for hosts that come by themselves."""
    add = parser.add_argument_group("hosts that dial, where there is no ssh").add_argument
    where = "where they meet; with --nnodes N each of N hosts runs this command, and the one at HOST leads"
    add("--rendezvous", type=values.address, metavar="HOST:PORT", help=where)
    count = "wait for N hosts that run horovodrun-agent --join HOST:PORT"
    add("--wait-for-hosts", type=values.integer, metavar="N", help=count)
    place = "which of the --nnodes hosts this is, 0 the one that leads (auto: the one at HOST leads)"
    add("--node-rank", type=values.place, metavar="N", help=place)
    patience = f"a host counts as lost when its connection is away for S seconds ({HOST_SECONDS:g})"
    add("--host-timeout", type=values.number, metavar="S", help=patience)


def add_elastic(parser: argparse.ArgumentParser) -> None:
    """Options of jobs that go on when ranks are lost or come."""
    add = parser.add_argument_group("elastic jobs, which go on when ranks are lost or come").add_argument
    fewest = "go on as long as there are N ranks; makes the job elastic"
    add("--min-np", "--min-num-proc", type=values.integer, metavar="N", help=fewest)
    most = "grow to N ranks at most (as many as there are slots)"
    add("--max-np", "--max-num-proc", type=values.integer, metavar="N", help=most)
    script = "ask SCRIPT each second for the hosts, a line each, such as node1:4; makes the job elastic"
    add("--host-discovery-script", metavar="SCRIPT", help=script)
    slots = "how many ranks a host may run that the script names without a number"
    add("--slots-per-host", "--slots", type=values.integer, metavar="N", help=slots)
    spares = "keep N more processes that have come to hvd.init() and wait to take a lost one's place (0)"
    add("--spares", type=values.integer, metavar="N", help=spares)
    patience = "end the job when it has been without enough ranks for S seconds (600)"
    add("--elastic-timeout", type=values.seconds, metavar="S", help=patience)
    resets = "end the job when its ranks have started again N times and would do so once more"
    add("--reset-limit", type=values.integer, metavar="N", help=resets)
    folder = "write commits to DIR now and then; when all ranks are lost, new ones go on from the newest"
    add("--checkpoint-dir", type=values.absolute_path, metavar="DIR", help=folder)
    asks = "SIGNAL, such as USR1, asks workers to end at their next commit, as SIGTERM does"
    add("--preemption-signal", type=values.preemption_signal, metavar="SIGNAL", help=asks)
    notice = "leave a host when there is a file FILE on it; {host} in FILE stands for the host"
    add("--preemption-file", type=values.absolute_path, metavar="FILE", help=notice)
    chaos = "bring faults about to see that your training goes on, such as kill:every=20s, or stop:every=60s"
    add("--chaos", type=values.chaos, metavar="FAULT", help=chaos)
    cooldown = "seconds for which a host is left alone where ranks fail again and again (1 60)"
    add("--blacklist-cooldown-range", type=values.seconds, nargs=2, metavar=("MIN", "MAX"), help=cooldown)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Options for what the ranks write and read."""
    add = parser.add_argument_group("output and input of the ranks").add_argument
    ranks = "show the output of these ranks only, such as 0,4-7"
    add("--ranks", type=values.rank_list, metavar="LIST", help=ranks)
    add("--events", metavar="FILE", help="write what happens to FILE, as --json does, beside the output")
    add("--output-filename", metavar="DIR", help="keep the output in DIR/rank.<rank>/stdout and stderr, too")
    timestamp = "put the time in front of each line"
    add("-prefix-timestamp", "--prefix-output-with-timestamp", action="store_true", help=timestamp)
    stdin = "let rank N read your terminal, for breakpoint(); the others read nothing"
    add("--stdin-rank", type=values.integer, metavar="N", help=stdin)


def environment(arguments: argparse.Namespace) -> dict[str, str]:
    """The variables that the given options set for the ranks; what -x says comes first."""
    names = {item.variable: item.variable for tunables in TUNABLES.values() for item in tunables}
    given = {variable: getattr(arguments, dest) for dest, variable in sorted((names | VARIABLES).items())}
    variables = {name: str(value) for name, value in given.items() if value is not None}
    if arguments.timeout is not None:
        variables[_FAULTHANDLER] = os.environ.get(_FAULTHANDLER, "1")
    return variables | (arguments.env or {})
