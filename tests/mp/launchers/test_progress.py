"""Jobs that tell how far they are: to Prometheus, to a file, and to ``horovodrun top``."""

import fcntl
import http.server
import importlib.util
import json
import os
import pty
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import networks
import pytest
from launch import MODULE, PROGRAMS, Launcher
from load import within
from pods import Pods, running

from horovod.runner.progress import serving

PROGRAM = str(PROGRAMS / "tells_progress.py")
REASON = networks.why_not()
THREADS = """
import threading
from horovod.common import basics
basics.init()
print([thread.name for thread in threading.enumerate() if "progress" in thread.name])
"""
ENDLESS = """
from horovod.common import basics
from horovod.common.progress import progress
basics.init()
progress(3, steps=float("inf"))
basics.shutdown()
"""
COST = """
import timeit
from horovod.common import basics
from horovod.common.progress import progress
basics.init()
call = "progress(5, steps=10, epoch=1, samples=32)"
print(min(timeit.repeat(call, globals=globals(), number=20_000, repeat=20)) / 20_000 * 1e9)
"""
KERAS = """
import keras, numpy
import horovod.keras as hvd
hvd.init()
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
told = [hvd.callbacks.ProgressCallback(batch_size=8)]
model.fit(numpy.ones((32, 4)), numpy.ones((32, 1)), 8, epochs=3, verbose=0, callbacks=told)
hvd.shutdown()
"""


def until(find: Callable[[], Any], seconds: float = 20) -> Any:
    """What ``find`` finds, once it does."""
    deadline = time.monotonic() + within(seconds)
    while (found := find()) is None or found is False:
        assert time.monotonic() < deadline, "it has not come about"
        time.sleep(0.2)
    return found


def content(path: Path) -> Any:
    """Never a part of it."""
    return json.loads(path.read_text()) if path.exists() else None


def far(path: Path, steps: int, ranks: int) -> Any:
    """What the file says, once all ranks are so far."""
    found = content(path)
    told = [] if found is None else [row["step"] for row in found["ranks"]]
    return found if len(told) == ranks and all((step or 0) >= steps for step in told) else None


def top(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*MODULE, "top", *words], capture_output=True, text=True, timeout=within(20))


def test_prometheus_reads_it(job: Launcher, tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="Prometheus' parser reads the metrics")
    path = tmp_path / "metrics.json"
    process = job.start("-np", "3", "--metrics", "0", f"--metrics={path}", PROGRAM, "1000", "0.01", "1")
    line = process.stderr.readline().decode()  # type: ignore[union-attr]
    assert line.startswith("horovodrun: metrics at http://127.0.0.1:"), line
    until(lambda: far(path, 12, 3))
    with urllib.request.urlopen(line.split()[-1], timeout=within(10)) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        families = {each.name: each for each in parser.text_string_to_metric_families(answer.read().decode())}
    values = {name: [sample.value for sample in family.samples] for name, family in families.items()}
    assert values["horovod_ranks"] == [3] and values["horovod_steps"] == [1000]
    assert values["horovod_awaited_rank"] == [1]
    assert families["horovod_rank_samples"].type == "counter" and families["horovod_step"].type == "gauge"
    assert sorted(each.labels["rank"] for each in families["horovod_rank_step"].samples) == ["0", "1", "2"]
    waiting = {s.labels["rank"]: s.value for s in families["horovod_rank_waiting_seconds"].samples}
    assert waiting["1"] < 0.3 * min(waiting["0"], waiting["2"])
    process.terminate()
    assert job.finish(process, 20).returncode == 143
    assert content(path)["status"] == 143


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_file_tells_the_end(job: Launcher, tmp_path: Path, ranks: int) -> None:
    path = tmp_path / "metrics.json"
    status, _, stderr = job.run("-np", str(ranks), "--metrics", str(path), PROGRAM, "12", "0.05")
    assert status == 0, stderr
    found = content(path)
    assert (found["status"], found["step"], found["steps"], found["progress"]) == (0, 12, 12, 1.0)
    assert [row["samples"] for row in found["ranks"]] == [12 * 32] * ranks
    assert found["trainerStatus"]["progressPercentage"] == 100
    assert [each.name for each in tmp_path.iterdir()] == ["metrics.json"]


