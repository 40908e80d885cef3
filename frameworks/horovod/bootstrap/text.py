"""Text from outside (names, paths, what peers say) within a message of ours. The twin of core/base/text.h."""


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
