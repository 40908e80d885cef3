"""A stream that goes on over one connection after another: nothing is lost, and nothing comes twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.runner.nodes.session import Session, SessionError

_WRITE = st.tuples(st.just("write"), st.integers(0, 1), st.binary(max_size=40))
_CARRY = st.tuples(st.just("carry"), st.integers(0, 1), st.integers(1, 5))
_BREAK = st.tuples(st.just("break"), st.just(0), st.just(0))


@given(st.lists(st.one_of(_WRITE, _CARRY, _BREAK), max_size=60))
def test_any_history_delivers_each_byte_once(history: list[tuple[str, int, bytes | int]]) -> None:
    sides = Session(), Session()
    written, got = [b"", b""], [b"", b""]
    on_the_way: list[list[bytes]] = [[], []]  # from each side

    def carry(sender: int, count: int) -> None:
        for message in on_the_way[sender][:count]:
            data, answers = sides[1 - sender].take(message)
            got[1 - sender] += data
            on_the_way[1 - sender] += answers
        del on_the_way[sender][:count]

    def connect() -> None:
        for side in (0, 1):  # what was on the way is lost
            on_the_way[side] = sides[side].resume(sides[1 - side].received)

    for what, side, value in history:
        if isinstance(value, bytes):
            written[side] += value
            on_the_way[side] += sides[side].write(value)
        elif what == "carry":
            carry(side, value)
        else:
            connect()
    connect()
    while any(on_the_way):
        carry(0, 1000)
        carry(1, 1000)
    assert got == [written[1], written[0]]
    assert sides[0].kept == sides[1].kept == 0


def test_large_data_take_several_messages() -> None:
    one, other = Session(), Session()
    data = bytes(range(256)) * 20_000
    messages = one.write(data)
    assert len(messages) > 1 and one.resume(0) == messages
    assert max(map(len, messages)) <= 65_600  # a slow network brings one long before it counts as dead
    assert b"".join(other.take(message)[0] for message in messages) == data


@pytest.mark.parametrize("arrived", [4, 16, 2**63])
def test_a_count_that_cannot_be_is_refused(arrived: int) -> None:
    one, other = Session(), Session()
    (first,) = one.write(b"hello")
    (answer,) = other.take(first)[1]
    one.take(answer)
    one.write(b"0123456789")
    with pytest.raises(SessionError):
        one.resume(arrived)


@pytest.mark.parametrize("message", [b"", b"x", b"a", b"a1234567", b"a" + bytes(7) + b"\1", b"a123456789"])
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(SessionError):
        Session().take(message)
