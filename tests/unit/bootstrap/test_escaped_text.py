"""The escaping of text from outside in Python messages; tests/core/base/text_test.cc has the core's."""

import random
import subprocess
import unicodedata
from pathlib import Path

import pytest
from launch import MODULE

from horovod.bootstrap.text import escaped

HOSTILE = "x\x1b[2J\a\r\n\x9b\u202ey"
ESCAPED = r"x\x1b[2J\x07\r\n\x9b\u202ey"


def test_examples() -> None:
    assert escaped(HOSTILE) == ESCAPED
    assert escaped("layer.0/w [1] \xe9\u6f22\U0001f680") == "layer.0/w [1] \xe9\u6f22\U0001f680"
    assert escaped("a\nb\r", keeps_lines=True) == "a\nb\\r"
    assert escaped(b"\xff".decode(errors="surrogateescape")) == r"\udcff"


def test_any_text() -> None:
    chance = random.Random(1)
    for _ in range(3000):
        ranges = [(0, 0xFF), (0x2000, 0x20FF), (0, 0x10FFFF)]
        text = "".join(chr(chance.randint(*chance.choice(ranges))) for _ in range(chance.randrange(20)))
        result = escaped(text)
        assert escaped(result) == result
        assert all(unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Zl", "Zp", "Cn"} for c in result)
        assert result.isprintable()


@pytest.mark.parametrize(
    "arguments",
    [
        ["-np", "2", HOSTILE],
        ["-np", HOSTILE, "true"],
        ["-np", "2", "-H", HOSTILE, "true"],
        [f"--{HOSTILE}", "true"],
        ["--merge-timelines", HOSTILE, HOSTILE],
        ["-np", "2", "--output-filename", f"/dev/null/{HOSTILE}", "true"],
    ],
)
def test_errors_of_the_command_line(arguments: list[str], tmp_path: Path) -> None:
    result = subprocess.run([*MODULE, *arguments], capture_output=True, cwd=tmp_path, timeout=60, check=False)
    text = result.stderr.decode()
    assert result.returncode != 0
    assert text.endswith("\n") and text.count("\n") == 1, text
    assert text[:-1].isprintable(), ascii(text)
    assert r"\x1b" in text