def test_top_shows_the_job_of_a_process(job: Launcher) -> None:
    process = job.start("-np", "3", PROGRAM, "1000", "0.01", "1")
    pid = str(process.pid)

    def shown() -> Any:
        found = top(pid, "--json")
        return found.returncode == 0 and (json.loads(found.stdout)["awaited"] == 1 and found.stdout)

    told = json.loads(until(shown))
    assert [row["rank"] for row in told["ranks"]] == [0, 1, 2]
    assert all(row["memory"] > 1 << 20 and row["cores"] is not None for row in told["ranks"])
    lines = top(pid, "--once").stdout.splitlines()
    assert lines[0].startswith(f"job {pid}: 3 ranks on 1 host") and all(len(line) <= 80 for line in lines)
    assert lines[1].startswith("step ") and " of 1000 (" in lines[1] and lines[2].split()[0] == "rank"
    assert lines[-1].startswith("the others wait for rank 1 on localhost")
    process.terminate()
    job.finish(process, 20)
    ended = top(pid)
    assert ended.returncode == 1 and f"no job of yours with the process {pid}" in ended.stderr


def test_a_stopped_launcher_has_not_ended(job: Launcher) -> None:
    process = job.start("-np", "1", PROGRAM, "100000", "0.01")
    pid = str(process.pid)
    until(lambda: top(pid).returncode == 0)
    process.send_signal(signal.SIGSTOP)
    stopped, for_programs = top(pid), top(pid, "--json")
    process.send_signal(signal.SIGCONT)
    assert stopped.stdout.startswith(f"job {pid} does not answer: ") and stopped.returncode == 1
    assert for_programs.stdout == "" and f"job {pid} does not answer" in for_programs.stderr
    assert top(pid).stdout.startswith(f"job {pid}: 1 rank ")
    process.terminate()
    job.finish(process, 20)


def test_top_shows_a_job_that_says_nothing(job: Launcher) -> None:
    process = job.start("-np", "2", sys.executable, "-c", "import time; time.sleep(60)")

    def looked_at() -> Any:
        found = top(str(process.pid), "--json")
        rows = json.loads(found.stdout)["ranks"] if found.returncode == 0 else []
        return len(rows) == 2 and all(row["cores"] is not None for row in rows) and rows

    assert all(row["memory"] > 1 << 20 and row["step"] is None for row in until(looked_at))
    assert "call hvd.progress()" in top(str(process.pid)).stdout
    process.terminate()
    job.finish(process, 20)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_sees_no_job(job: Launcher) -> None:
    process = job.start("-np", "1", sys.executable, "-c", "import time; time.sleep(60)")
    path = os.path.join(serving.folder(), str(process.pid))
    until(lambda: os.path.exists(path))
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            socket.socket(socket.AF_UNIX).connect(path)
        except PermissionError:
            os._exit(13)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 13
    process.terminate()
    job.finish(process, 20)
    assert not os.path.exists(path)


def test_an_elastic_job_goes_on_telling(job: Launcher, tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    process = job.start("-np", "3", "--min-np", "2", f"--metrics={path}", PROGRAM, "100", "0.05")
    before = until(lambda: far(path, 5, 3))
    assert before["generation"] == 1
    os.kill(before["ranks"][2]["pid"], 9)

    def regrown() -> Any:
        now = content(path)
        return now["generation"] > 1 and far(path, 10, 3)

    after = until(regrown)
    assert after["ranks"][2]["pid"] != before["ranks"][2]["pid"]
    assert [row["rank"] for row in after["ranks"]] == [0, 1, 2]
    result = job.finish(process, 40)
    assert result.returncode == 0, result.output
    assert content(path)["progress"] == 1.0


@pytest.mark.parametrize(("options", "threads"), [([], "[]"), (["--metrics", "m.json"], "['hvd-progress']")])
def test_without_metrics_nothing_is_told(
    job: Launcher, tmp_path: Path, options: list[str], threads: str
) -> None:
    process = job.popen([*MODULE, "-np", "2", *options, sys.executable, "-c", THREADS], cwd=tmp_path)
    result = job.finish(process, 20)
    assert sorted(result.stdout.decode().split()) == [f"[{rank}]<stdout>:{threads}" for rank in (0, 1)]
    assert [each.name for each in tmp_path.iterdir()] == options[1:]


def test_a_training_without_an_end_has_steps(job: Launcher, tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    status, _, stderr = job.run("-np", "1", f"--metrics={path}", sys.executable, "-c", ENDLESS)
    assert (status, stderr) == (0, b"")
    assert (content(path)["step"], content(path)["steps"]) == (3, None)


@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="there is no keras")
def test_keras_tells_its_batches(job: Launcher, tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    process = job.start("-np", "1", f"--metrics={path}", sys.executable, "-c", KERAS, KERAS_BACKEND="torch")
    result = job.finish(process, 60)
    assert result.returncode == 0, result.output
    found = content(path)
    assert (found["step"], found["steps"], found["epoch"], found["progress"]) == (12, 12, 2, 1.0)
    assert [row["samples"] for row in found["ranks"]] == [12 * 8]


@pytest.mark.parametrize("options", [[], ["--metrics", "0"]], ids=["off", "on"])
def test_a_step_costs_less_than_a_microsecond(job: Launcher, options: list[str]) -> None:
    _, stdout, stderr = job.run("-np", "1", *options, sys.executable, "-c", COST)
    assert float(stdout.partition(b":")[2]) < within(1000), stderr


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("metrics", "is no port, address or file"),
        ("/proc/none/x", "--metrics /proc/none/x: "),
        ("1.2.3.4:9", ""),
    ],
)
def test_a_place_that_cannot_be_used_is_said_at_the_start(job: Launcher, place: str, reason: str) -> None:
    status, stdout, stderr = job.run("-np", "1", "--metrics", place, "echo", "started")
    assert status == 2 and stdout == b"" and reason.encode() in stderr and b"Traceback" not in stderr


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    with running(tmp_path) as made:
        yield made


