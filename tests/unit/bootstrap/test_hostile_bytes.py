"""Bytes and texts from outside, drawn at random and mutated: taken, or refused by the documented exception.

The parsers of the core have fuzz targets in tests/fuzz.
"""

import contextlib
import ipaddress
import json
import math
import pickle
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from horovod.bootstrap import identity, secret
from horovod.bootstrap.errors import AuthenticationError, BootstrapError
from horovod.bootstrap.network import endpoints
from horovod.bootstrap.network.auth import Acceptor, Connector, Role, Terms
from horovod.bootstrap.network.endpoints import _parse
from horovod.bootstrap.network.frames import Opener, Sealer
from horovod.bootstrap.store import messages as store_messages
from horovod.bootstrap.store import verdicts
from horovod.bootstrap.store.remarks import Remarks
from horovod.bootstrap.text import escaped, shown
from horovod.common.collective import objects
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import global_process_set
from horovod.runner import hosts, timeline
from horovod.runner.output import LinePrefixer, Tail

_SECRET = bytes(range(32))
_TERMS = Terms(Role.LAUNCHER, 3, -1, 7)
_SHORT = 1000  # characters of a refusal

many = settings(max_examples=400)
any_text = st.text(st.characters(), max_size=300) | st.sampled_from(["9" * 5000, "\ud800", "\x1b[2J\n", ""])


@st.composite
def mutated(draw: st.DrawFn, sound: bytes) -> bytes:
    """The sound bytes with a part replaced, cut out or repeated, or other bytes altogether."""
    begin = draw(st.integers(0, len(sound)))
    end = draw(st.integers(begin, len(sound)))
    middle = draw(st.binary(max_size=40) | st.just(sound[begin:end] * 2))
    return draw(st.binary(max_size=200) | st.just(sound[:begin] + middle + sound[end:]))


def refused(exceptions: type[BaseException], parse: Callable[[], object]) -> bool:
    """Whether it raises this, with a short text that steers no terminal; anything else fails the test."""
    try:
        parse()
    except exceptions as error:
        assert len(str(error)) < _SHORT and escaped(str(error), keeps_lines=True) == str(error)
        return True
    return False


@many
@given(st.data())
def test_an_acceptor_takes_only_a_proof_of_the_secret(data: st.DataObject) -> None:
    connector = Connector(_SECRET, _TERMS)
    acceptor = Acceptor(_SECRET, lambda terms: terms == _TERMS)
    hello = data.draw(mutated(connector.greeting()))[: acceptor.wanted()]
    with contextlib.suppress(AuthenticationError):
        challenge = acceptor.feed(hello)
        if challenge:
            acceptor.feed(data.draw(st.binary(min_size=acceptor.wanted(), max_size=acceptor.wanted())))
    assert acceptor.keys is None


@many
@given(st.data())
def test_a_connector_takes_only_a_proof_of_the_secret(data: st.DataObject) -> None:
    connector = Connector(_SECRET, _TERMS)
    acceptor = Acceptor(_SECRET, lambda terms: True)
    challenge = acceptor.feed(connector.greeting())
    answer = data.draw(mutated(challenge))[: connector.wanted()]
    if answer != challenge and not refused(AuthenticationError, lambda: connector.feed(answer)):
        assert len(answer) < len(challenge)
    assert connector.keys is None


@pytest.mark.parametrize("place", range(76))
def test_no_bit_of_a_challenge_can_be_changed(place: int) -> None:
    connector = Connector(_SECRET, _TERMS)
    challenge = bytearray(Acceptor(_SECRET, lambda terms: True).feed(connector.greeting()))
    assert len(challenge) == 76
    challenge[place] ^= 1
    with pytest.raises(AuthenticationError):
        connector.feed(bytes(challenge))


@pytest.mark.parametrize("value", [b"[" * 8000, b"[0, 0, [" + b'{"a":' * 1500, b"[1, 2, 3]", b"[", b"\xff"])
def test_what_is_no_remark_of_a_rank_is_refused(value: bytes) -> None:
    remarks = Remarks()
    assert remarks.take(0, b"", value) == "not a remark"
    assert remarks.lines(1) == []


