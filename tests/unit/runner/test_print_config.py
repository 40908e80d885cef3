"""--print-config: each option's value with its origin, and -x among them; nothing is started."""

import json
from pathlib import Path

import pytest

from horovod.bootstrap.start_settings import IDENTITY
from horovod.runner import launch
from horovod.runner.command_line import options, origins, parser
from horovod.runner.command_line.exports import assignment, of_all, of_hosts
from horovod.runner.launch import parse_args


def rows_of(line: str, environ: dict[str, str] | None = None) -> dict[str, tuple[object, str]]:
    """By option, or by variable of -x: value and origin."""
    arguments = parse_args(["--print-config", *line.split()])
    defaults = {"HOROVOD_CYCLE_TIME": "1.0", "HOROVOD_TIMELINE": ""}
    found = origins.rows(arguments, environ or {}, defaults)
    return {str(r.variable) if r.option == "--env" else r.option: (r.value, r.origin) for r in found}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("job.yaml")


def test_each_value_has_its_origin(file: Path) -> None:
    file.write_text("num_proc: 2\nparams: {cycle_time_ms: 7, cache_capacity: 5}\n")
    line = "--config-file job.yaml --cycle-time-ms 9 --autotune prog"
    environ = {"HOROVOD_START_TIMEOUT": "60", "HOROVOD_CYCLE_TIME": "3", "HOROVOD_LOG_LEVEL": "info"}
    found = rows_of(line, environ)
    assert found["--num-proc"] == (2, "config file job.yaml")
    assert found["--cycle-time-ms"] == ("9", "command line")
    assert found["--cache-capacity"] == ("5", "config file job.yaml")
    assert found["--autotune"] == ("1", "command line")
    assert found["--start-timeout"] == ("60", "environment variable HOROVOD_START_TIMEOUT")
    assert found["--log-level"] == ("info", "environment variable HOROVOD_LOG_LEVEL")
    assert found["--timeline-filename"] == (None, "default")
    assert rows_of("-np 2")["--cycle-time-ms"] == ("1.0", "default")
    assert rows_of("-np 2")["--grace"] == (5.0, "default")
    assert rows_of("-np 2")["--ssh-fan-out"] == (32, "default")
    variable = "HOROVOD_SSH_FAN_OUT"
    assert rows_of("-np 2", {variable: "9"})["--ssh-fan-out"] == ("9", f"environment variable {variable}")
    assert rows_of("-np 2 --ssh-fan-out 7", {variable: "9"})["--ssh-fan-out"] == (7, "command line")


def test_every_option_of_the_help_is_there() -> None:
    shown = parser.new_parser().format_help()
    found = rows_of("-np 2")
    missing = [option for option in found if option not in shown and option != "controller"]
    assert missing == [] and {"--hosts", "--ssh-port", "--ranks", "--port-range"} <= found.keys()


def test_number_of_ranks_may_follow_from_other_options() -> None:
    assert rows_of("--nproc-per-node 3")["--num-proc"] == (3, "number of slots")
    assert rows_of("")["--num-proc"] == (None, "default")


def test_options_without_effect_say_why() -> None:
    value, origin = rows_of("-np 2 --tcp")["--tcp"]
    assert value == "no effect: InfiniBand is not used" and origin == "command line"


def test_exported_variables_come_first_and_keep_their_values_to_themselves(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "planted")
    file.write_text("env: {SEED: 1, HOROVOD_LOG_LEVEL: info, TOKEN: null}\n")
    line = (
        "--config-file job.yaml -np 2 --log-level error -x HOROVOD_LOG_LEVEL=debug -x A=b=c -x localhost:A=d"
    )
    found = rows_of(line)
    assert found["--log-level"] == ("debug", "command line")
    assert found["SEED"] == (None, "config file job.yaml") and found["A"] == (None, "command line")
    variables = options.environment(parse_args([*line.split(), "prog"]))
    assert found["localhost:A"] == (None, "command line")
    assert variables == {"HOROVOD_LOG_LEVEL": "debug", "A": "b=c", "SEED": "1", "TOKEN": "planted"}


def test_it_is_printed_for_people_and_for_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "planted")
    line = ["--print-config", "-np", "2", "--output-filename", "a\nb", "-x", "TOKEN", "--ranks", "0,1"]
    for form in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", ["horovodrun", *line, *form, "no-such-program"])
        with pytest.raises(SystemExit) as ended:
            launch.run_commandline()
        assert not ended.value.code
        text = capsys.readouterr().out
        assert "planted" not in text
        if form:
            rows = {row["option"]: row for row in json.loads(text)}
            assert rows["--num-proc"]["value"] == 2 and rows["--output-filename"]["value"] == "a\nb"
        else:
            lines = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
            assert lines["--num-proc"] == ["2", "command", "line"] and lines["--ranks"][0] == "0,1"
            assert lines["--output-filename"][0] == r"a\nb" and lines["--env"][0] == "TOKEN=..."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1A=b", "'1A' is no name"),
        ("=b", "is no name"),
        ("A B=c", "is no name"),
        ("ABSENT", "ABSENT is not set here"),
        ("node1:ABSENT", "write node1:ABSENT=VALUE"),
        (":A=b", "'' is not the name of a host"),
        ("a b:A=c", "is not the name of a host"),
        ("node1:A:B=c", "'node1:A' is not the name of a host"),
        ("fe80::1:A=b", "is not the name of a host"),
        ("node1:=b", "'' is no name"),
        ("node1:HOROVOD_SECRET_KEY=00", "by a safer way"),
        ("node1:HOROVOD_RANK=0", "says who a rank is"),
        ("node1:HOROVOD_HOST_TIMEOUT=1", "is of the whole job; write it without a host"),
        ("node1:HOROVOD_PREEMPTION_SIGNAL=USR1", "is of the whole job; write it without a host"),
        ("HOROVOD_SECRET_KEY=00", "by a safer way"),
        ("HOROVOD_SECRET_FILE", "by a safer way"),
        ("_HOROVOD_SECRET_KEY=x", "by a safer way"),
        *((f"{name}=0", "says who a rank is") for name in IDENTITY),
    ],
)
def test_variables_that_cannot_be_passed_on(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ABSENT", raising=False)
    for flag in ("-x", "--env"):
        with pytest.raises(SystemExit):
            parse_args(["-np", "2", flag, text, "prog"])
        message = capsys.readouterr().err
        assert message.startswith(f"horovodrun: error: {flag}: ") and said in message


def test_a_name_alone_has_the_callers_value() -> None:
    assert assignment("A", {"A": "1"}) == ("A", "1")
    assert assignment("A=", {"A": "1"}) == ("A", "")
    assert assignment("node1:A", {"A": "1"}) == ("node1:A", "1")


def test_variables_of_one_host() -> None:
    given = dict(
        assignment(each, {}) for each in ("A=1", "node1:A=x:y", "[fe80::1]:A=3", "node1:B=", "C=D:E")
    )
    assert of_all(given) == {"A": "1", "C": "D:E"}
    assert of_hosts(given) == {"node1": {"A": "x:y", "B": ""}, "fe80::1": {"A": "3"}}
