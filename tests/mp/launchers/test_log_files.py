"""The timeline and the log of autotune never hold up, end or harm anything: training goes on without them."""

import os
import resource
from pathlib import Path

import pytest
import torch
from standard_error import standard_error_of

import horovod.torch as hvd

FILES = {"HOROVOD_TIMELINE": "{folder}/timeline.json", "HOROVOD_AUTOTUNE_LOG": "{folder}/tune.csv"}
TUNING = {
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "0",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "1",
}


def ranks_train(most_bytes: int) -> str:
    """Some steps, with a limit on the size of files that stands for a full disk. What rank 0 writes."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    os.environ.update(TUNING)

    def train() -> None:
        if most_bytes:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
        hvd.init()
        for step in range(2000):  # several of autotune's samples, each of which takes its time
            tensor = torch.full((3,), float(step))
            assert hvd.allreduce(tensor, op=hvd.Sum, name="w").tolist() == [2.0 * step] * 3
        hvd.shutdown()
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    return standard_error_of(train)


def run(run_ranks, folder: Path, most_bytes: int = 0) -> list[str]:
    # The limit would hold for shared memory, too.
    env = {name: path.format(folder=folder) for name, path in FILES.items()} | {"HOROVOD_TRANSPORT": "tcp"}
    first, second = run_ranks(2, ranks_train, [most_bytes], env=env)
    assert second == ""
    lines = first.splitlines()
    assert sum(" info: autotune: " in line for line in lines) == 1, lines
    return [line for line in lines if " info: autotune: " not in line]


def test_traps_are_refused_with_one_line_each(run_ranks, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "timeline.json").symlink_to(victim)
    os.mkfifo(tmp_path / "tune.csv")
    timeline, log = sorted(run(run_ranks, tmp_path), key=lambda line: "AUTOTUNE" in line)
    assert f"the timeline: {tmp_path}/timeline.json is not written: it is a symbolic link. " in timeline
    assert timeline.endswith("Name another file. The job goes on without it.")
    assert f"HOROVOD_AUTOTUNE_LOG: {tmp_path}/tune.csv is not written: it is no regular file." in log
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("most_bytes", [30, 100, 5000])
def test_a_full_disk_is_told_once(run_ranks, tmp_path: Path, most_bytes: int) -> None:
    lines = run(run_ranks, tmp_path, most_bytes)
    assert sum("the timeline: cannot write" in line for line in lines) == 1, lines
    assert sum("HOROVOD_AUTOTUNE_LOG" in line for line in lines) == (most_bytes < 1000), lines
    assert len(lines) == 1 + (most_bytes < 1000), lines


def test_the_files_are_written_otherwise(run_ranks, tmp_path: Path) -> None:
    assert run(run_ranks, tmp_path) == []
    assert (tmp_path / "timeline.json").read_text().endswith("]\n")
    assert (tmp_path / "tune.csv").read_text().startswith("sample,")
