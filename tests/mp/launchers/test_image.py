"""What the image of examples/kubernetes/Dockerfile runs, in a root folder of its own as a container has one:
few devices, 64 MiB of shared memory, and a user who is not root and has no name.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from load import within
from networks import OWN_MACHINE

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "examples" / "kubernetes" / "Dockerfile").read_text().splitlines()
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc")
ENTER = """
root=$1; shift
mount -t tmpfs tmpfs "$root"
for path in $SEEN; do
  if [ -L "$path" ]; then cp -P "$path" "$root$path"; continue; fi
  [ -d "$path" ] && mkdir -p "$root$path" && mount --rbind "$path" "$root$path"
done
mkdir -p "$root/proc" "$root/tmp" "$root/app" "$root/dev/shm"
mount -t proc proc "$root/proc"
mount -t tmpfs -o size=64m tmpfs "$root/dev/shm"
for device in null zero random urandom; do
  touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"
done
cp $COPIED "$root/app"
chmod 1777 "$root/tmp" "$root/dev/shm"
chown -R 1000:1000 "$root/app"
exec chroot --userspec=1000:1000 "$root" env -i HOME=/app PATH="$INSIDE" sh -c 'cd /app && exec "$@"' sh "$@"
"""


def why_not() -> str:
    """Why there can be no such container here; empty: there can."""
    if os.getuid() != 0:
        return "only root can become another user in a root folder of its own"
    missing = [tool for tool in ("unshare", "mount", "chroot") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not installed (util-linux, coreutils)"
    probe = ["unshare", *OWN_MACHINE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return "" if subprocess.run(probe, capture_output=True).returncode == 0 else "nothing can be mounted here"


pytestmark = pytest.mark.skipif(bool(why_not()), reason=f"no container: {why_not()}")


def copied() -> list[str]:
    """The files that the last stage takes from the sources."""
    (line,) = [line for line in DOCKERFILE if line.startswith("COPY --chown=1000")]
    return [str(ROOT / name) for name in line.split()[2:-1]]


def in_the_image(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command as a container would."""
    seen = dict.fromkeys((*SYSTEM, sys.base_prefix, str(Path(sys.prefix).parent), str(ROOT)))
    own = Path(sys.executable).parent
    environment = {"SEEN": " ".join(seen), "COPIED": " ".join(copied()), "INSIDE": f"{own}:/usr/bin:/bin"}
    inside = ["unshare", *OWN_MACHINE, "sh", "-euc", ENTER, "sh", str(folder), *command]
    options = {"env": {**os.environ, **environment}, "capture_output": True, "text": True}
    return subprocess.run(inside, timeout=within(120), **options)  # type: ignore[call-overload, no-any-return]


def test_its_own_command(tmp_path: Path) -> None:
    (line,) = [line for line in DOCKERFILE if line.startswith("CMD ")]
    done = in_the_image(tmp_path, *json.loads(line.removeprefix("CMD ")))
    assert done.returncode == 0 and "[X] PyTorch" in done.stdout, done.stdout + done.stderr


# What the image has or lacks, a training that is not elastic needs, too.
@pytest.mark.slow
@pytest.mark.parametrize(
    "elastic", [(), pytest.param(("--min-np", "1"), marks=pytest.mark.full)], ids=["static", "elastic"]
)
def test_a_training(tmp_path: Path, elastic: tuple[str, ...]) -> None:
    words = ("python", "-c", "import os; assert os.getuid() == 1000 and os.getcwd() == '/app'")
    done = in_the_image(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    program = "torch_elastic.py" if elastic else "torch_digits.py"
    done = in_the_image(tmp_path, "horovodrun", "-np", "2", *elastic, "python", program, "--epochs", "2")
    assert done.returncode == 0 and "accuracy" in done.stdout, done.stdout + done.stderr


SERVES = """
mkdir .ssh; ssh-keygen -q -t ecdsa -N "" -f .ssh/id_rsa
"$@" &
for second in 1 2 3 4 5; do ssh-keyscan -p "$PORT" 127.0.0.1 2>/dev/null | grep ecdsa && exit; sleep 1; done
exit 1
"""


@pytest.mark.skipif(shutil.which("/usr/sbin/sshd") is None, reason="/usr/sbin/sshd is not installed")
def test_a_worker_of_the_mpijob_serves_ssh_without_root(tmp_path: Path) -> None:
    manifest = yaml.safe_load((ROOT / "examples" / "kubernetes" / "mpijob.yaml").read_text())
    replicas = manifest["spec"]["mpiReplicaSpecs"]
    launcher, worker = (
        replicas[role]["template"]["spec"]["containers"][0] for role in ("Launcher", "Worker")
    )
    assert "-p 2222 " in " ".join(launcher["command"]) and "-p2222" in worker["command"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [word.replace("-p2222", f"-p{port}") for word in worker["command"]]
    done = in_the_image(tmp_path, "env", f"PORT={port}", "sh", "-c", SERVES, "sh", *command)
    assert done.returncode == 0 and "ecdsa" in done.stdout, done.stdout + done.stderr
