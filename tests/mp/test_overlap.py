"""Communication overlaps the backward pass: the timeline shows it."""

import json
from pathlib import Path

import torch

import horovod.torch as hvd

STEPS = 40


def ranks_train() -> None:
    """A few training steps of a deep MLP, for the timeline to show."""
    hvd.init()
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(16)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    data = torch.randn(128, 512)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    hvd.shutdown()


def test_the_first_allreduce_of_a_step_starts_before_the_last_gradient_exists(
    run_ranks, tmp_path: Path
) -> None:
    path = tmp_path / "timeline.json"
    run_ranks(2, ranks_train, env={"HOROVOD_TIMELINE": str(path)})
    events = json.loads(path.read_text())
    names = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    submitted: dict[str, list[int]] = {}
    started: dict[str, list[int]] = {}
    # A gradient waits at a gate instead of negotiating once the job has learned its schedule.
    phases = {
        "NEGOTIATE_ALLREDUCE": submitted,
        "GATE_ALLREDUCE": submitted,
        "ALLREDUCE": started,
    }
    for event in events:
        times = phases.get(event.get("name"))
        if times is not None and event["ph"] == "B":
            times.setdefault(names[event["tid"]], []).append(event["ts"])
    assert len(submitted) == 32
    assert all(len(times) == STEPS for times in [*submitted.values(), *started.values()])
    first_allreduce = [min(times[step] for times in started.values()) for step in range(STEPS)]
    last_gradient = [max(times[step] for times in submitted.values()) for step in range(STEPS)]
    overlapped = sum(first < last for first, last in zip(first_allreduce, last_gradient, strict=True))
    # A rank that gets no CPU during the other's backward pass leaves nothing to overlap with:
    # on a busy machine that may be most of the steps.
    assert overlapped >= 3, f"{overlapped} of {STEPS} steps"
