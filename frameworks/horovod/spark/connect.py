"""A job over Spark Connect: executors cannot reach this process, so the first task has the launcher."""

import io
import os
import pickle
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from horovod.bootstrap import secret
from horovod.bootstrap.start_settings import HOST_TIMEOUT_VARIABLE
from horovod.runner import engines
from horovod.runner.call import packing
from horovod.runner.call.child import Caller
from horovod.runner.call.run import command, run_packed

from .agents import Terms, serve, start_agent
from .job import LOST_SECONDS, Plan

_PART_BYTES = 4 << 20  # of a row


@dataclass(frozen=True)
class Ended:
    """What comes back of a job: what it returned, or raised with its cause, and the output of its ranks."""

    results: Sequence[Any]
    error: BaseException | None
    cause: BaseException | None
    stdout: str = ""
    stderr: str = ""


def run(plan: Plan, function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> list[Any]:
    """What the function returns on each rank. The output of the ranks is written when they have ended."""
    session = SparkSession.getActiveSession()
    if session is None:
        raise ValueError(
            "horovod.spark.run: there is no session. Begin with SparkSession.builder.remote(...)"
        )
    call = io.BytesIO()
    packing.write_call(call, function, args, kwargs)
    key = secrets.token_bytes(secret.SECRET_BYTES)
    body = _Body(
        plan.options,
        {HOST_TIMEOUT_VARIABLE: LOST_SECONDS, **plan.variables},
        plan.executable,
        key,
        call.getvalue(),
        plan.start_seconds,
        time.time(),
    )
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
    print(ended.stdout, end="", file=plan.stdout or sys.stdout, flush=True)
    print(ended.stderr, end="", file=plan.stderr or sys.stderr, flush=True)
    if ended.error is not None:
        raise ended.error from ended.cause
    return list(ended.results)


@dataclass(frozen=True)
class _Body:
    """What each task calls. Where one is lost, Spark starts all of them again, and does not tell them so:
    those that begin late, of the time at which they were ``asked`` for, do nothing.
    """

    options: Sequence[str]
    variables: Any
    executable: str | None
    secret: bytes
    call: bytes
    start_seconds: float
    asked: float

    def __call__(self, _: Any) -> Iterator[Any]:
        import pyarrow  # which only the executors need to have

        context: Any = BarrierTaskContext.get()
        index, is_late = context.partitionId(), time.time() > self.asked + self.start_seconds
        host = context.getTaskInfos()[0].address.rpartition(":")[0]
        own = engines.address_at(host, self.variables) if index == 0 and not is_late else ""
        address = context.allGather(own)[0]
        terms = Terms(address, self.secret, self.variables)
        if index:
            if address:
                serve(terms, index)
            return
        data = _packed(self._lead(terms) if address else self._late())
        for start in range(0, len(data), _PART_BYTES):
            yield pyarrow.RecordBatch.from_pydict({"data": [data[start : start + _PART_BYTES]]})

    def _late(self) -> Ended:
        text = (
            f"the tasks of Spark have started {time.time() - self.asked:.0f} s after they were asked for, "
            f"and start_timeout is {self.start_seconds:g} s. If they had run before, an executor was lost, "
            "and a training is not repeated"
        )
        return Ended([], RuntimeError(text), None)

    def _lead(self, terms: Terms) -> Ended:
        """Runs the launcher here, beside the agent of this task."""
        offer = secret.offer(self.secret)
        stdout, stderr = io.StringIO(), io.StringIO()
        caller = Caller({**os.environ, **offer.variables}, stdout, stderr)
        rank = command(self.executable or sys.executable)
        results: list[Any] = []
        error: Exception | None = None
        try:
            agent = start_agent(terms, 0)
            results = run_packed(
                [*self.options, "--rendezvous", terms.address, "--", *rank], self.call, caller
            )
            agent.wait()
        except Exception as failure:  # any that leaves this task would have Spark start all of them again
            error = failure
        offer.close()
        cause = None if error is None else error.__cause__
        return Ended(results, error, cause, stdout.getvalue(), stderr.getvalue())


def _packed(ended: Ended) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(ended))
    except Exception as error:
        failure = RuntimeError(f"what the ranks have returned or raised cannot be sent: {error}")
        return bytes(cloudpickle.dumps(Ended([], failure, None, ended.stdout, ended.stderr)))
