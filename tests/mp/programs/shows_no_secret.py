"""A rank that looks for secrets where others could see them: in the command lines of all processes."""

import os
import sys
from pathlib import Path

import plain_horovod as hvd

hvd.init()
assert hvd.broadcast_object(hvd.rank(), root_rank=1) == 1
# Both by their names, so that they stand in no command line because of this program.
planted = [os.environ["DB_PASSWORD"].encode()]
if sys.argv[1:]:
    planted.append(Path(sys.argv[1]).read_bytes().strip())
seen = []
for path in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        line = path.read_bytes()
    except OSError:
        continue
    seen += [path for secret in planted if secret in line]
assert not seen, seen
assert "HOROVOD_SECRET_FILE" not in os.environ
os.write(1, b"looked\n")
if hvd.rank() == 2:
    hvd.allreduce_(1 / 0)
hvd.barrier()
