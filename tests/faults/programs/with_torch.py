"""What ranks do in the cases that need torch."""

import time

import plain
import torch
from plain import fault, right, told

import horovod.torch as hvd


def hook_that_raises() -> None:
    """A hook of rank 1 raises during backward."""
    hvd.init()
    model = torch.nn.Linear(4, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    for step in range(4):
        optimizer.zero_grad()
        loss = model(torch.ones(1, 4)).sum()
        if step == 3 and hvd.rank() == 1:
            fault()
            model.weight.register_hook(_raise)
        loss.backward()
        try:
            optimizer.step()
        except hvd.HorovodInternalError:
            told()
            raise
    time.sleep(60)


def _raise(gradient: torch.Tensor) -> None:
    raise LookupError("the hook of weight")


def spoiled_step(what: str) -> None:
    """After some steps something is wrong with the model of rank 1, which a check must find."""
    hvd.init()
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    for step in range(1, 20):
        optimizer.zero_grad()
        factor = float("nan") if (what, step, hvd.rank()) == ("nan", 4, 1) else 1.0
        (model(torch.ones(1, 4)).sum() * factor).backward()
        optimizer.step()
        if (what, step, hvd.rank()) == ("parameter", 4, 1):
            with torch.no_grad():
                model.bias[0] = torch.nextafter(model.bias[0], torch.tensor(1e9))
    print("nothing was found", flush=True)


def data_loader(batches: str) -> None:
    """Workers of a DataLoader, forked after init."""
    hvd.init()
    count = int(batches)
    loader = torch.utils.data.DataLoader(torch.arange(count * 2.0), batch_size=2, num_workers=8)
    total = torch.zeros(())
    for number, batch in enumerate(loader):
        total += batch.sum()
        if number % 100 == 0:
            assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name="step").eq(hvd.size()).all()
    assert hvd.allreduce(total.double(), name="total").item() == sum(range(count * 2))
    right()
    hvd.shutdown()


def shapes() -> None:
    """Tensors of every awkward form."""
    hvd.init()
    n = hvd.size()
    grid = torch.arange(24.0).reshape(4, 6)
    for name, tensor in {
        "empty": torch.zeros(0),
        "no rows": torch.zeros(0, 5),
        "scalar": torch.tensor(3.0),
        "transposed": grid.t(),
        "strided": grid[:, ::2],
        "expanded": torch.ones(1, 3).expand(4, 3),
        "bool": torch.tensor([True, False]),
    }.items():
        op = hvd.Max if tensor.dtype == torch.bool else hvd.Sum
        reduced = hvd.allreduce(tensor, op=op, name=name)
        assert reduced.equal(tensor if op == hvd.Max else tensor * n), name
    sparse = torch.sparse_coo_tensor([[1]], [2.0], (4,))
    try:
        hvd.allreduce(sparse, name="sparse")
        raise AssertionError("a sparse tensor was taken")
    except (TypeError, ValueError, NotImplementedError):
        pass
    right()
    hvd.shutdown()


def freed_early() -> None:
    """Tensors that the program forgets while they are in flight."""
    hvd.init()
    handles = [
        hvd.allreduce_async(torch.full((5000,), float(i)), op=hvd.Sum, name=f"t{i}") for i in range(200)
    ]
    waste = [torch.zeros(5000) for _ in range(200)]
    for number, handle in enumerate(handles):
        assert hvd.synchronize(handle).eq(float(number * hvd.size())).all()
    assert len(waste) == 200
    right()
    hvd.shutdown()


if __name__ == "__main__":
    plain.main(globals())
