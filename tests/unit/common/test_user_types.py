"""What a type checker tells the users of each adapter about their programs."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="the package mypy is not installed")

ROOT = Path(__file__).resolve().parents[3]
TORCH = """
import torch
import horovod.torch as hvd
from horovod.torch.compression import TopKCompressor

hvd.init()
model = torch.nn.Linear(2, 1)
plain: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
opt = hvd.DistributedOptimizer(
    plain, named_parameters=model.named_parameters(), compression=hvd.Compression.topk
)
again = hvd.DistributedOptimizer(plain, compression=TopKCompressor, process_set=hvd.ProcessSet([0, 1]))
hvd.broadcast_optimizer_state(opt, root_rank=0)
scheduler = torch.optim.lr_scheduler.StepLR(opt, step_size=1)
opt.zero_grad()
model(torch.ones(3, 2)).sum().backward()
opt.synchronize()
with opt.skip_synchronize():
    opt.step()
with opt.no_sync():
    pass
opt.set_backward_passes_per_step(2)
opt.param_groups[0]["lr"] = 0.5
total: torch.Tensor = hvd.allreduce(torch.ones(2), op=hvd.Sum, compression=hvd.Compression.fp16)
sparse: torch.Tensor = hvd.allreduce(torch.ones(2), name="x", compression=hvd.Compression.topk)
handle: int = hvd.allreduce_async_(total)
rank: int = hvd.rank()
opt.synchronise()  # ERROR
hvd.allreduce(total, compression="fp16")  # ERROR
hvd.allreduce(total, process_set=[0, 1])  # ERROR
"""
RUN = """
import horovod
from horovod.runner import run

def add(one: int, other: int) -> int:
    return one + other

sums: list[int] = horovod.run(add, args=(1, 2), num_proc=2, hosts="localhost:2")
sums = run(add, (1,), {"other": 2}, network_interfaces=["lo"])
words: list[str] = horovod.run(add, num_proc=2)  # ERROR
horovod.run(add, num_procs=2)  # ERROR
"""
TENSORFLOW = """
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
variable = tf.Variable(1.0)
with tf.GradientTape() as tape:
    loss = variable**2
tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16, op=hvd.Average)
tape.register_local_source(variable)
gradients = tape.gradient(loss, [variable])
local, shared = tape.get_local_and_global_gradients(loss, [variable])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), backward_passes_per_step=2)
optimizer.register_local_var(variable)
hvd.broadcast_variables([variable], root_rank=0)
total = hvd.allreduce(variable, op=hvd.mpi_ops.Sum, compression=hvd.Compression.bf16)
hvd.DistributedGradientTape(tape, compression=hvd.Compression.topk)  # ERROR
hvd.broadcast_variables([variable])  # ERROR
"""
KERAS = """
import keras
import horovod.keras as hvd

hvd.init()
optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2)
optimizer.register_local_var(keras.Variable(1.0))
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
model = hvd.load_model("model.keras", compression=hvd.Compression.fp16, backward_passes_per_step=2)
hvd.load_model("model.keras", backward_passes=2)  # ERROR
"""
MXNET = """
import mxnet as mx
import horovod.mxnet as hvd

hvd.init()
net = mx.gluon.nn.Dense(1)
trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", compression=hvd.Compression.fp16, num_groups=2)
trainer.broadcast_parameters(root_rank=0)
trainer.step(1)
hvd.broadcast_parameters({0: mx.nd.ones(1)}, root_rank=0)
removed: bool = hvd.remove_process_set(hvd.add_process_set([0, 1]))
hvd.allreduce(mx.nd.ones(1), process_set=[0])  # ERROR
"""
PROGRAMS = {"run": RUN, "torch": TORCH, "tensorflow": TENSORFLOW, "keras": KERAS, "mxnet": MXNET}
CONFIGURATION = """
[mypy]
strict = True
warn_unused_ignores = False
[mypy-keras.*,mxnet.*,tensorflow.*,tf_keras.*,numpy.*,h5py.*,cloudpickle.*]
ignore_missing_imports = True
follow_imports = skip
[mypy-horovod.*]
ignore_errors = True
"""


@pytest.mark.slow
@pytest.mark.timeout(900)  # where the types of torch are read for the first time
def test_programs_of_users(tmp_path: Path) -> None:
    """Errors are where the programs are wrong, and nowhere else. All at once, because torch is read first."""
    pytest.importorskip("torch", reason="the types of torch's optimizers are part of what is checked")
    for name, program in PROGRAMS.items():
        (tmp_path / f"user_{name}.py").write_text(program)
    (tmp_path / "mypy.ini").write_text(CONFIGURATION)
    cache = str(ROOT / ".mypy_cache" / "users")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", cache, "."]
    environment = {"MYPYPATH": str(ROOT / "frameworks")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    found = {tuple(line.split(":")[:2]) for line in done.stdout.splitlines() if ": error:" in line}
    wanted = {
        (f"user_{name}.py", str(number))
        for name, program in PROGRAMS.items()
        for number, line in enumerate(program.splitlines(), 1)
        if line.endswith("# ERROR")
    }
    assert found == wanted, done.stdout + done.stderr
