"""Ranks that wait for each other: eagerly nothing else can go on, so a deadlock is proved and ends the
job.
"""

import tensorflow as tf

import horovod.tensorflow as hvd

QUICK = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "0.5", "HOROVOD_STALL_DEADLOCK_TIME_SECONDS": "1.5"}


def ranks_in_a_circle() -> str:
    hvd.init()
    try:
        hvd.allreduce(tf.ones([2]), name=f"only rank {hvd.rank()} has it")
    except tf.errors.UnknownError as error:
        return error.message
    return ""


def test_an_eager_deadlock_fails_everywhere(run_ranks) -> None:
    for error in run_ranks(2, ranks_in_a_circle, env=QUICK):
        assert "deadlock" in error and "only rank" in error
