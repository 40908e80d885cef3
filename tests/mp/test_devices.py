"""Tensors of an accelerator, which a rank without one plays: each is staged through host memory."""

import pytest
import torch

import horovod.torch as hvd
from horovod.torch.operations import ops
from horovod.torch.placements import on_devices


def on_an_accelerator(function, *arguments, **options):
    """Calls ``function`` as if its tensors were in the memory of an accelerator."""
    describe, place, place_group = ops._describe, ops.glue.place, ops.glue.place_group
    ops._describe = lambda tensor: None
    ops.glue.place = lambda tensor, result, purpose: on_devices([tensor], result, purpose)[0]
    ops.glue.place_group = on_devices
    try:
        return function(*arguments, **options)
    finally:
        ops._describe, ops.glue.place, ops.glue.place_group = describe, place, place_group


def calls(name):
    """The operations, by name; each starts and returns a handle."""
    return {
        "allreduce": lambda: hvd.allreduce_async(torch.ones(3), name=name),
        "in place": lambda: hvd.allreduce_async_(torch.ones(3), name=name),
        "group": lambda: hvd.grouped_allreduce_async([torch.ones(3), torch.ones(2)], name=name),
        "allgather": lambda: hvd.allgather_async(torch.ones(3), name=name),
        "broadcast": lambda: hvd.broadcast_async(torch.ones(3), 0, name=name),
        "alltoall": lambda: hvd.alltoall_async(torch.ones(6), name=name),
        "reducescatter": lambda: hvd.reducescatter_async(torch.ones(6), name=name),
    }


def ranks_disagree_on_the_device():
    """Ranks 1 and 2 have an accelerator in every second step. Ends with what was said, by operation."""
    hvd.init()
    texts = {}
    for step in range(4):
        for kind, start in calls(f"tensor{step % 2}").items():
            differ, all_have = step % 2, step // 2
            has_one = hvd.rank() > 0 if differ else all_have
            handle = on_an_accelerator(start) if has_one else start()
            if differ:
                with pytest.raises(hvd.TensorMismatchError) as caught:
                    hvd.synchronize(handle)
                texts[kind] = str(caught.value)
            else:
                hvd.synchronize(handle)
    return texts


@pytest.mark.parametrize("wire", ["shm", "tcp"])
def test_a_tensor_on_other_devices_is_a_mismatch(run_ranks, wire):
    results = run_ranks(3, ranks_disagree_on_the_device, env={"HOROVOD_TRANSPORT": wire})
    assert results[0] == results[1] == results[2]
    assert list(results[0]) == list(calls(""))
    for text in results[0].values():
        assert "CPU/GPU device selection" in text
        assert "rank 0 sent a CPU tensor, ranks 1, 2 sent a GPU tensor" in text
