"""What users begin with runs: the code of docs/spark.md, and the example."""

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_code_of_the_page(session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    marked = r"^<!-- not run: it needs Spark; tests/spark runs it -->\n```python\n(.*?)^```$"
    blocks = re.findall(marked, page, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {"__name__": "page"}
    exec("\n".join(blocks), found)
    assert len(blocks) == 2 and len(found["states"]) == 2 and found["ranks"] == [0, 1]
    assert "[1]<stdout>:loss 0." in capsys.readouterr().out


@pytest.mark.parametrize(
    "options", [[], pytest.param(["--elastic"], marks=pytest.mark.slow)], ids=["static", "elastic"]
)
def test_the_example(
    session: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """In this process: another one would need a Spark of its own."""
    pytest.importorskip("sklearn")
    monkeypatch.setattr(type(session), "stop", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["digits.py", *options])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "examples" / "spark" / "digits.py"), run_name="__main__")
    assert end.value.code == 0 and "2 ranks, accuracy 9" in capsys.readouterr().out
