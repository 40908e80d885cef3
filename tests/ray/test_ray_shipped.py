"""The examples for Horovod that Ray ships, as they are, by the first version of Ray Train, on small data."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from load import within

pytest.importorskip("ray.train", reason="needs ray[train]")

TORCHVISION = '''
"""As much of torchvision as the examples use, with digits of scikit-learn as a small MNIST."""
import torch
from sklearn.datasets import load_digits

class datasets:
    class MNIST(torch.utils.data.TensorDataset):
        def __init__(self, root, train, download, transform):
            images, labels = map(torch.tensor, load_digits(return_X_y=True))
            pixels = images[:400].float().reshape(-1, 1, 8, 8) / 16
            super().__init__(transform(torch.nn.functional.interpolate(pixels, 28)), labels[:400])

class transforms:
    ToTensor = staticmethod(lambda: lambda pixels: pixels)
    Normalize = staticmethod(lambda mean, std: lambda pixels: (pixels - mean[0]) / std[0])
    Compose = staticmethod(lambda steps: lambda pixels: steps[1](steps[0](pixels)))
'''


@pytest.fixture
def short_folder() -> Iterator[str]:
    """For sockets, whose names may not be long."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.mark.full
@pytest.mark.parametrize(
    ("example", "options", "shown"),
    [
        ("horovod_example", ["--num-epochs", "2"], "{'loss': "),
        ("horovod_pytorch_example", ["--num-epochs", "2"], "checkpoint_000001"),
        ("horovod_tune_example", ["--smoke-test"], "Best hyperparameters found were: "),
    ],
)
def test_example(
    cluster: Any, tmp_path: Path, short_folder: str, example: str, options: list[str], shown: str
) -> None:
    pytest.importorskip("sklearn")
    Path(tmp_path, "torchvision.py").write_text(TORCHVISION, encoding="utf-8")
    own = {"RAY_TRAIN_V2_ENABLED": "0", "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    environ = {
        **os.environ,
        **own,
        "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": {"env_vars": own}}),
    }
    if "--smoke-test" in options:  # which starts a cluster of its own
        environ["RAY_TMPDIR"] = short_folder
    else:
        environ["RAY_ADDRESS"] = cluster.address
    done = subprocess.run(
        [sys.executable, "-m", f"ray.train.examples.horovod.{example}", *options],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within(120),
        check=False,
    )
    assert done.returncode == 0 and shown in done.stdout, done.stdout
