"""Text from outside (names, paths, what peers say) within a message of ours. The twin of core/base/text.h."""

_LONGEST_SHOWN = 200


def escaped(text: str, keeps_lines: bool = False) -> str:
    r"""``text`` with everything that is invisible, steers a terminal or is no character written out.

    Args:
        text: any text, also one with surrogates for bytes that were none.
        keeps_lines: whether line breaks stay, as they do in texts that have several lines.

    Returns:
        The text with ``\x1b``, ``\n``, ``\u202e`` and their like in place of such characters. Escaping it
        again changes nothing.
    """
    return "".join(
        c if c.isprintable() or (keeps_lines and c == "\n") else c.encode("unicode_escape").decode()
        for c in text
    )


def shown(name: str) -> str:
    """A name from outside within a message: ``escaped``, and without its middle where it is long."""
    text = escaped(name)
    if len(text) <= _LONGEST_SHOWN:
        return text
    note = f"...({len(name.encode(errors='replace'))} bytes)..."
    side = (_LONGEST_SHOWN - len(note)) // 2
    return text[:side] + note + text[-side:]
