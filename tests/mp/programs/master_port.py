"""Two ranks of a job meet at MASTER_PORT, as torch.distributed does, and in the library: both times the same
two processes.
"""

import os
import socket
import time

from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import objects

hvd.init()
job = objects.broadcast_object(os.environ["HOROVOD_STORE_ADDR"])
assert job == os.environ["HOROVOD_STORE_ADDR"]
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if hvd.rank() == 0:
    with socket.create_server(where) as server:
        objects.broadcast_object(None)
        connection, _ = server.accept()
        with connection:
            connection.sendall(job.encode())
            assert connection.recv(1) == b""
else:
    objects.broadcast_object(None)
    with socket.create_connection(where, timeout=60) as connection:
        told = connection.makefile("rb").read(len(job)).decode()
        assert told == job, f"{told} is at the port of {job}"
time.sleep(0.5)
assert objects.broadcast_object(hvd.rank()) == 0
print(f"rank {hvd.rank()} has met its own job at port {where[1]}")
