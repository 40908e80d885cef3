"""Tuning a running job pays, from a start as bad as can be configured."""

import csv
import os
import statistics
import time
from pathlib import Path

import pytest
import torch

import horovod.torch as hvd

TENSORS = [torch.zeros(1024) for _ in range(60)]
SAMPLES = 3 + 20 + 6  # warm-up, search, contest: the defaults
FIXED = ((128 << 20, "0.5"), (128 << 20, "0.1"), (0, "0.1"))  # threshold and window
ROUNDS = 2
ATTEMPTS = 3
NEARLY = 0.7


def step() -> float:
    """One round of small tensors, whose end the program asks for instead of waiting; in seconds."""
    begin = time.perf_counter()
    handles = [hvd.allreduce_async_(t, name=f"t{n}", op=hvd.Sum) for n, t in enumerate(TENSORS)]
    while not all(hvd.poll(handle) for handle in reversed(handles)):
        os.sched_yield()
    for handle in handles:
        hvd.synchronize(handle)
    return time.perf_counter() - begin


def start(threshold: int, window: str, autotune: bool) -> None:
    os.environ["HOROVOD_FUSION_THRESHOLD"] = str(threshold)
    os.environ["HOROVOD_CYCLE_TIME"] = window
    os.environ["HOROVOD_AUTOTUNE"] = str(int(autotune))
    hvd.init()
    for _ in range(5):
        step()


def median_step() -> float:
    return statistics.median(step() for _ in range(40))


def settle() -> None:
    """Runs until rank 0 has taken all samples, for as many steps on every rank."""
    samples = 0
    while samples < SAMPLES:
        for _ in range(20):
            step()
        samples = hvd.broadcast_object(hvd.counters()["autotune_samples"], root_rank=0)


def ranks_tune(log: str) -> dict[str, float]:
    """The median steps with the bad start, with the fixed settings, and after tuning."""
    os.environ["HOROVOD_AUTOTUNE_LOG"] = log
    os.environ["HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"] = "5"
    fixed = []
    for threshold, window in FIXED * ROUNDS:
        start(threshold, window, autotune=False)
        fixed.append(median_step())
        hvd.shutdown()
    start(0, "50", autotune=True)
    untuned = statistics.median(step() for _ in range(5))
    settle()
    tuned = min(median_step() for _ in range(ROUNDS))
    hvd.shutdown()
    return {"untuned": untuned, "tuned": tuned, "best": min(fixed)}


def check_log(log: Path) -> None:
    """One line per sample from the bad start on, then what stays."""
    rows = list(csv.DictReader(log.open()))
    assert len(rows) == SAMPLES + 1
    first, final = rows[0], rows[-1]
    assert (first["sample"], first["fusion_threshold_mb"], first["window_ms"]) == ("1", "0", "50")
    assert float(final["window_ms"]) < 10 and final["score_bytes_per_us"] == "" and final["best"] == "1"
    assert all(float(row["score_bytes_per_us"]) > 0 for row in rows[:-1])


@pytest.mark.full
def test_tuning_from_the_worst_start_nearly_reaches_the_best_fixed_setting(run_ranks, tmp_path: Path) -> None:
    log = tmp_path / "tune.csv"
    seen = []
    # What else runs on the machine may change between tuning and measuring, but hardly every time.
    for _ in range(ATTEMPTS):
        times = run_ranks(2, ranks_tune, [str(log)], timeout=120)[0]
        check_log(log)
        assert times["tuned"] < times["untuned"] / 3, times
        seen.append(times)
        if times["tuned"] < times["best"] / NEARLY:
            return
    raise AssertionError(seen)
