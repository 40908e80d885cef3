"""Loaders that read ahead: every batch once and in order, no thread left, errors where they belong."""

import gc
import itertools
import os
import signal
import threading
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from load import within

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader, read_ahead


class Numbers(BaseDataLoader):
    def __init__(self, count, fails_at=None):
        self.count = count
        self.fails_at = fails_at
        self.was_read = 0

    def __len__(self):
        return self.count

    def _iterate(self):
        for number in range(self.count):
            if number == self.fails_at:
                raise OSError(f"cannot read {number}")
            self.was_read += 1
            yield number

    def _process_batch(self, batch):
        return batch, threading.current_thread()


class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "horovod-read-ahead"]


@settings(deadline=None, max_examples=30)
@given(count=st.integers(0, 40), limit=st.integers(-1, 5), passes=st.integers(1, 3))
def test_every_batch_comes_once_and_in_order(count, limit, passes):
    loader = AsyncNumbers(limit, False, count)
    for _ in range(passes):
        seen = list(loader)
        assert [batch for batch, _ in seen] == list(range(count))
        assert {thread for _, thread in seen} <= {threading.main_thread()}
    assert len(loader) == count
    assert threads() == []


def test_no_more_is_read_ahead_than_asked_for():
    loader = AsyncNumbers(3, count=100)
    batches = iter(loader)
    next(batches)
    deadline = time.monotonic() + 5
    while loader.was_read < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert loader.was_read == 5  # one is given, three wait, one is in the thread's hand
    batches.close()
    assert threads() == []


def test_what_reading_raises_comes_behind_the_batches_before():
    batches = iter(AsyncNumbers(8, count=9, fails_at=4))
    assert [batch for batch, _ in itertools.islice(batches, 4)] == [0, 1, 2, 3]
    with pytest.raises(OSError, match="cannot read 4"):
        next(batches)
    assert threads() == []


def test_a_pass_that_is_left_ends_its_thread_and_the_next_is_whole():
    loader = AsyncNumbers(2, count=50)
    for batch, _ in loader:
        if batch == 3:
            break
    gc.collect()
    assert threads() == []
    assert [batch for batch, _ in loader] == list(range(50))


def test_two_passes_at_the_same_time_do_not_share_batches():
    loader = AsyncNumbers(2, count=20)
    assert [(a, b) for (a, _), (b, _) in zip(loader, loader, strict=True)] == [(n, n) for n in range(20)]


def test_closing_ends_a_pass():
    loader = AsyncNumbers(2, count=50)
    batches = iter(loader)
    next(batches)
    loader.close_async_loader()
    assert threads() == [] and list(batches) == []
    loader.close_async_loader()


def test_a_stuck_reader_does_not_keep_the_program(monkeypatch):
    monkeypatch.setattr(read_ahead, "PATIENCE", 0.1)
    go_on = threading.Event()
    ahead = read_ahead.ReadAhead(lambda: iter([go_on.wait(30)]), 1)
    start = time.monotonic()
    ahead.close()
    assert time.monotonic() - start < 5 and list(ahead) == []
    go_on.set()


def test_a_forked_child_has_no_part_in_a_pass_but_may_begin_its_own():
    loader = AsyncNumbers(2, count=50)
    batches = iter(loader)
    next(batches)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork where there are threads
        child = os.fork()
    if child == 0:
        status = 1
        try:
            loader.close_async_loader()
            whole = [batch for batch, _ in loader] == list(range(50))
            next(batches)
        except RuntimeError as error:
            status = 0 if whole and "was forked within a pass" in str(error) else 2
        finally:
            os._exit(status)
    deadline = time.monotonic() + within(20)
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.05)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
    assert [batch for batch, _ in batches] == list(range(1, 50))


def test_how_long_the_program_waited_is_told(capsys):
    list(AsyncNumbers(2, True, 5))
    said = capsys.readouterr().err
    assert said.startswith("AsyncNumbers: 5 batches; the program waited 0."), said
    assert len(said.splitlines()) == 1
