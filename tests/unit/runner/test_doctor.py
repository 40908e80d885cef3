"""What ``horovodrun doctor`` says of findings; what it finds is tested with real hosts."""

import sys
from pathlib import Path

import pytest

from horovod.runner.probes import checks, command
from horovod.runner.probes.checks import Finding


def version(text: str) -> Finding:
    return Finding(checks.VERSION, text)


def test_versions_that_differ_are_named_on_both_sides() -> None:
    hosts = {
        "a": [version("torch 2.5"), version("numpy 2.0"), Finding("cores", "2")],
        "b": [version("torch 2.6"), version("numpy 2.0")],
    }
    assert [(each.name, each.value) for each in checks.differences(hosts)] == [
        ("a", "torch 2.5"),
        ("b", "torch 2.6"),
    ]
    assert checks.differences({"a": hosts["a"]}) == [] == checks.differences({})


def test_a_host_that_is_slow_to_all_others_is_named() -> None:
    rates = {("a", "b"): 1e9, ("a", "c"): 1e8, ("b", "c"): 1.1e8}
    assert [each.name for each in checks.links(rates) if each.remedy] == ["c"]


def test_a_link_that_is_slow_between_fast_hosts_is_named() -> None:
    rates = {("a", "b"): 1e9, ("a", "c"): 1e8, ("b", "c"): 1.1e9}
    (found,) = [each for each in checks.links(rates) if each.remedy]
    assert found.name == "a to c" and found.remedy.startswith("11 times slower")
    assert [each.remedy for each in checks.links({("a", "b"): 1e6})] == [""]


@pytest.mark.parametrize(("seconds", "is_named"), [(0.2, False), (-3.0, True), (61.0, True)])
def test_clocks(seconds: float, is_named: bool) -> None:
    assert bool(checks.skew("b", seconds).remedy) == is_named


def test_this_host_is_looked_at() -> None:
    names = [each.name for each in checks.look_at_host()]
    limits = {"/dev/shm", "open files", "processes"}
    assert {"cores", "threads", "load", *limits, "interfaces", checks.VERSION} == set(names)


def test_an_interface_has_its_mtu() -> None:
    assert checks._mtu("lo") == int(Path("/sys/class/net/lo/mtu").read_text())
    assert checks._mtu("none") is None


def test_more_threads_than_cores_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.limits, "usable_cores", lambda: 4)
    for text, is_named in (("4", False), ("5", True), ("4,2", False), ("", False)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        (found,) = [each for each in checks.look_at_host() if each.name == "threads"]
        assert bool(found.remedy) == is_named


def test_the_command_lines_of_probes() -> None:
    """One rank on each host for the doctor, unless the user says otherwise."""
    quiet = ["--log-level", "error", "--ranks", "0"]
    found = command.words("doctor", ["-H", "a:4,b:4"])
    assert found[:8] == [*quiet, "--nproc-per-node", "1", "-H", "a:4,b:4"]
    assert command.words("doctor", ["--num-proc=3"])[:6] == [*quiet, "--num-proc=3", "--"]
    found = command.words("bench", ["-np", "2", "--", "--json"])
    assert found[:6] == [*quiet, "-np", "2"]
    assert found[7:] == [sys.executable, "-m", "horovod.runner.probes.bench", "--json", *USUAL]
    assert command.words("bench", [])[:6] == [*quiet, "-np", "auto"]


USUAL = ["--min-bytes=1024", "--max-bytes=67108864", "--factor=4"]


def test_options_of_the_bench_stand_among_those_of_horovodrun() -> None:
    line = [
        "-hostfile",
        "hosts",
        "--max-bytes",
        "2M",
        "-np",
        "2",
        "--json",
        "-x",
        "A=b",
        "--",
        "--factor",
        "2",
    ]
    found = command.words("bench", line)
    begin = found.index("--")
    assert found[4:begin] == ["-hostfile", "hosts", "-np", "2", "-x", "A=b"]
    assert found[begin + 4 :] == ["--json", "--min-bytes=1024", "--max-bytes=2097152", "--factor=2"]
    assert command.parse("bench", found[begin + 4 :]).max_bytes == 2 << 20


@pytest.mark.parametrize(
    "words",
    [["--max-bytes", "3x"], ["--max-bytes=1"], ["--factor", "1"], ["--operation", "a"], ["--", "-np", "2"]],
)
def test_what_the_bench_cannot_do_is_said_before_it_starts(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.words("bench", words)
    assert "horovodrun bench: error: " in capsys.readouterr().err
