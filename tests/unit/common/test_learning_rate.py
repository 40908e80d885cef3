"""Learning rates against what defines them: fixed points, straight lines, and a run of SGD written out."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from horovod.common.training import learning_rate as rates

RATES = st.floats(1e-6, 10)
SIZES = st.integers(1, 10_000)
STEPS = st.integers(1, 500)


@given(RATES, SIZES, STEPS, st.integers(1, 20), st.data())
def test_warmup_is_the_formula_in_exact_arithmetic(initial, size, steps, warmup, data):
    epoch = data.draw(st.integers(0, warmup - 1))
    batch = data.draw(st.integers(0, steps - 1))
    e = epoch + Fraction(batch + 1, steps)
    expected = Fraction(initial) * (1 + e * (size - 1) / warmup) / size
    assert rates.warmup_rate(initial, epoch, batch, steps, size, warmup) == pytest.approx(float(expected))


@given(RATES, SIZES, STEPS, st.integers(1, 20))
def test_warmup_climbs_in_equal_steps_and_ends_at_the_full_rate(initial, size, steps, warmup):
    run = [
        rates.warmup_rate(initial, epoch, batch, steps, size, warmup)
        for epoch in range(warmup)
        for batch in sorted({0, steps // 2, steps - 1})
    ]
    assert all(later >= earlier * (1 - 1e-12) for earlier, later in pairwise(run))
    assert run[-1] == initial
    one_step = initial * (size - 1) / size / (warmup * steps)
    assert run[0] - one_step == pytest.approx(initial / size, rel=1e-6)


@given(st.floats(0.25, 10), SIZES, st.floats(0, 20))
def test_the_factor_never_leaves_its_range(warmup, size, epoch):
    factor = rates.warmup_factor(epoch, size, warmup)
    assert 1 / size * (1 - 1e-12) <= factor <= 1 + 1e-12
    assert rates.warmup_factor(epoch, 1, warmup) == pytest.approx(1)


def test_no_warmup_is_the_full_rate_at_once():
    assert rates.warmup_factor(0, 4, 0) == 1


@given(st.floats(0.01, 3), st.integers(0, 90), st.integers(0, 90))
def test_a_constant_multiplies_once_for_each_epoch(multiplier, start, epochs):
    schedule = rates.power_schedule(multiplier, start)
    assert schedule(start) == 1
    assert schedule(start + epochs) == pytest.approx(np.prod([multiplier] * epochs), rel=1e-9)


@given(st.integers(0, 100), STEPS, st.data())
def test_batches_divide_an_epoch_evenly(epoch, steps, data):
    batch = data.draw(st.integers(0, steps - 1))
    assert rates.exact_epoch(epoch, batch, steps) == pytest.approx(float(epoch + Fraction(batch, steps)))
    assert epoch <= rates.exact_epoch(epoch, batch, steps) < epoch + 1
    assert rates.exact_epoch(epoch, steps, steps) == epoch + 1


@pytest.mark.parametrize(
    ("epoch", "start", "end", "active"),
    [(0, 0, None, True), (0, 1, None, False), (1, 1, 2, True), (2, 1, 2, False), (900, 1, None, True)],
)
def test_the_end_is_not_part_of_the_range(epoch, start, end, active):
    assert rates.is_active(epoch, start, end) is active


@given(st.lists(st.floats(1e-3, 1), min_size=2, max_size=8), st.floats(0, 0.99), st.integers(0, 2**32 - 1))
def test_scaled_velocities_follow_momentum_that_knows_no_rate(run, momentum, seed):
    """The velocity of the paper's equation (10): u = momentum * u + gradient, and the step is rate * u."""
    gradients = np.random.default_rng(seed).normal(size=len(run))
    u, v, old = 0.0, 0.0, run[0]
    for rate, gradient in zip(run, gradients, strict=True):
        u = momentum * u + gradient
        v = momentum * (v * rates.velocity_factor(old, rate)) - rate * gradient
        old = rate
        assert v == pytest.approx(-rate * u, rel=1e-6, abs=1e-9)


@given(RATES, RATES, st.floats(0, 1), st.floats(-10, 10), st.floats(-10, 10))
def test_a_scaled_velocity_is_a_corrected_momentum_for_one_step(old, new, momentum, velocity, gradient):
    assume(abs(new / old) < 1e6)
    scaled = momentum * (velocity * rates.velocity_factor(old, new)) - new * gradient
    corrected = (momentum * new / old) * velocity - new * gradient
    assert scaled == pytest.approx(corrected, rel=1e-9, abs=1e-9)


def test_after_a_rate_of_zero_velocities_stay():
    assert rates.velocity_factor(0.0, 0.1) == 1.0
