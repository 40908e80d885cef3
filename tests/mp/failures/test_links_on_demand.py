"""A rank that another one wants its first link to, and that has died, is stopped, has left, or forks."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from load import within

import horovod.torch as hvd

HOSTS = [0, 0, 1, 2, 2, 2]
# No first rank of a host: at the start there is no control link between them.
SENDER, VICTIM = 1, 4


def sockets() -> int:
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
        except OSError:
            continue  # that of the list
    return found


def out_of_all_collectives(folder: Path) -> None:
    """Ends when every rank has called it; not by a collective, which might still run elsewhere."""
    (folder / str(hvd.rank())).touch()
    while len(list(folder.iterdir())) < hvd.size():
        time.sleep(0.01)


def ranks_want_one_that(fails: str, folder: str) -> str:
    before = sockets()
    hvd.init()
    pids = hvd.allgather(torch.tensor([os.getpid()])).tolist()
    out_of_all_collectives(Path(folder))
    text = "no error"
    if hvd.rank() == VICTIM:
        if fails == "leaves":
            hvd.shutdown()
            return text
        os.kill(os.getpid(), signal.SIGKILL if fails == "dies" else signal.SIGSTOP)
    began = time.monotonic()
    try:
        if hvd.rank() == SENDER:
            time.sleep(0.2)
            hvd.send(torch.ones(3), VICTIM)
            hvd.synchronize(hvd.recv_async(torch.ones(3), VICTIM))
        else:
            hvd.recv(torch.ones(3), SENDER)
    except hvd.HorovodInternalError as error:
        text = str(error)
    assert time.monotonic() < began + within(15)
    if fails == "stops" and hvd.rank() == SENDER:
        os.kill(pids[VICTIM], signal.SIGKILL)
    hvd.shutdown()
    assert not any(thread.name == "hvd-links" for thread in threading.enumerate())
    assert sockets() == before
    return text


@pytest.mark.parametrize(
    ("fails", "why"), [("dies", "died"), ("stops", "has not responded for"), ("leaves", "has left the job")]
)
def test_it_is_named_on_every_rank(run_ranks, fails: str, why: str, tmp_path: Path) -> None:
    dies = [] if fails == "leaves" else [VICTIM]
    env = {"HOROVOD_STOPPED_TIMEOUT_SECONDS": "6"}
    texts = run_ranks(6, ranks_want_one_that, [fails, str(tmp_path)], hosts=HOSTS, dies=dies, env=env)
    for rank, text in enumerate(texts):
        assert rank == VICTIM or (f"rank {VICTIM}" in text and why in text), (rank, text)


def ranks_send_and_leave() -> int:
    """What rank 0 gets, which comes late to messages that are complete at their senders."""
    hvd.init()
    hvd.barrier()
    total = 0
    if hvd.rank() == 0:
        time.sleep(0.3)
        for _ in range(hvd.size() - 1):
            received = torch.zeros(1)
            hvd.recv(received)
            total += int(received.item())
    else:
        hvd.send(torch.tensor([10.0 ** (hvd.rank() - 1)]), 0)
    hvd.shutdown()
    return total


def test_a_small_message_arrives_although_its_sender_leaves_at_once(run_ranks) -> None:
    assert run_ranks(6, ranks_send_and_leave, hosts=HOSTS)[0] == 11111


def ranks_fork_and_send() -> list[int]:
    """How many sockets a child has, and what its parent gets from all others afterwards."""
    hvd.init()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"%d" % sockets())
        os._exit(0)
    os.waitpid(child, 0)
    held = int(os.read(reading, 16))
    got = hvd.alltoall(torch.full((hvd.size(),), float(hvd.rank()))).tolist()
    sent = [
        hvd.send_async(torch.tensor([hvd.rank()]), peer) for peer in range(hvd.size()) if peer != hvd.rank()
    ]
    for peer in range(hvd.size()):
        if peer != hvd.rank():
            received = torch.tensor([-1])
            hvd.recv(received, peer)
            assert received.item() == peer
    for handle in sent:
        hvd.synchronize(handle)
    return [held, *map(int, got)]


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_a_child_holds_no_socket_and_all_links_can_still_be_made(run_ranks, transport: str) -> None:
    results = run_ranks(6, ranks_fork_and_send, hosts=HOSTS, env={"HOROVOD_TRANSPORT": transport})
    assert results == [[results[0][0], *range(6)]] * 6
    assert results[0][0] <= 1  # that of the tests themselves
