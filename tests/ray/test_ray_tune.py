"""Ray Tune: trials that are jobs of two ranks each; one that fails ends alone."""

from pathlib import Path
from typing import Any

import pytest

from horovod.ray import RayExecutor

tune = pytest.importorskip("ray.tune", reason="needs ray[train]")


@pytest.mark.slow
def test_a_trial_that_fails(cluster: Any, tmp_path: Path) -> None:
    def trial(config: dict[str, Any]) -> None:
        def work(number: int) -> None:
            from horovod.common import basics as hvd
            from horovod.common.collective.byte_objects import objects
            from horovod.ray import ray_logger

            hvd.init()
            if number == 2 and hvd.rank() == 1:
                raise ValueError("planted")
            for step in range(3):
                ray_logger.log({"loss": sum(objects.allgather_object(number * hvd.rank() + step))})

        executor = RayExecutor(RayExecutor.create_settings(), num_workers=2)
        executor.start()
        try:
            executor.run(work, [config["number"]], callbacks=[tune.report])
        finally:
            executor.shutdown()

    bundles = tune.PlacementGroupFactory([{"CPU": 0}, {"CPU": 1}, {"CPU": 1}])
    tuner = tune.Tuner(
        tune.with_resources(trial, bundles),
        param_space={"number": tune.grid_search([1, 2, 3])},
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    )
    results = {result.config["number"]: result for result in tuner.fit()}
    assert {number: result.metrics["loss"] for number, result in results.items() if not result.error} == {
        number: number + 4 for number in (1, 3)
    }
    assert "planted" in str(results[2].error)
