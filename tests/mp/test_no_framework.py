"""The core, bootstrap and the launcher need no framework and no numpy."""

from launch import Job


def test_objects_travel_without_any_framework() -> None:
    result = Job(3, "no_framework.py").finish(timeout=60)
    assert result.returncode == 0, result.output
    for rank in range(3):
        assert f"rank {rank} of 3 without frameworks: True" in result.output
