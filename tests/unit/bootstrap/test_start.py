"""Start and stop of a process as a rank, with a core that only records what it is given."""

import os
import re
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest
from load import within

import horovod
from horovod.bootstrap import gpu_libraries, start_settings
from horovod.bootstrap import start as start_module
from horovod.bootstrap.errors import AbandonedError, BootstrapError
from horovod.bootstrap.mesh.mesh import Mesh
from horovod.bootstrap.start import is_started, start, stop
from horovod.bootstrap.store.server import StoreServer

_SECRET = bytes(range(32))


class Core(types.ModuleType):
    """Owns what it gets from ``init`` until ``shutdown``, like the real one."""

    def __init__(self) -> None:
        super().__init__("horovod._core")
        self.calls: list[dict[str, Any]] = []

    EngineOptions = types.SimpleNamespace

    def init(self, identity: Any, links: Any, launcher: Any, options: types.SimpleNamespace) -> None:
        given = {"identity": identity, "links": links, "launcher": launcher}
        self.calls.append({**given, **vars(options)})

    def settings(self) -> list[tuple[str, ...]]:
        names = (
            "HOROVOD_START_TIMEOUT",
            "HOROVOD_FUSION_THRESHOLD",
            "HOROVOD_CPU_OPERATIONS",
            "HOROVOD_TRANSPORT",
            *_environment("", 0, 1),
        )
        return [(name,) for name in names]

    def check_setting(self, variable: str, value: str) -> None:
        allowed = {"HOROVOD_TRANSPORT": "auto|shm|tcp|", "HOROVOD_START_TIMEOUT": r"[\d.]*"}.get(
            variable, ".*"
        )
        if re.fullmatch(allowed, value) is None:
            raise ValueError(f"{variable}={value[:100]}")

    def link_requests_descriptor(self) -> int:
        reading, self._asking = os.pipe()
        return reading

    def take_link_requests(self) -> None:
        """There are none, and the engine stops."""

    def shutdown(self) -> None:
        last = self.calls[-1]
        if last["links_on_demand"]:
            os.close(self._asking)
        launcher = [last["launcher"].descriptor] if last["launcher"] else []
        for fd in [link[0] for link in last["links"]] + launcher:
            os.close(fd)


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Iterator[Core]:
    core = Core()
    monkeypatch.setitem(sys.modules, "horovod._core", core)
    monkeypatch.setattr(horovod, "_core", core, raising=False)
    monkeypatch.setattr(gpu_libraries, "find", lambda environ: gpu_libraries.NONE)
    monkeypatch.setattr(start_module, "_process", start_module._Process())
    before = len(os.listdir("/proc/self/fd"))
    yield core
    stop()
    assert len(os.listdir("/proc/self/fd")) <= before


def _environment(address: str, rank: int, size: int, **changes: str) -> dict[str, str]:
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    values = (rank, size, rank, size, 0, 1)
    identity = {f"HOROVOD_{name}": str(value) for name, value in zip(names, values, strict=True)}
    secret = {
        "HOROVOD_SECRET_KEY": _SECRET.hex(),
        "HOROVOD_STORE_ADDR": address,
        "HOROVOD_START_TIMEOUT": "5",
    }
    return {**identity, **secret, **changes}


def test_single_process_opens_nothing(core: Core) -> None:
    before = len(os.listdir("/proc/self/fd"))
    start({})
    start({})
    assert is_started() and len(os.listdir("/proc/self/fd")) <= before
    assert core.calls == [
        {
            "identity": (0, 1, 0, 1, 0, 1),
            "links": [],
            "launcher": None,
            "generation": 1,
            "wiring": "shm",
            "start_seconds": 0.0,
            "hosts": (),
            "host_names": (),
            "gpu_driver": "",
            "gpu_library": "",
            "links_on_demand": False,
        }
    ]
    stop()
    stop()
    assert not is_started()
    start({})
    assert core.calls[1]["generation"] == 2


