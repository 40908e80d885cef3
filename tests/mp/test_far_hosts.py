"""Hosts that are far from each other: what a small allreduce takes is messages that follow each other. Few
hosts need one, and for more their number grows with log(hosts).
"""

import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

import networks
import pytest
from load import within

pytestmark = pytest.mark.slow  # sixteen hosts are made

ROOT = Path(__file__).parents[2]
DELAY_MS = 20


@pytest.mark.skipif(bool(networks.why_not()), reason=networks.why_not() or "hosts can be made here")
def test_a_small_allreduce_takes_messages_by_the_logarithm_of_the_hosts(tmp_path: Path) -> None:
    result = tmp_path / "found.json"
    options = ["--hosts", "8", "16", "--ranks", "2", "--bytes", "64", "--calls", "15"]
    delay = within(DELAY_MS)  # so that what the processor does stays little beside it
    command = [sys.executable, "benchmarks/latency.py", *options, "--delay", str(delay), "--json", result]
    subprocess.run(command, check=True, cwd=ROOT, timeout=within(60), stdout=subprocess.DEVNULL)
    for found in json.loads(result.read_text(encoding="utf-8")):
        delays = statistics.mean(found["samples_s"]) * 1e3 / delay
        # Up to 8 hosts tell each other directly how far they are; the data come along. It cannot be shorter,
        # and what the processor does is longer than it looks where many ranks share it.
        rounds = 1 if found["hosts"] <= 8 else math.log2(found["hosts"])
        assert 0.9 * rounds <= delays < rounds + 2, found
