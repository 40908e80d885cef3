"""Options of horovodrun whose effect only running ranks show."""

import sys
from pathlib import Path

import launch
from launch import Launcher


def test_exported_variables_reach_the_ranks_and_their_values_no_command_line() -> None:
    look = (
        "import os, pathlib, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from launch import command_line\n"
        "lines = [command_line(folder) for folder in pathlib.Path('/proc').glob('[0-9]*')]\n"
        "found = any(os.environ['TOKEN'].encode() in line for line in lines)\n"
        "print(os.environ['TOKEN'], os.environ['SEED'], os.environ['OMP_NUM_THREADS'], found)"
    )
    script = [sys.executable, "-c", look, str(Path(launch.__file__).parent)]
    options = ["-x", "TOKEN", "--env", "SEED=a b=c", "--env=OMP_NUM_THREADS=7"]
    job = Launcher()
    status, stdout, stderr = job.run("-np", "2", *options, *script, TOKEN="planted-3141", SEED="other")
    assert (status, stderr) == (0, b"")
    assert sorted(stdout.splitlines()) == [
        f"[{rank}]<stdout>:planted-3141 a b=c 7 False".encode() for rank in range(2)
    ]
