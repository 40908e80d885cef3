"""horovod.run of a function whose job goes on when ranks are lost."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import horovod
from horovod.runner.call.packing import RemoteTraceback


def train(values: np.ndarray, steps: int, folder: Path, victim: int = -1) -> tuple[int, int, int, np.ndarray]:
    """Adds what all ranks have, step after step; one worker dies once on its way."""
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import objects, operations
    from horovod.elastic.run import run_fn
    from horovod.elastic.state import ObjectState

    hvd.init()
    worker = int(os.environ["HOROVOD_ELASTIC_WORKER"])

    @run_fn
    def loop(state: ObjectState) -> None:
        while state.step < steps:
            if state.step == 5 and worker == victim:
                os.kill(os.getpid(), signal.SIGKILL)
            total = operations.allreduce_(bytearray(b"\1") * 8, op=1, name="step")
            assert total == bytearray([hvd.size()]) * 8
            state.values = state.values + values
            state.step += 1
            state.commit()

    state = ObjectState(objects.broadcast_object, hvd.rank, step=0, values=np.zeros_like(values))
    loop(state)
    (folder / f"worker.{worker}").touch()
    return hvd.rank(), hvd.size(), worker, state.values


def fail(folder: Path, when: str) -> int:
    from horovod.common import basics as hvd

    if when == "before":
        raise FileNotFoundError(2, when, str(folder))
    hvd.init()
    raise FileNotFoundError(2, when, str(folder))


@pytest.mark.parametrize("victim", [-1, 1])
def test_the_results_are_those_of_the_ranks_at_the_end(tmp_path: Path, victim: int) -> None:
    values = np.random.default_rng().integers(-1000, 1000, 257)
    found = horovod.run(
        train, (values, 20, tmp_path), {"victim": victim}, num_proc=3, min_num_proc=2, max_num_proc=3
    )
    finished = {int(path.suffix[1:]) for path in tmp_path.glob("worker.*")}
    assert {worker for _, _, worker, _ in found} == finished
    assert [rank for rank, *_ in found] == list(range(len(found))) and len(found) in (2, 3)
    assert victim not in finished and all(size == len(found) for _, size, _, _ in found)
    for *_, total in found:
        np.testing.assert_array_equal(total, values * 20)


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_all_raise_is_raised(tmp_path: Path, when: str) -> None:
    with pytest.raises(FileNotFoundError, match=when) as caught:
        horovod.run(fail, (tmp_path, when), num_proc=2, min_num_proc=1)
    assert caught.value.filename == str(tmp_path)
    assert isinstance(caught.value.__cause__, RemoteTraceback)


def test_a_job_that_has_lost_all_is_an_error_with_the_report() -> None:
    def die() -> None:
        from horovod.common import basics as hvd

        hvd.init()
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RuntimeError, match="none has come to train in a function with") as caught:
        horovod.run(die, num_proc=2, min_num_proc=1)
    assert "killed by signal 9" in str(caught.value) and "horovodrun:" not in str(caught.value)


def test_a_script_says_the_hosts(tmp_path: Path) -> None:
    script = tmp_path / "hosts"
    script.write_text("#!/bin/sh\necho localhost\n")
    script.chmod(0o700)
    values = np.arange(3)
    found = horovod.run(
        train, (values, 3, tmp_path), min_num_proc=2, slots=2, host_discovery_script=str(script)
    )
    assert [rank for rank, *_ in found] == [0, 1]


def test_a_function_that_needs_no_job_has_its_results_too() -> None:
    assert horovod.run(lambda: os.environ["HOROVOD_ELASTIC_WORKER"], min_num_proc=3) == ["0", "1", "2"]
