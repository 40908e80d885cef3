"""Runs torch's own tests of torch.distributed, which are in its wheel, on one backend and number of ranks::

    BACKEND=hvd WORLD_SIZE=2 python suite.py results.json [pattern ...]

``results.json`` gets the outcome of each test: "passed", "skipped: why" or "failed: the last line of why".
With STAND_IN=1 the tests take the backend for gloo, so they do not skip what they skip for all but gloo.
"""

import contextlib
import fnmatch
import json
import logging
import os
import re
import signal
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.multiprocessing

REAL = os.environ["BACKEND"]
STANDS_IN = os.environ.get("STAND_IN") == "1"
if REAL == "hvd":
    import horovod.torch.distributed  # noqa: F401  (registers it)
if STANDS_IN:
    os.environ["BACKEND"] = "gloo"
LIMIT_SECONDS = 120  # of one test

from torch.testing._internal import common_distributed as common  # noqa: E402  (reads BACKEND)

for feature in ("gpu", "cuda", "ddp", "subgroup"):
    common.DistTestCases.backend_feature[feature].add("hvd")

from torch.testing._internal.distributed import distributed_test as suite  # noqa: E402


class SuiteTest(suite.TestDistBackend, suite.DistributedTest._DistTestBase):  # type: ignore[misc]
    """All tests of the suite; each forks its ranks, as a rank that is spawned imports torch for seconds."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Outcomes(unittest.TextTestResult):
    """Collects the outcome of each test."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.outcomes: dict[str, str] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self._note(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._note(test, f"skipped: {reason}")

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._note(test, f"failed: {_reason(str(err[1]))}")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._note(test, f"failed: {_reason(str(err[1]))}")

    def _note(self, test: unittest.TestCase, outcome: str) -> None:
        self.outcomes[test.id().rpartition(".")[2]] = outcome


def _reason(text: str) -> str:
    """The line with the exception, where a rank has told one."""
    lines = [line.strip() for line in text.splitlines() if re.match(r"^\s*[\w.]*(Error|Exception)\b", line)]
    return (lines or text.strip().splitlines() or [""])[0][:300]


def _late(number: int, frame: Any) -> None:
    raise TimeoutError(f"not done after {LIMIT_SECONDS} s")


@contextlib.contextmanager
def _standing_in() -> Iterator[None]:
    """Makes the real backend of every group that asks for gloo."""
    make = dist.distributed_c10d._new_process_group_helper

    def replaced(size: int, rank: int, ranks: Any, backend: Any, *rest: Any, **options: Any) -> Any:
        return make(size, rank, ranks, dist.Backend(REAL) if backend == "gloo" else backend, *rest, **options)

    dist.distributed_c10d._new_process_group_helper = replaced
    yield
    dist.distributed_c10d._new_process_group_helper = make


class _Limited(unittest.TestSuite):
    """Ends a test that does not end."""

    def run(self, result: Any, debug: bool = False) -> Any:
        signal.signal(signal.SIGALRM, _late)
        for test in self:
            signal.alarm(LIMIT_SECONDS)
            try:
                test(result)
            except TimeoutError as error:
                result.addError(test, (TimeoutError, error, None))
            finally:
                signal.alarm(0)
                for process in getattr(test, "processes", ()):
                    if process.is_alive():
                        process.kill()
        return result


def main() -> None:
    """Runs the tests whose names match a pattern; all without one."""
    output, patterns = Path(sys.argv[1]), sys.argv[2:] or ["*"]
    logging.disable(logging.WARNING)
    names = unittest.TestLoader().getTestCaseNames(SuiteTest)
    chosen = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    tests = _Limited(SuiteTest(name) for name in chosen)
    with _standing_in() if STANDS_IN else contextlib.nullcontext():
        result = unittest.TextTestRunner(verbosity=2, resultclass=Outcomes).run(tests)
    assert isinstance(result, Outcomes)
    output.write_text(json.dumps(result.outcomes, indent=1))


if __name__ == "__main__":
    main()
