"""What users begin with runs: the code of docs/spark.md, and the example."""

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_code_of_the_page(session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    marked = r"^<!-- not run: it needs Spark; tests/spark runs it -->\n```python\n(.*?)^```$"
    blocks = re.findall(marked, page, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {"__name__": "page"}
    exec("\n".join(blocks), found)
    assert len(blocks) == 3 and len(found["states"]) == 2 and found["ranks"] == [0, 1]
    rows = found["predictions"].collect()
    right = [row["digit__output"].toArray().argmax() == row["digit"] for row in rows]
    assert len(right) == 1797 and sum(right) > 0.9 * len(right)
    assert "[1]<stdout>:loss 0." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["digits.py"], "2 ranks, accuracy 9"),
        pytest.param(["digits.py", "--elastic"], "2 ranks, accuracy 9", marks=pytest.mark.slow),
        (["estimator.py"], "the loaded model alike: True"),
    ],
)
def test_the_examples(
    session: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    told: str,
) -> None:
    """In this process: another one would need a Spark of its own."""
    pytest.importorskip("sklearn")
    monkeypatch.setattr(type(session), "stop", lambda _: None)
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "examples" / "spark" / words[0]), run_name="__main__")
    assert end.value.code == 0 and told in capsys.readouterr().out
