"""Files that horovodrun writes: never through what somebody else may have put in their place."""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from launch import MODULE
from load import within

from horovod.runner import file_writer
from horovod.runner.file_writer import FileWriter
from horovod.runner.files import RefusedError, open_file_in, open_folder
from horovod.runner.output import LinePrefixer
from horovod.runner.rank_output import RankOutput, open_files
from horovod.runner.sink import Sink

OTHER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs files of another user")


def open_in(folder: Path, name: str) -> None:
    """Opens it and writes a word."""
    descriptor = open_folder(folder)
    try:
        with open_file_in(descriptor, name) as file:
            file.write(b"new")
    finally:
        os.close(descriptor)


def test_a_file_is_made_or_emptied(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old content")
    for name in ("old", "fresh"):
        open_in(tmp_path, name)
        assert (tmp_path / name).read_text() == "new"


def _symbolic(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def _dangling(path: Path, victim: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def _hard(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def _pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def _of_another(path: Path, victim: Path) -> None:
    path.write_text("theirs")
    os.chown(path, OTHER, OTHER)


@pytest.mark.parametrize(
    ("trap", "said"),
    [
        (_symbolic, "symbolic link"),
        (_dangling, "symbolic link"),
        (_hard, "hard link"),
        (_pipe, "no regular file"),
        pytest.param(_of_another, "another user", marks=as_root),
    ],
)
def test_a_trap_is_refused(tmp_path: Path, trap: Callable[[Path, Path], None], said: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    own = tmp_path / "logs" / "rank.0"
    own.mkdir(parents=True)
    trap(own / "stdout", victim)
    with pytest.raises(RefusedError, match=said):
        open_files(str(tmp_path / "logs"), 1)
    assert victim.read_text() == "precious"
    assert not (own / "nowhere").exists()
    command = [*MODULE, "-np", "1", "--output-filename", str(tmp_path / "logs"), "true"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert said in result.stderr and result.stderr.count("\n") == 1


def test_a_folder_of_a_rank_is_no_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "stdout").write_text("precious")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank.1").symlink_to(target, target_is_directory=True)
    with pytest.raises(RefusedError, match=r"rank\.1 is a symbolic link"):
        open_files(str(tmp_path / "logs"), 2)
    assert (target / "stdout").read_text() == "precious"


def test_the_users_own_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "scratch", target_is_directory=True)
    for files in open_files(str(tmp_path / "logs"), 2):
        for file in files.values():
            file.close()
    assert sorted(path.name for path in (tmp_path / "scratch").iterdir()) == ["rank.0", "rank.1"]


@as_root
def test_links_and_folders_of_another_user_are_not(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    link = tmp_path / "logs"
    link.symlink_to(tmp_path / "scratch", target_is_directory=True)
    os.lchown(link, OTHER, OTHER)
    with pytest.raises(RefusedError, match="link of another user"):
        open_files(str(link), 1)
    theirs = tmp_path / "scratch" / "rank.0"
    theirs.mkdir()
    os.chown(theirs, OTHER, OTHER)
    with pytest.raises(RefusedError, match=r"rank\.0 belongs to another user"):
        open_files(str(tmp_path / "scratch"), 1)


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    opened = open_files(str(tmp_path), 3)
    assert count() == before + 6
    for file in (file for files in opened for file in files.values()):
        file.close()
    (tmp_path / "rank.2" / "stderr").unlink()
    (tmp_path / "rank.2" / "stderr").symlink_to("x")
    with contextlib.suppress(RefusedError):
        opened = []
        open_files(str(tmp_path), 3)
    assert count() == before


class _Full:
    """A file on a disk that takes half of what is written and then nothing more."""

    name = "log"

    def __init__(self) -> None:
        self.room = 5

    def write(self, data: bytes) -> int:
        if self.room == 0:
            raise OSError(28, "No space left on device")
        taken, self.room = min(self.room, len(data)), 0
        return taken

    def close(self) -> None:
        pass


def test_a_full_disk_is_told_once() -> None:
    """Where the launcher speaks, not among what the ranks write."""
    ends = [os.pipe() for _ in range(2)]
    sinks = [Sink(write_end, lambda: None) for _, write_end in ends]
    prefixer, writer = LinePrefixer("[0]<stdout>:"), FileWriter([], lambda: None, sinks[1])
    stream = RankOutput(sinks[0], prefixer, writer.queued(_Full()))  # type: ignore[arg-type]
    for _ in range(3):
        stream.feed(b"0123456789\n")
    stream.end()
    writer.close()
    texts = []
    for sink, (shown, sink_end) in zip(sinks, ends, strict=True):
        while not sink.is_idle:
            time.sleep(0.01)
        sink.close()
        os.close(sink_end)
        with os.fdopen(shown, "rb") as pipe:
            texts.append(pipe.read().decode())
    assert texts == [
        "[0]<stdout>:0123456789\n" * 3,
        "horovodrun: warning: log: No space left on device; no more is kept there\n",
    ]


class _Frozen:
    """On a disk that takes nothing for a while."""

    name = "log"

    def __init__(self) -> None:
        self.thaws = threading.Event()
        self.kept = b""

    def write(self, data: memoryview) -> int:
        self.thaws.wait()
        self.kept += data
        return len(data)

    def close(self) -> None:
        self.kept += b"end"


def test_a_disk_that_stands_still_holds_up_the_ranks_alone() -> None:
    """Whoever reads their output finds no room, and never waits."""
    room = threading.Event()
    with open(os.devnull, "wb") as nobody:
        sink = Sink(nobody.fileno(), lambda: None)
        writer, file = FileWriter([], room.set, sink), _Frozen()
        streams = [RankOutput(sink, None, writer.queued(file)) for file in (file, _Frozen())]
        sent = b""
        while streams[0].has_room:
            sent += b"x" * (1 << 16)
            streams[0].feed(b"x" * (1 << 16))
        assert len(sent) == 1 << 20 and not streams[1].has_room and not room.is_set()
        file.thaws.set()
        assert room.wait(within(5))
        streams[0].end()
        assert streams[1].has_room
        writer.close()
        assert file.kept == sent + b"end" and streams[1].kept == len(sent)
        sink.close()


def test_what_a_disk_has_not_taken_at_the_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "_STUCK_SECONDS", 0.2)
    reader, end = os.pipe()
    sink, file = Sink(end, lambda: None), _Frozen()
    writer = FileWriter([{"stdout": file}], lambda: None, sink)
    writer.of_ranks[0]["stdout"].put(b"12345")
    writer.close()
    said = os.read(reader, 4096)
    assert b"the disk of --output-filename stands still: 5 bytes are lost" in said
    file.thaws.set()
    sink.close()
    os.close(reader)
    os.close(end)
