"""Addresses of names: they may come late, and change."""

import socket
from collections.abc import Sequence
from typing import Any

import pytest

from horovod.bootstrap.network import names

NAME = "train-0.train"


def answers(patch: pytest.MonkeyPatch, given: Sequence[str | None]) -> None:
    """What the servers of names say, one after the other; None: they know no such name."""
    left = iter(given)

    def asked(host: str, *arguments: Any, **words: Any) -> list[Any]:
        address = next(left)
        if host != NAME or address is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 0))] * 2

    patch.setattr(socket, "getaddrinfo", asked)
    patch.setattr(names, "_known", {})
    patch.setattr(names, "_PAUSE_SECONDS", 0.0)


def test_a_name_is_waited_for_and_its_lateness_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, [None, None, "10.0.0.1"])
    said: list[OSError] = []
    assert names.addresses(NAME, 60, said.append) == ["10.0.0.1"] and len(said) == 1


def test_nobody_waits_unless_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, [None, "10.0.0.1"])
    with pytest.raises(OSError, match="Name or service not known"):
        names.addresses(NAME)


def test_a_server_that_has_not_heard_of_a_name_does_not_make_it_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers(monkeypatch, ["10.0.0.1", None, "10.0.0.2", None])
    found = [names.addresses(NAME) for _ in range(4)]
    assert found == [["10.0.0.1"], ["10.0.0.1"], ["10.0.0.2"], ["10.0.0.2"]]  # a pod that began again
