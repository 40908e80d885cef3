"""The core, bootstrap and the launcher need no framework and no numpy; PyTorch needs none either."""

import pytest
from launch import Job


def test_objects_travel_without_any_framework() -> None:
    result = Job(3, "no_framework.py").finish(timeout=60)
    assert result.returncode == 0, result.output
    for rank in range(3):
        assert f"rank {rank} of 3 without frameworks: True" in result.output


@pytest.mark.parametrize("differ", [False, True])
def test_models_are_compared_without_numpy(differ: bool) -> None:
    words = ["differ"] if differ else []
    environment = {"HOROVOD_CHECK_FIRST_STEP": "1"}
    result = Job(2, "torch_without_numpy.py", *words, env=environment).finish(timeout=60)
    assert result.returncode == 0 and result.output.count("has trained") == 2, result.output
    assert ("the first tensor that differs is '0.weight'" in result.output) == differ, result.output
