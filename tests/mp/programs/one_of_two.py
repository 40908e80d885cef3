"""One of the programs that a rank runs one after another: its name, and which rank ends late."""

import sys
import time

import plain_horovod as hvd

name, late = sys.argv[1], int(sys.argv[2])
hvd.init()
value = hvd.allreduce_(bytearray([hvd.rank() + len(name)]), op=hvd.Sum)[0]
print(f"{name}: rank {hvd.rank()} has {value}", flush=True)
is_late = hvd.rank() == late
hvd.shutdown()
if is_late:
    time.sleep(1.5)
