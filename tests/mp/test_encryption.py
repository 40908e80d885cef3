"""HOROVOD_ENCRYPT: the same results, and an error where ranks differ or nobody could encrypt."""

import re
import sys
from typing import Any

import numpy as np
import pytest
import torch
from launch import MODULE, Launcher

import horovod.torch as hvd

SIZES = [1, 1000, 70_000, 3_000_000]
WIRINGS = {"tcp": {"env": {"HOROVOD_TRANSPORT": "tcp"}}, "hosts": {"hosts": [0, 0, 1, 1]}}


def ranks_reduce_and_gather() -> None:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    for length in SIZES:
        own = [np.random.default_rng([length, one]).integers(-9, 9, length) for one in range(size)]
        tensor = torch.from_numpy(own[rank].astype(np.float32))
        expected = np.sum(own, axis=0)
        assert np.array_equal(hvd.allreduce(tensor, op=hvd.Sum, name=f"a{length}").numpy(), expected)
        gathered = hvd.allgather(tensor[: length // (rank + 1)], name=f"g{length}").numpy()
        assert np.array_equal(
            gathered, np.concatenate([own[one][: length // (one + 1)] for one in range(size)])
        )
        sent = hvd.send_async(tensor, (rank + 1) % size, tag=length)
        hvd.synchronize(hvd.recv_async(tensor.clone(), (rank - 1) % size, tag=length))
        hvd.synchronize(sent)


@pytest.mark.parametrize(("ranks", "wiring"), [(2, "tcp"), (3, "tcp"), (4, "hosts")])
def test_the_same_results(run_ranks: Any, ranks: int, wiring: str) -> None:
    options = WIRINGS[wiring]
    run_ranks(
        ranks,
        ranks_reduce_and_gather,
        **{**options, "env": {**options.get("env", {}), "HOROVOD_ENCRYPT": "1"}},
    )


def test_ranks_that_differ_hear_it_from_the_start() -> None:
    program = (
        "import os; os.environ['HOROVOD_ENCRYPT'] = os.environ['HOROVOD_RANK']\n"
        "import horovod.common.basics as hvd; hvd.init()"
    )
    launcher = Launcher()
    result = launcher.finish(launcher.popen([*MODULE, "-np", "2", sys.executable, "-c", program]), 30)
    assert result.returncode != 0
    said = r"rank 1 .*HOROVOD_ENCRYPT=1, and rank 0 .*HOROVOD_ENCRYPT=0: give all ranks the same"
    assert re.search(said, result.output), result.output


def ranks_are_refused() -> None:
    with pytest.raises(
        ValueError, match="HOROVOD_ENCRYPT=1: Gloo and MPI send over connections of their own"
    ):
        hvd.init()


def test_libraries_that_do_not_encrypt(run_ranks: Any) -> None:
    if not hvd.gloo_built():
        pytest.skip("this build has no Gloo")
    env = {"HOROVOD_ENCRYPT": "1", "HOROVOD_CPU_OPERATIONS": "gloo"}
    run_ranks(2, ranks_are_refused, hosts=[0, 1], env=env)
