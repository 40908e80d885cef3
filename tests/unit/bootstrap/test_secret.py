"""The secret's way from the launcher to a rank, and what is left of it in the rank."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from horovod.bootstrap import secret
from horovod.bootstrap.network import endpoints

SECRET = bytes(range(32))
HEX = SECRET.hex()


def test_a_child_reads_what_is_offered_and_nothing_is_in_its_environment() -> None:
    offered = secret.offer(SECRET)
    try:
        assert list(offered.variables) == [secret.FILE_VARIABLE, secret.SOCKET_VARIABLE]
        assert HEX not in str(offered.variables)
        program = "import os; from horovod.bootstrap.secret import take; print(take(os.environ).hex())"
        environment = {**os.environ, **offered.variables}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == HEX
        path = offered.variables[secret.FILE_VARIABLE]
        assert os.stat(path).st_mode & 0o777 == 0o400
        with pytest.raises(OSError, match="not permitted"):
            os.write(offered.descriptor, b"other")  # sealed
        assert not os.get_inheritable(offered.descriptor)
    finally:
        offered.close()


def _refuse(*_: object) -> int:
    raise OSError("Function not implemented")


@pytest.mark.parametrize("name", ["memfd_create", "fchmod", "stat"])
def test_a_socket_is_the_way_where_such_a_file_cannot_be_had(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, name, _refuse)
        offered = secret.offer(SECRET)
    assert list(offered.variables) == [secret.SOCKET_VARIABLE]
    for _ in range(3):
        environment = {**offered.variables, "OTHER": "1"}
        assert secret.take(environment) == SECRET
        assert environment == {"OTHER": "1"}
    offered.close()
    assert len(os.listdir("/proc/self/fd")) <= before
    with pytest.raises(ValueError, match=r"SOCKET=.* does not answer: .*refused"):
        secret.take(dict(offered.variables))


def test_a_socket_is_the_way_where_the_file_is_out_of_sight() -> None:
    offered = secret.offer(SECRET)
    away = {**offered.variables, secret.FILE_VARIABLE: "/proc/1/fd/99999"}
    assert secret.take(dict(away)) == SECRET
    offered.close()
    with pytest.raises(ValueError, match=r"FILE=/proc/1/fd/99999 cannot be opened: .*, and .*SOCKET=unix"):
        secret.take(dict(away))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_given_nothing() -> None:
    offered = secret.offer(SECRET)
    program = (
        "import os, socket, sys; os.setuid(12345); s = socket.socket(socket.AF_UNIX);"
        "s.connect('\\0' + sys.argv[1].removeprefix('unix:@')); s.settimeout(30); print(s.recv(1) == b'')"
    )
    address = offered.variables[secret.SOCKET_VARIABLE]
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program, address], capture_output=True, text=True)
        assert done.stdout.strip() == "True" or "reset" in done.stderr
    assert secret.take({secret.SOCKET_VARIABLE: address}) == SECRET
    offered.close()


def test_the_environment_is_the_way_where_there_is_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "memfd_create", _refuse)
        patch.setattr(endpoints, "listen", _refuse)
        offered = secret.offer(SECRET)
    assert offered.variables == {secret.SECRET_VARIABLE: HEX}
    offered.close()
    environment = {**offered.variables, "OTHER": "1"}
    assert secret.take(environment) == SECRET
    assert environment == {"OTHER": "1"}
    assert secret.take(environment) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
@pytest.mark.parametrize(("mode", "is_taken"), [(0o440, True), (0o400, True), (0o444, False), (0o460, False)])
@pytest.mark.parametrize("owner", [0, 12345])
def test_a_file_of_a_volume_belongs_to_root(
    tmp_path: Path, mode: int, is_taken: bool, owner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text(HEX)
    os.chown(file, owner, -1)
    file.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    if is_taken and owner == 0:
        assert secret.take({secret.FILE_VARIABLE: str(file)}) == SECRET
    else:
        with pytest.raises(ValueError, match="alone"):
            secret.take({secret.FILE_VARIABLE: str(file)})


def test_a_file_that_is_not_ours_alone_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(HEX + "\n")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    file.chmod(0o600)
    assert secret.take({secret.FILE_VARIABLE: str(file)}) == SECRET
    cases = [(pipe, "alone"), (tmp_path / "none", "No such file"), (tmp_path, "alone")]
    for path, hint in cases:
        with pytest.raises(ValueError, match=hint):
            secret.take({secret.FILE_VARIABLE: str(path)})
    file.chmod(0o640)
    with pytest.raises(ValueError, match="alone"):
        secret.take({secret.FILE_VARIABLE: str(file)})
    file.chmod(0o600)
    for wrong in (HEX[:-2], HEX + "00", "x" * 64, ""):
        file.write_text(wrong)
        with pytest.raises(ValueError, match="hexadecimal") as caught:
            secret.take({secret.FILE_VARIABLE: str(file)})
        assert len(wrong) == 0 or wrong not in str(caught.value)


PROGRAM = """
import os, subprocess, sys
from horovod.bootstrap.secret import take
def shown(pid="self"):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()
before = shown()
assert take(os.environ).hex() == sys.argv[1]
after = shown()
child = subprocess.run(["cat", "/proc/self/environ"], capture_output=True).stdout
needle = sys.argv[1].encode()
changed = sum(a != b for a, b in zip(before, after))
print(len(before) == len(after), changed <= 64, needle in before, needle in after, needle in child)
print(os.environ.get("LAST"), os.environ.get("FIRST"), b"\\0HOROVOD_SECRET_KEY" in b"\\0" + child)
"""


@pytest.mark.parametrize("place", ["first", "middle", "last", "look-alike"])
def test_a_rank_erases_the_secret_from_the_environment_it_was_started_with(place: str) -> None:
    others = {"FIRST": "1", "LAST": "2", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    own = {"HOROVOD_SECRET_KEY": HEX}
    environment = {
        "first": {**own, **others},
        "middle": {"FIRST": "1", **own, **others},
        "last": {**others, **own},
        "look-alike": {"X": "HOROVOD_SECRET_KEY=y", "NO_HOROVOD_SECRET_KEY": "z", **others, **own},
    }[place]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, HEX], env=environment, capture_output=True, text=True, check=True
    )
    # The command line of this test holds the secret; its environment must not.
    assert done.stdout.split() == ["True", "True", "True", "False", "False", "2", "1", "False"]


def test_keys_differ_by_purpose_and_generation() -> None:
    program = (
        "from horovod.bootstrap import start; p = start._process.job; p.secret = bytes(32);"
        "keys = [start.key_for('a'), start.key_for('b')]; p.generation = 2; keys.append(start.key_for('a'));"
        "print(len(set(keys)), len(keys[0]), bytes(32) in keys)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "32", "False"]
