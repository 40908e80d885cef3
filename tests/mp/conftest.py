"""Fixtures of the tests that start several processes."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RANK_MAIN = Path(__file__).with_name("rank_main.py")


@pytest.fixture
def run_ranks(tmp_path: Path) -> Callable[..., list[Any]]:
    """``run_ranks(np, function)``: calls a function of a test file in ``np`` ranks and returns their
    results.

    The function takes ``arguments`` (as JSON) and returns what JSON can express; results are in rank
    order. It initialises horovod itself. The test fails with the ranks' output when one of them fails, or
    when ``timeout`` seconds have passed. ``env`` adds variables.
    """

    def run(
        np: int,
        function: Callable[..., Any],
        arguments: Sequence[Any] = (),
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> list[Any]:
        folder = tmp_path / f"{function.__name__}-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        source = inspect.getsourcefile(function)
        command = [sys.executable, str(RANK_MAIN), str(source), function.__name__, str(folder)]
        command += [json.dumps(list(arguments)), str(timeout)]
        if np > 1:
            command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(np), *command]
        output = _run(command, {**os.environ, "OMP_NUM_THREADS": "1", **_path(), **(env or {})}, timeout)
        files = [folder / f"{rank}.json" for rank in range(np)]
        assert all(file.exists() for file in files), f"a rank left no result\n{output}"
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    return run


def _path() -> dict[str, str]:
    """Finds the library in the tree also where it is not installed."""
    folders = [os.environ.get("PYTHONPATH", ""), str(ROOT / "frameworks")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


def _run(command: list[str], environment: dict[str, str], timeout: float) -> str:
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout + 15)  # the ranks end by themselves before that
    except subprocess.TimeoutExpired:
        process.terminate()
        output, _ = process.communicate()
        pytest.fail(f"not done after {timeout} seconds\n{output}", pytrace=False)
    assert process.returncode == 0, f"status {process.returncode}\n{output}"
    return output
