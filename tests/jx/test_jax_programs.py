"""Operations in programs of JAX: what its transformations do with them, and what goes wrong in one."""

import functools
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import check_jax  # noqa: F401  # skips
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from launch import Launcher, interrupted
from load import within

import horovod.jax as hvd

SECONDS_UNTIL_NAMED = 2.0


def numbers(rank: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(rank).normal(size=shape)


def ranks_transform() -> None:
    hvd.init()
    size = hvd.size()
    mine = jnp.asarray(numbers(hvd.rank(), 3, 4))
    total = sum(numbers(rank, 3, 4) for rank in range(size))
    one = jnp.asarray(2.0)

    def summed(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum)

    for transformed in (summed, jax.jit(summed), jax.checkpoint(summed), jax.vmap(summed)):
        np.testing.assert_allclose(transformed(mine), total, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(summed, in_axes=1, out_axes=1)(mine), total, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.vmap(summed)))(mine), total, rtol=1e-12)
    adasum = functools.partial(hvd.allreduce, op=hvd.Adasum)
    expected = np.stack([adasum(row) for row in mine])
    for mapped in (jax.vmap(adasum), jax.jit(jax.vmap(adasum))):
        np.testing.assert_allclose(mapped(mine), expected, rtol=1e-12)
    gathered = jax.jit(jax.vmap(hvd.allgather, in_axes=1, out_axes=1))(mine)
    np.testing.assert_array_equal(gathered, np.concatenate([numbers(rank, 3, 4) for rank in range(size)]))

    def carried(x: Any, _: Any) -> Any:
        return summed(x) / size, x.sum()

    last, sums = jax.jit(lambda x: jax.lax.scan(carried, x, None, length=3))(mine)
    np.testing.assert_allclose(last, total / size, rtol=1e-12)
    np.testing.assert_allclose(sums[1:], (total / size).sum(), rtol=1e-12)
    looped = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: carried(y, None)[0], x))(mine)
    np.testing.assert_allclose(looped, total / size, rtol=1e-12)
    chosen = jax.jit(lambda p, x: jax.lax.cond(p, summed, lambda y: y * 0, x))
    np.testing.assert_allclose(chosen(True, mine), total, rtol=1e-12)
    assert not np.any(chosen(False, mine))

    inner = jax.jit(summed)  # twice in one program, and in several that are called at once
    both = jax.jit(lambda x: (inner(x), inner(2 * x)))
    results = [both(mine * factor) for factor in range(1, 20)]
    for factor, (first, second) in enumerate(results, 1):
        np.testing.assert_allclose(first, total * factor, rtol=1e-12)
        np.testing.assert_allclose(second, 2 * total * factor, rtol=1e-12)
        np.testing.assert_allclose(hvd.allreduce(one * factor, op=hvd.Sum), 2.0 * factor * size)

    ahead = jax.jit(summed).lower(mine).compile()  # JAX calls it in another way from the second time on
    for factor in range(1, 4):
        np.testing.assert_allclose(ahead(mine * factor), total * factor, rtol=1e-12)

    gradient = jax.jit(jax.grad(lambda x: (jax.checkpoint(summed)(x) ** 2).sum()))(mine)
    np.testing.assert_allclose(gradient, 2 * total * size, rtol=1e-12)


def ranks_reduce_in_place() -> None:
    """Results lie where operands do, unless the program, or whoever called it, has a use for those."""
    hvd.init()
    size = hvd.size()
    mine = numbers(hvd.rank(), 1000)
    total = sum(numbers(rank, 1000) for rank in range(size))

    def step(given: Any) -> Any:
        made = given * 3
        sums = hvd.allreduce([given, made, made], op=hvd.Sum)
        return *sums, hvd.broadcast(made, 0), made - 1, given + 1

    compiled, array = jax.jit(step), jnp.asarray(mine)
    for _ in range(3):
        found = compiled(array)
        expected = (total, 3 * total, 3 * total, 3 * numbers(0, 1000), 3 * mine - 1, mine + 1)
        for each, value in zip(found, expected, strict=True):
            np.testing.assert_allclose(each, value, rtol=1e-12)
        np.testing.assert_array_equal(array, mine)
    lent = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum), donate_argnums=0)(jnp.asarray(mine))
    np.testing.assert_allclose(lent, total, rtol=1e-12)
    text = jax.jit(lambda x: hvd.allreduce(x * 2)).lower(mine).compile().as_text()
    (call,) = (line for line in text.splitlines() if "horovod_collective" in line)
    assert "output_to_operand_aliasing={{1}: (1, {})}" in call


