"""What every benchmark does around its measurement: the ranks, the libraries, the report."""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from board import Board
from samples import Row, table

from horovod.common import basics as hvd
from horovod.common.collective.byte_objects import objects

Peer = Callable[[Path, int, int], AbstractContextManager[None]]
"""Starts the library to compare with, given a folder that all ranks share, the rank and the size."""


@dataclass
class Session:
    """One run of one benchmark on one rank, with all libraries ready in the same processes."""

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
def session(description: str, peer: Peer) -> Iterator[Session]:
    """Starts the libraries, hands over, then rank 0 prints the table and writes the file."""
    args = arguments(description)
    pin()
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    folder = Path(objects.broadcast_object(tempfile.mkdtemp() if rank == 0 else None))
    if rank == 0:
        Board.create(folder / "board", size)
    objects.broadcast_object(None)
    rounds = 2 if args.quick else args.rounds
    with peer(folder, rank, size):
        run = Session(rank, size, args.quick, rounds, Board(folder / "board", rank, size), [])
        yield run
        run.board.barrier()
    if rank == 0:
        print(table(run.rows), flush=True)
        if args.json:
            args.json.write_text(json.dumps([row.as_dict() for row in run.rows]), encoding="utf-8")
        shutil.rmtree(folder)
    hvd.shutdown()
