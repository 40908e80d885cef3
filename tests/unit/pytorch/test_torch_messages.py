"""send and recv of torch tensors, on the fake core, where each message comes back to its sender."""

import pytest
import torch

import horovod.torch as hvd


@pytest.fixture
def job(core):
    core.size = 3
    return core


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5)])
def test_a_message_fills_the_tensor_of_its_receive(job, dtype, shape):
    sent = torch.randint(0, 2, shape).to(dtype)
    received = torch.zeros(shape, dtype=dtype)
    assert hvd.send(sent, dest=2, tag=4) is None
    assert hvd.recv(received, source=2, tag=4) == 2
    assert received.equal(sent)


def test_tensors_need_not_be_contiguous(job):
    sent = torch.arange(12.0).reshape(3, 4).t()
    received = torch.zeros(3, 4).t()
    hvd.send(sent, 1)
    assert hvd.recv(received) == 1
    assert received.equal(sent)


def test_handles_are_like_others(job):
    sent, received = torch.arange(6.0), torch.zeros(6)
    sending = hvd.send_async(sent, 1, tag=-3)
    assert hvd.synchronize(sending) is None
    receiving = hvd.recv_async(received, tag=-3)
    assert hvd.wait(receiving, timeout=10) == 1
    assert hvd.poll(receiving) and received.equal(sent)


def test_wrong_arguments_are_found_before_anything_is_sent(job):
    x = torch.zeros(2)
    for call in (hvd.send, hvd.send_async, hvd.recv, hvd.recv_async):
        for rank in (3, -1):
            with pytest.raises(ValueError, match=f"is {rank}, but the job has the ranks 0 to 2"):
                call(x, rank)
        with pytest.raises(ValueError, match=r"from -2\*\*62 to"):
            call(x, 0, tag=1 << 62)
        with pytest.raises(TypeError):
            call(x, 0, tag="a")
        with pytest.raises(TypeError, match=r"torch\.Tensor"):
            call([1.0], 0)
        with pytest.raises(TypeError, match="ProcessSet"):
            call(x, 0, process_set=3)
    with pytest.raises(ValueError, match="share memory"):
        hvd.recv(torch.zeros(1).expand(4), 0)
    assert job.requests == []
