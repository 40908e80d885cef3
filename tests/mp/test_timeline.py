"""Timelines of real jobs: the schema, every phase, one clock for all ranks, sudden ends."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import timeline_schema

from horovod.runner import timeline

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["plain", 'quo"ted', "back\\slash", "grün €🙂", "tab\tnew\nline\x01", "layer.0/weight:0", "x" * 600]
STEPS = 4


def rank_train() -> None:
    import torch

    import horovod.torch as hvd

    hvd.init()
    for step in range(STEPS):
        handles = [hvd.allreduce_async(torch.ones(100), name=name, op=hvd.Sum) for name in NAMES]
        assert all(float(hvd.synchronize(handle)[0]) == hvd.size() for handle in handles)
        hvd.grouped_allreduce([torch.ones(3), torch.ones(4)], name="group")
        hvd.broadcast(torch.ones(3), 0)  # without a name
        if step == 0:
            with pytest.raises(ValueError):
                hvd.allreduce(torch.ones(2 + hvd.rank()), name="mismatched")
    hvd.barrier()
    hvd.shutdown()


def row_of(name: str) -> str:
    return "allreduce." + name[:512]


def phases(events: list[timeline.Event]) -> list[str]:
    return [event["name"] for event in events if event["ph"] == "B"]


def test_every_rank_writes_its_own_and_they_merge_on_one_clock(run_ranks, tmp_path: Path) -> None:
    env = {"HOROVOD_TIMELINE": str(tmp_path / "t.{rank}.json"), "HOROVOD_TIMELINE_MARK_CYCLES": "1"}
    run_ranks(2, rank_train, env=env)
    files = [tmp_path / f"t.{rank}.json" for rank in range(2)]
    for rank, file in enumerate(files):
        of = timeline_schema.rows(timeline_schema.load(file))
        for name in NAMES:
            once = ["NEGOTIATE_ALLREDUCE", "QUEUE", "ALLREDUCE"]
            assert phases(of[rank, row_of(name)]) == once * STEPS, name
            shown = [e["args"] for e in of[rank, row_of(name)] if "args" in e]
            assert shown == [{"bytes": 400, "dtype": "float32", "shape": [100]}] * (2 * STEPS)
        began = next(event for event in of[rank, "allreduce.group"] if event["ph"] == "B")
        assert began["args"] == {"bytes": 28, "dtype": "float32", "tensors": 2}
        assert phases(of[rank, "allreduce.group"]) == ["NEGOTIATE_ALLREDUCE", "QUEUE", "ALLREDUCE"] * STEPS
        assert phases(of[rank, "unnamed"]).count("BROADCAST") == STEPS
        assert phases(of[rank, "allreduce.mismatched"]) == ["NEGOTIATE_ALLREDUCE", "QUEUE"]
        assert len([e for e in of[rank, "cycles"] if e["name"] == "CYCLE_START"]) >= STEPS

    merged = tmp_path / "merged.json"
    command = [
        sys.executable,
        "-m",
        "horovod.runner.launch",
        "--merge-timelines",
        str(merged),
        *map(str, files),
    ]
    paths = os.pathsep.join(filter(None, [str(ROOT / "frameworks"), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    assert "ranks 0, 1" in done.stdout
    events = timeline_schema.load(merged)
    assert len(events) == sum(len(timeline_schema.load(file)) for file in files)
    processes = {
        e["pid"]: e["args"]["name"] for e in events if e["name" if "name" in e else "ph"] == "process_name"
    }
    assert processes == {0: "rank 0", 1: "rank 1"}
    of = timeline_schema.rows(events)
    for name in NAMES:
        submitted, ended = (
            [[e["ts"] for e in of[rank, row_of(name)] if e["ph"] == ph][at::3] for rank in range(2)]
            for ph, at in (("B", 0), ("E", 2))
        )
        for step in range(STEPS):  # nobody's sum is complete before everybody has brought a summand
            assert max(s[step] for s in submitted) <= min(e[step] for e in ended), name
    assert 0 <= min(e["ts"] for e in events if "ts" in e) < max(e["ts"] for e in events if "ts" in e) < 120e6


def rank_send() -> None:
    import torch

    import horovod.torch as hvd

    hvd.init()
    other = 1 - hvd.rank()
    for count in (1, 300_000):
        if hvd.rank() == 0:
            hvd.send(torch.ones(count), other, tag=5)
            hvd.recv(torch.zeros(count))
        else:
            hvd.recv(torch.zeros(count), other, tag=5)
            hvd.send(torch.ones(count), other)
    hvd.barrier()
    hvd.shutdown()


@pytest.mark.parametrize("wiring", ["shm", "tcp"])
def test_messages_have_rows_of_their_own(run_ranks, tmp_path: Path, wiring: str) -> None:
    env = {"HOROVOD_TIMELINE": str(tmp_path / "t.{rank}.json"), "HOROVOD_TRANSPORT": wiring}
    run_ranks(2, rank_send, env=env)
    for rank in range(2):
        of = timeline_schema.rows(timeline_schema.load(tmp_path / f"t.{rank}.json"))
        sent = of[rank, f"send to rank {1 - rank}"]
        received = of[rank, "recv from any rank" if rank == 0 else "recv from rank 0"]
        assert phases(sent) == ["WAIT_SEND", "SEND"] * 2 and phases(received) == ["WAIT_RECV", "RECV"] * 2
        shown = [event["args"] for event in sent if "args" in event]
        assert [(one["bytes"], one["tag"]) for one in shown[::2]] == [
            (4, 0 if rank else 5),
            (1_200_000, 0 if rank else 5),
        ]


def rank_start_and_stop(folder: str) -> None:
    import torch

    import horovod.torch as hvd

    with pytest.raises(ValueError):
        hvd.start_timeline(f"{folder}/early.json")
    hvd.init()
    hvd.allreduce(torch.ones(1), name="before")
    for number in range(2):
        hvd.start_timeline(f"{folder}/{number}.json", mark_cycles=number == 1)
        hvd.start_timeline(f"{folder}/other.json")  # nothing: one is active
        hvd.barrier()
        hvd.allreduce(torch.ones(1), name=f"in.{number}")
        hvd.barrier()
        hvd.stop_timeline()
    hvd.stop_timeline()
    hvd.allreduce(torch.ones(1), name="after")
    hvd.shutdown()


def test_timelines_start_and_stop_while_running(run_ranks, tmp_path: Path) -> None:
    folder = tmp_path / "timelines"
    folder.mkdir()
    run_ranks(2, rank_start_and_stop, [str(folder)], env={"HOROVOD_TIMELINE": "DYNAMIC"})
    assert sorted(file.name for file in folder.iterdir()) == ["0.json", "1.json"]
    for number in range(2):
        events = timeline_schema.load(folder / f"{number}.json")
        of = timeline_schema.rows(events)
        assert {pid for pid, _ in of} == {0}
        assert phases(of[0, f"allreduce.in.{number}"]) == ["NEGOTIATE_ALLREDUCE", "QUEUE", "ALLREDUCE"]
        # The other rank may have submitted "after" already.
        assert not phases(of.get((0, "allreduce.before"), []))
        assert not phases(of.get((0, "allreduce.after"), []))
        assert bool(of[0, "cycles"]) == (number == 1)


_ENDLESS = """
import torch
import horovod.torch as hvd
hvd.init()
print("up", flush=True)
while True:
    for handle in [hvd.allreduce_async(torch.ones(8), name=f"layer.{n}") for n in range(300)]:
        hvd.synchronize(handle)
