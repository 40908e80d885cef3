"""horovod.run: calls, results and exceptions as bytes, and their way through the store."""

import contextlib
import io
import os
import random
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pytest

from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.store.client import StoreClient
from horovod.bootstrap.store.server import MEMORY_QUOTA, StoreServer
from horovod.bootstrap.store.verdicts import Kind as VerdictKind
from horovod.runner.call import packing, transfer
from horovod.runner.call.call import Outcome
from horovod.runner.call.transfer import Kind, Results

_SECRET = bytes(range(32))
_PART = transfer._PART_BYTES


class TwoWords(Exception):
    """Pickled with one argument, it cannot be made again."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(one + other)


@dataclass(frozen=True)
class Frozen(Exception):
    pass


def _raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def _through(error: BaseException) -> BaseException:
    data, _ = packing.error_bytes(_raised(error))
    return packing.read_error(memoryview(data), 3)


def test_a_call_comes_back_with_the_surroundings_of_the_caller(monkeypatch):
    offset, file = 5, io.BytesIO()
    monkeypatch.setattr(sys, "argv", ["program", "--of-the-caller"])
    monkeypatch.setattr(sys, "path", [*sys.path, "folder-of-the-caller"])
    packing.write_call(file, lambda x, y: x + y + offset, [1], {"y": 2})
    folder = os.path.abspath("folder-of-the-caller")
    monkeypatch.setattr(sys, "argv", ["worker"])
    monkeypatch.setattr(sys, "path", ["own"])
    function, arguments, keywords = packing.read_call(memoryview(file.getvalue()))
    assert function(*arguments, **keywords) == 8
    assert sys.argv == ["program", "--of-the-caller"]
    assert folder in sys.path and sys.path[-1] == "own"


def test_another_python_keeps_its_own_modules_first():
    assert packing._merged(["a", "b"], ["c", "a"], False) == ["c", "a", "b"]
    assert packing._merged(["a", "b"], ["c", "a"], True) == ["a", "b", "c"]


def test_another_version_of_python_is_named(monkeypatch):
    file = io.BytesIO()
    monkeypatch.setattr(packing, "_python", lambda: "cpython 2.7")
    packing.write_call(file, len, ["abc"], {})
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match=r"the caller of horovod\.run runs cpython 2\.7"):
        packing.read_call(memoryview(file.getvalue()))


def test_what_cannot_be_unpickled_names_the_module_and_the_remedy():
    data = packing._headed(asdict(packing.surroundings())) + b"cno_such_module\nname\n."
    with pytest.raises(RuntimeError, match=r"No module named 'no_such_module'.*register_pickle_by_value"):
        packing.read_call(memoryview(data))


def test_an_exception_comes_back_as_itself_with_the_remote_traceback():
    error = ValueError("wrong", 7)
    error.add_note("a note") if hasattr(error, "add_note") else None
    back = _through(error)
    assert type(back) is ValueError and back.args == ("wrong", 7)
    assert isinstance(back.__cause__, packing.RemoteTraceback) and back.__cause__.rank == 3
    where = f"on rank 3 (localhost, pid {os.getpid()})"
    assert str(back.__cause__).startswith(f"{where}:\n\nTraceback (most recent call last)")
    assert "in _raised" in str(back.__cause__)


def test_an_exception_that_lets_nobody_set_anything_comes_back_as_itself():
    back = _through(Frozen())
    assert type(back) is Frozen and back.__cause__.rank == 3


@pytest.mark.parametrize(
    "error", [TwoWords("can", "not"), RuntimeError(threading.Lock())], ids=["arguments", "lock"]
)
def test_an_exception_that_cannot_be_copied_is_told_by_its_text(error):
    back = _through(error)
    assert type(back) is RuntimeError
    assert str(back).startswith("rank 3: ") and str(error) in str(back)
    assert "Traceback" in str(back.__cause__)


def test_text_that_is_no_text_does_no_harm():
    back = _through(TwoWords("\udcff", "name"))
    assert "\\udcffname" in str(back)


@pytest.mark.parametrize("type_", [ValueError, TwoWords])
def test_a_text_that_nobody_reads_to_its_end_is_without_its_middle(type_):
    first, last = "begins so", "ends so"
    error = _raised(type_(first + 3_000_000 * "x", last))
    data, text = packing.error_bytes(error)
    back = packing.read_error(memoryview(data), 3)
    assert back.args == error.args if type_ is ValueError else len(str(back)) < 100_000
    for told in (text, str(back.__cause__)):
        assert "in _raised" in told and first in told and last in told and len(told) < 100_000
        assert re.search(r"\n\.\.\. \(29\d{5} characters are left out\) \.\.\.\n", told)


def test_a_result_that_cannot_be_pickled_names_its_type():
    with pytest.raises(RuntimeError, match="the function returned a generator that cannot be pickled"):
        packing.result_bytes(number for number in range(3))
    with pytest.raises(RuntimeError, match="cannot unpickle the result of rank 4"):
        packing.read_result(memoryview(b"nonsense"), 4)


def test_an_outcome_comes_back():
    outcome = Outcome(size=3, culprit=1, report="why", sent={2: (0, 0, 5), 0: (1, 5, 6)})
    assert Outcome.decoded(outcome.encoded()) == outcome
    assert list(Outcome.decoded(outcome.encoded()).sent) == [2, 0]
    assert Outcome.decoded(b"") == Outcome()


@pytest.fixture
def results() -> Iterator[tuple[StoreServer, Results, io.BufferedRandom]]:
    with transfer.nameless_file("test") as file:
        server = StoreServer(_SECRET, 4)
        taken = Results(file.fileno(), lambda note: None)
        taken.attach(server)
        yield server, taken, file
        server.close()


def _client(server: StoreServer, rank: int = 0) -> StoreClient:
    return StoreClient(server.address, _SECRET, rank, 0, 5.0)


@pytest.mark.parametrize("size", [0, 1, _PART, _PART + 1, 3 * _PART + 17])
def test_values_of_every_size_reach_all_ranks(results, size):
    server, _, _ = results
    value = random.randbytes(size)
    transfer.publish(server, memoryview(value))
    server.start()
    for rank in range(3):
        with _client(server, rank) as client:
            assert bytes(transfer.fetch(client)) == value


def test_a_value_may_be_larger_than_the_memory_of_the_store(results):
    server, taken, file = results
    value = random.randbytes(1 << 20) * ((MEMORY_QUOTA >> 20) + 3)
    transfer.publish(server, memoryview(value))
    server.start()
    with _client(server) as client:
        assert transfer.fetch(client) == value
        transfer.send(client, Kind.RESULT, value)
    region = taken.complete()[0]
    assert transfer.content(file.fileno())[region.offset :] == value


def test_results_of_ranks_that_send_together_do_not_mix(results):
    server, taken, file = results
    server.start()
    values = {rank: random.randbytes(rank * _PART + rank) for rank in range(4)}

    def send(rank: int) -> None:
        with _client(server, rank) as client:
            transfer.send(client, Kind.ERROR, b"an earlier one")
            transfer.send(client, Kind.RESULT, values[rank])

    threads = [threading.Thread(target=send, args=(rank,)) for rank in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent = transfer.content(file.fileno())
    complete = taken.complete()
    assert set(complete) == set(values)
    for rank, region in complete.items():
        assert region.kind == Kind.RESULT
        assert sent[region.offset : region.offset + region.size] == values[rank]


def test_a_result_that_was_cut_off_is_none(results):
    server, taken, _ = results
    server.start()
    with _client(server) as client:
        client.set("call/begin", b"0 10")
        client.set("call/part", b"12345")
    assert taken.complete() == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("call/begin", b"0 -1"),
        ("call/begin", b"2 1"),
        ("call/begin", b""),
        ("call/begin", b"0 " + b"9" * 30),
        ("call/part", b"x"),
        ("call/size", b"7"),
        ("call/function/part0", b"other code"),
    ],
)
def test_a_rank_cannot_change_the_function_nor_send_nonsense(results, key, value):
    server, taken, _ = results
    transfer.publish(server, memoryview(b"code"))
    server.start()
    with _client(server) as client:
        with pytest.raises(BootstrapError, match="refused"):
            client.set(key, value)
        assert bytes(transfer.fetch(client)) == b"code"
        with pytest.raises(BootstrapError):
            client.add("call/function/part0", 1)
    with _client(server) as client:
        assert bytes(transfer.fetch(client)) == b"code"
    assert taken.complete() == {}


def test_a_full_device_is_told(results):
    server, _, _ = results
    with open("/dev/full", "wb") as full:
        Results(full.fileno(), lambda note: None).attach(server)
        server.start()
        with _client(server) as client, pytest.raises(BootstrapError, match="no room for the results"):
            transfer.send(client, Kind.RESULT, b"something")


def test_sizes_beyond_all_memory_are_refused(results):
    """Their places would be no numbers for the system."""
    server, taken, _ = results
    server.start()
    with _client(server) as client:
        with pytest.raises(BootstrapError, match="no room for the results"):
            for _ in range(10):
                client.set("call/begin", b"0 %d" % (10**18 - 1))
                with contextlib.suppress(BootstrapError):  # the file takes no part at such a place
                    client.set("call/part", b"x")
        transfer.send(client, Kind.RESULT, b"")
    assert taken.complete()[0].size == 0


def test_sending_a_result_takes_back_no_verdict():
    server = StoreServer(_SECRET, 2)
    server.start()
    with StoreClient(server.address, _SECRET, 0, 1, 5.0) as engine:
        engine.blame([1], "it did not come")
        with _client(server) as client:
            client.set("key", b"value")
    assert [verdict.kind for verdict in server.verdicts([0], 5.0)] == [VerdictKind.ABSENT]
    server.close()
