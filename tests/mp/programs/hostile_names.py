"""The ranks wait for operations of different names, which would steer a terminal, until the job fails."""

import sys
import threading

import plain_horovod as hvd

hvd.init()
threading.current_thread().name = sys.argv[1]
hvd.allreduce_(bytearray(1), name=f"{sys.argv[1]} of {hvd.rank()}")