def test_reductions_in_place(run_ranks) -> None:
    run_ranks(3, ranks_reduce_in_place)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_transformations(run_ranks, transport: str) -> None:
    run_ranks(3, ranks_transform, env={"HOROVOD_TRANSPORT": transport})


def ranks_use_trees() -> None:
    hvd.init()
    size, place = hvd.size(), hvd.rank()
    tree = {"a": jnp.full(3, float(place)), "b": (jnp.arange(4) + place, None), "empty": []}

    def check(operation: Any, expected_a: Any, expected_b: Any) -> None:
        for call in (operation, jax.jit(operation)):
            result = call(tree)
            assert jax.tree_util.tree_structure(result) == jax.tree_util.tree_structure(tree)
            np.testing.assert_array_equal(result["a"], expected_a)
            np.testing.assert_array_equal(result["b"][0], expected_b)

    ranks = range(size)
    check(lambda t: hvd.allreduce(t, op=hvd.Max), np.full(3, size - 1), np.arange(4) + size - 1)
    check(lambda t: hvd.broadcast(t, 1, name="t"), np.ones(3), np.arange(4) + 1)
    check(hvd.allgather, np.repeat(ranks, 3), np.concatenate([np.arange(4) + rank for rank in ranks]))
    for empty in ({}, None, [], [None]):
        for call in (hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter):
            assert call(empty) == jax.jit(call)(empty) == empty
    assert hvd.allreduce(3.5) == 3.5 and hvd.allreduce(np.float32(2)).dtype == np.float32
    halves = hvd.allreduce(jnp.full(5, 0.1, jnp.float32), compression=hvd.Compression.fp16)
    assert halves.dtype == jnp.float32 and abs(halves[0] - 0.1) < 1e-4


def test_trees(run_ranks) -> None:
    run_ranks(2, ranks_use_trees)


def ranks_bring_other_shapes() -> tuple[str, str]:
    hvd.init()
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.jit(hvd.allreduce)(jnp.ones(3 + hvd.rank()))
    text = str(caught.value)
    np.testing.assert_array_equal(jax.jit(hvd.allreduce)(jnp.ones(3)), np.ones(3))
    for operation, rows in ((hvd.allgather, 3), (hvd.alltoall, 6)):
        with pytest.raises(jax.errors.JaxRuntimeError, match=f"{rows}, {2 * rows} rows"):
            jax.jit(operation)(jnp.ones(rows * (1 + hvd.rank())))
    return text.partition(":")[0], text


def test_ranks_that_disagree_get_one_text(run_ranks) -> None:
    told, other = run_ranks(2, ranks_bring_other_shapes)
    assert told == other
    code, text = told
    assert code == "FAILED_PRECONDITION" and "rank 0 sent [3]" in text, text


def ranks_fail_behind_their_backs() -> list[str]:
    """A program that has not run when the call of it returns."""
    hvd.init()
    step = jax.jit(lambda x: hvd.allreduce(x @ x.T).sum())
    called = step(jnp.ones((300 + hvd.rank(), 300)))
    texts = []
    for wait in (called.block_until_ready, hvd.barrier):
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            wait()
        texts.append(str(caught.value))
    hvd.barrier()
    assert step(jnp.ones((300, 300))) == 300**3
    assert hvd.allreduce(1.0) == 1.0
    return texts


