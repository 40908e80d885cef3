"""Process sets that share ranks, two at a time, make what a library needs for them at the same moment. Of ten
ranks; without a framework, so that these start fast.
"""

import array

import horovod.common.basics as hvd
from horovod import _core
from horovod.common.reduce_ops import Sum

# Both of a pair have one digest of their ranks, by FNV-1a modulo 32767: a tag that is made of it does not
# tell them apart.
PAIRS = (
    ([0, 7, 9], [0, 2, 6, 7]),
    ([1, 3, 4, 7], [1, 2, 3, 4, 8]),
    ([1, 2, 5, 6, 9], [1, 3, 4, 7, 9]),
    ([0, 1, 2, 3, 5, 6], [0, 1, 3, 5, 8, 9]),
    ([1, 7, 8, 9], [0, 2, 4, 5, 7, 8]),
    ([1, 4, 7, 8, 9], [1, 4, 5, 6, 7, 9]),
    ([0, 2, 5, 6, 8], [0, 1, 2, 3, 4, 8, 9]),
    ([2, 3, 4, 5, 7, 8], [0, 1, 2, 3, 5, 6, 9]),
    ([0, 4, 6, 7], [0, 1, 4, 5, 6, 7, 8]),
)


def start(process_set: hvd.ProcessSet) -> tuple[int, "array.array[float]", float]:
    """An allreduce, with its memory and what comes out."""
    numbers = array.array("f", [1.0] * 9)
    address, size = numbers.buffer_info()[0], len(numbers) * numbers.itemsize
    spec = (address, address, _core.DTYPES["float32"], (len(numbers),), size, size)
    handle = _core.submit(_core.ALLREDUCE, None, [spec], op=Sum, process_set=process_set.process_set_id)
    return handle, numbers, process_set.size()


pairs = [[hvd.ProcessSet(members) for members in pair] for pair in PAIRS]
hvd.init(process_sets=[each for pair in pairs for each in pair])
for pair in pairs:
    own = [each for each in pair if each.included()]
    if hvd.rank() % 2:
        own.reverse()
    _core.wait(_core.submit(_core.BARRIER, None, []))
    for handle, numbers, wanted in list(map(start, own)):
        _core.wait(handle)
        assert list(numbers) == [wanted] * len(numbers), numbers
print(f"rank {hvd.rank()} is done", flush=True)
hvd.shutdown()
