"""Tries learning rates for scikit-learn's handwritten digits by Ray Tune: each trial is a job of two ranks.

    python examples/ray/learning_rates.py --trials 6 --plot rates.png

It starts a cluster on this machine, or uses the one of RAY_ADDRESS. Ends with a table of the trials, and with
--plot draws their accuracy against the learning rate. A trial that fails, for example because its loss
is NaN, does not affect the others.
"""

import argparse
import math
import tempfile
from pathlib import Path

import ray
import torch
from ray import tune
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import horovod.torch as hvd
from horovod.ray import RayExecutor, ray_logger

RANKS = 2


def train(epochs: int, rate: float) -> None:
    """What each rank runs."""
    hvd.init()
    torch.manual_seed(1)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    own = slice(hvd.rank(), None, hvd.size())
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for epoch in range(epochs):
        for images, labels in zip(x[own].split(32), y[own].split(32), strict=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        loss = hvd.allreduce(loss.detach())
        if not math.isfinite(loss):
            raise ValueError(f"the loss is {loss:g} after epoch {epoch}")
        accuracy = hvd.allreduce((model(x[own]).argmax(1) == y[own]).float().mean())
        ray_logger.log({"epoch": epoch, "loss": float(loss), "accuracy": float(accuracy)})


def trial(config: dict) -> None:
    """What each trial runs."""
    executor = RayExecutor(RayExecutor.create_settings(), num_workers=RANKS)
    executor.start()
    try:
        executor.run(train, [config["epochs"], config["rate"]], callbacks=[tune.report])
    finally:
        executor.shutdown()


def draw(rates: list[float], accuracies: list[float], path: str) -> None:
    """Accuracy against the learning rate."""
    from matplotlib.figure import Figure

    axes = Figure(layout="constrained").add_subplot(
        xscale="log", xlabel="learning rate", ylabel="accuracy after the last epoch", ylim=(0, 1)
    )
    axes.plot(rates, accuracies, "o-")
    axes.grid(alpha=0.3)
    axes.figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--plot", help="draw a picture, such as rates.png")
    args = parser.parse_args()

    ray.init()
    ratio = 10 ** (4 / max(args.trials - 1, 1))  # from 0.001 to 10
    rates = [0.001 * ratio**number for number in range(args.trials)]
    bundles = tune.PlacementGroupFactory([{"CPU": 0}, *[{"CPU": 1}] * RANKS])
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(trial, bundles),
            param_space={"rate": tune.grid_search(rates), "epochs": args.epochs},
            run_config=tune.RunConfig(storage_path=str(Path(folder)), verbose=0),
        )
        results = sorted(tuner.fit(), key=lambda result: result.config["rate"])
    print(f"\n{'learning rate':>13}  {'loss':>8}  {'accuracy':>8}")
    for result in results:
        reported = result.metrics or {}
        if result.error:
            print(f"{result.config['rate']:13.4f}  failed: {str(result.error).strip().splitlines()[-1]}")
        else:
            print(f"{result.config['rate']:13.4f}  {reported['loss']:8.4f}  {reported['accuracy']:8.1%}")
    well = [result for result in results if not result.error]
    if args.plot:
        draw([r.config["rate"] for r in well], [r.metrics["accuracy"] for r in well], args.plot)
        print(f"drawn in {args.plot}")


if __name__ == "__main__":
    main()
