"""What goes wrong in a ``tf.function``: every rank is told what and by whom, and where it can goes on."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import tensorflow as tf
from load import within

import horovod.tensorflow as hvd
from horovod.tensorflow import native

SECONDS_UNTIL_NAMED = 2.0
IN_FLIGHT = 20


def disagree(kind: str, rank: int) -> tf.Tensor:
    """One that the ranks do not call alike."""
    ones = tf.ones((4,))
    if kind == "shape":
        return hvd.allreduce(tf.ones((4 + rank,)), name="other_shape")
    if kind == "dtype":
        return hvd.allreduce(tf.cast(ones, tf.float64 if rank else tf.float32), name="other_dtype")
    if kind == "reduction":
        return hvd.allreduce(ones, op=hvd.Max if rank else hvd.Sum, name="other_reduction")
    if kind == "root":
        return hvd.broadcast(ones, root_rank=rank % 2, name="other_root")
    if kind == "gather":
        return hvd.allgather(tf.ones((2, 1 + rank)), name="other_gather")
    if kind == "group":
        return hvd.grouped_allreduce([ones] * (1 + rank), name="other_group")[0]
    return hvd.broadcast(ones, 0, name="other_op") if rank else hvd.allreduce(ones, name="other_op")


KINDS = ["shape", "dtype", "reduction", "root", "gather", "group", "op"]


def ranks_disagree() -> list[str]:
    """Returns the errors; after each the next call of the same graph's neighbours works."""
    hvd.init()

    @tf.function
    def right(tensor: tf.Tensor) -> tf.Tensor:
        return hvd.allreduce(tensor, op=hvd.Sum, name="right")

    texts = []
    for kind in KINDS:

        @tf.function
        def wrong(tensor: tf.Tensor, kind: str = kind) -> list[tf.Tensor]:
            # One that the ranks agree about runs beside it.
            return [hvd.allreduce(tensor, name="beside"), disagree(kind, hvd.rank())]

        with pytest.raises(tf.errors.FailedPreconditionError) as caught:
            wrong(tf.ones((2,)))
        texts.append(str(caught.value))
        assert right(tf.ones((2,))).numpy().tolist() == [hvd.size()] * 2
        with pytest.raises(tf.errors.FailedPreconditionError):
            disagree(kind, hvd.rank())
        assert right(tf.ones((2,))).numpy().tolist() == [hvd.size()] * 2
    return texts


def test_a_disagreement_is_the_same_error_on_every_rank(run_ranks) -> None:
    results = run_ranks(2, ranks_disagree)
    for kind, *texts in zip(KINDS, *results, strict=True):
        for text in texts:
            assert f"other_{kind}" in text and "rank 0" in text and "rank 1" in text, text


