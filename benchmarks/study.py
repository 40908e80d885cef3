"""A search of hyper-parameters by teams of a job, beside the same search trial by trial.

    python benchmarks/study.py --trials 20

A trial is a small training of 2 ranks that waits for data before each step. The job has 2 ranks, then 4,
which are two teams. Prints the seconds of both, with the start of PyTorch and without, and whether they found
the same.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

STEPS, WAIT, TEAM = 20, 0.15, 2


def objective(trial: Any) -> float:
    """How far the steps come down a bowl of 1,000 dimensions."""
    import torch

    import horovod.torch as hvd

    torch.set_num_threads(1)
    own = np.random.default_rng(trial.process_set.rank())
    weights = torch.from_numpy(np.random.default_rng(7).normal(size=1000)).requires_grad_()
    rate = trial.suggest_float("rate", 1e-3, 2.0, log=True)
    momentum = trial.suggest_float("momentum", 0.0, 0.95)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weights], lr=rate, momentum=momentum),
        named_parameters=[("weights", weights)],
        process_set=trial.process_set,
    )
    for step in range(STEPS):
        time.sleep(WAIT)  # for data
        optimizer.zero_grad()
        batch = torch.from_numpy(own.normal(size=1000))
        (0.5 * (weights - 0.1 * batch).square().sum()).backward()
        optimizer.step()
        trial.report(float(weights.detach().square().sum()), step)
    return float(weights.detach().square().sum())


def rank(trials: int) -> None:
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.optim.SGD([torch.zeros(1, requires_grad=True)]).step()  # which imports half of PyTorch
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = hvd.search(objective, trials, TEAM, storage=str(Path(folder) / "journal"), seed=7)
        if hvd.rank() == 0:
            found = [result.best_value, [trial["params"] for trial in result.trials]]
            print(json.dumps([time.monotonic() - begun, found]), flush=True)


def study(ranks: int, trials: int) -> tuple[float, float, Any]:
    """Seconds of the job, of the search in it, and what it has found."""
    begun = time.monotonic()
    program = [sys.executable, __file__, "--rank", "--trials", str(trials)]
    command = [str(Path(sys.executable).with_name("horovodrun")), "-np", str(ranks), *program]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    (line,) = (line for line in done.stdout.splitlines() if ">:[" in line)
    return (time.monotonic() - begun, *json.loads(line.partition(">:")[2]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        rank(args.trials)
        return
    alone, alone_search, expected = study(TEAM, args.trials)
    together, together_search, found = study(2 * TEAM, args.trials)
    for name, one, two in ("job", alone, together), ("search", alone_search, together_search):
        print(f"{name}: trial by trial {one:.1f} s, two teams {two:.1f} s: {two / one:.0%}")
    same = "the same" if found == expected else "not the same"
    print(f"best value {expected[0]:.6g} and {found[0]:.6g}; the parameters of all trials are {same}")


if __name__ == "__main__":
    main()
