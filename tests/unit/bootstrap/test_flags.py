"""The values of flags: Python reads them as the core does, wherever it reads one."""

import os
import subprocess
import sys

import pytest

from horovod import _core
from horovod.bootstrap import libraries, text
from horovod.bootstrap.variables import flag
from horovod.common import process_sets

SET = ["1", "2", "true", "TRUE", "Yes", "on"]
NOT_SET = ["", "0", "-1", "false", "False", "NO", "off"]
NONE = ["maybe", "+1", "+-1", "--1", "1.0", "9" * 19, "9" * 5000]


@pytest.mark.parametrize("value", [*SET, *NOT_SET])
def test_each_reader_knows_all_values(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], value: str
) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", value)
    monkeypatch.setenv("HOROVOD_LOG_HIDE_TIME", value)
    is_set = value in SET
    assert flag("HOROVOD_DYNAMIC_PROCESS_SETS") is is_set
    assert (process_sets._not_dynamic() is None) is is_set
    assert libraries.has_one_thread({libraries.ONE_THREAD: value}) is is_set
    text.log("error", 0, "said")
    assert capfd.readouterr().err.startswith("[0] error: ") is is_set


@pytest.mark.parametrize("value", NONE)
def test_what_is_no_value_for_the_core_leaves_the_default(value: str) -> None:
    with pytest.raises(ValueError, match="expected 0 or 1"):
        _core.check_setting("HOROVOD_LOG_HIDE_TIME", value)
    environ = {"HOROVOD_LOG_HIDE_TIME": value}
    assert flag("HOROVOD_LOG_HIDE_TIME", environ=environ) is False
    assert flag("HOROVOD_LOG_HIDE_TIME", default=True, environ=environ) is True


@pytest.mark.parametrize(("value", "is_set"), [("1", True), ("yes", True), ("false", False), ("0", False)])
def test_the_version_of_the_api_is_shown_where_it_is_asked_for(value: str, is_set: bool) -> None:
    program = "import horovod; print(horovod.__version__, horovod.__api_version__)"
    environ = {**os.environ, "HOROVOD_SHOW_API_VERSION": value}
    told = subprocess.check_output([sys.executable, "-c", program], env=environ, text=True, timeout=60)
    version, of_api = told.split()
    assert of_api == "0.28.1" and (version == of_api) is is_set
