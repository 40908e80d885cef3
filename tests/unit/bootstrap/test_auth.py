"""The handshake and the sealed frames, as state machines and over sockets."""

import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load import within

from horovod.bootstrap.errors import AuthenticationError, StartTimeoutError
from horovod.bootstrap.network.auth import Acceptor, Connector, Keys, Role, Terms, authenticate
from horovod.bootstrap.network.frames import MAX_PAYLOAD, Opener, Sealer

_SECRET = b"s" * 32
_TERMS = Terms(Role.DATA, 2, 1, 7)


def _exchange(connector: Connector, acceptor: Acceptor) -> list[bytes]:
    """Carries the frames across, a byte at a time; returns them."""
    frames = [connector.greeting()]
    sides: list[Connector | Acceptor] = [acceptor, connector]
    while frames[-1]:
        receiver = sides[(len(frames) + 1) % 2]
        answers = [receiver.feed(frames[-1][i : i + 1]) for i in range(len(frames[-1]))]
        assert not any(answers[:-1])
        frames.append(answers[-1])
    return frames[:-1]


def test_both_sides_get_the_same_keys_and_terms() -> None:
    connector, acceptor = Connector(_SECRET, _TERMS), Acceptor(_SECRET, lambda terms: True)
    frames = _exchange(connector, acceptor)
    assert isinstance(connector.keys, Keys) and isinstance(acceptor.keys, Keys)
    assert acceptor.terms == _TERMS
    assert connector.keys == Keys(acceptor.keys.receive, acceptor.keys.send)
    assert len({connector.keys.send, connector.keys.receive, _SECRET}) == 3
    assert all(len(frame) <= 256 for frame in frames)
    assert not any(_SECRET in frame or connector.keys.send in frame for frame in frames)


def test_nonces_are_fresh() -> None:
    runs = [(Connector(_SECRET, _TERMS), Acceptor(_SECRET, lambda terms: True)) for _ in range(2)]
    frames = [_exchange(*run) for run in runs]
    assert all(first != second for first, second in zip(*frames, strict=True))
    assert runs[0][0].keys != runs[1][0].keys


def test_wrong_secret_is_seen_by_the_side_that_dials_first() -> None:
    connector, acceptor = Connector(b"x" * 32, _TERMS), Acceptor(_SECRET, lambda terms: True)
    with pytest.raises(AuthenticationError, match="secret"):
        _exchange(connector, acceptor)
    assert connector.keys is None and acceptor.keys is None


@pytest.mark.parametrize("frame", [0, 1, 2, 3])
def test_every_changed_bit_is_refused(frame: int) -> None:
    for position in range(0, 60 if frame == 0 else 32, 5):
        with pytest.raises(AuthenticationError):
            _tampered_exchange(frame, position)


def _tampered_exchange(index: int, position: int) -> None:
    connector, acceptor = Connector(_SECRET, _TERMS), Acceptor(_SECRET, lambda terms: True)
    data, sides = connector.greeting(), [acceptor, connector]
    for step in range(4):
        if step == index:
            # Two bytes of the challenge are padding, so count from its end.
            changed = bytearray(data)
            changed[-1 - position] ^= 1
            data = bytes(changed)
        data = sides[step % 2].feed(data)


def test_reflected_and_replayed_proofs_are_refused() -> None:
    connector, acceptor = Connector(_SECRET, _TERMS), Acceptor(_SECRET, lambda terms: True)
    challenge = acceptor.feed(connector.greeting())
    with pytest.raises(AuthenticationError):
        acceptor.feed(challenge[-32:])
    frames = _exchange(Connector(_SECRET, _TERMS), Acceptor(_SECRET, lambda terms: True))
    again = Acceptor(_SECRET, lambda terms: True)
    again.feed(frames[0])
    with pytest.raises(AuthenticationError):
        again.feed(frames[2])


def test_policy_decides_before_any_proof() -> None:
    acceptor = Acceptor(_SECRET, lambda terms: terms.generation == 8)
    with pytest.raises(AuthenticationError, match="unexpected terms"):
        acceptor.feed(Connector(_SECRET, _TERMS).greeting())


@given(st.binary(max_size=300))
def test_garbage_never_authenticates(data: bytes) -> None:
    acceptor = Acceptor(_SECRET, lambda terms: True)
    try:
        while data:
            size = acceptor.wanted()
            acceptor.feed(data[:size])
            data = data[size:]
    except AuthenticationError:
        pass
    assert acceptor.keys is None


def test_limit_holds_for_the_whole_handshake() -> None:
    ours, theirs = socket.socketpair()
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.05):
            theirs.send(b"H")

    dripping = threading.Thread(target=drip)
    dripping.start()
    begin = time.monotonic()
    with pytest.raises(StartTimeoutError):
        authenticate(ours, _SECRET, _TERMS, 0.4)
    assert 0.3 < time.monotonic() - begin < within(1.5)
    stop.set()
    dripping.join()
    ours.close()
    theirs.close()


@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(1, 50))
def test_frames_arrive_in_order_whatever_the_pieces(payloads: list[bytes], step: int) -> None:
    sealer, opener = Sealer(b"k" * 32), Opener(b"k" * 32)
    stream = b"".join(map(sealer.seal, payloads))
    pieces = (stream[i : i + step] for i in range(0, len(stream), step))
    assert [payload for piece in pieces for payload in opener.feed(piece)] == payloads


@given(st.binary(min_size=1, max_size=60), st.data())
def test_changed_frame_is_refused(payload: bytes, data: st.DataObject) -> None:
    frame = bytearray(Sealer(b"k" * 32).seal(payload))
    frame[data.draw(st.integers(4, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(AuthenticationError):
        Opener(b"k" * 32).feed(bytes(frame))


def test_repeated_frame_and_huge_length_are_refused() -> None:
    frame = Sealer(b"k" * 32).seal(b"once")
    opener = Opener(b"k" * 32)
    assert opener.feed(frame) == [b"once"]
    with pytest.raises(AuthenticationError):
        opener.feed(frame)
    with pytest.raises(AuthenticationError, match="limit"):
        Opener(b"k" * 32).feed((MAX_PAYLOAD + 1).to_bytes(4, "big") + bytes(32))
    with pytest.raises(ValueError, match="at most"):
        Sealer(b"k" * 32).seal(bytes(MAX_PAYLOAD + 1))
