"""Where ranks meet that another launcher has started on several hosts."""

import os
import secrets
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load import within

from horovod.bootstrap.errors import AuthenticationError, BootstrapError, StartTimeoutError
from horovod.bootstrap.identity import Identity
from horovod.bootstrap.network import interfaces
from horovod.bootstrap.network.interfaces import Network
from horovod.bootstrap.rendezvous import ways
from horovod.bootstrap.rendezvous.first_host import derived_ports, first_host, ways_to_host
from horovod.bootstrap.rendezvous.rendezvous import Offer, Rendezvous, decode_offer, derive

SECRET = bytes(range(32))
RANKS = 4


def _identity(rank: int, launcher: str = "Open MPI") -> Identity:
    return Identity(rank, RANKS, rank % 2, 2, 0, 1, f"host{rank // 2}", launcher)


class Board:
    """A carrier in this process."""

    name = "a board"

    def __init__(self, is_public: bool = False) -> None:
        self.is_public = is_public
        self.told: list[str] = []
        self._changed = threading.Condition()

    def tell(self, value: str) -> None:
        with self._changed:
            self.told.append(value)
            self._changed.notify_all()

    def hear(self, timeout: float) -> str:
        with self._changed:
            assert self._changed.wait_for(lambda: self.told, within(timeout))
            return self.told[-1]


def _find(
    rank: int, own: bytes | None, environ: dict[str, str], timeout: float = 10.0
) -> tuple[Rendezvous, bytes]:
    rendezvous = ways.find_rendezvous(_identity(rank), environ, Network(), own, within(timeout))
    with rendezvous.client(1, within(timeout)) as store:
        secret = rendezvous.job_secret(store, within(timeout))
        rendezvous.export(store, Network(), environ, within(timeout))
    return rendezvous, secret


def _find_all(
    owns: list[bytes | None], environ: dict[str, str]
) -> list[tuple[Rendezvous, bytes, dict[str, str]]]:
    environs = [dict(environ) for _ in owns]
    with ThreadPoolExecutor(len(owns)) as pool:
        found = list(pool.map(_find, range(len(owns)), owns, environs))
    found[0][0].server.close()
    return [(*pair, environment) for pair, environment in zip(found, environs, strict=True)]


@pytest.mark.parametrize("own", [None, SECRET], ids=["carried secret", "own secret"])
def test_ranks_meet_by_what_the_launcher_carries(monkeypatch: pytest.MonkeyPatch, own: bytes | None) -> None:
    board = Board()
    monkeypatch.setattr(ways, "carrier_of", lambda *_: board)
    met = _find_all([own] * RANKS, {})
    assert len({secret for _, secret, _ in met}) == 1 and len(met[0][1]) == 32
    assert met[0][1] not in (own, met[0][0].root, met[0][0].key)
    assert SECRET.hex() not in board.told[0]
    for rank, (_, _, environ) in enumerate(met):
        assert (environ["RANK"], environ["LOCAL_RANK"]) == (str(rank), str(rank % 2))
        assert environ["MASTER_ADDR"] == met[0][2]["MASTER_ADDR"] and environ["MASTER_PORT"].isdecimal()


def test_ranks_meet_at_the_host_of_rank_0() -> None:
    job = secrets.token_hex(4)
    environ = {"MASTER_ADDR": "localhost", "PMIX_NAMESPACE": job, "MASTER_PORT": "1234"}
    first = _find_all([SECRET] * RANKS, environ)
    second = _find_all([SECRET] * RANKS, environ)
    assert len({secret for _, secret, _ in first}) == 1
    assert first[0][1] != second[0][1], "what serves many jobs is no job's secret"
    for _, _, after in first:
        assert (after["MASTER_ADDR"], after["MASTER_PORT"]) == ("localhost", "1234")
    other = _find_all([SECRET] * RANKS, {**environ, "PMIX_NAMESPACE": job + "x"})
    assert other[0][0].key != first[0][0].key


