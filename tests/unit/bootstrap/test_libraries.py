"""Which library carries out collectives on the CPU."""

import socket
from pathlib import Path

import pytest

from horovod.bootstrap import controller, libraries
from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.identity import from_environment
from horovod.bootstrap.libraries import OUR_OWN, VARIABLE, Library
from horovod.bootstrap.mesh.places import Place, check_alike, decode


@pytest.mark.parametrize("value", [None, "", "host", "HOST", "Host"])
def test_our_own_unless_asked_otherwise(value: str | None) -> None:
    assert libraries.wanted(0, {} if value is None else {VARIABLE: value}) == OUR_OWN
    assert str(OUR_OWN) == ""


@pytest.mark.parametrize(
    ("value", "reason"),
    [("CCL", "oneCCL"), ("ddl", "DDL"), ("nccl2", "no such library"), ("\x1b[2J", "no such")],
)
def test_what_is_not_supported_is_refused_with_what_is(value: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        libraries.wanted(3, {VARIABLE: value})
    text = str(caught.value)
    assert text.startswith("rank 3: ") and "host" in text and "gloo" in text and "\x1b" not in text


def test_one_that_was_not_built_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libraries, "_FOLDER", tmp_path)
    with pytest.raises(BootstrapError, match=r"rank 1: .*=GLOO: .*libgloo-dev.*HOROVOD_WITH_GLOO=1.*unset"):
        libraries.wanted(1, {VARIABLE: "GLOO"})


def test_one_that_does_not_load_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = tmp_path / "_gloo.so"
    module.write_bytes(b"not a library")
    monkeypatch.setattr(libraries, "_FOLDER", tmp_path)
    with pytest.raises(BootstrapError, match=r"cannot be loaded.*libgloo-dev"):
        libraries.wanted(0, {VARIABLE: "gloo"})


@pytest.mark.parametrize(
    ("variable", "package"), [("OMPI_COMM_WORLD_RANK", "libopenmpi-dev"), ("PMI_RANK", "libmpich-dev")]
)
def test_mpi_is_the_one_that_started_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, package: str
) -> None:
    monkeypatch.setattr(libraries, "_FOLDER", tmp_path)
    with pytest.raises(BootstrapError, match=rf"{package}\b.*HOROVOD_WITH_MPI=1"):
        libraries.wanted(0, {VARIABLE: "MPI", variable: "0"})


@pytest.mark.parametrize(("value", "is_mpi"), [("", False), ("gloo", False), ("MPI", True), ("mpi", True)])
def test_controllers(value: str, is_mpi: bool) -> None:
    assert controller.is_mpi({controller.VARIABLE: value}) == is_mpi
    with pytest.raises(ValueError, match=r"HOROVOD_CONTROLLER=.*expected gloo"):
        controller.is_mpi({controller.VARIABLE: value + "x"})


@pytest.mark.parametrize("environ", [{}, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}])
def test_a_controller_that_was_not_built_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environ: dict[str, str]
) -> None:
    own = from_environment(environ)
    controller.check(own, environ)
    monkeypatch.setattr(libraries, "_FOLDER", tmp_path)
    controller.check(own, {**environ, controller.VARIABLE: "gloo"})
    with pytest.raises(BootstrapError, match=r"rank 0: .*=mpi: .*without Open MPI or MPICH.*WITH_MPI=1"):
        controller.check(own, {**environ, controller.VARIABLE: "mpi"})


def test_mpi_that_was_not_built_is_said_before_who_must_start_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(libraries, "_FOLDER", tmp_path)
    with pytest.raises(BootstrapError, match=r"rank 2: .*libopenmpi-dev or libmpich-dev.*WITH_MPI=1"):
        libraries.wanted(2, {VARIABLE: "MPI"})


@pytest.mark.skipif(not libraries.built("mpi"), reason="horovod was built without MPI")
def test_mpi_that_did_not_start_the_process_says_how_to_start_it() -> None:
    with pytest.raises(BootstrapError, match=r"rank 2: .*=MPI: .*mpirun.*horovodrun --mpi.*unset"):
        libraries.wanted(2, {VARIABLE: "MPI"})


@pytest.mark.skipif(not libraries.installed("gloo"), reason="horovod was built without Gloo")
@pytest.mark.parametrize("value", ["gloo", "GLOO", "Gloo"])
def test_gloo_has_a_version(value: str) -> None:
    found = libraries.wanted(0, {VARIABLE: value})
    assert found.name == "gloo" and found.version[0].isdigit() and Path(found.path).is_absolute()
    assert str(found) == f"gloo {found.version}"


def test_ranks_with_different_libraries_hear_which() -> None:
    own = Place("a", "m", 1, "", ("unix:@x",))
    other = own._replace(host="b", library="gloo 0.5.0")
    assert decode(1, other.encode()) == other
    check_alike([other, other])
    with pytest.raises(BootstrapError, match=r"rank 1 on b .*gloo 0.5.0.* rank 0 on a .*horovod itself"):
        check_alike([own, other])
    with pytest.raises(BootstrapError, match=r"gloo 0.5.0.*gloo 0.6.0"):
        check_alike([own._replace(library="gloo 0.6.0"), other])


def test_the_address_is_that_of_a_link_to_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = socket.socketpair()
    server = socket.create_server(("127.0.0.2", 0))
    client = socket.create_connection(server.getsockname(), source_address=("127.0.0.3", 0))
    links = [each.fileno() for each in (*pair, client)]
    assert libraries.own_address(links, several_hosts=False) == "127.0.0.1"
    assert libraries.own_address(links, several_hosts=True) == "127.0.0.1"  # hosts of one machine
    monkeypatch.setattr(libraries, "_is_loopback", lambda address: address != "127.0.0.3")
    assert libraries.own_address(links, several_hosts=True) == "127.0.0.3"
    for each in (*pair, client, server):
        assert each.fileno() >= 0
        each.close()


def test_a_library_is_what_its_text_says() -> None:
    assert str(Library("gloo", "0.5.0", "/x/_gloo.so")) == "gloo 0.5.0"
