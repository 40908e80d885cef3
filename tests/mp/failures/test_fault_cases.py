"""The quick ones of the fault cases; all of them are played by ``make faults``."""

import pytest
from cases import TABLE
from stage import judge

QUICK = [case for case in TABLE.values() if case.quick]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: f"{case.number}: {case.title}")
def test_the_job_does_what_the_table_says(case) -> None:
    verdict = judge(case)
    if verdict.word == "not here":
        pytest.skip(verdict.text)
    assert verdict.word == "ok", verdict.text
