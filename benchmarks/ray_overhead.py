"""What ``horovod.ray`` costs: the time until the first collective beyond Ray's own start of actors, and a
training step beside the same step under horovodrun.

    python benchmarks/ray_overhead.py --rounds 5

Rounds alternate: plain actors of Ray, until each has answered once; an executor, from ``start()`` until its
ranks have been through a collective; a training by horovodrun, and the same by an executor. Prints the median
and the range of each.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", OMP_NUM_THREADS="1")

BATCH, WIDTH, STEPS, WARM_UP = 32, 512, 300, 50
PAUSE = 2.0  # seconds, in which Ray ends the actors that were there before


class Actor:
    def there(self) -> int:
        return os.getpid()


def first_collective() -> float:
    """When this rank has been through one."""
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import objects

    hvd.init()
    objects.allgather_object(hvd.rank())
    return time.time()


def step_milliseconds() -> float:
    """The median of a training step of an MLP of three layers, in PyTorch."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    layers = [layer for _ in range(3) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    x = torch.randn(BATCH, WIDTH)
    took = []
    for _ in range(STEPS):
        begun = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        took.append(time.perf_counter() - begun)
    return 1000 * statistics.median(took[WARM_UP:])


def seconds_of_actors(ranks: int) -> float:
    import ray

    time.sleep(PAUSE)
    begun = time.time()
    actors = [ray.remote(Actor).options(num_cpus=1).remote() for _ in range(ranks)]
    ray.get([actor.there.remote() for actor in actors])
    ended = time.time()
    for actor in actors:
        ray.kill(actor)
    return ended - begun


def seconds_of_executor(ranks: int) -> float:
    time.sleep(PAUSE)
    executor, begun = _executor(ranks), time.time()
    executor.start()
    ended = max(executor.run(first_collective))
    executor.shutdown()
    return ended - begun


def step_by_ray(ranks: int) -> float:
    executor = _executor(ranks)
    executor.start()
    took = max(executor.run(step_milliseconds))
    executor.shutdown()
    return took


def step_by_horovodrun(ranks: int) -> float:
    command = [str(Path(sys.executable).with_name("horovodrun")), "-np", str(ranks), sys.executable, __file__]
    done = subprocess.run([*command, "--rank"], stdout=subprocess.PIPE, text=True, check=True)
    return max(json.loads(line.partition(">:")[2]) for line in done.stdout.splitlines())


def _executor(ranks: int):
    from horovod.ray import RayExecutor

    return RayExecutor(RayExecutor.create_settings(), num_workers=ranks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--actors", type=int, default=4, help="of which the start is measured")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        print(json.dumps(step_milliseconds()), flush=True)
        return
    import ray

    ray.init(num_cpus=args.actors, include_dashboard=False, log_to_driver=False)
    kinds = {
        f"{args.actors} actors of Ray [s]": lambda: seconds_of_actors(args.actors),
        f"{args.actors} ranks, to their first collective [s]": lambda: seconds_of_executor(args.actors),
        "step of 2 ranks, horovodrun [ms]": lambda: step_by_horovodrun(2),
        "step of 2 ranks, RayExecutor [ms]": lambda: step_by_ray(2),
    }
    found = {kind: [] for kind in kinds}
    for at in range(args.rounds + 1):
        for kind, measure in kinds.items():
            value = measure()
            if at > 0:  # the first warms up
                found[kind].append(value)
    for kind, values in found.items():
        print(f"{statistics.median(values):8.3f}  {min(values):.3f} to {max(values):.3f}  {kind}")


if __name__ == "__main__":
    main()
