"""A program that uses every public name of horovod.torch, with the documented arguments by name."""

import asyncio
import importlib.util
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import horovod.torch as hvd

ENVIRONMENT = {"HOROVOD_TIMELINE": "DYNAMIC", "HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
GLOBAL = hvd.global_process_set
REDUCE = {"op": hvd.Sum, "prescale_factor": 0.5, "postscale_factor": 2.0, "process_set": GLOBAL}


class Names:
    """Public names as attributes; remembers which were used."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def __getattr__(self, name: str):
        self.used.add(name)
        return getattr(hvd, name)


def ranks_call_everything() -> list[str]:
    h = Names()
    h.init(comm=None, process_sets=None)
    about_the_job(h)
    reductions(h)
    exchanges(h)
    process_sets(h)
    training(h)
    elastic_training(h)
    searching(h)
    h.shutdown()
    assert not h.is_initialized()
    return sorted(set(hvd.__all__) - h.used)


def about_the_job(h: Names) -> None:
    assert h.is_initialized() and h.is_homogeneous()
    assert h.size() == 2 and h.local_size() == 2 and h.cross_size() == 1
    assert h.rank() == h.local_rank() and h.cross_rank() == 0 and h.is_master() == (h.rank() == 0)
    assert h.gloo_built() is True and h.gloo_enabled() is True and h.__version__ > "0.28.1"
    for built in (h.mpi_built, h.ddl_built, h.ccl_built, h.cuda_built, h.rocm_built, h.mpi_enabled):
        assert isinstance(built(), bool)
    assert isinstance(h.nccl_built(), int)
    try:
        h.mpi_threads_supported()
    except ValueError:
        pass
    path = str(Path(tempfile.mkdtemp()) / "timeline.json")
    h.start_timeline(file_path=path, mark_cycles=True)
    h.allreduce(tensor=torch.ones(2), average=None, name="timed", compression=h.Compression.none)
    h.stop_timeline()
    assert h.counters()["collectives"] > 0
    h.progress(1, steps=2, epoch=0, samples=32)
    h.stacks()
    assert issubclass(h.TensorMismatchError, h.HorovodInternalError)


def reductions(h: Names) -> None:
    ones = torch.ones(4)
    assert h.allreduce(tensor=ones, name="a", compression=h.Compression.fp16, **REDUCE).eq(2).all()
    assert h.synchronize(h.allreduce_async(tensor=ones, name="b", **REDUCE)).eq(2).all()
    assert h.allreduce_(tensor=ones.clone(), name="c", **REDUCE).eq(2).all()
    assert h.synchronize(handle=h.allreduce_async_(tensor=ones.clone(), name="d", **REDUCE)).eq(2).all()
    pair = [ones, torch.ones(2)]
    for result in (
        h.grouped_allreduce(tensors=pair, name="e", compression=h.Compression.none, **REDUCE),
        h.synchronize(h.grouped_allreduce_async(tensors=pair, name="f", **REDUCE)),
        h.grouped_allreduce_(tensors=[t.clone() for t in pair], name="g", **REDUCE),
        h.synchronize(h.grouped_allreduce_async_(tensors=[t.clone() for t in pair], name="h", **REDUCE)),
    ):
        assert [t.tolist() for t in result] == [[2.0] * 4, [2.0] * 2]
    for op, expected in ((h.Average, 1.5), (h.Min, 1.0), (h.Max, 2.0), (h.Product, 2.0)):
        assert h.allreduce(torch.full((3,), h.rank() + 1.0), op=op).eq(expected).all()
    assert h.allreduce(torch.tensor([3.0, 4.0]), op=h.Adasum).tolist() == [3.0, 4.0]
    scattered = h.reducescatter(tensor=ones, name="r", compression=h.Compression.none, **REDUCE)
    assert scattered.tolist() == [2.0, 2.0]
    assert h.synchronize(h.reducescatter_async(tensor=ones, name="s", **REDUCE)).tolist() == [2.0, 2.0]
    for result in (
        h.grouped_reducescatter(tensors=pair, name="t", compression=h.Compression.none, **REDUCE),
        h.synchronize(h.grouped_reducescatter_async(tensors=pair, name="u", **REDUCE)),
    ):
        assert [t.tolist() for t in result] == [[2.0, 2.0], [2.0]]
    sparse = torch.sparse_coo_tensor(torch.tensor([[h.rank()]]), torch.ones(1), (2,), check_invariants=True)
    done = h.sparse_allreduce_async(tensor=sparse, name="v", op=h.Average, process_set=GLOBAL)
    assert done().to_dense().tolist() == [0.5, 0.5]
    assert h.metric.get_global_mean(value=float(h.rank()), name="mean", process_set=GLOBAL) == 0.5


def exchanges(h: Names) -> None:
    rank = h.rank()
    mine = torch.full((rank + 1,), float(rank))
    gathered = [0.0, 1.0, 1.0]
    assert h.allgather(tensor=mine, name="a", process_set=GLOBAL).tolist() == gathered
    assert h.synchronize(h.allgather_async(tensor=mine, name="b", process_set=GLOBAL)).tolist() == gathered
    for result in (
        h.grouped_allgather(tensors=[mine, mine], name="c", process_set=GLOBAL),
        h.synchronize(h.grouped_allgather_async(tensors=[mine, mine], name="d", process_set=GLOBAL)),
    ):
        assert [t.tolist() for t in result] == [gathered, gathered]
    root = {"root_rank": 1, "process_set": GLOBAL}
    one = torch.full((2,), float(rank))
    assert h.broadcast(tensor=one, name="e", **root).eq(1).all()
    assert h.synchronize(h.broadcast_async(tensor=one, name="f", **root)).eq(1).all()
    assert h.broadcast_(tensor=one.clone(), name="g", **root).eq(1).all()
    assert h.synchronize(h.broadcast_async_(tensor=one.clone(), name="h", **root)).eq(1).all()
    received, splits = h.alltoall(tensor=one, splits=torch.tensor([1, 1]), name="i", process_set=GLOBAL)
    assert received.tolist() == [0.0, 1.0] and splits.tolist() == [1, 1]
    received, splits = h.synchronize(h.alltoall_async(tensor=one, splits=None, name="j", process_set=GLOBAL))
    assert received.tolist() == [0.0, 1.0] and splits.tolist() == [1, 1]
    other = 1 - rank
    message = {"tag": 7, "process_set": GLOBAL}
    h.send(tensor=one, dest=other, **message)
    assert h.synchronize(h.send_async(tensor=one + 5, dest=other, **message)) is None
    assert h.recv(tensor=received, source=other, **message) == other and received.eq(other).all()
    assert h.synchronize(h.recv_async(tensor=received, source=None, **message)) == other
    assert received.eq(other + 5).all()
    h.barrier(process_set=GLOBAL)
    handle = h.allreduce_async(one, name="k")
    assert h.wait(handle=handle, timeout=30.0).eq(0.5).all() and h.poll(handle=handle)
    assert asyncio.run(_awaited(h)).eq(0.5).all()
    assert h.broadcast_object(obj={"rank": rank}, root_rank=1, name="l", process_set=GLOBAL) == {"rank": 1}
    assert h.allgather_object(obj=rank, name="m", process_set=GLOBAL) == [0, 1]
    if rank == 0:
        h.allreduce(tensor=one, name="alone")
    assert h.join(device=-1) == 0


async def _awaited(h: Names) -> torch.Tensor:
    return await h.wait_async(handle=h.allreduce_async(torch.full((2,), float(h.rank())), name="awaited"))


def process_sets(h: Names) -> None:
    assert h.Sum == 1 and h.global_process_set.size() == 2 and h.global_process_set.rank() == h.rank()
    added = h.add_process_set(process_set=h.ProcessSet(ranks_or_comm=[1]))
    assert added.included() == (h.rank() == 1) and added.size() == 1
    if h.rank() == 1:
        assert h.allreduce(torch.ones(2), op=h.Sum, process_set=added).eq(1).all()
    assert h.remove_process_set(process_set=added) is True


def training(h: Names) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), h.SyncBatchNorm(num_features=4), torch.nn.Linear(4, 1))
    model = h.convert_sync_batchnorm(module=model, process_set=GLOBAL)
    h.broadcast_parameters(params=model.state_dict(), root_rank=0, process_set=GLOBAL)
    optimizer = h.DistributedOptimizer(
        optimizer=torch.optim.Adam(model.parameters()),
        named_parameters=model.named_parameters(),
        compression=h.Compression.none,
        backward_passes_per_step=1,
        op=h.Average,
        gradient_predivide_factor=1.0,
        groups=None,
        sparse_as_dense=False,
        process_set=GLOBAL,
    )
    h.broadcast_optimizer_state(optimizer=optimizer, root_rank=0, model=model, process_set=GLOBAL)
    loss = model(torch.randn(8, 3)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    assert math.isfinite(loss.item())
    total = h.allreduce(next(model.parameters()).detach(), op=h.Average)
    assert torch.allclose(total, next(model.parameters()))


def elastic_training(h: Names) -> None:
    model = torch.nn.Linear(1, 1)
    sampler = h.elastic.ElasticSampler(dataset=range(8), shuffle=False, seed=0)
    state = h.elastic.TorchState(model=model, optimizer=None, sampler=sampler, seen=0)

    def train(given: hvd.elastic.TorchState) -> int:
        for number, _ in enumerate(sampler):
            sampler.record_batch(batch_idx=number, batch_size=1)
            given.seen += 1
            given.commit()
        return given.seen

    batches = h.elastic.ElasticBatches(8, batch_size=4, largest=1, shuffle=False, seed=0, drop_last=True)
    assert [len(part.indices) for part in batches.parts()] == [1] * 4
    assert batches.passes == 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scale = h.elastic.LearningRateScale(optimizer, ranks=1, rule="sqrt", warmup_steps=0)
    optimizer.step()
    assert math.isclose(scale.factor, math.sqrt(2))
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert issubclass(h.elastic.CheckpointError, Exception)
    options = {"every_commits": 1, "every_seconds": None, "keep": 1, "allow_pickle": False}
    decorated = h.elastic.run(checkpoint_dir=tempfile.mkdtemp(), **options)
    assert decorated(train)(state) == 4


def searching(h: Names) -> None:
    def objective(trial: Any) -> float:
        if trial.number == 1:
            raise h.TrialPruned
        return trial.suggest_float("x", 0.0, 1.0)

    options = {"trials": 2, "ranks_per_trial": 2, "storage": f"{tempfile.mkdtemp()}/journal", "seed": 0}
    if importlib.util.find_spec("optuna") is None:
        with pytest.raises(ImportError, match="optuna"):
            h.search(objective, **options)
        assert issubclass(h.TrialPruned, Exception)
    else:
        states = [trial["state"] for trial in h.search(objective, **options).trials]
        assert states == ["COMPLETE", "PRUNED"]


def test_every_public_name_does_what_it_says(run_ranks) -> None:
    assert run_ranks(2, ranks_call_everything, env=ENVIRONMENT) == [[], []]
