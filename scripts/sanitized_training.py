"""Trains with the Python module compiled for sanitizers.

python scripts/sanitized_training.py address,undefined

Python and PyTorch are not instrumented, so the sanitizer's runtime is loaded before them, and leaks are not
counted: Python itself leaves memory behind. The tests of the core count them.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "tests" / "mp" / "programs" / "short_training.py"
RUNTIMES = {"address": "libasan.so", "undefined": "libubsan.so"}
REPORTS = ("ERROR: AddressSanitizer", "runtime error:", "DEADLYSIGNAL")


def build(sanitizers: str) -> Path:
    """The whole package in a folder of its own, so that the ordinary build stays what it was."""
    folder = ROOT / "build" / f"sanitized-{sanitizers.replace(',', '-')}"
    command = [sys.executable, "setup.py", "--quiet", "build", "--build-base", str(folder), "--build-lib"]
    environment = {**os.environ, "HVD_SANITIZE": sanitizers}
    subprocess.run([*command, str(folder / "lib")], cwd=ROOT, env=environment, check=True)
    return folder / "lib"


def runtime(sanitizer: str) -> str:
    """Where this compiler keeps the library."""
    command = [os.environ.get("CXX", "g++"), f"-print-file-name={RUNTIMES[sanitizer]}"]
    path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(path):
        raise SystemExit(f"this compiler has no {RUNTIMES[sanitizer]}")
    return os.path.realpath(path)


def train(package: Path, sanitizers: str, ranks: int, transport: str) -> bool:
    """Starts the ranks under the sanitizers; only they are, the launcher is not."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(package),
        "PYTHONMALLOC": "malloc",
        "HOROVOD_TRANSPORT": transport,
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    preload = ":".join(map(runtime, sanitizers.split(",")))
    rank = ["env", f"LD_PRELOAD={preload}", sys.executable, str(PROGRAM)]
    launcher = [sys.executable, "-m", "horovod.runner.launch", "-np", str(ranks), "--start-timeout", "300"]
    done = subprocess.run(
        [*launcher, *rank], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = done.stdout.decode(errors="replace")
    clean = done.returncode == 0 and not any(report in output for report in REPORTS)
    print(f"{sanitizers}, {ranks} ranks, {transport}: {'clean' if clean else 'FAILED'}", flush=True)
    if not clean:
        print(output)
    return clean


def main() -> None:
    """Both ways for the bytes, each with two and three ranks."""
    sanitizers = sys.argv[1]
    package = build(sanitizers)
    results = [train(package, sanitizers, ranks, way) for way in ("shm", "tcp") for ranks in (2, 3)]
    raise SystemExit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
