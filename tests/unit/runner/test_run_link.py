"""What the launcher of horovod.run tells its caller comes whole, however the bytes are cut."""

from hypothesis import given
from hypothesis import strategies as st

from horovod.runner.call.link import Kind, Messages, packed


@given(st.lists(st.binary(max_size=40)), st.binary(max_size=40), st.integers(1, 30))
def test_messages_come_whole_and_in_order(notes: list[bytes], outcome: bytes, size: int) -> None:
    data = b"".join(packed(Kind.NOTE, note) for note in notes) + packed(Kind.OUTCOME, outcome)
    heard: list[bytes] = []
    messages = Messages(heard.append)
    for start in range(0, len(data), size):
        assert messages.outcome == b""
        messages.feed(data[start : start + size])
    messages.feed(b"")
    assert (heard, messages.outcome) == (notes, outcome)


def test_a_launcher_that_ends_in_a_message_has_said_nothing() -> None:
    messages = Messages(lambda note: None)
    messages.feed(packed(Kind.OUTCOME, b"outcome")[:-1])
    messages.feed(b"")
    assert messages.outcome == b""
