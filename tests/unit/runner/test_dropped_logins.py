"""How long a host is dialled again whose sshd closes connections before the login."""

import pytest

from horovod.runner.nodes import route as routes
from horovod.runner.nodes import ssh
from horovod.runner.nodes.route import Route

DROPPED = b"kex_exchange_identification: Connection closed by remote host\n"


class Dropped:
    """An ssh that sshd has not let in."""

    def __init__(self, *_: object) -> None:
        self.on_output = self.on_errors = lambda data: None

    def write(self, data: bytes) -> None:
        pass

    def status(self) -> int:
        return 255

    def kill(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def route(monkeypatch: pytest.MonkeyPatch) -> Route:
    monkeypatch.setattr(routes, "SshProcess", Dropped)
    monkeypatch.setattr(ssh, "command", lambda target: [])
    return Route(ssh.Target("node"), None, None)


def drop(route: Route, seconds: float, after: float) -> str:
    """One more try, which takes so long; what is said of it so long after the first one."""
    route.dial(None)
    connection = route._connection
    connection._process.on_errors(DROPPED)
    connection._process.on_output(b"")
    connection.began = connection.ended - seconds
    return route.why_lost(route._first_dial + after)


def test_a_few_times_where_it_takes_no_time_to_be_dropped(route: Route) -> None:
    assert [drop(route, 0.01, after=9.0) for _ in range(5)] == [""] * 5
    assert "closes connections before the login" in drop(route, 0.01, after=9.0)


def test_for_longer_where_the_machines_are_so_busy_that_it_takes_long(route: Route) -> None:
    assert [drop(route, 2.0, after=49.0) for _ in range(20)] == [""] * 20
    assert "closes connections before the login" in drop(route, 2.0, after=51.0)