def test_the_error_of_a_program_is_told_to_the_next_operation_once(run_ranks) -> None:
    first, second = run_ranks(2, ranks_fail_behind_their_backs)
    assert first == second and all("rank 1 sent [301, 301]" in text for text in first), first


def rank_leaves_the_others_in_their_steps() -> list[str]:
    """The messages of a loop that looks at its results behind its end."""
    hvd.init()
    if hvd.rank() == 1:
        return []
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("horovod").addHandler(handler)

    @jax.jit
    def step(params: Any) -> Any:
        return params - hvd.allreduce(params @ params)

    params = jnp.ones((300, 300))
    for _ in range(10):
        params = step(params)
    with pytest.raises(jax.errors.JaxRuntimeError, match="rank 1"):
        params.block_until_ready()
    return messages


def test_a_loop_of_steps_behind_a_failed_one_tells_its_cause_once(run_ranks) -> None:
    messages = run_ranks(2, rank_leaves_the_others_in_their_steps)[0]
    assert len(messages) == 1 and messages[0].count("rank 1 ") == 1, messages
    assert "Error dispatching" not in messages[0]


def rank_dies_in_a_program(folder: str) -> tuple[float, str]:
    hvd.init()
    step = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, y: hvd.allreduce(y), x))
    step(jnp.ones(1000)).block_until_ready()
    if hvd.rank() == 1:
        time.sleep(0.5)  # until the others have their results of the step before
        (Path(folder) / "killed").write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        with hvd.elastic.internal_errors():
            step(jnp.ones(1000)).block_until_ready()
    except hvd.HorovodInternalError as error:
        return time.time(), str(error)
    return 0.0, "no error"


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_rank_that_is_killed_is_named_in_the_error_of_the_step(run_ranks, tmp_path, transport: str) -> None:
    env = {"HOROVOD_TRANSPORT": transport}
    results = run_ranks(3, rank_dies_in_a_program, [str(tmp_path)], env=env, dies=[1], finalize=True)
    killed = float((tmp_path / "killed").read_text())
    for seen, text in (results[0], results[2]):
        assert "rank 1" in text and "died" in text, text
        assert seen - killed < within(SECONDS_UNTIL_NAMED), text


def ranks_make_mistakes() -> None:
    hvd.init()
    for wrong, text in (
        (lambda x: hvd.alltoall(x, splits=[1, 2]), "takes no splits"),
        (lambda x: hvd.alltoall(x), "3 rows equally among 2"),
        (lambda x: hvd.allgather(x.sum()), "a scalar has none"),
    ):
        with pytest.raises(ValueError, match=text):
            jax.jit(wrong)(jnp.ones(3))
    with pytest.raises(TypeError, match="without _async"):
        jax.jit(hvd.allreduce_async)(jnp.ones(3))
    with pytest.raises(TypeError, match="without _async"):
        jax.jit(lambda x: hvd.synchronize(hvd.allreduce_async(1.0)) * x)(jnp.ones(3))
    for odd in (jnp.ones(3, jnp.complex64), jax.random.key(0)):
        for call in (hvd.allreduce, jax.jit(hvd.allreduce)):
            with pytest.raises(ValueError, match=f"{odd.dtype} is not supported"):
                call(odd)
        with pytest.raises(ValueError, match=f"'odd'.* is of type {odd.dtype}.*use hvd.broadcast_object"):
            hvd.broadcast_parameters({"first": jnp.ones(3), "odd": odd})
    for params in (jnp.ones(3), np.ones(3)):
        with pytest.raises(ValueError, match="is traced"):
            jax.jit(lambda x, params=params: hvd.broadcast_parameters(params) * x)(2.0)
    with pytest.raises(ValueError, match="is traced"):
        jax.jit(hvd.broadcast_parameters)(jnp.ones(3))
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(OverflowError):
        hvd.allreduce(2**40)


def test_mistakes_are_told_before_anything_is_sent(run_ranks) -> None:
    run_ranks(2, ranks_make_mistakes)


