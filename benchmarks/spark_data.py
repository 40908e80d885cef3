"""Parquet streamed by the reader of horovod.spark, beside torch's DataLoader over the same rows in memory.

horovodrun -np 2 python benchmarks/spark_data.py --megabytes 1000
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from samples import load
from session import pin
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import horovod.torch as hvd
from horovod.spark.common import parquet
from horovod.spark.common.dataset import ROW_GROUP_BYTES, columns_of
from horovod.spark.common.reader import Batches
from horovod.spark.common.tensors import to_torch

WIDTH = 99  # numbers of 4 bytes in a row, beside the label: 400 bytes
ROW_BYTES = 4 * (WIDTH + 1)
FILES = 20


def place(folder: str, rows: int) -> None:
    """Files as Spark writes them: row groups of 16 MiB, arrays of numbers. Each rank writes some."""
    of_group = ROW_GROUP_BYTES // ROW_BYTES
    for number in range(hvd.rank(), FILES, hvd.size()):
        random = np.random.default_rng(number)
        with pq.ParquetWriter(f"{folder}/part-{number:02}.parquet", schema(), compression="snappy") as writer:
            missing = rows // FILES
            while missing:
                count = min(missing, of_group)
                writer.write_table(some_rows(random, count), row_group_size=count)
                missing -= count


def schema() -> Any:
    return pa.schema({"features": pa.list_(pa.float32()), "label": pa.int32()})


def some_rows(random: np.random.Generator, rows: int) -> Any:
    values = pa.array(random.random(rows * WIDTH, np.float32))
    offsets = pa.array(np.arange(0, (rows + 1) * WIDTH, WIDTH, np.int32))
    lists = pa.ListArray.from_arrays(offsets, values)
    return pa.table([lists, pa.array(random.integers(0, 10, rows, np.int32))], schema=schema())


def streamed(folder: str, batch_size: int, columns: list[Any]) -> Iterable[Any]:
    options = {"rank": hvd.rank(), "size": hvd.size()}
    batches = Batches(folder, columns, batch_size, shuffle=True, **options)
    return (list(to_torch(batch).values()) for batch in batches.epoch())


def in_memory(folder: str, columns: list[Any]) -> TensorDataset:
    """This rank's rows."""
    batches = Batches(folder, columns, 1 << 14, rank=hvd.rank(), size=hvd.size())
    parts = [list(to_torch(batch).values()) for batch in batches.epoch()]
    return TensorDataset(*(torch.cat(column) for column in zip(*parts, strict=True)))


def one_epoch(make: Callable[[], Iterable[Any]]) -> tuple[float, float]:
    """Rows per second, and per second of processor time, of all ranks."""
    hvd.barrier()
    begin, work, rows = time.perf_counter(), time.process_time(), 0
    for features, label in make():
        rows += len(label)
        float(features[-1, 0])  # the program looks at the batch
    work = time.process_time() - work
    hvd.barrier()
    took = time.perf_counter() - begin
    rows, work = hvd.allreduce(torch.tensor([rows, work], dtype=torch.float64), op=hvd.Sum).tolist()
    return rows / took, rows / (work / hvd.size())


def peak() -> float:
    """In MB, of the rank that has most."""
    text = Path("/proc/self/status").read_text()
    own = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM"))
    return max(hvd.allgather(torch.tensor([own / 1000])).tolist())


def forget_peak() -> None:
    """The peak of memory begins anew."""
    Path("/proc/self/clear_refs").write_text("5")


def compare(folder: str, batch_size: int, rounds: int) -> None:
    """The stream first, whose memory is then that of the stream alone; then all in turns."""
    columns = list(columns_of(folder, parquet.row_groups(parquet.files_at(folder))).values())
    kinds: dict[str, Callable[[], Iterable[Any]]] = {
        "Parquet, streamed": lambda: streamed(folder, batch_size, columns)
    }
    forget_peak()
    most = {"at the start": peak()}
    one_epoch(kinds["Parquet, streamed"])
    most["Parquet, streamed"] = peak()
    rows = in_memory(folder, columns)
    whole = BatchSampler(RandomSampler(rows), batch_size, drop_last=False)
    kinds["DataLoader"] = lambda: DataLoader(rows, batch_size, shuffle=True)
    kinds["DataLoader, by batch"] = lambda: DataLoader(rows, None, sampler=whole)
    most |= dict.fromkeys(kinds.keys() - most.keys(), peak())
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, make in kinds.items():
            found[name].append(one_epoch(make))
    if hvd.rank() == 0:
        report(found, most)


def report(found: dict[str, list[tuple[float, float]]], most: dict[str, float]) -> None:
    print(f"{'':22} {'rows/s':>10} {'smallest':>10} {'largest':>10} {'by CPU s':>10} {'MB at most':>10}")
    for name, rates in found.items():
        clock, work = (sorted(each) for each in zip(*rates, strict=True))
        shown = (statistics.median(clock), clock[0], clock[-1], statistics.median(work), most[name])
        print(f"{name:22} " + " ".join(f"{number:10,.0f}" for number in shown))
    print(f"a rank had {most['at the start']:,.0f} MB at the start; load {load():.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where the data are written for the time of the run")
    args = parser.parse_args()
    pin()
    torch.set_num_threads(1)
    hvd.init()
    own = tempfile.mkdtemp(prefix="spark-data-", dir=args.folder) if hvd.rank() == 0 else None
    folder = hvd.broadcast_object(own)
    try:
        place(folder, args.megabytes * 1_000_000 // ROW_BYTES)
        hvd.barrier()
        compare(folder, args.batch_size, args.rounds)
    finally:
        hvd.barrier()
        if own:
            shutil.rmtree(own)
    hvd.shutdown()


if __name__ == "__main__":
    main()
