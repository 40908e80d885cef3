"""Where a case is played: it starts jobs, and judges what all cases have in common."""

from __future__ import annotations

import tempfile
import time
import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import psutil
from fault_case import Case, NotHere
from load import within
from trial import Trial


class Stage:
    """The jobs of one case. On leaving it, each must have left nothing behind."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.seconds: float | None = None
        self.culprit = ""  # whom the job has named
        self._trials: list[Trial] = []
        self._folders: list[tempfile.TemporaryDirectory[str]] = []

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                for trial in self._trials:
                    trial.must_be_clean()
        finally:
            for trial in self._trials:
                trial.close()
            for folder in self._folders:
                folder.cleanup()

    def job(self, ranks: int, scene: str, *arguments: object, **options: Any) -> Trial:
        """Starts a job; see Trial."""
        self._trials.append(Trial(ranks, scene, *arguments, **options))
        return self._trials[-1]

    def folder(self) -> str:
        """An empty folder, which goes with the stage."""
        folder = tempfile.TemporaryDirectory(prefix="fault-")
        self._folders.append(folder)
        return folder.name

    def gone(self, trial: Trial, family: list[psutil.Process]) -> None:
        """All these processes of a job have ended, within the limit of the case."""
        assert self.limit is not None and trial.fault_at is not None
        _, alive = psutil.wait_procs(family, timeout=within(self.limit))
        assert not alive, f"{alive} are still there:\n{trial.output}"
        self.seconds = max(self.seconds or 0.0, time.time() - trial.fault_at)

    def fails(self, trial: Trial, status: int, headline: str, *says: str, **options: Any) -> None:
        """The job ends with a failure, within the limit of the case; see Trial.must_end."""
        trial.must_end(status, headline, *says, limit=self.limit, **options)
        self.seconds = max(self.seconds or 0.0, trial.seconds)

    def succeeds(self, trial: Trial, *says: str, timeout: float = 30) -> None:
        """The job ends well, and every rank says that its results were right."""
        trial.must_end(0, "", *says, timeout=timeout)
        right = trial.output.count("all results are right")
        assert right == trial.ranks, f"{right} ranks had right results:\n{trial.output}"


@dataclass(frozen=True)
class Verdict:
    """How a case went: "ok", "falls short" or "not here"."""

    case: Case
    word: str
    seconds: float | None
    text: str = ""
    culprit: str = ""
    wall_seconds: float = 0.0


def judge(case: Case) -> Verdict:
    """Plays a case and says how it went."""
    if case.play is None:
        return Verdict(case, "not here", None, case.needs)
    begin = time.monotonic()
    stage = Stage(case.limit)
    word, text = "ok", ""
    try:
        with stage:
            case.play(stage)
    except NotHere as lacks:
        word, text = "not here", str(lacks)
    except AssertionError as error:
        word, text = "falls short", str(error) or traceback.format_exc()
    except Exception:
        word, text = "falls short", traceback.format_exc()
    return Verdict(case, word, stage.seconds, text, stage.culprit, time.monotonic() - begin)
