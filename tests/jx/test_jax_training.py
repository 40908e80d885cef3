"""Training with JAX and optax: the same model on all ranks, and that of one process over all samples."""

import concurrent.futures
import sys
import time

import check_jax  # noqa: F401  # skips
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from launch import ROOT, Launcher

import horovod.jax as hvd

optax = pytest.importorskip("optax", reason="the package optax is not installed")

ROWS, STEPS = 12, 6
DATA = np.random.default_rng(0).normal(size=(ROWS, 5))
TARGETS = DATA.sum(axis=1) ** 2


def loss(params, x, y):
    hidden = jnp.tanh(x @ params["w"])
    return ((hidden @ params["v"] - y) ** 2).mean()


def start(seed: int):
    return {
        "w": jnp.asarray(np.random.default_rng(seed).normal(size=(5, 3))),
        "v": jnp.asarray(np.random.default_rng(seed + 1).normal(size=3)),
        "unused": jnp.ones(2),
    }


def train(optimizer, params, x, y, compiled=True):
    state = optimizer.init(params)

    def step(params, state):
        gradients = jax.grad(loss)(params, x, y)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    step = jax.jit(step) if compiled else step
    for _ in range(STEPS):
        params, state = step(params, state)
    return {name: np.asarray(value).tolist() for name, value in params.items()}


def ranks_train(compiled: bool, options: dict):
    hvd.init()
    params = hvd.broadcast_parameters(start(hvd.rank()), root_rank=0)
    mine = slice(hvd.rank(), ROWS, hvd.size())
    optimizer = hvd.DistributedOptimizer(optax.adam(0.1), **options)
    return train(optimizer, params, DATA[mine], TARGETS[mine], compiled)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "op by op"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_as_one_process_over_all_samples(run_ranks, ranks: int, compiled: bool) -> None:
    results = run_ranks(ranks, ranks_train, [compiled, {}])
    assert all(other == results[0] for other in results)
    alone = run_ranks(1, ranks_train, [True, {}])[0]
    for name, value in alone.items():
        np.testing.assert_allclose(results[0][name], value, rtol=1e-9)


@pytest.mark.parametrize("averages", [True, False])
def test_gradients_that_are_added_up_first(run_ranks, averages: bool) -> None:
    options = {"backward_passes_per_step": 3, "average_aggregated_gradients": averages}
    results = run_ranks(2, ranks_train, [True, options])
    assert results[0] == results[1]
    # Adam takes no notice of a factor, and the same samples come in each pass.
    alone = run_ranks(1, ranks_train, [True, options | {"average_aggregated_gradients": not averages}])[0]
    for name, value in alone.items():
        np.testing.assert_allclose(results[0][name], value, rtol=1e-5)


def ranks_add_up_halves():
    """Their sum is within the range of the type, and that of their multiples is not."""
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=4)
    params = jnp.zeros(2, jnp.float16)
    state = optimizer.init(params)
    for gradient in (30000.0, -30000.0, 30000.0, -28992.0):
        updates, state = optimizer.update(jnp.full(2, gradient, jnp.float16), state, params)
        params = optax.apply_updates(params, updates)
    return params.tolist()


def test_great_gradients_of_half_precision_are_added_up(run_ranks) -> None:
    assert run_ranks(2, ranks_add_up_halves) == [[-1008.0] * 2] * 2


def ranks_count_what_travels(compiled: bool):
    """How often gradients travel in three steps of four passes, of which one is not finite."""
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optax.adam(0.1), backward_passes_per_step=4)
    params = {"w": jnp.zeros(3), "frozen": None}
    state = optimizer.init(params)
    update = jax.jit(optimizer.update) if compiled else optimizer.update
    seen = []
    for number in range(12):
        gradients = {"w": jnp.full(3, jnp.nan if number == 10 else 1.0), "frozen": None}
        updates, state = update(gradients, state, params)
        params = optax.apply_updates(params, updates)
        jax.block_until_ready(params)
        seen.append((hvd.counters()["collectives"], bool(jnp.isfinite(params["w"]).all())))
    return seen, params["frozen"], int(state.gradient_step)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "op by op"])
