"""The ranks wait for operations of different names, which would steer a terminal, until the job fails."""

import sys
import threading

import torch

import horovod.torch as hvd

hvd.init()
threading.current_thread().name = sys.argv[1]
hvd.allreduce(torch.ones(1), name=f"{sys.argv[1]} of {hvd.rank()}")
