"""The lines that ``make sim FAULTS=1`` breaks are there, once each."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FAULTS = yaml.safe_load((ROOT / "tests/core/sim/faults.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["what"])
def test_the_line_is_there(fault: dict[str, str]) -> None:
    text = (ROOT / fault["file"]).read_text(encoding="utf-8")
    assert text.count(fault["line"]) == 1
    assert fault["instead"] != fault["line"]