def test_gradients_travel_once_a_step(run_ranks, compiled: bool) -> None:
    seen, frozen, steps = run_ranks(2, ranks_count_what_travels, [compiled])[0]
    assert [count for count, _ in seen] == [number // 4 for number in range(1, 13)]
    assert [finite for _, finite in seen] == [True] * 11 + [False], "only the step that contains it"
    assert frozen is None and steps == 3


def ranks_train_several_at_once():
    """Three models side by side by vmap, each with a state of its own, against one after the other."""
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optax.sgd(1.0, momentum=0.5), backward_passes_per_step=2)
    gradients = jnp.arange(12.0).reshape(4, 3) + hvd.rank()

    def train(update, params, columns):
        state = (jax.vmap(optimizer.init) if params.ndim else optimizer.init)(params)
        for gradient in columns:
            updates, state = update(gradient, state)
            params = optax.apply_updates(params, updates)
        return params.tolist()

    together = train(jax.jit(jax.vmap(optimizer.update)), jnp.zeros(3), gradients)
    return together, [train(optimizer.update, jnp.zeros(()), gradients[:, i]) for i in range(3)]


def test_states_of_several_models(run_ranks) -> None:
    first, second = run_ranks(2, ranks_train_several_at_once)
    assert first == second and first[0] == first[1], first


def ranks_pass_more_arguments(passes: int):
    hvd.init()
    distributed = hvd.DistributedOptimizer(optax.scale(-1.0), backward_passes_per_step=passes)
    optimizer = optax.chain(distributed, optax.contrib.reduce_on_plateau())
    params = jnp.zeros(2)
    state = optimizer.init(params)
    updates, _ = optimizer.update(jnp.full(2, float(hvd.rank())), state, params, value=1.0)
    return updates.tolist()


@pytest.mark.parametrize("passes", [1, 2])
def test_arguments_for_others_in_a_chain(run_ranks, passes: int) -> None:
    assert run_ranks(2, ranks_pass_more_arguments, [passes]) == [[-0.5, -0.5] if passes == 1 else [0, 0]] * 2


def ranks_train_in_threads(compiled: bool):
    """Each rank a pair of models, whose steps come in another order on each."""
    hvd.init()

    def train_one(number: int):
        optimizer = hvd.DistributedOptimizer(optax.sgd(1.0), name=f"model {number}")
        params = jnp.zeros(3)
        state = optimizer.init(params)

        def step(params, state, gradients):
            updates, state = optimizer.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

        step = jax.jit(step) if compiled else step
        if number == hvd.rank():
            time.sleep(0.3)
        for _ in range(10):
            params, state = step(params, state, jnp.full(3, 10.0**number))
        return np.asarray(params).tolist()

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        return list(threads.map(train_one, range(2)))


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "op by op"])
def test_optimizers_with_names_in_threads(run_ranks, compiled: bool) -> None:
    for results in run_ranks(2, ranks_train_in_threads, [compiled]):
        assert results == [[-10.0] * 3, [-100.0] * 3]


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="optimizer of optax, not float"):
        hvd.DistributedOptimizer(0.1)
    with pytest.raises(ValueError, match="predivide"):
        hvd.DistributedOptimizer(optax.sgd(0.1), op=hvd.Sum, gradient_predivide_factor=2.0)


def ranks_have_other_parameters() -> str:
    hvd.init()
    params = {"w": jnp.ones((2, 2 + hvd.rank()))}
    with pytest.raises(hvd.TensorMismatchError) as caught:
        hvd.broadcast_parameters(params)
    return str(caught.value)


def test_parameters_that_differ_are_named(run_ranks) -> None:
    first, second = run_ranks(2, ranks_have_other_parameters)
    assert first == second and "['w']" in first and "[2, 3]" in first, first


def ranks_lose_a_generation():
    """A step fails for good; what was committed comes back."""
    hvd.init()
    state = hvd.elastic.JaxState(params={"w": jnp.zeros(3)}, batch=0)
    failed = []

    @hvd.elastic.run
    def work(state):
        step = jax.jit(lambda params: {"w": hvd.allreduce(params["w"] + 1.0)})
        while state.batch < 4:
            state.params = step(state.params)
            state.batch += 1
            if state.batch == 3 and not failed:
                failed.append(True)
                raise hvd.HorovodInternalError("made up")
            state.commit()
        return np.asarray(state.params["w"]).tolist(), state.batch

    return work(state)


def test_what_was_committed_comes_back(run_ranks) -> None:
    assert run_ranks(1, ranks_lose_a_generation) == [[[4.0, 4.0, 4.0], 4]]


def test_digits_learns() -> None:
    launcher = Launcher()
    program = [sys.executable, str(ROOT / "examples" / "jax_digits.py"), "--epochs", "5"]
    done = launcher.finish(launcher.start("-np", "2", *program, JAX_PLATFORMS="cpu"), 110)
    assert done.returncode == 0, f"status {done.returncode}\n{done.output}"
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 5 and all(line.startswith("[0]<stdout>:") for line in lines)
    assert float(lines[-1].split("accuracy ")[1].split("%")[0]) > 93
