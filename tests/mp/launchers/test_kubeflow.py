"""A TrainJob on this machine, by the local processes of the Kubeflow SDK: an environment of its own, and
torchrun, which starts the ranks or a function that calls horovod.run.
"""

import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from load import within

pytestmark = pytest.mark.slow  # it makes an environment, and torchrun takes seconds to start

PACKAGE = {  # what the job installs: torch and horovod of these tests, so that no index is asked
    "here.pth": f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n",
    "torch-0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 0\n",
    "torch-0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "torch-0.dist-info/entry_points.txt": "[console_scripts]\ntorchrun = torch.distributed.run:main\n",
    "torch-0.dist-info/RECORD": "",
}
STEPS = 10


def train(given: dict[str, int]) -> None:
    """All that it needs, because its text alone is sent."""
    import signal

    signal.alarm(given["limit"])  # the SDK ends no job

    def fit(steps: int) -> str:
        import torch

        import horovod.torch as hvd

        hvd.init()
        weight = torch.zeros(1, requires_grad=True)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.25))
        for _ in range(steps):
            optimizer.zero_grad()
            (weight - hvd.rank() - 1).square().sum().backward()
            optimizer.step()
        return f"rank {hvd.rank()} of {hvd.size()}: {weight.item():.6f}\n"

    if given["ranks"]:
        import horovod

        print(*horovod.run(fit, (given["steps"],), num_proc=given["ranks"]), sep="", end="")
    else:
        print(fit(given["steps"]), end="")  # in one piece: the ranks share a pipe


@pytest.mark.parametrize(("by_torchrun", "by_run"), [(2, 0), (1, 2)], ids=["torchrun", "horovod.run"])
def test_a_train_job_by_local_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by_torchrun: int, by_run: int
) -> None:
    trainer: Any = pytest.importorskip(
        "kubeflow.trainer", reason="kubeflow is not installed: pip install kubeflow"
    )
    wheel = tmp_path / "torch-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name, text in PACKAGE.items():
            file.writestr(name, text)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), ":")  # its python makes the environment
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    client = trainer.TrainerClient(trainer.LocalProcessBackendConfig())
    limit = round(within(60))
    job = trainer.CustomTrainer(
        func=train,
        func_args={"ranks": by_run, "steps": STEPS, "limit": limit},
        packages_to_install=[f"torch @ {wheel.as_uri()}"],
        pip_index_urls=[tmp_path.as_uri()],  # nothing is there
        env={"PET_NPROC_PER_NODE": str(by_torchrun)},
    )
    name = client.train(runtime="torch-distributed", trainer=job)
    status = client.wait_for_job_status(
        name, {"Complete", "Failed"}, timeout=2 * limit, polling_interval=1
    ).status
    log = list(client.get_job_logs(name))
    client.delete_job(name)
    mean = 1.5 * (1 - 0.5**STEPS)  # each step halves the distance to what fits both ranks
    told = sorted(line for line in log if line.startswith("rank "))
    assert (status, told) == ("Complete", [f"rank {rank} of 2: {mean:.6f}" for rank in range(2)]), log
