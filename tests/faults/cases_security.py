"""Layer I: strangers who knock, ranks that lie, traps in the file system."""

import os
import pickle
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
from fault_case import case, elsewhere
from launch import carries, command_line
from stage import Stage
from trial import WRONG_RESULT, Trial

GREETINGS = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": bytes.fromhex("160301020001000001fc0303") + bytes(100),
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "zeros": bytes(4096),
    "random": os.urandom(4096),
    "long": struct.pack(">I", 0xFFFFFFFF) * 8,
}
Address = str | tuple[str, int]


def doors(job: Trial) -> list[Address]:
    """Where processes of the job accept connections."""
    found: list[Address] = []
    for folder in Path("/proc").glob("[0-9]*"):
        if carries(folder, job.launcher.marker):
            try:
                connections = psutil.Process(int(folder.name)).net_connections(kind="all")
            except psutil.Error:
                continue
            for each in connections:
                if each.status == psutil.CONN_LISTEN:
                    found.append(tuple(each.laddr))
                elif each.family == socket.AF_UNIX and each.laddr and _is_door(each.laddr):
                    found.append(each.laddr)
    return list(dict.fromkeys(found))


def _is_door(name: str) -> bool:
    """Of a Unix socket: one with a name, in the file system or, behind @, outside of it."""
    return name.startswith("@") or Path(name).is_socket()


def knock(address: Address) -> socket.socket | None:
    """A connection to a door, None when it does not open."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    connection = socket.socket(family)
    connection.settimeout(0.5)
    try:
        connection.connect("\0" + address[1:] if address[0] == "@" else address)
    except OSError:
        connection.close()
        return None
    return connection


def greet(job: Trial, greetings: Iterator[bytes]) -> int:
    """Says all this to all doors; returns how many connections were made."""
    made = 0
    for greeting in greetings:
        for address in doors(job):
            connection = knock(address)
            if connection is None:
                continue
            made += 1
            with closing(connection):
                try:
                    connection.sendall(greeting)
                    connection.recv(100)
                except OSError:
                    continue
    return made


def open_doors(job: Trial) -> list[Address]:
    """Waits until the job accepts connections."""
    deadline = time.monotonic() + 20
    while not (found := doors(job)):
        assert time.monotonic() < deadline and job.process.poll() is None, job.output
        time.sleep(0.05)
    return found


@case(94, "I", "strangers send bytes of other protocols, and connect without a word")
def strangers(stage: Stage) -> None:
    for transport in ("shm", "tcp"):
        job = stage.job(3, "attacks:waits", 8, env={"HOROVOD_TRANSPORT": transport})
        open_doors(job)
        made = greet(job, iter(GREETINGS.values()))
        assert made, "no door was found"
        stage.succeeds(job)


@case(96, "I", "a pickle that would run code is sent to every door")
def pickles(stage: Stage) -> None:
    canary = Path(stage.folder()) / "canary"
    bomb = pickle.dumps(_Bomb(str(canary)))
    for transport in ("shm", "tcp"):
        job = stage.job(3, "attacks:waits", 8, env={"HOROVOD_TRANSPORT": transport})
        open_doors(job)
        sizes = (
            b"",
            struct.pack("<I", len(bomb)),
            struct.pack(">I", len(bomb)),
            struct.pack("<Q", len(bomb)),
        )
        assert greet(job, (size + bomb for size in sizes)), "no door was found"
        stage.succeeds(job)
    assert not canary.exists(), "the pickle was loaded"


class _Bomb:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.mkdir, (self.path,)


@case(98, "I", "a rank sends what the library never would", limit=2.0)
def malicious(stage: Stage) -> None:
    for transport in ("shm", "tcp"):
        for what in ("zeros", "long", "random"):
            job = stage.job(3, "attacks:malicious", what, env={"HOROVOD_TRANSPORT": transport})
            assert job.end() == 1, job.output
            assert "rank 1" in job.report()[0] and WRONG_RESULT not in job.output, job.output
            assert "SIG" not in job.report()[0], job.output
            stage.seconds = max(stage.seconds or 0.0, job.seconds)


@case(99, "I", "a thousand half-open connections, and a handshake byte by byte", limit=20.0)
def slow_handshakes(stage: Stage) -> None:
    job = stage.job(3, "attacks:waits", 8, env={"HOROVOD_TRANSPORT": "tcp"})
    addresses = open_doors(job)
    held = []
    job.fault_at = time.time()
    try:
        for _ in range(1000 // len(addresses)):
            held += [connection for address in addresses if (connection := knock(address))]
        for connection in held[:20]:
            try:
                connection.send(b"H")
            except OSError:
                continue
        stage.succeeds(job)
    finally:
        for connection in held:
            connection.close()
    assert len(held) > 100, f"only {len(held)} connections were made"
    stage.seconds = job.seconds


@case(100, "I", "another user looks for secrets in /proc, files and shared memory")
def secrets(stage: Stage) -> None:
    job = stage.job(2, "attacks:shows_itself", 3, options=["--verbose"])
    job.running()
    folders = [folder for folder in Path("/proc").glob("[0-9]*") if carries(folder, job.launcher.marker)]
    assert job.canary.encode() not in b"".join(map(command_line, folders)), "a secret is in a command line"
    for path in job.folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, f"others may read {path}"
    stage.succeeds(job)
    assert "secret in its environment: True" not in job.output, "the job's secret stays in /proc/PID/environ"


@case(101, "I", "symbolic and hard links lie where the job will write")
def planted_links(stage: Stage) -> None:
    folder = Path(stage.folder())
    victim = folder / "victim"
    for index, plant in enumerate((os.symlink, os.link)):
        for name in ("rank.0/stdout", "timeline.json", "autotune.csv"):
            victim.write_text("precious")
            place = folder / str(index) / name.replace("/", "-")
            place.mkdir(parents=True)
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            plant(victim, target)
            options = ["--output-filename", str(place / "logs")]
            if "rank" in name:
                options = ["--output-filename", str(place)]
            elif "timeline" in name:
                options += ["--timeline-filename", str(target)]
            else:
                options += ["--autotune", "--autotune-log-file", str(target)]
            job = stage.job(1, "process:train", 100, options=options)
            job.end()
            assert victim.read_text() == "precious", (
                f"{name} as {plant.__name__} was written through:\n{job.output}"
            )


elsewhere(
    105,
    "I",
    "a checkpoint is truncated, changed, or written twice at once",
    "checkpoints of elastic training",
)
