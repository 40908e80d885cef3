"""The factor of the learning rate as ranks come and go."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from horovod.elastic import rate
from horovod.elastic.rate import RateScale
from horovod.torch.elastic import LearningRateScale


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many there are: its only element."""
    return _ranks_by(monkeypatch)


def _ranks_by(patch: pytest.MonkeyPatch) -> list[int]:
    now = [4]
    patch.setattr(rate.basics, "is_initialized", lambda: now[0] > 0)
    patch.setattr(rate.basics, "size", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("rule", "expected"), [("linear", 0.5), ("sqrt", math.sqrt(0.5)), (lambda times: times**2, 0.25)]
)
def test_rules(ranks: list[int], rule: rate.Rule, expected: float) -> None:
    scale = RateScale(rule=rule, warmup_steps=0)
    assert scale.factor == 1.0
    ranks[0] = 2
    scale.reset()
    assert math.isclose(scale.factor, expected)


def test_it_was_chosen_for_another_number_of_ranks(ranks: list[int]) -> None:
    assert RateScale(ranks=1).factor == 4.0


def test_the_ranks_of_the_start_are_those_of_init_also_where_it_is_made_before(ranks: list[int]) -> None:
    ranks[0] = 0
    scales = [RateScale(warmup_steps=0) for _ in range(4)]
    saved = scales[3].state_dict()  # by a state that is made before, too
    ranks[0] = 4
    scales[3].load_state_dict(saved)
    assert scales[0].factor == 1.0
    scales[1].reset()
    scales[2].state_dict()
    ranks[0] = 2
    for scale in scales:
        scale.reset()
    assert [scale.factor for scale in scales] == [0.5] * 4


def test_the_factor_goes_to_a_new_value_in_stages(ranks: list[int]) -> None:
    scale = RateScale(warmup_steps=3)
    ranks[0] = 8
    scale.reset()
    factors = []
    for _ in range(6):
        factors.append(scale.factor)
        scale.record_step()
    assert factors == [1.25, 1.5, 1.75, 2.0, 2.0, 2.0]
    ranks[0] = 4
    scale.reset()
    scale.record_step()
    assert scale.factor == 1.5
    scale.reset()  # nothing has changed
    assert scale.factor == 1.5
    ranks[0] = 8  # on the way
    scale.reset()
    assert 1.5 < scale.factor < 2.0


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 8)), max_size=12), st.integers(0, 5))
def test_it_never_jumps_nor_leaves_the_range_of_its_targets(
    changes: list[tuple[int, int]], warmup: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        now = _ranks_by(patch)
        scale = RateScale(warmup_steps=warmup)
        targets, before = [1.0], 1.0
        for size, steps in changes:
            now[0] = size
            scale.reset()
            targets.append(size / 4)
            for _ in range(steps):
                assert min(targets) - 1e-9 <= scale.factor <= max(targets) + 1e-9
                most = (max(targets) - min(targets)) / (warmup + 1)
                assert abs(scale.factor - before) <= most + 1e-9
                before = scale.factor
                scale.record_step()
            if not steps:
                before = scale._reached()
        for _ in range(warmup):
            scale.record_step()
        assert math.isclose(scale.factor, now[0] / 4)


def test_a_state_goes_on_among_other_ranks(ranks: list[int]) -> None:
    scale = RateScale(warmup_steps=4)
    told = scale.state_dict()
    ranks[0] = 2
    newcomer = RateScale(warmup_steps=4)
    newcomer.load_state_dict(told)
    assert newcomer.factor == 0.9  # from 1 to a half
    scale.reset()
    assert scale.state_dict() == newcomer.state_dict()


def test_what_makes_no_sense_is_refused(ranks: list[int]) -> None:
    with pytest.raises(ValueError, match="linear"):
        RateScale(rule="cubic")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least"):
        RateScale(ranks=0)
    with pytest.raises(ValueError, match="the rule gives -1"):
        RateScale(rule=lambda times: -1.0)


def test_an_optimizer_has_the_scaled_rate_in_its_step_alone(ranks: list[int]) -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    scale = LearningRateScale(optimizer, ranks=2, warmup_steps=0)
    other = torch.nn.Parameter(torch.ones(3))
    by_hand = torch.optim.SGD([other], lr=1.0)
    by_hand_schedule = torch.optim.lr_scheduler.CosineAnnealingLR(by_hand, T_max=10)
    for _ in range(12):
        parameter.grad, other.grad = torch.full((3,), 0.1), torch.full((3,), 0.1)
        optimizer.step()
        by_hand.step()
        schedule.step()
        by_hand_schedule.step()
        assert torch.allclose(parameter, other)
        assert math.isclose(optimizer.param_groups[0]["lr"] * 2, by_hand.param_groups[0]["lr"])
    assert scale.factor == 2.0


def test_a_step_that_raised_leaves_no_factor_behind(ranks: list[int]) -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    LearningRateScale(optimizer, ranks=2, warmup_steps=0)
    rates: list[float] = []

    def closure() -> float:
        rates.append(optimizer.param_groups[0]["lr"])
        if len(rates) < 4:
            raise MemoryError("a batch that does not fit")
        return 0.0

    for _ in range(2):
        with pytest.raises(MemoryError):
            optimizer.step(closure)
    optimizer.param_groups[0]["lr"] = 0.25  # as a state that is restored
    with pytest.raises(MemoryError):
        optimizer.step(closure)
    optimizer.step(closure)
    assert rates == [1.0, 1.0, 0.5, 0.5]
    assert optimizer.param_groups[0]["lr"] == 0.25