def _other_rank(address: str, generations: int, transport: str) -> int:
    """Rank 1 in a forked process: the state of a rank is the state of a process."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            environment = _environment(address, 1, 2, HOROVOD_TRANSPORT=transport)
            for _ in range(generations):
                start(environment)
                assert "HOROVOD_SECRET_KEY" not in environment
                stop()
            status = 0
        finally:
            os._exit(status)
    return pid


@pytest.mark.parametrize(
    ("transport", "wiring", "roles"), [("auto", "shm", [0, 3]), ("tcp", "tcp", [0, 1, 2])]
)
def test_ranks_start_stop_and_start_again(core: Core, transport: str, wiring: str, roles: list[int]) -> None:
    server = StoreServer(_SECRET, 2)
    pid = _other_rank(server.address, 20, transport)
    server.start()
    environment = _environment(server.address, 0, 2, HOROVOD_TRANSPORT=transport)
    for generation in range(1, 21):
        start(environment)
        assert "HOROVOD_SECRET_KEY" not in environment
        call = core.calls[-1]
        assert (call["generation"], call["wiring"], len(call["links"])) == (generation, wiring, len(roles))
        assert [link[1:3] for link in call["links"]] == [(1, role) for role in roles]
        launcher = call["launcher"]
        assert launcher.descriptor >= 0 and len(set(launcher.key)) > 1 and launcher.frames > 0
        assert 0 < call["start_seconds"] <= 5
        stop()
    assert os.waitpid(pid, 0)[1] == 0
    server.close()


def test_unknown_variables_are_named_once_with_the_nearest_name(core: Core) -> None:
    environment = {
        "HOROVOD_FUSION_TRESHOLD": "1",
        "HOROVOD_XYZZY": "2",
        "HOROVOD_GPU_ALLREDUCE": "NCCL",
        "HOROVOD_FUSION_THRESHOLD": "",
    }
    with pytest.warns(RuntimeWarning, match=r"HOROVOD_FUSION_TRESHOLD \(did you mean ") as warned:
        start(environment)
    (text,) = [str(warning.message) for warning in warned]
    assert text == (
        "HOROVOD_FUSION_TRESHOLD (did you mean HOROVOD_FUSION_THRESHOLD?), HOROVOD_XYZZY "
        "are not settings of Horovod and have no effect"
    )
    stop()
    start(environment)


def test_a_warning_points_at_the_call_of_init() -> None:
    program = "from horovod.common import basics as hvd\n\nhvd.init()"
    environment = {**os.environ, "HOROVOD_FUSION_TRESHOLD": "2"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert done.stderr.startswith(b"<string>:3: RuntimeWarning: HOROVOD_FUSION_TRESHOLD"), done.stderr


def test_long_values_are_not_echoed(core: Core) -> None:
    with pytest.raises(ValueError, match="HOROVOD_RANK") as raised:
        start({**_environment("", 0, 1), "HOROVOD_RANK": "x" * 10000})
    assert len(str(raised.value)) < 300


def test_failure_to_meet_leaves_no_descriptor(core: Core) -> None:
    server = StoreServer(_SECRET, 2)
    server.start()
    environment = _environment(server.address, 0, 2, HOROVOD_START_TIMEOUT="0.3")
    with pytest.raises(BootstrapError, match="rank 1 never arrived"):
        start(environment)
    assert not is_started() and core.calls == []
    server.close()


def test_forked_child_is_not_started_and_cannot_start(core: Core) -> None:
    start({})
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            assert not is_started()
            stop()
            with pytest.raises(BootstrapError, match=str(os.getppid())):
                start({})
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert is_started()


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"HOROVOD_SECRET_KEY": "abc"}, "HOROVOD_SECRET_KEY"),
        ({"HOROVOD_SECRET_KEY": "ab" * 31}, "HOROVOD_SECRET_KEY"),
        ({"HOROVOD_STORE_ADDR": ""}, "HOROVOD_STORE_ADDR"),
        ({"HOROVOD_CROSS_SIZE": "2"}, "HOROVOD_CROSS_SIZE"),
    ],
)
def test_wrong_environment_is_named(core: Core, changes: dict[str, str], hint: str) -> None:
    with pytest.raises(ValueError, match=hint) as caught:
        start(_environment("unix:@nobody", 0, 2, **changes))
    assert _SECRET.hex() not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("HOROVOD_TRANSPORT", "pigeon"), ("HOROVOD_START_TIMEOUT", "soon"), ("HOROVOD_CPU_OPERATIONS", "CCL")],
)
def test_a_value_without_a_meaning_is_ignored(
    core: Core, capfd: pytest.CaptureFixture, variable: str, value: str
) -> None:
    environment = {**_environment("", 0, 1), variable: value}
    start(environment)
    assert is_started() and variable not in environment
    assert capfd.readouterr().err.count(f"[0] warning: {variable}={value}") == 1


def test_missing_secret_is_explained(core: Core) -> None:
    environment = _environment("unix:@nobody", 0, 2)
    del environment["HOROVOD_SECRET_KEY"]
    with pytest.raises(ValueError, match="horovodrun"):
        start(environment)


def test_a_process_of_another_launcher_does_not_start(core: Core) -> None:
    with pytest.raises(ValueError, match=r"WORLD_SIZE=4.*horovodrun -np 4"):
        start({"WORLD_SIZE": "4", "RANK": "3"})
    assert not is_started() and core.calls == []
    start({"WORLD_SIZE": "1", "RANK": "0"})


@pytest.mark.parametrize("text", ["0.001", "86401", "9e6", "nan", "-1", "0x10"])
def test_the_start_timeout_has_the_range_of_the_table(text: str) -> None:
    """What the engine would refuse is refused before anything is connected, in its words."""
    with pytest.raises(ValueError, match=r"HOROVOD_START_TIMEOUT=.*seconds from 0\.01 to 86400"):
        start_settings.start_timeout({"HOROVOD_START_TIMEOUT": text})
    assert start_settings.start_timeout({"HOROVOD_START_TIMEOUT": "86400"}) == 86400
    assert start_settings.start_timeout({}) == 30


def test_a_rank_without_stderr_starts() -> None:
    code = (
        "import os; os.close(2); from horovod.bootstrap.text import log; log('error', 0, 'lost'); print('on')"
    )
    path = os.path.dirname(os.path.dirname(horovod.__file__))
    environment = {**os.environ, "PYTHONPATH": path}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "on\n"


def test_a_rank_whose_start_is_given_up_at_the_end_leaves_no_link_open(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the others would wait for it."""
    server = StoreServer(_SECRET, 2)
    server.start()
    before = len(os.listdir("/proc/self/fd"))
    mine, other = os.pipe()
    links = [(mine, 1, 0, _SECRET, _SECRET)]
    mesh = Mesh("shm", [], [], links, 0.0, [])
    monkeypatch.setattr("horovod.bootstrap.mesh.mesh.connect_mesh", lambda *_: mesh)
    monkeypatch.setattr(start_module.summary, "tell_links", lambda *_: None)

    def give_up(*_: object) -> None:
        raise AbandonedError("given up")

    monkeypatch.setattr(start_module, "_launcher_link", give_up)
    try:
        with pytest.raises(AbandonedError):
            start(_environment(server.address, 0, 2))
        os.close(other)
        deadline = time.monotonic() + within(5)
        while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < deadline:
            time.sleep(0.01)  # the server's end of the connection
        assert len(os.listdir("/proc/self/fd")) <= before
    finally:
        server.close()
