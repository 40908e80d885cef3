"""MPI in the same job agrees with us: begun before us ("first") or after us ("last")."""

import os
import sys

import plain_horovod as hvd

if sys.argv[1] == "first":
    from mpi4py import MPI
hvd.init()
if sys.argv[1] == "last":
    from mpi4py import MPI
world = MPI.COMM_WORLD
assert (world.rank, world.size) == (hvd.rank(), hvd.size())
assert world.allreduce(world.rank) == hvd.allreduce_(bytearray([hvd.rank()]), op=hvd.Sum)[0]
os.write(1, f"rank {world.rank} agrees\n".encode())
hvd.shutdown()