@pytest.mark.skipif(bool(REASON), reason=f"no hosts with networks of their own: {REASON}")
@pytest.mark.parametrize("elastic", [[], ["--min-np", "2"]], ids=["static", "elastic"])
def test_ranks_on_other_hosts_are_seen(pods: Pods, tmp_path: Path, elastic: list[str]) -> None:
    path = tmp_path / "metrics.json"
    agents = [pods.join(0), pods.join(1)]
    process = pods.lead("-np", "4", *elastic, f"--metrics={path}", PROGRAM, "1000", "0.01", "3")
    told = until(lambda: far(path, 12, 4))
    hosts = [row["host"] for row in told["ranks"]]
    assert sorted(hosts) == ["pod-0", "pod-0", "pod-1", "pod-1"] and told["awaited"] == 3
    assert all(row["memory"] > 1 << 20 and row["cores"] is not None for row in told["ranks"])
    lines = top(str(process.pid)).stdout.splitlines()
    assert f"the others wait for rank 3 on {hosts[3]}" in lines[-1], lines
    process.terminate()
    pods.finish(process, 20)
    for agent in agents:
        pods.finish(agent, 10)


class Controller(http.server.BaseHTTPRequestHandler):
    """That of Kubeflow, which takes the status of a TrainJob."""

    told: ClassVar[list[tuple[str, str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.told.append((self.path, self.headers["Authorization"], body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing to stderr."""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_trainjob_is_told(job: Launcher, tmp_path: Path) -> None:
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key", "-out", "ca.crt"]
    subprocess.run([*made, *names], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "token").write_text("of-the-pod\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ca.crt", tmp_path / "key")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Controller) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        variables = {
            "KUBEFLOW_TRAINER_SERVER_URL": f"https://localhost:{server.server_port}/trainjobs/mine/status",
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(tmp_path / "ca.crt"),
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(tmp_path / "token"),
        }
        status, _, stderr = job.run("-np", "2", "--metrics", "trainjob", PROGRAM, "10", "0.05", **variables)
        server.shutdown()
    assert status == 0 and stderr == b"", stderr
    paths, tokens, bodies = zip(*Controller.told, strict=True)
    assert {*paths} == {"/trainjobs/mine/status"} and {*tokens} == {"Bearer of-the-pod"}
    assert bodies[-1].keys() == {"trainerStatus"} and bodies[-1]["trainerStatus"]["progressPercentage"] == 100


def test_a_trainjob_needs_its_controller(job: Launcher) -> None:
    status, _, stderr = job.run("-np", "1", "--metrics", "trainjob", "true")
    assert status == 2 and b"--metrics trainjob: KUBEFLOW_TRAINER_SERVER_URL is not set" in stderr


def test_top_moves_on_a_terminal_of_80_columns(job: Launcher) -> None:
    process = job.start("-np", "3", PROGRAM, "1000", "0.01", "1")
    until(lambda: top(str(process.pid)).returncode == 0)
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    words = [*MODULE, "top", str(process.pid)]
    shown = subprocess.Popen(words, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    frames, end = b"", time.monotonic() + within(20)
    while len(set(re.findall(rb"step [0-9]+", frames))) < 3 and time.monotonic() < end:
        frames += os.read(leader, 1 << 16)
    process.terminate()
    job.finish(process, 20)
    while b"the job has ended" not in frames and time.monotonic() < end:
        frames += os.read(leader, 1 << 16)
    assert shown.wait(within(10)) == 0
    os.close(leader)
    lines = [re.sub(r"\x1b\[[HJK2]+", "", line) for line in frames.decode().split("\r\n")]
    assert all(len(line) <= 80 for line in lines), lines
    assert len({line for line in lines if line.startswith("step ")}) >= 3, lines
