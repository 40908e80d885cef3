"""The program of compute workers: see ``compute_service``."""

import argparse
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import COMPUTE, SIDES, TfDataServiceConfig, compute_worker_fn
from horovod.tensorflow.data.registry import ComputeService


def main() -> None:
    text = "Serves tf.data datasets to trainings. Start it with horovodrun."
    parser = parser_for("horovod.tensorflow.data.compute_worker", text)
    args = parser.parse_args()
    hvd.init()
    size = hvd.size()
    if args.dispatchers <= 0 or size % args.dispatchers:
        parser.error(f"{size} workers cannot be shared among {args.dispatchers} dispatchers equally")
    if hvd.rank() != 0:
        compute_worker_fn(TfDataServiceConfig.from_dict(hvd.broadcast_object(None, root_rank=0)))
        return
    with serving(args, size) as config:
        hvd.broadcast_object(config.to_dict(), root_rank=0)
        compute_worker_fn(config)


def parser_for(module: str, text: str) -> argparse.ArgumentParser:
    """The command line of a program that serves; ``text`` describes it."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=text)
    parser.add_argument("configfile", help="written for trainings to read; it holds a key")
    parser.add_argument("--dispatchers", type=int, default=1, help="how many; default: 1")
    parser.add_argument("--dispatcher-side", choices=SIDES, default=COMPUTE, help="default: compute")
    parser.add_argument("--timeout", type=int, default=60, help="seconds to wait for others; default: 60")
    return parser


@contextmanager
def serving(args: argparse.Namespace, workers: int) -> Iterator[TfDataServiceConfig]:
    """Has the registry in this process, and the file that tells of it, which goes with it, also where SIGTERM
    ends the process: a training that finds an old file would wait for a service that is gone.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    key = secrets.token_bytes(32)
    registry = ComputeService(key)
    config = TfDataServiceConfig(
        args.dispatchers,
        workers // args.dispatchers,
        args.dispatcher_side,
        registry.addresses,
        key,
        args.timeout,
    )
    try:
        config.write(args.configfile)
        yield config
    finally:
        with suppress(OSError):
            os.unlink(args.configfile)
        registry.close()  # the others see it as the end


if __name__ == "__main__":
    main()
