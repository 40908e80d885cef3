"""What the table of test_tf_matrix.py does not hold: other inputs, shapes known in advance, variables,
questions, barriers, sessions.
"""

import resource
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd


def other_inputs() -> None:
    """Whatever TensorFlow makes a tensor of."""
    rank, size = hvd.rank(), hvd.size()
    everybody = list(range(1, size + 1))
    assert hvd.allreduce([1.0 + rank, 2.0], op=hvd.Sum).numpy().tolist() == [sum(everybody), 2.0 * size]
    assert hvd.allreduce(np.float64(rank + 1), op=hvd.Max).numpy() == size
    assert hvd.allreduce(tf.Variable(rank), op=hvd.Sum).numpy() == sum(range(size))
    assert hvd.allgather(np.full((rank, 2), rank)).shape == (sum(range(size)), 2)
    assert hvd.allgather([rank]).numpy().tolist() == list(range(size))
    assert hvd.broadcast(rank, root_rank=size - 1).numpy() == size - 1
    assert hvd.grouped_allreduce([]) == [] and hvd.grouped_allgather([]) == []
    with pytest.raises(tf.errors.FailedPreconditionError, match="first dimension"):
        hvd.allgather(1.0)


def arithmetic() -> None:
    """An average of integers is truncated toward zero; a factor that float32 does not hold is the same number
    in a graph and eagerly.
    """
    size = hvd.size()
    odd = -size - 1 if hvd.rank() == 0 else 0
    assert hvd.allreduce(tf.constant([odd, 7])).numpy().tolist()[0] == -1
    values = tf.constant([1.0, 3.0], tf.float64)

    def scaled() -> tf.Tensor:
        return hvd.allreduce(values, op=hvd.Max, prescale_factor=0.1, postscale_factor=1 / 3)

    for form in (scaled, tf.function(scaled)):
        assert form().numpy().tolist() == [1.0 * 0.1 * (1 / 3), 3.0 * 0.1 * (1 / 3)]


def shapes() -> None:
    """Those that are known while a graph is built, with and without known rows."""

    @tf.function(input_signature=[tf.TensorSpec([4, 3]), tf.TensorSpec([None, 3]), tf.TensorSpec(None)])
    def check(known: tf.Tensor, rows: tf.Tensor, anything: tf.Tensor) -> list[tf.Tensor]:
        assert hvd.allreduce(known).shape == (4, 3)
        assert hvd.broadcast(rows, 0).shape.as_list() == [None, 3]
        assert hvd.allgather(known).shape.as_list() == [None, 3]
        assert hvd.alltoall(rows).shape.as_list() == [None, 3]
        assert hvd.reducescatter(known).shape.as_list() == [None, 3]
        assert [t.shape.as_list() for t in hvd.grouped_allgather([known, rows])] == [[None, 3]] * 2
        assert [t.shape.as_list() for t in hvd.grouped_allreduce([known, rows])] == [[4, 3], [None, 3]]
        assert hvd.allgather(anything).shape.rank is None
        assert hvd.size_op().shape.rank == 0
        return [hvd.allreduce(anything), tf.shape(hvd.allgather(rows))]

    reduced, gathered = check(tf.ones((4, 3)), tf.ones((2 * hvd.size(), 3)), tf.ones((2, 1)))
    assert reduced.shape == (2, 1) and gathered.numpy().tolist() == [2 * hvd.size() ** 2, 3]


def variables() -> None:
    """In place, of several types and shapes, eagerly and in a graph."""
    rank = hvd.rank()

    def fresh() -> list[tf.Variable]:
        return [tf.Variable(tf.fill((3,), float(rank))), tf.Variable(rank), tf.Variable([[rank == 1]])]

    mine = fresh()
    assert hvd.broadcast_(mine, root_rank=1) == mine
    assert [v.numpy().tolist() for v in mine] == [[1.0] * 3, 1, [[True]]]
    mine = fresh()

    @tf.function
    def send() -> None:
        hvd.broadcast_(mine, root_rank=0)

    send()
    assert [v.numpy().tolist() for v in mine] == [[0.0] * 3, 0, [[False]]]


