"""What users begin with runs: the code of docs/ray.md, and the example."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
from load import within

ROOT = Path(__file__).resolve().parents[2]


def run(words: list[str], address: str, seconds: float = 60) -> str:
    environ = {**os.environ, "RAY_ADDRESS": address, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within(seconds),
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_code_of_the_page(cluster: Any, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "ray.md").read_text(encoding="utf-8")
    marked = r"^<!-- not run: it needs a cluster; tests/ray runs it -->\n```python\n(.*?)^```$"
    blocks = re.findall(marked, page, re.MULTILINE | re.DOTALL)
    program = tmp_path / "program.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    output = run([str(program)], cluster.address)
    assert len(blocks) == 4
    assert "[1]<stdout>:loss 0." in output and "[10.0, 10.0]" in output.replace("[10, 10]", "[10.0, 10.0]")
    assert "{'step': 2}" in output and "[0, 1]" in output


# How elastic jobs go on is tried by test_ray_elastic.py and test_ray_kills.py.
@pytest.mark.parametrize(
    "options", [[], pytest.param(["--elastic"], marks=pytest.mark.full)], ids=["static", "elastic"]
)
def test_the_example(cluster: Any, options: list[str]) -> None:
    pytest.importorskip("sklearn")
    output = run([str(ROOT / "examples" / "ray" / "digits.py"), *options], cluster.address)
    assert "epoch 4: accuracy 9" in output and "2 ranks, accuracy 9" in output, output
    assert ray.is_initialized()


# What becomes of trials is tried by test_ray_tune.py; here each rank of each trial imports PyTorch, too.
@pytest.mark.full
def test_the_example_of_tune(cluster: Any, tmp_path: Path) -> None:
    for needed in ("sklearn", "matplotlib", "ray.tune"):
        pytest.importorskip(needed)
    words = [str(ROOT / "examples" / "ray" / "learning_rates.py"), "--trials", "2", "--plot"]
    output = run([*words, str(tmp_path / "rates.png")], cluster.address, 90)
    table = output.partition("learning rate      loss  accuracy\n")[2].splitlines()
    assert [line.split()[0] for line in table[:2]] == ["0.0010", "10.0000"], output
    assert float(table[0].split()[2].rstrip("%")) > 15, output
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")
