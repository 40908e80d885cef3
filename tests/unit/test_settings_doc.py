"""docs/settings.md says what the core's table says."""

import importlib.util
import re
from pathlib import Path

import pytest

from horovod import _core

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def settings_doc():
    spec = importlib.util.spec_from_file_location("settings_doc", ROOT / "scripts" / "settings_doc.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_current(settings_doc):
    stale = "docs/settings.md is not current: run .venv/bin/python scripts/settings_doc.py"
    assert settings_doc.PAGE.read_text(encoding="utf-8") == settings_doc.page(_core.settings()), stale


def test_every_setting_is_named_and_explained():
    names = [variable for variable, *_ in _core.settings()]
    assert names, "the table is empty"
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"HOROVOD_[A-Z0-9_]+", name)] == []
    assert [variable for variable, kind, _, meaning in _core.settings() if not kind or not meaning] == []


def test_every_variable_that_python_reads_is_in_the_table():
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "frameworks/horovod").rglob("*.py"))
    read = set(re.findall(r"\bHOROVOD_[A-Z0-9_]*[A-Z0-9]\b", text))
    assert "HOROVOD_START_TIMEOUT" in read
    names = {variable for variable, *_ in _core.settings()}
    of_the_launcher = {"HOROVOD_JOB_ID", "HOROVOD_SSH_CONFIG", "HOROVOD_SSH_FAN_OUT"}
    of_the_launcher |= {"HOROVOD_HOST_TIMEOUT", "HOROVOD_ELASTIC_TIMEOUT", "HOROVOD_RESTART"}
    of_the_launcher |= {"HOROVOD_SECRET_SOCKET"}  # the way to the secret, where there is no other
    of_an_engine = {"HOROVOD_SPARK_START_TIMEOUT"}
    of_the_build = {"HOROVOD_WITH_GLOO", "HOROVOD_WITH_MPI"}  # named by an error
    of_a_rank = {"HOROVOD_RANK_PROCESS"}  # which sets it for its children; no user does
    assert read - names == of_the_launcher | of_an_engine | of_the_build | of_a_rank


def test_a_bar_in_a_text_does_not_end_its_cell(settings_doc):
    page = settings_doc.page([("HOROVOD_X", "string", "", "one|two\nthree")])
    assert page.splitlines()[-1] == "| `HOROVOD_X` | string | (not set) | one\\|two three |"
