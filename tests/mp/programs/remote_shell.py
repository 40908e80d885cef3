#!/usr/bin/env python3
"""Stands in for ssh: runs the command of a launcher here, in the name of the host that it is for."""

import os
import sys

arguments = sys.argv[1:]
while arguments[0].startswith("-"):
    arguments.pop(0)
os.environ["HOROVOD_HOSTNAME"] = arguments[0]
os.execvp("sh", ["sh", "-c", " ".join(arguments[1:])])
