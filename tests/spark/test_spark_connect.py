"""``horovod.spark.run`` over Spark Connect."""

from pathlib import Path

import pytest
from executors import run_program

pytest.importorskip("grpc", reason="needs pyspark[connect]")


def test_run(tmp_path: Path) -> None:
    run_program("connect_program.py", tmp_path)
