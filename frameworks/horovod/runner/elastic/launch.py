"""Puts an elastic job together and runs it."""

import os
import time
from dataclasses import replace

from horovod.bootstrap.network import endpoints
from horovod.bootstrap.start_settings import ADDRESS_VARIABLE
from horovod.bootstrap.store.server import StoreServer
from horovod.elastic.driver.driver import Driver
from horovod.elastic.driver.reliability import COOLDOWN, Reliability

from .. import timeouts
from ..job import Elastic, Job
from ..launchers import is_this_host, setup
from ..launchers.job_hosts import JobHosts
from ..launchers.setup import Stage
from ..nodes.node import Node, Work
from ..nodes.notice import Notice
from ..nodes.remote import RemoteNode
from ..outline import elastic_outline
from ..output import Display
from ..supervisor import Supervisor
from .crew import Crew
from .discovery import Discovery, HostDiscovery
from .named_hosts import NamedHosts
from .policy import ElasticPolicy
from .roster import Roster
from .worker_output import WorkerOutputs

_ORPHAN_SECONDS = 10.0  # for the step that the ranks are in, and for what they save


def launch(job: Job, elastic: Elastic) -> int:
    """Runs an elastic job and returns its status. A function, of ``job.call``, has a result on each worker
    that does its work to the end.
    """
    return setup.launch(job, lambda runnable, stage: _Parts(runnable, elastic, stage).run())


class _Parts:
    """The parts of an elastic job."""

    def __init__(self, job: Job, elastic: Elastic, stage: Stage) -> None:
        self._job = job
        self._elastic = elastic
        self._stage = stage
        self._cluster = cluster = JobHosts(job, stage, {"HOROVOD_ELASTIC": "1"})
        if elastic.preemption is not None:
            stage.loop.catch(elastic.preemption)
        self._discovery = self._new_discovery()
        self._may_grow = elastic.script is not None or cluster.welcome is not None
        self._crew = Crew(
            self._new_node,
            self._outputs_maker(),
            self._begin,
            lambda host: self._discovery.hosts.get(host, 1),
            job.reach.start_seconds or timeouts.START_SECONDS,
            stage.loop.wake,
        )
        stage.stack.callback(self._part)
        self._remotes = self._reach_hosts()
        self._roster = Roster(
            cluster.secret, self._new_store, stage.loop.wake, cluster.start_seconds, cluster.attach
        )
        stage.stack.callback(self._roster.close)
        cluster.variables[ADDRESS_VARIABLE] = self._roster.address

    def _outputs_maker(self) -> WorkerOutputs:
        output, stage = self._job.output, self._stage
        display = Display(output.has_time, output.ranks, has_prefix=output.has_prefix)
        outputs = WorkerOutputs(stage.sinks, display, stage.journal, output.folder, stage.files)
        stage.stack.callback(outputs.close)
        return outputs

    def run(self) -> int:
        """Until the job is over."""
        job, elastic, journal = self._job, self._elastic, self._stage.journal
        journal.start(job.work.command, [])
        self._tell()
        supervisor = self._supervisor = Supervisor(
            self._stage.loop,
            self._stage.sinks,
            self._crew.outputs,
            self._crew.hosts,
            self._roster,
            job.output.is_verbose,
            ending=job.ending(),
            journal=journal,
            on_report=None if job.call is None else job.call.take_report,
        )
        driver = Driver(elastic.limits, time.monotonic(), Reliability(elastic.cooldown or COOLDOWN))
        policy = self._policy = ElasticPolicy(
            supervisor,
            driver,
            self._roster,
            self._crew,
            self._discovery,
            journal,
            Notice(elastic.notice, next(filter(is_this_host, self._discovery.hosts), os.uname().nodename)),
            job.grace,
            elastic.chaos,
            elastic.preemption,
        )
        status = self._cluster.status = supervisor.run(self._crew.nodes, policy)
        self._stage.notes.append(f"{driver.generation} generation{'s' if driver.generation != 1 else ''}")
        if job.call is not None:
            job.call.ranks = policy.culprit() or policy.ranks()
        return status

    def _tell(self) -> None:
        """Says what is started, as other jobs do: the first ranks take their time to come."""
        limits = self._elastic.limits
        numbers = limits.ranks, limits.fewest, limits.spares
        setup.tell(self._job, self._stage, lambda: elastic_outline(*numbers))

    def _new_discovery(self) -> HostDiscovery:
        script, slots, cluster = self._elastic.script, self._elastic.slots, self._cluster
        if script is None:
            joining = None if cluster.welcome is None else cluster.welcome.joining
            named = {host.name: host.slots for host in self._job.hosts}
            return NamedHosts(named, joining, slots or 1)
        discovery = Discovery(self._stage.loop, cluster.guardian, script, slots, cluster.warn)
        self._stage.stack.callback(discovery.close)
        return discovery

    def _reach_hosts(self) -> list[RemoteNode]:
        """Brings up an agent on each other host that the user has named: one that cannot be used is known
        before anything is started. Hosts that a script names later are reached beside the job.
        """
        remotes = [self._new_remote(host) for host in self._discovery.hosts if not is_this_host(host)]
        self._cluster.reach(remotes, list(self._discovery.hosts))
        return remotes

    @property
    def _is_here(self) -> bool:
        """Whether the job is on this host and stays there."""
        return not self._may_grow and all(map(is_this_host, self._discovery.hosts))

    def _new_store(self, key: bytes, size: int) -> StoreServer:
        return self._cluster.store(key, size, None if self._is_here else self._known_remotes())

    def _known_remotes(self) -> list[RemoteNode]:
        """Where more hosts may come, by any network, none are told."""
        if self._may_grow:
            return []
        now = [node for node in self._crew.nodes if isinstance(node, RemoteNode)]
        return [*now, *(node for node in self._remotes if node not in now)]

    def _new_node(self, host: str) -> tuple[Node, RemoteNode | None]:
        if self._cluster.is_here(host):
            work = replace(self._work(), environment={"MASTER_ADDR": endpoints.LOOPBACK})
            return self._cluster.start_here(host, work, self._supervisor), None
        reached = (node for node in self._remotes if node.host == host and not node.is_lost)
        remote = next(reached, None) or self._new_remote(host)
        return remote, remote

    def _new_remote(self, host: str) -> RemoteNode:
        return self._cluster.remote(host, self._cluster.joined(host))

    def _part(self) -> None:
        if self._cluster.welcome is not None:
            self._cluster.welcome.part(self._cluster.status)
        for node in self._crew.nodes:
            if isinstance(node, RemoteNode):
                node.close()

    def _begin(self, node: RemoteNode) -> None:
        node.on_notice = lambda is_given: self._policy.noticed(node.host, is_given)
        self._cluster.start_there(node, self._work(), self._supervisor)

    def _work(self) -> Work:
        return replace(self._job.work, size=0, orphan_seconds=_ORPHAN_SECONDS, notice=self._elastic.notice)
