"""A job from the options of a command line, and from the environment that it is started in."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .. import placing, timeouts
from ..ending import GRACE_SECONDS
from ..job import Elastic, Job, OtherLauncher, Output, Reach
from ..nodes import binding, remote_shell
from ..nodes.node import Work
from . import exports, options, values

if TYPE_CHECKING:
    from ..call.call import Call


def new_job(
    arguments: argparse.Namespace,
    environ: Mapping[str, str],
    call: "Call | None" = None,
    has_prefix: bool = True,
) -> Job:
    """The job that complete ``arguments`` ask for. Raises ValueError where a variable cannot be used."""
    variables = options.environment(arguments)
    environment = {**environ, **variables}
    is_elastic = placing.is_elastic(arguments)
    return Job(
        _work(arguments),
        arguments.host_list,
        variables,
        _reach(arguments, environment),
        Output(
            arguments.ranks,
            arguments.prefix_output_with_timestamp,
            arguments.output_filename,
            arguments.events,
            arguments.json,
            arguments.verbose,
            _metrics(arguments, environment),
            has_prefix,
        ),
        _grace(arguments),
        arguments.timeout,
        arguments.max_restarts or 0,
        _elastic(arguments, environment) if is_elastic else None,
        _other_launcher(arguments, environ) if placing.uses_mpi(arguments) else None,
        arguments.warnings,
        call,
        exports.of_hosts(arguments.env or {}),
    )


def _metrics(
    arguments: argparse.Namespace, environment: Mapping[str, str]
) -> Sequence[tuple[str, int] | str]:
    """Where the job tells how far it is."""
    text = environment.get(options.METRICS_VARIABLE)
    if not text:
        return ()
    if placing.uses_mpi(arguments):
        raise ValueError(
            "--metrics: ranks that mpirun or jsrun starts do not tell horovodrun how far they are"
        )
    from ..progress import places  # only for those who need it: a job starts quickly

    try:
        return places.parse(text)
    except ValueError as error:
        raise ValueError(f"{options.METRICS_VARIABLE}: {error}") from None


def _work(arguments: argparse.Namespace) -> Work:
    return Work(
        arguments.command,
        {},
        (),
        arguments.num_proc,
        stdin_rank=arguments.stdin_rank,
        bind_to=arguments.bind_to or binding.NONE,
        gpus_per_rank=arguments.gpus_per_rank or 0,
        wdir=arguments.wdir,
    )


def _reach(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Reach:
    """A host that is reached by a command of the user's need not have that command: it reaches no others."""
    shell = remote_shell.parse(arguments.remote_shell) if arguments.remote_shell else ()
    return Reach(
        arguments.ssh_port,
        arguments.ssh_identity_file,
        shell,
        0 if shell else _fan_out(environment),
        arguments.rendezvous,
        0 if arguments.rendezvous is None else arguments.joining,
        timeouts.lost_seconds(environment),
        timeouts.start_seconds(environment),
    )


def _fan_out(environment: Mapping[str, str]) -> int:
    """On how many hosts one logs in."""
    name = options.FAN_OUT_VARIABLE
    try:
        return values.integer(environment.get(name) or str(options.FAN_OUT))
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"{name}: {error}") from None


def _elastic(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Elastic:
    from horovod.elastic import asking  # only for those who need it: a job starts quickly
    from horovod.elastic.driver.decisions import Limits

    limits = Limits(
        ranks=arguments.num_proc,
        fewest=arguments.min_np,
        most=arguments.max_np,
        spares=arguments.spares or 0,
        resets=arguments.reset_limit,
        patience=timeouts.elastic_seconds(environment),
        is_durable=bool(environment.get(options.CHECKPOINT_VARIABLE)),
        grace=_grace(arguments),
    )
    cooldown = arguments.blacklist_cooldown_range
    return Elastic(
        limits,
        arguments.host_discovery_script,
        arguments.slots_per_host,
        None if cooldown is None else tuple(cooldown),
        arguments.chaos,
        asking.chosen_signal(environment),
        environment.get(options.NOTICE_VARIABLE) or None,
    )


def _other_launcher(arguments: argparse.Namespace, environ: Mapping[str, str]) -> OtherLauncher:
    allocation = arguments.allocation
    return OtherLauncher(
        arguments.controller,
        placing.leaves_hosts_to_launcher(arguments, environ),
        None if allocation is None else allocation.hosts,
        arguments.mpi_args,
        arguments.binding_args,
    )


def _grace(arguments: argparse.Namespace) -> float:
    return GRACE_SECONDS if arguments.grace is None else float(arguments.grace)
