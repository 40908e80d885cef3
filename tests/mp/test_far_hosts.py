"""Hosts that are far from each other: what a small allreduce takes is messages that follow each other, and
their number grows with log(hosts).
"""

import json
import math
import subprocess
import sys
from pathlib import Path

import networks
import pytest
from load import within

ROOT = Path(__file__).parents[2]
DELAY_MS = 20


@pytest.mark.skipif(bool(networks.why_not()), reason=networks.why_not() or "hosts can be made here")
def test_a_small_allreduce_takes_messages_by_the_logarithm_of_the_hosts(tmp_path: Path) -> None:
    result = tmp_path / "found.json"
    options = ["--hosts", "2", "8", "--ranks", "2", "--bytes", "64", "--calls", "15"]
    command = [sys.executable, "benchmarks/latency.py", *options, "--delay", str(DELAY_MS), "--json", result]
    subprocess.run(command, check=True, cwd=ROOT, timeout=within(60), stdout=subprocess.DEVNULL)
    for found in json.loads(result.read_text(encoding="utf-8")):
        delays = min(found["samples_s"]) * 1e3 / DELAY_MS  # other programs can only add to it
        rounds = math.log2(found["hosts"])
        # A round of the gate and one of the sum, which cannot be shorter; and what the processor does.
        assert 2 <= delays < 2 * rounds + 2, found
