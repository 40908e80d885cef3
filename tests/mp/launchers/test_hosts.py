"""Jobs of several hosts. They are hosts as far as the launcher says: ranks of two of them share no memory,
and reach each other over TCP at loopback addresses only.
"""

import os
import signal
import time

import pytest
import torch
from both_ways import train_both_ways
from load import within
from matrix import check_digests
from test_matrix import ranks_matrix
from test_process_set_fuzz import PROGRAMS, ranks_sets

import horovod.torch as hvd

SHAPES = {
    "2x2": [0, 0, 1, 1],
    "3x2": [0, 0, 1, 1, 2, 2],
    "2+1+3": [0, 0, 1, 2, 2, 2],
    "dealt": [0, 1, 0, 2, 1],
}


def on_hosts(*names: str):
    """The other shapes are tried in make test-full, and with ranks as threads."""
    full = {name: pytest.mark.full for name in SHAPES if name not in names}
    shapes = [pytest.param(hosts, id=name, marks=full.get(name, ())) for name, hosts in SHAPES.items()]
    return pytest.mark.parametrize("hosts", shapes)


def ranks_tell() -> list[int]:
    hvd.init()
    assert hvd.allreduce(torch.ones(5), op=hvd.Sum).tolist() == [hvd.size()] * 5
    return [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_ranks_know_their_places(run_ranks, transport: str) -> None:
    told = run_ranks(6, ranks_tell, hosts=SHAPES["2+1+3"], env={"HOROVOD_TRANSPORT": transport})
    assert told == [
        [0, 6, 0, 2, 0, 3],
        [1, 6, 1, 2, 0, 2],
        [2, 6, 0, 1, 1, 3],
        [3, 6, 0, 3, 2, 3],
        [4, 6, 1, 3, 1, 2],
        [5, 6, 2, 3, 0, 1],
    ]


@on_hosts("2x2", "2+1+3", "dealt")
def test_every_operation_and_type(run_ranks, hosts: list[int]) -> None:
    check_digests(run_ranks(len(hosts), ranks_matrix, [1], hosts=hosts, timeout=120))


@on_hosts("2+1+3")
def test_random_sets(run_ranks, hosts: list[int]) -> None:
    env = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
    arguments = [PROGRAMS, len(hosts)]
    results = run_ranks(len(hosts), ranks_sets, arguments, env=env, hosts=hosts, timeout=90 + PROGRAMS // 3)
    assert all(ids == results[0] for ids in results)


def ranks_train() -> dict[str, object]:
    hvd.init()
    return train_both_ways("SGD")


@on_hosts("2+1+3")
def test_training_is_that_of_one_process(run_ranks, hosts: list[int]) -> None:
    results = run_ranks(len(hosts), ranks_train, hosts=hosts)
    assert len({result["bits"] for result in results}) == 1
    assert all(result["distance"] < 1e-4 < result["moved"] for result in results)


def ranks_lose_one(victim: int) -> str:
    """The victim is killed while large tensors are between the hosts."""
    hvd.init()
    data = torch.ones(1 << 20)
    hvd.allreduce(data, name="first")
    began = time.monotonic()
    try:
        while time.monotonic() < began + within(20):
            hvd.allreduce(data, name="large")
            if hvd.rank() == victim and time.monotonic() > began + 0.3:
                os.kill(os.getpid(), signal.SIGKILL)
    except hvd.HorovodInternalError as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize("victim", [0, 1, 2, 5])
def test_a_killed_rank_is_named_on_every_host(run_ranks, victim: int) -> None:
    texts = run_ranks(6, ranks_lose_one, [victim], hosts=SHAPES["2+1+3"], dies=[victim])
    for rank, text in enumerate(texts):
        assert rank == victim or f"rank {victim}" in text, (rank, text)
