#!/usr/bin/env python3
"""Stands in for ssh: runs the command of a launcher here, in the name of the host that it is for."""

import os
import sys
import tempfile

arguments = sys.argv[1:]
while arguments[0].startswith("-"):
    arguments.pop(0)
host = arguments[0]
os.environ["HOROVOD_HOSTNAME"] = host
# Hosts share no temporary folder. Open MPI's daemons rely on it: two that make the same folder at one moment
# fail ("File exists"), or crash in the map of the machine that both of them write there.
folder = os.path.join(tempfile.gettempdir(), f"host-{os.getuid()}-{host}")
os.makedirs(folder, mode=0o700, exist_ok=True)
os.environ["TMPDIR"] = folder
os.execvp("sh", ["sh", "-c", " ".join(arguments[1:])])
