"""The program of compute workers: see ``compute_service``."""

import argparse
import os
import secrets
from contextlib import suppress

import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import COMPUTE, SIDES, TfDataServiceConfig, compute_worker_fn
from horovod.tensorflow.data.registry import ComputeService


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m horovod.tensorflow.data.compute_worker",
        description="Serves tf.data datasets to trainings. Start it with horovodrun.",
    )
    parser.add_argument("configfile", help="written by rank 0, for trainings to read; it holds a key")
    parser.add_argument("--dispatchers", type=int, default=1, help="how many; default: 1")
    parser.add_argument("--dispatcher-side", choices=SIDES, default=COMPUTE, help="default: compute")
    parser.add_argument("--timeout", type=int, default=60, help="seconds to wait for others; default: 60")
    args = parser.parse_args()
    hvd.init()
    size = hvd.size()
    if args.dispatchers <= 0 or size % args.dispatchers:
        parser.error(f"{size} workers cannot be shared among {args.dispatchers} dispatchers equally")
    if hvd.rank() == 0:
        serve(args, size // args.dispatchers)
    else:
        compute_worker_fn(TfDataServiceConfig.from_dict(hvd.broadcast_object(None, root_rank=0)))


def serve(args: argparse.Namespace, workers: int) -> None:
    """Rank 0: the registry is here. The file goes with it."""
    key = secrets.token_bytes(32)
    registry = ComputeService(key)
    config = TfDataServiceConfig(
        args.dispatchers, workers, args.dispatcher_side, registry.addresses, key, args.timeout
    )
    try:
        config.write(args.configfile)
        hvd.broadcast_object(config.to_dict(), root_rank=0)
        compute_worker_fn(config)
    finally:
        with suppress(OSError):
            os.unlink(args.configfile)
        registry.close()  # the others see it as the end


if __name__ == "__main__":
    main()
