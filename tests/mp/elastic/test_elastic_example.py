"""The elastic example for PyTorch goes on when one of its ranks is killed."""

import re

import pytest
from elastic_examples import survives_a_kill


@pytest.mark.slow
def test_it_goes_on_and_learns():
    output = survives_a_kill("torch_elastic.py", "--epochs", "8", "--pause", "0.01")
    accuracy = re.search(r"([\d.]+)% of the test images", output)
    assert accuracy is not None and float(accuracy[1]) > 80, output
    summary = re.search(r"<stdout>:(\d+) generations; the changes took ([\d.]+) s", output)
    assert summary is not None and int(summary[1]) >= 2 and 0 < float(summary[2]) < 60, output
