"""What goes wrong with an operation, in any framework: every rank is told what and by whom, and goes on."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from framework import Framework

KINDS = ["shape", "dtype", "reduction", "factor", "root", "gather", "group", "op"]


def disagree(framework: Framework, kind: str) -> Any:
    """One that the ranks do not call alike."""
    hvd, ones, rank = framework.hvd, framework.ones, framework.hvd.rank()
    name = f"other_{kind}"
    if kind == "shape":
        return hvd.allreduce(ones(4 + rank), name=name)
    if kind == "dtype":
        return hvd.allreduce(framework.tensor(np.ones(4, np.float64 if rank else np.float32)), name=name)
    if kind == "reduction":
        return hvd.allreduce(ones(4), op=hvd.Max if rank else hvd.Sum, name=name)
    if kind == "factor":
        return hvd.allreduce(ones(4), prescale_factor=1.0 + rank, name=name)
    if kind == "root":
        return hvd.broadcast(ones(4), root_rank=rank % 2, name=name)
    if kind == "gather":
        return hvd.allgather(ones(2, 1 + rank), name=name)
    if kind == "group":
        return hvd.grouped_allreduce([ones(4)] * (1 + rank), name=name)[0]
    return hvd.broadcast(ones(4), 0, name=name) if rank else hvd.allreduce(ones(4), name=name)


def check_works(framework: Framework) -> None:
    """The ranks can still compute together."""
    hvd = framework.hvd
    assert framework.array(hvd.allreduce(framework.ones(2), op=hvd.Sum)).tolist() == [hvd.size()] * 2


def ranks_disagree(framework: Framework) -> list[str]:
    """Returns the errors, by kind; after each the next operation works."""
    framework.hvd.init()
    texts = []
    for kind in KINDS:
        with pytest.raises(framework.disagreement) as caught:
            framework.array(disagree(framework, kind))
        texts.append(str(caught.value))
        check_works(framework)
    return texts


def check_texts(results: list[list[str]]) -> None:
    """Each names the tensor and the ranks, and all ranks are told the same."""
    for kind, *texts in zip(KINDS, *results, strict=True):
        for text in texts:
            assert f"other_{kind}" in text and "rank 0" in text, text
            assert "rank 1" in text or "ranks 1" in text, text
        # Without what a framework adds before and after it.
        told = {text[text.index("Mismatched") :].partition(" [Op:")[0] for text in texts}
        assert len(told) == 1, told


def check_own_mistakes(framework: Framework) -> None:
    """What this rank alone does wrong is told before or without the others, who hear nothing of it."""
    hvd, ones = framework.hvd, framework.ones
    mine = hvd.ProcessSet([1])
    hvd.init(process_sets=[mine])
    if hvd.rank() == 0:
        wrong = [
            (lambda: hvd.alltoall(ones(4), splits=[3, 3]), "splits"),
            (lambda: hvd.alltoall(ones(4), splits=[1, 1, 1]), "splits"),
            (lambda: hvd.alltoall(ones(4), splits=[-1, 1]), "negative"),
            (lambda: hvd.alltoall(ones(3)), "divisible"),
            (lambda: hvd.broadcast(ones(2), root_rank=7), "root"),
            (lambda: hvd.allreduce(ones(2), op=17), "op=17"),
            (lambda: hvd.allreduce(ones(2), op=hvd.Sum, average=True), "supersedes"),
            (lambda: hvd.allreduce(ones(2), process_set=mine), "not part of"),
            (lambda: hvd.allreduce(ones(2), process_set=hvd.ProcessSet([0, 1])), "not registered"),
            (lambda: hvd.allreduce("text"), ""),
        ]
        for call, said in wrong:
            with pytest.raises(framework.mistake, match=said):
                call()
        for scatter, given in ((hvd.reducescatter, ones(2)), (hvd.grouped_reducescatter, [ones(2)])):
            with pytest.raises(NotImplementedError, match="no Adasum"):
                scatter(given, op=hvd.Adasum)
    check_works(framework)
    received = hvd.alltoall(ones(4), splits=[2, 2])[0]
    assert framework.array(received).tolist() == [1.0] * 4


def check_objects(framework: Framework) -> None:
    """On three ranks: objects of any kind travel, from any root and over a set; one that cannot says so
    everywhere.
    """
    hvd = framework.hvd
    members = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[members])
    rank, size = hvd.rank(), hvd.size()
    for value in ({"a": [1, rank]}, None, "x" * 100_000, np.arange(rank + 1)):
        got = hvd.broadcast_object(value, root_rank=size - 1)
        wanted = {"a": [1, size - 1]} if isinstance(value, dict) else value
        if isinstance(value, np.ndarray):
            assert got.tolist() == list(range(size))
        else:
            assert got == wanted
    assert hvd.allgather_object(("rank", rank)) == [("rank", r) for r in range(size)]
    if members.included():
        assert hvd.allgather_object(rank, process_set=members) == members.ranks
    with pytest.raises(ValueError, match=f"rank {size - 1} cannot pickle"):
        hvd.broadcast_object((each for each in "no"), root_rank=size - 1)
    check_works(framework)


def rank_dies_in_a_loop(framework: Framework, folder: str) -> list[object]:
    """Rank 1 kills itself while the others compute with it. Returns when they learnt it, and the error."""
    hvd = framework.hvd
    hvd.init()

    def die() -> None:
        time.sleep(0.5)
        Path(folder, "killed").write_text(repr(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)

    if hvd.rank() == 1:
        threading.Thread(target=die, daemon=True).start()
    with pytest.raises(framework.gone) as caught:
        while True:
            framework.array(hvd.allreduce(framework.ones(1 << 16), name="in_the_loop"))
    seen = time.time()
    with pytest.raises(framework.gone, match="rank 1"):  # and so do the next ones
        framework.array(hvd.allreduce(framework.ones(2)))
    return [seen, str(caught.value)]