def test_ranks_of_a_host_whose_name_is_loopback_meet_whatever_interfaces_it_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Debian has it: 127.0.1.1 stands for the own name in /etc/hosts."""
    monkeypatch.setattr(interfaces, "chosen", lambda *_: ["127.0.0.2"])  # all that the user allows
    environ = {"MASTER_ADDR": "127.0.1.1", "PMIX_NAMESPACE": secrets.token_hex(4), "MASTER_PORT": "1234"}
    met = _find_all([SECRET] * RANKS, environ)
    assert len({secret for _, secret, _ in met}) == 1


@pytest.mark.parametrize("own", [None, SECRET])
def test_what_is_carried_is_short_and_has_loopback(
    monkeypatch: pytest.MonkeyPatch, own: bytes | None
) -> None:
    board = Board()
    monkeypatch.setattr(ways, "carrier_of", lambda *_: board)
    many = [f"127.0.1.{number}" for number in range(1, 70)]
    monkeypatch.setattr(interfaces, "chosen", lambda *_: [*many, "127.0.0.1"])
    monkeypatch.setattr(interfaces, "is_loopback", lambda host: host == "127.0.0.1")
    _find_all([own] * RANKS, {})
    assert "tcp:127.0.0.1:" in board.told[0] and len(board.told[0]) < 1000


def test_what_rank_0_told_before_a_restart_is_heard_again(monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board()
    monkeypatch.setattr(ways, "carrier_of", lambda *_: board)
    monkeypatch.setattr("horovod.bootstrap.rendezvous.rendezvous._STALE_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        stale = f"tcp:127.0.0.1:{gone.getsockname()[1]}"
    board.tell(Offer(stale, SECRET).encode())
    with ThreadPoolExecutor(2) as pool:
        late = pool.submit(_find, 1, None, {}, 20.0)
        threading.Event().wait(0.5)
        rendezvous, secret = _find(0, None, {})
        assert late.result()[1] == secret
    rendezvous.server.close()


def test_a_secret_on_some_ranks_only_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board()
    monkeypatch.setattr(ways, "carrier_of", lambda *_: board)
    for told, own in ((SECRET, SECRET), (None, None)):
        board.tell(Offer("tcp:127.0.0.1:4000", told).encode())
        with pytest.raises(BootstrapError, match="rank 1 and rank 0 do not agree on HOROVOD_SECRET_FILE"):
            _find(1, own, {})


def test_a_wrong_secret_is_named() -> None:
    environ = {"MASTER_ADDR": "127.0.0.1", "PMIX_NAMESPACE": secrets.token_hex(4)}
    rendezvous = ways.find_rendezvous(_identity(0), environ, Network(), SECRET, 5.0)
    try:
        stranger = ways.find_rendezvous(_identity(1), environ, Network(), SECRET, 5.0)
        stranger.key = bytes(32)
        with pytest.raises(
            AuthenticationError, match=r"rank 1 on host0.*Is the secret file the same on all hosts"
        ):
            stranger.client(1, 1.0)
    finally:
        rendezvous.server.close()
    with pytest.raises(StartTimeoutError, match=r"rank 1 on host0: no way to rank 0.*HOROVOD_PORT_RANGE"):
        stranger.client(1, 0.5)


def test_a_launcher_that_carries_nothing_needs_a_secret_and_an_address() -> None:
    with pytest.raises(BootstrapError) as error:
        ways.find_rendezvous(_identity(2), {}, Network(), None, 1.0)
    text = str(error.value)
    assert "Open MPI started 4 processes on several hosts, 2 of them on host1" in text
    assert "umask 077" in text and "HOROVOD_SECRET_FILE=" in text and "MASTER_ADDR" in text
    with pytest.raises(BootstrapError, match="does not say on which one rank 0 is: set MASTER_ADDR"):
        ways.find_rendezvous(_identity(2), {}, Network(), SECRET, 1.0)
    with pytest.raises(BootstrapError, match="leads to no address here"):
        ways.find_rendezvous(_identity(2), {"MASTER_ADDR": "no.such.host.invalid"}, Network(), SECRET, 1.0)


def test_a_public_carrier_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ways, "carrier_of", lambda *_: Board(is_public=True))
    for own, count in ((None, 1), (SECRET, 0)):
        rendezvous = ways.find_rendezvous(_identity(0), {}, Network(), own, 5.0)
        rendezvous.server.close()
        told = capfd.readouterr().err
        assert told.count("anybody who reaches that port can read it") == count
        assert rendezvous.root.hex() not in told + repr(rendezvous)


@pytest.mark.parametrize(
    ("launcher", "environ", "host"),
    [
        ("srun", {"SLURM_STEP_NODELIST": "n[07-12],x", "SLURM_JOB_NODELIST": "n[01-12]"}, "n07"),
        ("srun", {"SLURM_JOB_NODELIST": "gpu1"}, "gpu1"),
        ("srun", {"SLURM_JOB_NODELIST": "n[01-12]", "MASTER_ADDR": "n05"}, "n05"),
        ("jsrun", {"LSB_MCPU_HOSTS": "batch2 1 h36n03 42 h36n04 42"}, "h36n03"),
        ("jsrun", {"LSB_MCPU_HOSTS": "h36n03 42"}, "h36n03"),
        ("jsrun", {}, ""),
        ("Open MPI", {"SLURM_JOB_NODELIST": "n[01-12]"}, ""),
    ],
)
def test_the_host_of_rank_0(launcher: str, environ: dict[str, str], host: str) -> None:
    assert first_host(_identity(1, launcher), environ) == host


def test_a_wrong_node_list_is_named() -> None:
    with pytest.raises(BootstrapError, match="SLURM_STEP_NODELIST: 'n\\[1' is no list of nodes"):
        first_host(_identity(1, "srun"), {"SLURM_STEP_NODELIST": "n[1"})


@given(st.binary(min_size=32, max_size=32), st.none() | st.tuples(st.integers(1, 65000), st.integers(0, 500)))
def test_ports_follow_from_the_key_and_stay_in_the_range(key: bytes, span: tuple[int, int] | None) -> None:
    allowed = range(span[0], span[0] + span[1] + 1) if span else None
    ports = derived_ports(key, allowed)
    assert ports == derived_ports(key, allowed) and 1 <= len(ports) <= 4
    assert all(port in (allowed or range(20000, 32000)) for port in ports)


def test_the_name_of_ones_own_host_leads_to_where_rank_0_listens() -> None:
    assert ways_to_host("127.0.1.1", range(4000, 4002)) == ["tcp:127.0.0.1:4000", "tcp:127.0.0.1:4001"]
    assert ways_to_host("10.1.2.3", range(4000, 4001)) == ["tcp:10.1.2.3:4000"]


@given(st.text())
def test_offers_are_read_or_refused(text: str) -> None:
    try:
        offer = decode_offer(text)
    except BootstrapError:
        return
    assert offer.address and (offer.secret is None or len(offer.secret) == 32)


def test_keys_for_different_purposes_differ() -> None:
    keys = {
        derive(SECRET, *parts) for parts in ((b"a",), (b"a", b""), (b"a", b"b"), (b"ab",), (b"a", b"b", b""))
    }
    assert len(keys) == 5 and SECRET not in keys


def test_a_file_of_the_user_is_checked(tmp_path: Path) -> None:
    from horovod.bootstrap import secret

    path = tmp_path / "secret"
    path.write_text(SECRET.hex() + "\n")
    path.chmod(0o640)
    with pytest.raises(ValueError, match=r"this user alone can read \(chmod 600\)"):
        secret.take({"HOROVOD_SECRET_FILE": str(path)})
    path.chmod(0o600)
    assert secret.take({"HOROVOD_SECRET_FILE": str(path)}) == SECRET
    with pytest.raises(ValueError, match=f"cannot be opened: No such file.*{os.uname().nodename}, too"):
        secret.take({"HOROVOD_SECRET_FILE": str(tmp_path / "other")})