@many
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4), st.data())
def test_only_sealed_frames_open_whatever_the_pieces(payloads: list[bytes], data: st.DataObject) -> None:
    sealer, opener = Sealer(_SECRET), Opener(_SECRET)
    sent = b"".join(map(sealer.seal, payloads))
    stream = data.draw(mutated(sent) | st.just(sent))
    cut = data.draw(st.integers(0, len(stream)))
    opened: list[bytes] = []
    for piece in (stream[:cut], stream[cut:]):
        try:
            opened += opener.feed(piece)
        except AuthenticationError:
            break
    assert opened == payloads[: len(opened)]
    if stream == sent:
        assert opened == payloads


@many
@given(st.sampled_from(store_messages.Tag), st.lists(st.binary(max_size=20), max_size=5), st.data())
def test_a_message_of_the_store_is_what_encode_makes(
    tag: store_messages.Tag, fields: list[bytes], data: st.DataObject
) -> None:
    payload = data.draw(mutated(store_messages.encode(tag, fields)))
    with contextlib.suppress(BootstrapError):
        assert store_messages.encode(*store_messages.decode(payload)) == payload


_numbers = st.integers(-3, 9).map(lambda number: b"%d" % number)


@many
@given(st.lists(_numbers | st.binary(max_size=12), min_size=4, max_size=6), st.binary(max_size=50))
def test_a_verdict_speaks_of_ranks_that_exist(fields: list[bytes], reason: bytes) -> None:
    verdict = None
    if not refused(BootstrapError, lambda: verdicts.from_fields(0, [*fields[:4], reason], 4)):
        verdict = verdicts.from_fields(0, [*fields[:4], reason], 4)
        assert all(rank is None or 0 <= rank < 4 for rank in (verdict.culprit, verdict.other))
    assert refused(BootstrapError, lambda: verdicts.from_fields(0, [*fields, reason, b""], 4))


@many
@given(any_text | st.from_regex(r"(unix:@|tcp:127\.0\.0\.1:|tcp:\[?::1)[^\n]{0,200}", fullmatch=True))
def test_an_address_is_a_name_or_numbers_or_refused(address: str) -> None:
    if not refused(BootstrapError, lambda: _parse(address)):
        host = address.removeprefix("tcp:").rpartition(":")[0].strip("[]").partition("%")[0]
        assert address.startswith("unix:@") or ipaddress.ip_address(host)


@pytest.mark.parametrize("address", ["tcp:127.0.0.1:" + "9" * 5000, "unix:@" + "x" * 500, "unix:@\udcff"])
def test_an_address_that_no_socket_can_have_is_refused(address: str) -> None:
    with pytest.raises(BootstrapError) as error:
        endpoints.connect(address, 1.0)
    assert len(str(error.value)) < _SHORT


@many
@given(st.lists(any_text | _numbers.map(bytes.decode), min_size=6, max_size=6))
def test_an_identity_is_sound_or_a_value_error(values: list[str]) -> None:
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    environ = {f"HOROVOD_{name}": value for name, value in zip(names, values, strict=True)}
    if not refused(ValueError, lambda: identity.from_environment(environ)):
        who = identity.from_environment(environ)
        assert 0 <= who.rank < who.size and 0 <= who.local_rank < who.local_size <= who.size


@many
@given(any_text.filter(lambda text: "\0" not in text), st.booleans())
@example("/proc/self/mem", True)  # opens and cannot be read
def test_a_secret_is_32_bytes_or_a_value_error(text: str, as_path: bool) -> None:
    name = secret.FILE_VARIABLE if as_path else secret.SECRET_VARIABLE
    with contextlib.suppress(UnicodeEncodeError):
        text.encode(errors="surrogateescape")  # what an environment can hold
        environ = {name: text}
        assert refused(ValueError, lambda: secret.take(environ))
        assert name not in environ


@many
@given(any_text | st.from_regex(r"((localhost|\[::1\]):[0-9]{1,7},?){1,3}", fullmatch=True))
def test_hosts_are_slots_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        found = hosts.parse(text)
        assert found and all(host.slots > 0 and host.name.isprintable() for host in found)


