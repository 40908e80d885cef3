"""What an agent that dials says of itself, and the hosts of a job that waits for it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.runner import launch, meeting, placing
from horovod.runner.command_line import parser
from horovod.runner.hosts import HostsError
from horovod.runner.nodes import agent, dial_in
from horovod.runner.nodes.joining import Application


def _application(**changes: Any) -> bytes:
    said = {"session": "00", "host": "pod-0", "slots": None, "place": None, "received": 0}
    return json.dumps({**said, "protocol": 7, "version": "1.0", **changes}).encode()


def test_an_application_comes_back() -> None:
    said = Application("ab", "pod-0", 4, 1, 17)
    assert Application.decode(said.encode()) == said


@pytest.mark.parametrize(
    "changes",
    [
        {"slots": -1},
        {"slots": 2**40},
        {"slots": True},
        {"slots": 1.5},
        {"received": "0"},
        {"host": ""},
        {"host": "-oProxyCommand=x"},
        {"host": "a\nb"},
        {"host": "x" * 300},
        {"session": 7},
        {"version": None},
        {"more": 1},
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    Application.decode(_application())
    with pytest.raises(ValueError, match=r"\w"):
        Application.decode(_application(**changes))


@given(st.binary(max_size=60))
def test_any_bytes_are_an_application_or_a_value_error(message: bytes) -> None:
    try:
        Application.decode(message)
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a:1", ("a", 1)),
        (":29500", ("", 29500)),
        ("[fd00::1]:2", ("fd00::1", 2)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert meeting.split(text) == address


@pytest.mark.parametrize("text", ["a", "a:", "a:0", "a:65536", "a:1x", "fd00::1:2", "a:-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="such as"):
        meeting.split(text)


@pytest.mark.parametrize(
    ("words", "slots", "ranks"),
    [
        ("--nnodes 4 --nproc-per-node 2", [2, 2, 2, 2], 8),
        ("--nnodes 3 -np 7", [3, 3, 3], 7),
        ("--nnodes 1 -np 2", [2], 2),
        ("--wait-for-hosts 2 -np 4", [2, 2], 4),
        ("--wait-for-hosts 2 -np 5 -H localhost:1", [1, 2, 2], 5),
        ("--wait-for-hosts 2 --nproc-per-node 3", [3, 3], 6),
    ],
)
def test_ranks_are_dealt_to_those_who_come(words: str, slots: list[int], ranks: int) -> None:
    arguments = parser.parse([*words.split(), "--rendezvous", "localhost:29500", "train"])
    assert [host.slots for host in arguments.host_list] == slots and arguments.num_proc == ranks


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("-np 4", "--nnodes N where each"),
        ("-np 4 --nnodes 2 --wait-for-hosts 2", "--nnodes N where each"),
        ("-np 4 --nnodes 2 -H a:2", "leave -H"),
        ("-np 4 --nnodes 0", "at least 1 host"),
        ("--nnodes 2", "-np is missing"),
        ("-np auto --nnodes 2", "give a number"),
        ("-np 4 --nnodes 2 --mpi", "leave it out"),
    ],
)
def test_what_cannot_be_is_refused(words: str, remedy: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.parse([*words.split(), "--rendezvous", "localhost:29500", "train"])
    assert remedy in capsys.readouterr().err


def test_options_of_hosts_that_dial_need_a_place_to_meet() -> None:
    arguments = parser.new_parser().parse_args(["-np", "2", "--wait-for-hosts", "2"])
    with pytest.raises(HostsError, match="only with --rendezvous"):
        placing._refuse_meeting(arguments)


def test_who_has_the_address_leads() -> None:
    def leads(*words: str) -> bool:
        return meeting.leads(parser.parse(["--nnodes", "2", "-np", "2", *words, "train"]))

    assert leads("--rendezvous", "localhost:29500") and leads("--rendezvous", "127.0.0.1:29500")
    assert not leads("--rendezvous", "192.0.2.77:29500")
    assert leads("--rendezvous", "192.0.2.77:29500", "--node-rank", "0")
    assert not leads("--rendezvous", "localhost:29500", "--node-rank", "1")
    assert leads("--rendezvous", ":29500", "--node-rank", "0")
    with pytest.raises(ValueError, match="--rendezvous :29500: name the host that leads"):
        leads("--rendezvous", ":29500")


def test_a_host_that_is_led_has_the_limits_of_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(dial_in, "DialIn", lambda *words: asked.extend(words))
    monkeypatch.setattr(agent, "join", lambda dial: dial(None) or 0)
    monkeypatch.setenv("HOROVOD_SECRET_KEY", "00" * 32)
    options = ["--start-timeout", "7", "--host-timeout", "300"]
    words = ["--nnodes", "2", "-np", "2", "--rendezvous", "192.0.2.77:29500", *options, "train"]
    assert launch.start_job(parser.parse(words)) == 0
    assert asked[1] == ("192.0.2.77", 29500) and asked[-3:-1] == [7.0, 300.0]


def test_hosts_are_in_the_order_of_their_places_and_names() -> None:
    assert meeting.in_order([(None, "b"), (2, "c"), (None, "a"), (1, "d")]) == [3, 1, 2, 0]
