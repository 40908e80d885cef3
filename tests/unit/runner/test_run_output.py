"""What the caller of horovod.run sees of the launcher's output."""

import io

import pytest

from horovod.runner.call.child import Text

ERROR = "horovodrun: error: node2: there is no host of that name\n"


def _fed(pieces: list[str]) -> tuple[list[str], Text]:
    """What was shown after each piece, and after the end."""
    stream, shown = io.StringIO(), []
    text = Text(lambda: stream)
    for piece in [*pieces, ""]:
        text.feed(piece.encode())
        shown.append(stream.getvalue())
    return shown, text


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_complaint_is_raised_and_not_shown_too(size: int) -> None:
    whole = f"[0]<stderr>:a\n{ERROR}{ERROR}horovodrun: warning: b\nhor"
    shown, text = _fed([whole[begin : begin + size] for begin in range(0, len(whole), size)])
    assert shown[-1] == "[0]<stderr>:a\nhorovodrun: warning: b\nhor"
    assert text.complaints == ["node2: there is no host of that name"] * 2


def test_a_line_is_shown_before_it_is_complete() -> None:
    shown, _ = _fed(["[0]<stderr>:50 %", "\r100 %", "\n", "\n[1]"])
    assert shown == [
        "[0]<stderr>:50 %",
        "[0]<stderr>:50 %\r100 %",
        "[0]<stderr>:50 %\r100 %\n",
        "[0]<stderr>:50 %\r100 %\n\n[1]",
        "[0]<stderr>:50 %\r100 %\n\n[1]",
    ]


def test_a_complaint_without_its_end_of_line_counts() -> None:
    shown, text = _fed([ERROR.rstrip()])
    assert shown[-1] == "" and text.complaints == ["node2: there is no host of that name"]
