"""A loop as in real training: mixed precision, accumulated and clipped gradients, a schedule, a moving
average of the weights, and a checkpoint after each epoch, from which it resumes.

    horovodrun -np 2 python examples/torch_real_loop.py --stop 3
    horovodrun -np 2 python examples/torch_real_loop.py

The second job goes on where the first one stopped, and ends with the same bits as one that never stopped.
"""

import argparse
import hashlib
import itertools
import os
import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd


def save(parts: dict, epoch: int, path: str) -> None:
    """Rank 0 writes for all. A job that dies meanwhile leaves the old file."""
    if hvd.rank() == 0:
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save({**state, "epoch": epoch}, path + ".new")
        os.replace(path + ".new", path)


def resume(parts: dict, path: str) -> int:
    """The epoch to go on with. Rank 0 reads, and all ranks get the same."""
    found = hvd.rank() == 0 and os.path.exists(path)
    state = torch.load(path, weights_only=True) if found else None
    state = hvd.broadcast_object(state, root_rank=0)
    if state is None:
        hvd.broadcast_parameters(parts["model"].state_dict(), root_rank=0)
        return 0
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return state["epoch"]


def digest(model: nn.Module) -> str:
    """Equal only if every bit of every parameter is."""
    data = b"".join(value.detach().cpu().numpy().tobytes() for value in model.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:12]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--stop", type=int, metavar="EPOCH", help="end so early, as if time was up")
    parser.add_argument("--accumulate", type=int, default=2, help="backward passes of a step")
    parser.add_argument("--checkpoint", default="real_loop.pt")
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(1)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", hvd.local_rank()) if on_gpu else torch.device("cpu")
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32).to(device) / 16, torch.tensor(labels).to(device)
    sampler = DistributedSampler(x, hvd.size(), hvd.rank(), drop_last=True)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, sampler=sampler, drop_last=True)
    passes = len(loader) // args.accumulate * args.accumulate

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002 * hvd.size())
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), backward_passes_per_step=args.accumulate
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    scaler = torch.amp.GradScaler(device.type)
    parts = {"model": model, "average": average, "optimizer": optimizer}
    parts |= {"schedule": schedule, "scaler": scaler}

    first = resume(parts, args.checkpoint)
    for epoch in range(first, args.stop or args.epochs):
        sampler.set_epoch(epoch)
        for number, (images, labels) in enumerate(itertools.islice(loader, passes), 1):
            with torch.autocast(device.type, dtype=torch.float16 if on_gpu else torch.bfloat16):
                loss = F.cross_entropy(model(images), labels) / args.accumulate
            scaler.scale(loss).backward()
            if number % args.accumulate:
                continue
            optimizer.synchronize()  # before gradients are changed: here they are unscaled and clipped
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            average.update_parameters(model)
        schedule.step()
        save(parts, epoch + 1, args.checkpoint)
        with torch.no_grad():
            accuracy = (average(x).argmax(1) == y).float().mean()
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}  accuracy of the averaged model {accuracy:.1%}")

    digests = set(hvd.allgather_object(digest(average)))
    if hvd.rank() == 0:
        print(f"began at epoch {first + 1}; the averaged model of every rank is {' and '.join(digests)}")
    return 0 if len(digests) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
