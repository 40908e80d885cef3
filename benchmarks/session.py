"""What every benchmark does around its measurement: the ranks, both libraries, the report."""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from board import Board
from samples import Row, table

import horovod.torch as hvd


@dataclass
class Session:
    """One run of one benchmark on one rank, with both libraries ready in the same processes."""

    rank: int
    size: int
    quick: bool
    rounds: int
    board: Board
    rows: list[Row]


def pin() -> None:
    """Rank r to the r-th usable core, before any library starts a thread."""
    rank = int(os.environ.get("HOROVOD_LOCAL_RANK", "0"))
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=10, help="every library runs once in each")
    parser.add_argument(
        "--quick", action="store_true", help="correctness only: few, small, not worth reading"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results")
    return parser.parse_args()


@contextmanager
def session(description: str) -> Iterator[Session]:
    """Starts both libraries, hands over, then rank 0 prints the table and writes the file."""
    args = arguments(description)
    pin()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    folder = Path(hvd.broadcast_object(tempfile.mkdtemp() if rank == 0 else None, root_rank=0))
    if rank == 0:
        Board.create(folder / "board", size)
    hvd.broadcast_object(None, root_rank=0)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=size)
    rounds = 2 if args.quick else args.rounds
    run = Session(rank, size, args.quick, rounds, Board(folder / "board", rank, size), [])
    yield run
    run.board.barrier()
    if rank == 0:
        print(table(run.rows), flush=True)
        if args.json:
            args.json.write_text(json.dumps([row.as_dict() for row in run.rows]), encoding="utf-8")
        shutil.rmtree(folder)
    dist.destroy_process_group()
    hvd.shutdown()
