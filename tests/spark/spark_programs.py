"""What ranks run in the tests of horovod.spark."""

import os
import sys
import time


def identity(greeting):
    """Who the rank is, by the library and by the environment."""
    from horovod.common import basics as hvd

    hvd.init()
    print(f"{greeting} from rank {hvd.rank()}", flush=True)
    print(f"rank {hvd.rank()} complains", file=sys.stderr)
    numbers = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
    return numbers, dict(os.environ), os.getpid()


def trains(steps):
    """A small training with PyTorch; returns the parameters, which are those of all ranks."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(hvd.rank())
    x = torch.randn(32, 4)
    model = torch.nn.Linear(4, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        loss.backward()
        optimizer.step()
    return loss.item(), [parameter.tolist() for parameter in model.parameters()]


def exchanges():
    """Collectives, one after the other, until something ends them."""
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import objects

    hvd.init()
    print(f"pid {os.getpid()} is there", flush=True)
    while True:
        objects.allgather_object(bytes(1000))
        time.sleep(0.01)


def fails(culprit):
    """One rank raises while the others go on."""
    from horovod.common import basics as hvd

    hvd.init()
    if hvd.rank() == culprit:
        raise ZeroDivisionError("planted")
    exchanges()


def raises(error):
    """Raises it."""
    raise error


def of_a_class_that_only_ranks_have(fails):
    """Raises or returns what the driver cannot read."""
    import only_there

    print("it goes wrong")
    if fails:
        raise only_there.Odd("a message")
    return only_there.Odd()


def trains_until(path):
    """Trains as long as there is no such file; prints who is there in each generation, and each step that was
    committed before and is done again.
    """
    from horovod import elastic
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import objects
    from horovod.elastic.decorator import run_with

    hvd.init()

    @run_with()
    def loop(state):
        print(f"pid {os.getpid()} is there", flush=True)
        while not objects.broadcast_object(os.path.exists(path), root_rank=0):
            there = objects.allgather_object(os.getpid())
            time.sleep(0.02)
            state.step += 1
            print(f"step {state.step} of {len(there)} ranks at {time.time()} with {there}", flush=True)
            state.commit()
        return hvd.rank(), hvd.size(), state.step

    return loop(elastic.ObjectState(objects.broadcast_object, hvd.rank, step=0))


def reads_and_joins(store, dataset):
    """An epoch of this rank's rows with an operation in each step; returns the rows and the steps."""
    import torch

    import horovod.torch as hvd
    from horovod.spark.common.reader import Batches

    hvd.init()
    options = {"filesystem": store.filesystem, "rank": hvd.rank(), "size": hvd.size(), "shuffle": True}
    batches = Batches(dataset.train_path, list(dataset.columns.values()), 5, equal="join", **options)
    rows, steps = [], 0
    for batch in batches.epoch():
        rows += batch["id"].tolist()
        hvd.allreduce(torch.from_numpy(batch["x"]).sum(), name=f"step {steps}")
        steps += 1
    hvd.join()
    return rows, steps


def doubling():
    """A model for transform that gives each feature twice its value."""
    return lambda features: [2 * values for values in features]
