"""A job over Spark Connect: executors cannot reach this process, so the first task has the launcher."""

import io
import os
import pickle
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark import BarrierTaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from horovod.bootstrap import secret
from horovod.runner import engines
from horovod.runner.call import packing
from horovod.runner.call.child import Caller, show
from horovod.runner.call.run import command, run_packed

from .agents import Terms, start_agent
from .job import Plan, launchers

_PART_BYTES = 4 << 20  # of a row
_END_SECONDS = 5.0  # for agents to end with their launcher


@dataclass(frozen=True)
class Ended:
    """What comes back of a job: the output of its ranks, and what it returned, or raised with its cause.
    These are pickled apart, since they may be of classes that the driver does not have; ``told`` is the error
    as text.
    """

    results: bytes
    error: bytes = b""
    told: str = ""
    cause: BaseException | None = None
    stdout: str = ""
    stderr: str = ""


def run(plan: Plan, function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> list[Any]:
    """What the function returns on each rank. The output of the ranks is written when they have ended."""
    try:
        session = SparkSession.active()
    except PySparkException:
        raise ValueError(
            "horovod.spark.run: there is no session. Begin with SparkSession.builder.remote(...)"
        ) from None
    call = io.BytesIO()
    packing.write_call(call, function, args, kwargs)
    key = secrets.token_bytes(secret.SECRET_BYTES)
    body = _Body(replace(plan, stdout=None, stderr=None), key, call.getvalue(), time.time())
    frame = session.range(0, plan.tasks, 1, plan.tasks).mapInArrow(body, "data binary", barrier=True)
    tag = f"horovod.spark-{secrets.token_hex(8)}"
    session.addTag(tag)
    try:
        rows = frame.collect()
    except BaseException:
        session.interruptTag(tag)
        raise
    finally:
        session.removeTag(tag)
    ended: Ended = pickle.loads(b"".join(bytes(row.data) for row in rows))
    show(plan.stdout or sys.stdout, ended.stdout)
    show(plan.stderr or sys.stderr, ended.stderr)
    if ended.told:
        raise _error(ended) from ended.cause
    try:
        return list(pickle.loads(ended.results))
    except Exception as error:
        text = f"horovod.spark.run cannot unpickle the results ({type(error).__name__}: {error})"
        raise RuntimeError(text) from error


def _error(ended: Ended) -> BaseException:
    """What the job raised; a RuntimeError that says the same where it cannot be copied."""
    try:
        error = pickle.loads(ended.error)
    except Exception:  # its class cannot be imported here, or it was not sent
        error = None
    return error if isinstance(error, BaseException) else RuntimeError(ended.told)


@dataclass(frozen=True)
class _Body:
    """What each task calls. Where one is lost, Spark starts all of them again, and does not tell them so:
    those that begin late, of the time at which they were ``asked`` for, do nothing.
    """

    plan: Plan
    secret: bytes = field(repr=False)
    call: bytes = field(repr=False)
    asked: float

    def __call__(self, _: Any) -> Iterator[Any]:
        import pyarrow  # which only the executors need to have

        context: Any = BarrierTaskContext.get()
        index, is_late = context.partitionId(), time.time() > self.asked + self.plan.start_seconds
        host = context.getTaskInfos()[0].address.rpartition(":")[0]
        own = engines.address_at(host, self.plan.variables) if index == 0 and not is_late else ""
        address = context.allGather(own)[0]
        if not address:
            ended: Ended | None = self._late()
        else:
            terms = Terms(address, self.secret, self.plan.variables)
            agent = start_agent(terms, index)
            ended = self._lead(terms) if index == 0 else None
            context.barrier()  # the launcher has ended, or never begun, which agents cannot tell from soon
            agent.end(_END_SECONDS)
        if index:
            return
        data = pickle.dumps(ended)
        for start in range(0, len(data), _PART_BYTES):
            yield pyarrow.RecordBatch.from_pydict({"data": [data[start : start + _PART_BYTES]]})

    def _late(self) -> Ended:
        text = (
            f"the tasks of Spark have started {time.time() - self.asked:.0f} s after they were asked for, "
            f"and start_timeout is {self.plan.start_seconds:g} s. If they had run before, an executor was "
            "lost, and a training is not repeated"
        )
        return Ended(b"", told=text)

    def _lead(self, terms: Terms) -> Ended:
        """Runs the launcher here, beside the agent of this task. Whatever it raises is a value: what leaves a
        task would have Spark start all of them again.
        """
        import cloudpickle

        offer = secret.offer(self.secret)
        stdout, stderr = io.StringIO(), io.StringIO()
        caller = Caller({**os.environ, **launchers(self.plan.variables), **offer.variables}, stdout, stderr)
        words = [*self.plan.options, "--rendezvous", terms.address, "--"]
        words += command(self.plan.executable or sys.executable)
        try:
            results = run_packed(words, self.call, caller)
            ended = Ended(cloudpickle.dumps(results))
        except BaseException as error:
            ended = _failed(error)
        finally:
            offer.close()
        return replace(ended, stdout=stdout.getvalue(), stderr=stderr.getvalue())


def _failed(error: BaseException) -> Ended:
    import cloudpickle

    told = "".join(traceback.format_exception_only(error)).strip()
    cause = error.__cause__ if isinstance(error.__cause__, packing.RemoteTraceback) else None
    try:
        return Ended(b"", cloudpickle.dumps(error), told, cause)
    except Exception:  # nobody else can read it, either
        return Ended(b"", b"", told, cause)