def ranks_reduce_what_is_known_when_traced() -> None:
    """It is a part of the program all the same: ranks do not trace together."""
    hvd.init()
    size, array = hvd.size(), jnp.full(3, float(hvd.rank()))
    summed = np.full(3, sum(range(size)))
    for constant, expected in ((array, summed), (np.asarray(array), summed), (1.0, size)):

        def scaled(x: Any, constant: Any = constant) -> Any:
            return x * hvd.allreduce(constant, op=hvd.Sum)

        if hvd.rank() == 0:
            jax.jit(scaled).lower(2.0)
        np.testing.assert_array_equal(jax.jit(scaled)(1.0), expected)
        assert jax.grad(lambda x, scaled=scaled: scaled(x).sum())(1.0) == np.sum(expected)
    assert jax.jit(lambda x: x * hvd.metric.get_global_mean(2 * hvd.rank()))(1.0) == size - 1


def test_what_is_known_when_it_is_traced(run_ranks) -> None:
    run_ranks(2, ranks_reduce_what_is_known_when_traced)


def ranks_remove_a_set() -> int:
    """How often a function was traced."""
    hvd.init(process_sets="dynamic")
    some, traced = hvd.ProcessSet([0, 2]), []

    @jax.jit
    def summed(x: Any) -> Any:
        traced.append(1)
        return hvd.allreduce(x, op=hvd.Sum, process_set=some)

    for _ in range(2):
        hvd.add_process_set(some)
        for _ in range(2):
            if some.included():
                np.testing.assert_array_equal(summed(jnp.ones(2)), [2, 2])
        hvd.remove_process_set(some)
    return len(traced)


def test_functions_are_compiled_anew_for_another_process_set(run_ranks) -> None:
    assert run_ranks(3, ranks_remove_a_set) == [2, 0, 2]


def rank_begins_again() -> int:
    """How often a function was traced."""
    traced = []

    @jax.jit
    def gathered(x: Any) -> Any:
        traced.append(hvd.size())
        return hvd.allgather(x)

    for _ in range(2):
        hvd.init()
        gathered(jnp.ones(2))
        gathered(jnp.ones(2))
        hvd.shutdown()
    return len(traced)


def test_functions_are_compiled_anew_for_another_job(run_ranks) -> None:
    assert run_ranks(1, rank_begins_again) == [2]


ENDS_EARLY = """
import time
import jax, jax.numpy as jnp
import horovod.jax as hvd

hvd.init()
step = jax.jit(lambda x: hvd.allreduce(x @ x / 300, op=hvd.Sum) / hvd.size())  # JAX waits for less
x = jnp.ones((300, 300))
step(x).block_until_ready()
hvd.barrier()
if hvd.rank() == 0:
    time.sleep(1)
for _ in range(5):
    x = step(x)
if hvd.rank() == 0:
    print(float(x[0, 0]))
"""


def test_a_program_that_ends_lets_its_steps_run(tmp_path: Path) -> None:
    """Rank 1 is ahead, and reads no result."""
    (tmp_path / "program.py").write_text(ENDS_EARLY)
    launcher = Launcher()
    process = launcher.start("-np", "2", sys.executable, str(tmp_path / "program.py"), JAX_PLATFORMS="cpu")
    done = launcher.finish(process, 60)
    assert (done.returncode, done.stdout) == (0, b"[0]<stdout>:1.0\n"), done.output


WAITS = """
import time
import jax, jax.numpy as jnp
import horovod.jax as hvd

hvd.init()
step = jax.jit(lambda x: hvd.allreduce(x))
step(jnp.ones(4)).block_until_ready()
print("ready", flush=True)
if hvd.rank() == 1:
    time.sleep(600)
step(jnp.ones(4)).block_until_ready()
"""


def test_ctrl_c_ends_a_compiled_step(tmp_path: Path) -> None:
    done = interrupted(WAITS, tmp_path / "program.py", 15, JAX_PLATFORMS="cpu")
    assert done.returncode == 130, done.output
