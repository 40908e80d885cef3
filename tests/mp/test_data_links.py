"""HOROVOD_DATA_LINKS: data to a rank spread over several connections, with the same results."""

from typing import Any

import numpy as np
import pytest
import torch

import horovod.torch as hvd
from horovod.bootstrap import start


def data_links() -> set[int]:
    """How many there are to each rank that this one has any to."""
    demand = start._process.on_demand
    assert demand is not None
    peers = [peer for peer, role in demand._made if role.name.startswith("DATA")]
    return {peers.count(peer) for peer in peers}


def check_every_operation(length: int) -> None:
    rank, size = hvd.rank(), hvd.size()
    own = [np.random.default_rng([length, one]).integers(-9, 9, length) for one in range(size)]
    tensor = torch.from_numpy(own[rank].astype(np.float32))
    total = hvd.allreduce(tensor, op=hvd.Sum, name=f"a{length}")
    assert np.array_equal(total.numpy(), np.sum(own, axis=0))
    parts = [one[: length // (place + 1)] for place, one in enumerate(own)]
    gathered = hvd.allgather(torch.from_numpy(parts[rank]), name=f"g{length}")
    assert np.array_equal(gathered.numpy(), np.concatenate(parts))
    root = hvd.broadcast(tensor, size - 1, name=f"b{length}")
    assert np.array_equal(root.numpy(), own[-1])
    scattered = hvd.reducescatter(tensor, op=hvd.Sum, name=f"s{length}")
    assert np.array_equal(scattered.numpy(), np.array_split(np.sum(own, axis=0), size)[rank])
    splits = torch.tensor([len(part) for part in np.array_split(own[0], size)])
    swapped, _ = hvd.alltoall(tensor, splits, f"t{length}")
    assert np.array_equal(swapped.numpy(), np.concatenate([np.array_split(one, size)[rank] for one in own]))
    sent = hvd.send_async(tensor, (rank + 1) % size, tag=length)
    received = torch.empty(length)
    hvd.synchronize(hvd.recv_async(received, (rank - 1) % size, tag=length))
    assert np.array_equal(received.numpy(), own[(rank - 1) % size])
    hvd.synchronize(sent)


def ranks_exchange(number: int | None) -> None:
    """``number``: so many connections are made to each rank for what is large; None: it is not looked at."""
    hvd.init()
    check_every_operation(100)
    assert data_links() <= {1}
    check_every_operation(70_000)
    check_every_operation(3_000_000)
    assert number is None or data_links() == {number}


def links(number: int, **more: str) -> dict[str, str]:
    return {"HOROVOD_DATA_LINKS": str(number), **more}


@pytest.mark.parametrize(
    ("hosts", "env", "number"),
    [
        ([0, 1], links(4), 4),
        ([0, 1], {}, 1),
        ([0, 1], links(3, HOROVOD_ENCRYPT="1"), 3),
        ([0, 1, 2], links(2), 2),
        ([0, 0, 1, 1], links(2), None),
        (None, links(4, HOROVOD_TRANSPORT="tcp"), 4),
    ],
)
def test_the_same_results(
    run_ranks: Any, hosts: list[int] | None, env: dict[str, str], number: int | None
) -> None:
    options: dict[str, Any] = {"env": env} if hosts is None else {"env": env, "hosts": hosts}
    run_ranks(2 if hosts is None else len(hosts), ranks_exchange, [number], **options)
