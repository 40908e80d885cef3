"""Ranks that cannot go on with MPI, each scene in its own way."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import plain_horovod as hvd

_WORLD, _RETURN = 0x44000000, 0x54000001  # as MPICH numbers them


def no_room() -> None:
    """MPICH has no number left for another communicator."""
    hvd.init()
    mpi = ctypes.CDLL("libmpich.so.12")
    own = ctypes.c_int()
    mpi.MPI_Comm_dup(_WORLD, ctypes.byref(own))
    mpi.MPI_Comm_set_errhandler(own, _RETURN)
    while mpi.MPI_Comm_dup(own, ctypes.byref(ctypes.c_int())) == 0:
        pass
    try:
        hvd.allreduce_(bytearray(9), name="x")
    except hvd.HorovodInternalError as error:
        print(f"rank {hvd.rank()}: {error}", flush=True)
        time.sleep(1)  # so that both have spoken before one ends
        raise


def _leave_amid_a_collective() -> None:
    """Of many rounds, in one of which rank 0 waits for rank 1, which is stopped meanwhile."""
    hvd.init()
    hvd.allreduce_(bytearray(9))
    hvd.allreduce_async_(bytearray(256 << 20))
    time.sleep(0.2)
    if hvd.rank() == 1:
        own = os.getpid()
        with subprocess.Popen(["/bin/sh", "-c", f"sleep 2; kill -CONT {own}"]):
            os.kill(own, signal.SIGSTOP)
    time.sleep(1)
    hvd.shutdown()


def starts_again() -> None:
    """Which cannot be."""
    _leave_amid_a_collective()
    try:
        hvd.init()
    except RuntimeError as error:
        print(error, flush=True)
        time.sleep(1)
        raise


def ends_well() -> None:
    """As far as the program can tell."""
    _leave_amid_a_collective()


def loses_a_rank() -> None:
    """Between two collectives; nobody begins another one."""
    hvd.init()
    hvd.allreduce_(bytearray(9))
    if hvd.rank() == 1:
        time.sleep(0.5)  # until the others have their results: an error would be another way to end
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(2)


def comes_late() -> None:
    """Rank 1 is not there for longer than the others wait."""
    if "1" in (os.environ.get("PMI_RANK"), os.environ.get("OMPI_COMM_WORLD_RANK")):
        time.sleep(40)
    hvd.init()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