def questions() -> None:
    """Answered when the graph runs."""

    @tf.function
    def ask() -> list[tf.Tensor]:
        own = [hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()]
        return [*own, hvd.process_set_included_op()]

    answers = [answer.numpy() for answer in ask()]
    assert answers == [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), 1]


def names() -> None:
    """A name lets ranks run an operation in any order, in threads; without one the order counts."""
    order = list(range(6)) if hvd.rank() == 0 else list(reversed(range(6)))

    @tf.function
    def any_order() -> list[tf.Tensor]:
        results = {number: hvd.allreduce(float(number), op=hvd.Sum, name=f"any_{number}") for number in order}
        return [results[number] for number in range(6)]

    assert [result.numpy() for result in any_order()] == [hvd.size() * float(n) for n in range(6)]
    with tf.name_scope("of_this_rank" if hvd.rank() else "of_rank_0"):
        assert hvd.allreduce(1.0, op=hvd.Sum, name="eager").numpy() == hvd.size()

    @tf.function
    def scoped() -> tf.Tensor:
        with tf.name_scope(f"rank_{hvd.rank()}"):
            return hvd.allreduce(1.0, op=hvd.Sum, name="unscoped", ignore_name_scope=True)

    assert scoped().numpy() == hvd.size()


def barriers() -> None:
    """A barrier lets nobody pass before the last has come; join tells who that was."""

    @tf.function
    def barrier() -> None:
        hvd.barrier()

    for form in (hvd.barrier, barrier):
        form()
        time.sleep(0.3 * (hvd.rank() == 1))
        came = time.time()
        form()
        passed = time.time()
        latest = float(hvd.allreduce(tf.constant(came, tf.float64), op=hvd.Max))
        assert passed >= latest
    time.sleep(0.2 * (hvd.rank() == 1))
    last = hvd.join()
    assert last.dtype == tf.int32 and last.numpy() == 1


def new_names() -> None:
    """Each is an eager operation of its own, also from several threads at once, and leaves nothing behind."""
    given = tf.ones(4)
    hvd.allreduce(given, name="first")
    before = _resident_bytes()
    for number in range(1500):
        hvd.allreduce(given, name=f"metric.{number}", op=hvd.Sum)
    assert _resident_bytes() - before < 25 << 20  # a kernel for each name took 56 MiB

    def of_thread(thread: int) -> list[float]:
        mine = [hvd.allreduce(tf.fill([2], 100.0 * thread), name=f"{thread}.{k}") for k in range(20)]
        return [float(reduced[0]) for reduced in mine]

    with ThreadPoolExecutor(4) as pool:
        threads = range(4) if hvd.rank() % 2 == 0 else reversed(range(4))
        results = sorted(pool.map(of_thread, threads))
    assert results == [[100.0 * thread] * 20 for thread in range(4)]
    with pytest.raises(tf.errors.FailedPreconditionError, match="'named'"):
        hvd.allreduce(tf.ones(2 + hvd.rank()), name="named")


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def sessions() -> None:
    """Graphs of TensorFlow 1, which this process builds by hand."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        given = tf.compat.v1.placeholder(tf.float32, [None])
        total, rows = hvd.allreduce(given, op=hvd.Sum), hvd.allgather(given)
        for run in range(3):
            got = session.run([total, rows], {given: [float(run)] * 2})
            assert got[0].tolist() == [run * hvd.size()] * 2 and got[1].shape == (2 * hvd.size(),)


CHECKS = (other_inputs, arithmetic, shapes, variables, questions, names, new_names, sessions, barriers)


def ranks_collectives() -> None:
    """Everything in one launch."""
    hvd.init()
    for check in CHECKS:
        check()
        hvd.barrier()


@pytest.mark.parametrize(
    ("ranks", "transport"),
    [
        (2, "tcp"),
        (3, "shm"),
        pytest.param(2, "shm", marks=pytest.mark.full),
        pytest.param(3, "tcp", marks=pytest.mark.full),
    ],
)
def test_collectives(run_ranks, ranks: int, transport: str) -> None:
    run_ranks(ranks, ranks_collectives, env={"HOROVOD_TRANSPORT": transport})
