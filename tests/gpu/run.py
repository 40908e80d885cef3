"""Runs the checks of tensors on GPUs on the GPUs of this machine: make gpu-test.

HVD_GPU_RANKS says how many ranks: without it one for each GPU, or two on a single one. First what every
operation comes to, and a training, against numpy and one process; then how fast it is beside
torch.distributed. Status 0: all is right; 1: something is not; 3: there is no GPU, or no torch or NCCL for
it.
"""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PROGRAMS = ("conformance.py", "training.py", "speed.py")
NOTHING_TO_RUN_ON = 3


def main() -> int:
    """The exit status."""
    lacking = what_is_lacking()
    if lacking:
        print(f"gpu-test: nothing was run, because {lacking}", file=sys.stderr)
        return NOTHING_TO_RUN_ON
    import torch

    gpus = torch.cuda.device_count()
    ranks = int(os.environ.get("HVD_GPU_RANKS", "0")) or max(gpus, 2)
    print(f"gpu-test: {ranks} ranks on {gpus} x {torch.cuda.get_device_name(0)}", flush=True)
    results = {program: run(program, ranks) for program in PROGRAMS}
    for program, status in results.items():
        print(f"{'ok' if status == 0 else f'FAILED ({status})':12} {program}")
    return int(any(results.values()))


def what_is_lacking() -> str:
    """Why nothing can be run; empty where all is there."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no GPU"
    from horovod.bootstrap import gpu_libraries

    found = gpu_libraries.find(os.environ)
    return "" if found.name else gpu_libraries.how_to_get(os.environ)


def run(program: str, ranks: int) -> int:
    """The status of a job."""
    launcher = [sys.executable, "-m", "horovod.runner.launch", "-np", str(ranks), "--timeout", "900"]
    print(f"--- {program} ---", flush=True)
    return subprocess.run([*launcher, sys.executable, str(FOLDER / program)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
