"""A job that submits nothing uses no CPU."""

import re

import pytest
from launch import horovodrun


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_idle_ranks_use_less_than_two_thousandths_of_a_core(transport: str) -> None:
    result = horovodrun(2, "idle.py", env={"HOROVOD_TRANSPORT": transport})
    assert result.returncode == 0, result.output
    shares = [float(share) for share in re.findall(r"idle share ([\d.]+)", result.output)]
    assert len(shares) == 2
    assert max(shares) < 0.002, shares