"""


@pytest.mark.full  # the tests of the core kill writers, too
def test_a_killed_process_leaves_whole_json(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    paths = os.pathsep.join(filter(None, [str(ROOT / "frameworks"), os.environ.get("PYTHONPATH", "")]))
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "HOROVOD_TIMELINE": str(path)}
    process = subprocess.Popen([sys.executable, "-c", _ENDLESS], env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    time.sleep(1 + random.Random(5).random())
    process.send_signal(signal.SIGKILL)
    process.wait()
    events = json.loads(path.read_text())
    timeline_schema.check(events, complete=False)
    assert len(phases(timeline_schema.rows(events)[0, "allreduce.layer.299"])) > 3


NAMED = {"ph": "M", "pid": 0, "tid": 2, "name": "thread_name", "args": {"name": "a"}}
BEGIN = {"ph": "B", "ts": 1.5, "pid": 0, "tid": 2, "name": "ALLREDUCE"}
END = {"ph": "E", "ts": 2.5, "pid": 0, "tid": 2}


@pytest.mark.parametrize(
    "events",
    [
        [BEGIN, END],
        [NAMED, BEGIN],
        [NAMED, END],
        [NAMED, BEGIN, BEGIN, END, END],
        [NAMED, BEGIN, {**END, "ts": 1.0}],
        [NAMED, {**BEGIN, "ts": "1.5"}, END],
        [NAMED, {k: v for k, v in BEGIN.items() if k != "name"}, END],
        [{**NAMED, "args": {}}, BEGIN, END],
        [NAMED, {**BEGIN, "stray": 1}, END],
    ],
)
def test_the_schema_can_fail(events: list[timeline.Event]) -> None:
    timeline_schema.check([NAMED, BEGIN, END])
    with pytest.raises((AssertionError, KeyError)):
        timeline_schema.check(events)