def rank_dies_in_a_loop(folder: str, megabytes: int) -> list[object]:
    """Rank 1 kills itself within a tf.function that the others are in too. Returns when they learnt it, and
    the type and text of the error.
    """
    hvd.init()

    @tf.function
    def loop(tensor: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(1_000_000):
            tensor = hvd.allreduce(tensor, name="in_the_loop")
        return tensor

    def die() -> None:
        time.sleep(1.0)
        Path(folder, "killed").write_text(repr(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)

    if hvd.rank() == 1:
        threading.Thread(target=die, daemon=True).start()
    try:
        loop(tf.ones((megabytes << 18,)))
    except tf.errors.OpError as error:
        seen = time.time()
        with pytest.raises(tf.errors.UnknownError, match="rank 1"):  # and so do the next ones
            hvd.allreduce(tf.ones((2,)))
        return [seen, type(error).__name__, str(error)]
    raise AssertionError("no rank died")


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("megabytes", [1, 16])
def test_a_killed_rank_is_named(run_ranks, tmp_path: Path, transport: str, megabytes: int) -> None:
    env = {"HOROVOD_TRANSPORT": transport}
    results = run_ranks(3, rank_dies_in_a_loop, [str(tmp_path), megabytes], env=env, dies=[1])
    killed = float((tmp_path / "killed").read_text())
    for seen, kind, text in [results[0], results[2]]:
        assert kind == "UnknownError", text
        assert "rank 1" in text and "in_the_loop" in text, text
        assert seen - killed < within(SECONDS_UNTIL_NAMED), text


def ranks_shut_down_with_operations_in_flight() -> list[str]:
    """Rank 0 waits for what rank 1 never submits; its functions end with an error each."""
    hvd.init()
    errors: list[str] = []

    @tf.function
    def alone() -> list[tf.Tensor]:
        return [hvd.allreduce(tf.ones((4,)), name=f"alone_{i}") for i in range(IN_FLIGHT)]

    def wait(call: object) -> None:
        try:
            call()
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")

    alone.get_concrete_function()
    hvd.barrier()
    calls = [alone, lambda: hvd.allreduce(tf.ones((4,)), name="eager")] if hvd.rank() == 0 else []
    threads = [threading.Thread(target=wait, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    time.sleep(1.5)  # nothing says that all have been submitted
    hvd.shutdown()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    with pytest.raises((ValueError, tf.errors.OpError)):
        hvd.allreduce(tf.ones((4,)))
    return errors


def test_shutdown_ends_what_is_in_flight(run_ranks) -> None:
    results = run_ranks(2, ranks_shut_down_with_operations_in_flight)
    assert [len(errors) for errors in results] == [2, 0]
    for text in results[0]:
        assert text.startswith("UnknownError") and "shut down" in text, text


def ranks_start_again() -> int:
    """A function that was traced before works after the next init."""
    for generation in range(3):
        hvd.init()
        if generation == 0:
            step = tf.function(lambda tensor: hvd.allreduce(tensor, op=hvd.Sum))
        assert step(tf.ones((2,))).numpy().tolist() == [hvd.size()] * 2
        hvd.shutdown()
    return step.experimental_get_tracing_count()


def test_functions_outlive_a_shutdown(run_ranks) -> None:
    assert run_ranks(2, ranks_start_again) == [1, 1]


def rank_asks_too_much() -> None:
    """What this rank alone does wrong is told before or without the others."""
    hvd.init()

    @tf.function
    def wrong_splits(splits: tf.Tensor) -> tf.Tensor:
        return hvd.alltoall(tf.ones((4,)), splits, name="splits")[0]

    if hvd.rank() == 0:
        with pytest.raises(tf.errors.InvalidArgumentError):
            wrong_splits(tf.constant([3, 3]))
        with pytest.raises(tf.errors.InvalidArgumentError):
            wrong_splits(tf.constant([1, 1, 1]))
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="root"):
            hvd.broadcast(tf.ones((2,)), root_rank=7)
        with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
            hvd.allreduce(tf.constant(["text"]))
    assert hvd.allreduce(tf.ones((2,)), op=hvd.Sum).numpy().tolist() == [2, 2]
    assert wrong_splits(tf.constant([2, 2])).numpy().tolist() == [1.0] * 4


@pytest.mark.parametrize("splits", [[4.0], tf.constant([3.5]), [True]])
def test_splits_are_integers(splits) -> None:
    hvd.init()
    with pytest.raises(ValueError, match="splits must be integers, not "):
        hvd.alltoall(tf.range(4), splits=splits)
    for given in ([4], tf.constant([4], tf.int64), []):
        assert hvd.alltoall(tf.range(4), splits=given)[0].numpy().tolist() == [0, 1, 2, 3]


def test_a_callers_own_mistake_concerns_nobody_else(run_ranks) -> None:
    run_ranks(2, rank_asks_too_much)


def test_names_of_operations_that_never_start_are_given_back() -> None:
    """TensorFlow refuses them before their kernels; one that starts has taken its name already."""
    hvd.init()
    before = native.put_name("before")
    for number in range(20):
        with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
            hvd.allreduce(tf.constant(["text"]), name=f"refused {number}")
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
            hvd.alltoall(tf.ones((4,)), splits=[9], name=f"wrong {number}")
    after = native.put_name("after")
    assert int(after["tensor_name"][1:]) == int(before["tensor_name"][1:]) + 1
    native._take_back_name(before["use"])
    again = native.put_name("again")
    assert again["tensor_name"] == before["tensor_name"]
    native._take_back_name(before["use"])  # which is over
    other = native.put_name("other")
    assert other["tensor_name"] != again["tensor_name"]
    for each in (after, again, other):
        native._take_back_name(each["use"])
