"""Ray Train: workers that are ranks, a checkpoint that is restored after one was killed."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

train = pytest.importorskip("horovod.ray.train", reason="needs ray[train]")
from ray.train import FailureConfig, RunConfig, ScalingConfig  # noqa: E402


@pytest.mark.slow
def test_a_worker_that_is_killed(cluster: Any, tmp_path: Path) -> None:
    mark = tmp_path / "killed"

    def loop(config: dict[str, Any]) -> None:
        import tempfile

        import ray.train

        from horovod.common import basics as hvd
        from horovod.common.collective.byte_objects import objects

        hvd.init()
        checkpoint = ray.train.get_checkpoint()
        first = 0 if checkpoint is None else int(Path(checkpoint.path, "step").read_text()) + 1
        for step in range(first, config["steps"]):
            there = objects.allgather_object((hvd.local_size(), hvd.cross_rank()))
            if step == 3 and hvd.rank() == 1 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            folder = tempfile.mkdtemp()
            Path(folder, "step").write_text(str(step))
            kept = ray.train.Checkpoint.from_directory(folder) if hvd.rank() == 0 else None
            secret = [name for name in os.environ if "SECRET" in name]
            told = {"step": step, "first": first, "there": there, "secret": secret}
            ray.train.report(told, checkpoint=kept)

    trainer = train.HorovodTrainer(
        loop,
        train_loop_config={"steps": 6},
        scaling_config=ScalingConfig(num_workers=2, placement_strategy="SPREAD"),
        run_config=RunConfig(storage_path=str(tmp_path), failure_config=FailureConfig(max_failures=1)),
    )
    found = trainer.fit().metrics
    assert mark.exists()
    assert found["step"] == 5 and found["there"] == [(1, 0), (1, 1)] and found["secret"] == []
    assert found["first"] in (1, 2, 3)  # what had been reported when the worker was killed


@pytest.mark.parametrize("elastic", [False, True])
def test_without_workers(cluster: Any, tmp_path: Path, elastic: bool) -> None:
    def loop() -> None:
        import ray.train

        from horovod.common import basics as hvd

        hvd.init()
        ray.train.report({"size": hvd.size()})
        hvd.shutdown()

    trainer = train.HorovodTrainer(
        loop,
        horovod_config=train.HorovodConfig(elastic=elastic),
        scaling_config=ScalingConfig(num_workers=0),
        run_config=RunConfig(storage_path=str(tmp_path)),
    )
    assert trainer.fit().metrics == {"size": 1}


@pytest.mark.slow
def test_only_the_dead_worker_is_replaced(cluster: Any, tmp_path: Path) -> None:
    mark = tmp_path / "killed"

    def loop() -> None:
        import tempfile
        import time

        import ray.train

        from horovod import elastic
        from horovod.common import basics as hvd
        from horovod.common.collective.byte_objects import objects
        from horovod.elastic.decorator import run_with

        hvd.init()
        workers = ray.train.get_context().get_world_size()

        @run_with()
        def train(state: Any) -> None:
            there = objects.allgather_object(os.getpid())
            while state.after < 5:
                time.sleep(0.02)
                objects.allgather_object(state.step)
                if state.step == 3 and hvd.rank() == 1 and not mark.exists():
                    mark.write_text(str(os.getpid()))
                    os.kill(os.getpid(), signal.SIGKILL)
                state.step += 1
                state.after += mark.exists() and hvd.size() == workers
                state.alone += hvd.size() < workers
                state.commit()
                if hvd.size() == workers:
                    told = {"step": state.step, "there": there, "alone": state.alone, "size": hvd.size()}
                    with tempfile.TemporaryDirectory() as folder:
                        Path(folder, "step").write_text(str(state.step))
                        kept = ray.train.Checkpoint.from_directory(folder) if hvd.rank() == 0 else None
                        ray.train.report(told, checkpoint=kept)

        train(elastic.ObjectState(objects.broadcast_object, hvd.rank, step=0, after=0, alone=0))

    trainer = train.HorovodTrainer(
        loop,
        horovod_config=train.HorovodConfig(elastic=True),
        scaling_config=ScalingConfig(num_workers=3),
        run_config=RunConfig(storage_path=str(tmp_path), failure_config=FailureConfig(max_failures=1)),
    )
    result = trainer.fit()
    first, last = result.metrics_dataframe["there"].iloc[0], result.metrics["there"]
    assert len(set(first) - set(last)) == 1 and int(mark.read_text()) not in last
    assert result.metrics["size"] == 3 and result.metrics["alone"] > 3
    assert result.checkpoint is not None
