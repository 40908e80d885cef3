"""Several ranks write one checkpoint: it is complete when all have, and nobody waits for one that is gone."""

import os
import threading
import time

import numpy as np
import pytest

from horovod.elastic.checkpoint import layout, plain, writer
from horovod.elastic.checkpoint.folder import opened
from horovod.elastic.checkpoint.formats import ArrayFormat, Pieces
from horovod.elastic.checkpoint.notes import dealt
from horovod.elastic.checkpoint.reader import newest
from horovod.elastic.checkpoint.writer import Task, Writer

SIZE = 1 << 17  # numbers: a MiB


@pytest.fixture
def folder(tmp_path):
    with opened(str(tmp_path)) as place:
        yield place


class Rank:
    def __init__(self, folder, rank, ranks):
        self.rank, self.ranks, self.said = rank, ranks, []
        self.writer = Writer(folder, self.said.append)
        self.arrays = {f"array {number}": np.full(SIZE, float(number)) for number in range(5)}

    def task(self, number, **changes):
        pieces = Pieces([ArrayFormat()])
        document = {"value": plain.encode(self.arrays, "value", pieces.set_aside)}
        share = dealt(pieces.sizes, self.ranks)[self.rank]
        values = {
            "name": layout.writing_name(number, "ab"),
            "commit": number,
            "rank": self.rank,
            "writers": tuple(range(self.ranks)),
            "document": document,
            "pieces": {name: pieces.found[name] for name in share},
            "names": pieces.found.keys(),
        }
        return Task(**{**values, **changes})


def ranks_of(folder, count):
    return [Rank(folder, rank, count) for rank in range(count)]


def check(folder, commit):
    found = newest(folder, [ArrayFormat()], pytest.fail)
    assert found.manifest.commit == commit
    value = found.value("value", False)
    assert [array.tolist() == [float(number)] * SIZE for number, array in enumerate(value.values())] == [
        True
    ] * 5
    return found


@pytest.mark.parametrize("count", [1, 2, 3])
def test_all_write_a_part(folder, count):
    ranks = ranks_of(folder, count)
    for number in (1, 2):
        for each in reversed(ranks):
            each.writer.start(each.task(number))
        assert all(each.writer.wait(20) and not each.said for each in ranks)
        found = check(folder, number)
        names = sorted(file.name for file in found.manifest.files)
        assert names == ["state.json", *(f"tensors-{rank}.npz" for rank in range(count))]
        assert sorted(os.listdir(os.path.join(folder.path, found.name))) == ["manifest.json", *names]


def test_a_rank_that_is_gone_costs_this_checkpoint_alone(folder):
    zero, one = ranks_of(folder, 2)
    for each in (zero, one):
        each.writer.start(each.task(1))
    assert zero.writer.wait(20) and one.writer.wait(20)
    zero.writer.start(zero.task(2))  # the other one has died
    time.sleep(0.1)
    assert zero.writer.is_busy
    zero.writer.abandon("another checkpoint", layout.writing_name(1, "ab"))
    time.sleep(0.1)
    assert zero.writer.is_busy
    zero.writer.abandon("the ranks have started again")
    assert zero.writer.wait(20) and zero.said == [] and zero.writer.failed == layout.writing_name(2, "ab")
    assert layout.complete(folder.names()) == [layout.complete_name(1)]
    check(folder, 1)
    one.writer.start(one.task(2))  # it was only slow
    assert one.writer.wait(20)
    for each in (zero, one):
        each.writer.start(each.task(3))
    assert zero.writer.wait(20) and one.writer.wait(20)
    check(folder, 3)
    assert not [name for name in folder.names() if name.startswith("writing")]


def test_a_rank_that_is_silent_is_waited_for_no_longer_than_a_time(folder, monkeypatch):
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 0.2)
    zero = ranks_of(folder, 2)[0]
    zero.writer.run(zero.task(1))
    assert "rank 1 did not write its part" in zero.said[0] and len(zero.said) == 1
    zero.writer.run(zero.task(2))
    assert len(zero.said) == 1 and folder.names() == []


def test_ranks_with_other_tensors_make_no_checkpoint(folder):
    zero, one = ranks_of(folder, 2)
    del one.arrays["array 3"]
    threads = [threading.Thread(target=each.writer.run, args=(each.task(1),)) for each in (zero, one)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "the ranks hold different tensors" in zero.said[0]
    assert layout.complete(folder.names()) == []


def test_without_a_thread_there_is_no_checkpoint_and_a_warning(folder, monkeypatch):
    zero = ranks_of(folder, 1)[0]

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for number in (1, 2):
            zero.writer.start(zero.task(number))
            assert not zero.writer.is_busy and zero.writer.wait(1)
    assert len(zero.said) == 1 and "can't start new thread" in zero.said[0]
    zero.writer.start(zero.task(3))
    assert zero.writer.wait(20)
    check(folder, 3)


@pytest.mark.parametrize("point", ["_write_part", "_extend_history", "_check_names", "_await_parts"])
def test_an_error_at_any_point_leaves_nothing_complete(folder, monkeypatch, point):
    zero = ranks_of(folder, 1)[0]
    zero.writer.run(zero.task(1))
    folder.new_folder(layout.writing_name(9, "ab")).close()  # left by another; it takes room, too

    def fail(*_):
        raise OSError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(writer, point, fail)
        zero.writer.run(zero.task(2))
    assert len(zero.said) == 1 and "broken" in zero.said[0]
    assert layout.unfinished(folder.names()) == []
    check(folder, 1)
    zero.writer.run(zero.task(3))
    check(folder, 3)
