"""``horovod.spark.run`` over Spark Connect."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from load import within

pytest.importorskip("grpc", reason="needs pyspark[connect]")
HERE = Path(__file__).resolve().parent


def test_run(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "ranks")])}
    done = subprocess.run(
        [sys.executable, str(HERE / "connect_program.py")],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within(120),
        check=False,
    )
    assert done.returncode == 0, done.stdout
