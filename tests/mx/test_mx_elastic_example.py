"""The elastic example for MXNet goes on when one of its ranks is killed."""

import re

from elastic_examples import survives_a_kill


def test_it_goes_on_and_learns() -> None:
    output = survives_a_kill("mxnet_elastic.py", "--epochs", "8")
    accuracy = re.search(r"([\d.]+)% of the test images", output)
    assert accuracy is not None and float(accuracy[1]) > 80, output
