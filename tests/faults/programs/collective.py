"""What ranks do in the cases of the layer "collective semantics"."""

import random
import resource
import time

import plain
from plain import Memory, allreduce, fault, right, start, steps

from horovod import _core
from horovod.common import basics as hvd
from horovod.common.exceptions import TensorMismatchError
from horovod.common.reduce_ops import Adasum, Average, Max, Sum


def _mismatch(rank: int, kind: int, memory: Memory, *expected: str, **options: object) -> None:
    """One operation that the ranks describe differently: an error that says how, and the next one works."""
    begin = time.monotonic()
    try:
        _core.run(kind, "odd", [memory.spec()], **options)
    except TensorMismatchError as error:
        text = str(error)
        assert "'odd'" in text, text
        for words in expected:
            assert words in text, f"{words!r} is not in: {text}"
    else:
        raise AssertionError("a mismatch was not found")
    print(f"rank {rank} learned it after {time.monotonic() - begin:.3f} s", flush=True)
    steps(1)


def shapes() -> None:
    """One rank, then half of the ranks, with another shape."""
    rank = start()
    _mismatch(
        rank,
        _core.ALLREDUCE,
        Memory(3 if rank == 1 else 4),
        "ranks 0, 2, 3 sent [4]",
        "rank 1 sent [3]",
        op=Sum,
    )
    _mismatch(
        rank, _core.ALLREDUCE, Memory(5 + rank % 2), "ranks 0, 2 sent [5]", "ranks 1, 3 sent [6]", op=Sum
    )
    right()
    hvd.shutdown()


def types() -> None:
    """One rank with another type."""
    rank = start()
    memory = Memory(4, dtype="float64" if rank == 2 else "float32")
    _mismatch(rank, _core.ALLREDUCE, memory, "rank 2 sent float64", "sent float32", op=Sum)
    right()
    hvd.shutdown()


def kinds() -> None:
    """Other operations, reductions and roots."""
    rank = start()
    odd = rank == 1
    _mismatch(rank, _core.BROADCAST if odd else _core.ALLREDUCE, Memory(4), "rank 1", op=Sum)
    for other in (Average, Max, Adasum):
        _mismatch(rank, _core.ALLREDUCE, Memory(4), "rank 1", op=other if odd else Sum)
    _mismatch(rank, _core.BROADCAST, Memory(4), "rank 1", root=1 if odd else 0)
    right()
    hvd.shutdown()


def factors() -> None:
    """Other factors, and groups of another size."""
    rank = start()
    odd = rank == 1
    _mismatch(rank, _core.ALLREDUCE, Memory(4), "rank 1", op=Sum, prescale=0.5 if odd else 1.0)
    _mismatch(rank, _core.ALLREDUCE, Memory(4), "rank 1", op=Sum, postscale=0.5 if odd else 1.0)
    parts = [Memory(4) for _ in range(3 if odd else 2)]
    try:
        _core.run(_core.ALLREDUCE, "group", [part.spec() for part in parts], op=Sum)
        raise AssertionError("a mismatch was not found")
    except TensorMismatchError as error:
        assert "rank 1" in str(error) and "'group'" in str(error), error
    right()
    hvd.shutdown()


def names() -> None:
    """Rank 1 spells a name differently: nobody can go on."""
    rank = start()
    fault()
    allreduce("layer1.weigth" if rank == 1 else "layer1.weight", Memory(4))


def skips() -> None:
    """Rank 1 leaves out a tensor."""
    rank = start()
    fault()
    for name in ("w3", "w4"):
        if not (rank == 1 and name == "w3"):
            allreduce(name, Memory(4))


def orders(rounds: str) -> None:
    """The same tensors in another order on every rank."""
    rank = start()
    dice = random.Random(1000 + rank)
    for _ in range(int(rounds)):
        order = list(range(8))
        dice.shuffle(order)
        tensors = {index: Memory(10 + index, float(index)) for index in order}
        handles = [_core.submit(_core.ALLREDUCE, f"t{i}", [m.spec()], op=Sum) for i, m in tensors.items()]
        for handle in handles:
            _core.wait(handle)
        assert all(memory.is_all(float(index * hvd.size())) for index, memory in tensors.items())
    right()
    hvd.shutdown()


def duplicate() -> None:
    """A name that is in flight already."""
    rank = start()
    first, second = Memory(4), Memory(4)
    if rank == 0:
        handle = _core.submit(_core.ALLREDUCE, "twice", [first.spec()], op=Sum)
        try:
            _core.submit(_core.ALLREDUCE, "twice", [second.spec()], op=Sum)
            raise AssertionError("a duplicate was taken")
        except ValueError as error:
            assert "'twice'" in str(error), error
        _core.wait(handle)
    else:
        time.sleep(0.3)
        allreduce("twice", first)
    assert first.is_all(hvd.size())
    steps(5)
    right()
    hvd.shutdown()


def many_names(count: str) -> None:
    """Names that are never used again."""
    start()
    total, tenth = int(count), int(count) // 10
    times, begin = [], time.monotonic()
    for number in range(total):
        allreduce(f"name {number}", Memory(1))
        if number % tenth == tenth - 1:
            times.append(time.monotonic() - begin)
            begin = time.monotonic()
            if number < 3 * tenth:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"grew by {grown:.1f} MiB; tenths took {[round(each, 2) for each in times]} s", flush=True)
    assert grown < 40 + 0.001 * total, f"{grown} MiB for {total} names"
    right()
    hvd.shutdown()


def join() -> None:
    """Uneven batches; then all join at once."""
    rank = start()
    for step in range(5 + 3 * rank):
        present = sum(step < 5 + 3 * other for other in range(hvd.size()))
        assert allreduce(f"batch {step}", Memory(10)).is_all(present), step
    [last] = _core.run(_core.JOIN, None, [])
    assert int.from_bytes(last.tobytes(), "little") == hvd.size() - 1, "another rank joined last"
    _core.run(_core.JOIN, None, [])
    steps(3)
    _core.run(_core.JOIN, None, [])
    right()
    hvd.shutdown()


def sets() -> None:
    """Overlapping process sets, one that a rank is not in, and one that is removed."""
    rank = start()
    first, second = _core.add_process_set([0, 1, 2]), _core.add_process_set([1, 2, 3])
    for number, members in ((first, (0, 1, 2)), (second, (1, 2, 3))):
        if rank in members:
            assert allreduce("of a set", Memory(10), process_set=number).is_all(3)
            continue
        try:
            allreduce("of a set", Memory(10), process_set=number)
            raise AssertionError("a rank took part in a set that it is not in")
        except ValueError as error:
            assert f"rank {rank}" in str(error) or "not part" in str(error) or "member" in str(error), error
    _core.remove_process_set(first)
    try:
        allreduce("of a set that is gone", Memory(10), process_set=first)
        raise AssertionError("a removed set was taken")
    except ValueError:
        pass
    steps(3)
    right()
    hvd.shutdown()


if __name__ == "__main__":
    plain.main(globals())