@many
@given(any_text, st.integers(1, 500))
def test_shown_text_is_short_and_harmless(text: str, times: int) -> None:
    short = shown(text * times)
    assert len(short) <= 200
    assert all(c.isprintable() for c in escaped(text))
    assert escaped(escaped(text)) == escaped(text)


@many
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_lines_of_a_rank_keep_their_bytes(pieces: list[bytes]) -> None:
    prefixer, tail = LinePrefixer("[3]<stdout>:"), Tail()
    out = b"".join(map(prefixer.feed, pieces)) + prefixer.take_rest()
    for piece in pieces:
        tail.feed(piece)
    whole = b"".join(pieces)
    lines = whole.split(b"\n")
    expected = b"\n".join(b"[3]<stdout>:" + line for line in lines[:-1]) + (b"\n" if len(lines) > 1 else b"")
    assert out == expected + (b"[3]<stdout>:" + lines[-1] if lines[-1] else b"")
    assert all(line.isprintable() and len(line) <= 80 for line in tail.lines(5, 80))


@many
@given(st.data())
def test_an_object_is_unpickled_only_under_its_mac(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("horovod.bootstrap.start.key_for", lambda purpose: _SECRET)
        payload = objects._PICKLED + pickle.dumps({"rank": 3})
        sealed = objects._mac(payload, 3, "it", global_process_set) + payload
        patch.setattr(objects, "_decode", lambda *_: pytest.fail("interpreted"))
        arrived = data.draw(mutated(sealed))
        if arrived != sealed:
            opened = partial(objects._opened, memoryview(arrived), 3, "it", global_process_set)
            assert refused(HorovodInternalError, opened)
        for sender, name in ((2, "it"), (3, "another"), (3, None)):
            opened = partial(objects._opened, memoryview(sealed), sender, name, global_process_set)
            assert refused(HorovodInternalError, opened)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
_clock = {"name": "boot", "now_us": 1.0, "wall_minus_now_us": 2.0}
_events = st.fixed_dictionaries(
    {"ph": st.sampled_from(["M", "i", "B"]), "name": st.sampled_from(["horovod_clock", "x"]) | _json},
    optional={"ts": _json, "pid": st.integers(0, 3) | _json, "args": st.just({"clock": _clock}) | _json},
)
_lines = st.lists(_events.map(json.dumps).map(str.encode) | st.binary(max_size=30), max_size=6)


def _merged(*lines: bytes) -> list[object] | None:
    """What merging a file of these lines writes; None where it is refused. Nothing is left then."""
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "one.json"), Path(folder, "all.json")
        clock = {"ph": "M", "pid": 0, "name": "horovod_clock", "args": {"clock": _clock}}
        source.write_bytes(b"[\n" + b",\n".join([json.dumps(clock).encode(), *lines]) + b"\n]\n")
        try:
            timeline.merge(output, [source])
        except timeline.TimelineError:
            assert [path.name for path in Path(folder).iterdir()] == ["one.json"]
            return None

        def no_constant(name: str) -> None:
            raise AssertionError(f"{name} is no JSON")

        events = json.loads(output.read_text(encoding="utf-8"), parse_constant=no_constant)
        assert isinstance(events, list)
        return events


@many
@given(_lines)
def test_a_merged_timeline_is_json_or_a_timeline_error(lines: list[bytes]) -> None:
    _merged(*lines)


@pytest.mark.parametrize(
    "line",
    [b'{"ph":"i","args":' + b"[" * depth + b"]" * depth + b"}" for depth in (900, 960, 980, 990, 5000)]
    + [b'{"ph":"i","args":1e999}', b'{"ph":"i","args":NaN}', b'{"ph":"i","name":"\xff"}', b"\xff" * 10],
)
def test_a_timeline_that_json_cannot_hold_is_no_timeline(line: bytes) -> None:
    _merged(line, line)


def test_a_rank_of_no_number_is_no_rank(tmp_path: Path) -> None:
    clock = {"ph": "M", "pid": math.inf, "name": "horovod_clock", "args": {"clock": _clock}}
    (tmp_path / "one").write_text(json.dumps(clock))
    with pytest.raises(timeline.TimelineError, match="does not tell its clock"):
        timeline.merge(tmp_path / "all", [tmp_path / "one"])
