"""What ranks run in the tests of horovod.ray: without a framework, so that they start quickly."""

import itertools
import os
import signal
import subprocess
import sys
import time

NODE = {"num_cpus": 2, "object_store_memory": 80_000_000}
"""The arguments of ``Cluster.add_node``."""


def identity():
    """Who the rank is, by the library and by the environment."""
    from horovod.common import basics as hvd

    hvd.init()
    print(f"rank {hvd.rank()} says something", flush=True)
    print(f"rank {hvd.rank()} complains", file=sys.stderr)
    numbers = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
    return numbers, os.getpid(), dict(os.environ)


def logged(step):
    """Tells the driver something."""
    from horovod.ray import ray_logger

    ray_logger.log({"step": step, "by": os.environ["HOROVOD_RANK"]})
    ray_logger.log({"rank": os.environ["HOROVOD_RANK"]}, chief_only=False)
    print("without a newline", end="")


class Unreadable:
    """Can be sent, and not be read."""

    def __reduce__(self):
        return int, ("no number",)


def logs_unreadable():
    """Tells the driver something that it does not understand."""
    from horovod.ray import ray_logger

    ray_logger.log({"value": Unreadable()})
    return "returned"


def arrays(count):
    """An array that only this rank makes."""
    import numpy

    return numpy.full(count, int(os.environ["HOROVOD_RANK"]), numpy.float32)


def exchange(seconds=30.0):
    """Collectives, one after the other."""
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import objects

    hvd.init()
    end = time.monotonic() + seconds
    steps = 0
    while objects.broadcast_object(time.monotonic() < end, root_rank=0):
        objects.allgather_object(bytes(1000))
        steps += 1
    return steps


def fails(how, culprit, others="exchange"):
    """One rank fails while the others go on."""
    from horovod.common import basics as hvd

    if how != "start":
        hvd.init()
    if int(os.environ["HOROVOD_RANK"]) == culprit:
        time.sleep(0.5)
        print("my last words", flush=True)
        if how == "raise":
            raise ZeroDivisionError("planted")
        time.sleep(0.2)  # for them to be heard
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
    if others == "sleep":
        time.sleep(60)
    return exchange()


def raises_early():
    """Rank 1 raises; the other learns of it later, and goes on for a while."""
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import objects

    hvd.init()
    objects.allgather_object(0)
    if hvd.rank() == 1:
        raise ZeroDivisionError("planted")
    time.sleep(0.5)
    try:
        objects.allgather_object(1)
    finally:
        time.sleep(1.2)


def child():
    """Leaves a process behind."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]).pid


class Model:
    """An executable."""

    def __init__(self, weight, bias=0):
        self.weight, self.bias = weight, bias

    def rank(self):
        """Uses what the library knows."""
        from horovod.common import basics as hvd

        hvd.init()
        return self.weight * hvd.rank() + self.bias


def train_until(path):
    """Trains as long as there is no such file; tells the driver of each step, and of who is there."""
    from horovod import elastic
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import objects
    from horovod.elastic.decorator import run_with
    from horovod.ray import ray_logger

    hvd.init()

    @run_with()
    def loop(state):
        while not objects.broadcast_object(os.path.exists(path), root_rank=0):
            there = objects.allgather_object((os.environ["HOROVOD_HOSTNAME"], os.getpid()))
            time.sleep(0.02)
            ray_logger.log({"step": state.step, "there": there, "time": time.time()})
            state.step += 1
            state.commit()
        return hvd.rank(), hvd.size(), state.step, os.environ.get("MY_VARIABLE")

    return loop(elastic.ObjectState(objects.broadcast_object, hvd.rank, step=0))


def reduces(floats):
    """Allreduces, one after the other, until something ends them; tells the driver of the first."""
    import torch

    import horovod.torch as hvd
    from horovod.ray import ray_logger

    torch.set_num_threads(1)
    hvd.init()
    data = torch.ones(floats)
    hvd.allreduce(data, op=hvd.Sum)
    ray_logger.log({"there": [os.getpid()]})
    while True:
        hvd.allreduce(data, op=hvd.Sum)


def starts(seconds):
    """Joins the others; rank 0 does not."""
    from horovod.common import basics as hvd

    if int(os.environ["HOROVOD_RANK"]) == 0:
        time.sleep(seconds)
    hvd.init()


SAMPLES = 400  # of an epoch


def train_samples(path, floats):
    """Epochs until there is such a file. Each step allreduces so many floats, and takes a few samples of each
    rank, which the state keeps; tells the driver of each step. Returns how often each sample was taken in
    each epoch that is complete.
    """
    from collections import Counter

    import torch

    import horovod.torch as hvd
    from horovod.ray import ray_logger

    print(f"pid {os.getpid()} starts", flush=True)
    torch.set_num_threads(1)
    hvd.init()
    data = torch.ones(floats)
    sampler = hvd.elastic.ElasticSampler(range(SAMPLES), uneven="keep")

    @hvd.elastic.run
    def loop(state):
        there = hvd.allgather_object(os.getpid())
        while True:
            left = iter(sampler)
            while any(taken := hvd.allgather_object(list(itertools.islice(left, 2)))):
                hvd.allreduce(data, op=hvd.Sum)
                state.taken = state.taken + list(itertools.chain(*taken))
                sampler.record_batch(0, 2)
                state.step += 1
                state.commit()
                ray_logger.log({"step": state.step, "there": there, "time": time.time()})
            state.epochs = [*state.epochs, sorted(Counter(state.taken).items())]
            state.taken, state.epoch = [], state.epoch + 1
            sampler.set_epoch(state.epoch)
            state.commit()
            if hvd.broadcast_object(os.path.exists(path), root_rank=0):
                return state.epochs

    return loop(hvd.elastic.TorchState(sampler=sampler, step=0, epoch=0, taken=[], epochs=[]))
