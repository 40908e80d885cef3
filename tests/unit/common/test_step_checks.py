"""What the checks of a step say, without ranks: the others' answers are given."""

import weakref
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod.bootstrap.text import shown
from horovod.common import remarks
from horovod.common.exceptions import NonfiniteGradientError, ParameterDivergenceError
from horovod.common.process_sets import global_process_set
from horovod.common.training import step_checks
from horovod.common.training.fingerprints import fingerprint
from horovod.common.training.step_checks import StepChecks


@pytest.fixture(autouse=True)
def without_the_check_of_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_CHECK_FIRST_STEP", "0")


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Callable[[list], None]:
    """Sets what is exchanged: for each exchange, a function of this rank's message that gives all."""

    def give(answers: list) -> None:
        queue = iter(answers)
        monkeypatch.setattr(step_checks, "check_process_set", lambda _: 0)
        monkeypatch.setattr(step_checks, "exchange", lambda message, *_: next(queue)(message))

    return give


def _checks(content: list[tuple[str, bytes]] | None = None) -> StepChecks:
    return StepChecks(global_process_set, lambda: content or [])


def test_nothing_is_exchanged_where_all_is_switched_off(others: Callable[[list], None]) -> None:
    others([])
    checks = _checks()
    assert checks.is_over
    checks.before_update()


def test_the_lowest_rank_is_named_and_the_others_listed(
    others: Callable[[list], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_CHECK_NONFINITE", "1")
    others(
        [
            lambda mine: {0: mine, 1: None},
            lambda mine: {0: mine, 3: ["w\x1b", "Inf"], 5: ["x" * 5000, "NaN"]},
            lambda mine: {0: mine, **{rank: ["b", "NaN"] for rank in range(1, 10)}},
            lambda mine: {0: mine},
        ]
    )
    checks = _checks()
    checks.before_update()
    with pytest.raises(NonfiniteGradientError) as caught:
        checks.before_update()
    text = str(caught.value)
    assert text.startswith(
        r"In step 2 the gradient of 'w\x1b' on rank 3 has Inf; so have gradients on rank 5 ('xxx"
    )
    assert "(5000 bytes)" in text and len(text) < 500
    checks.note("a", "NaN")
    checks.note("b", "Inf")
    with pytest.raises(NonfiniteGradientError, match=r"'a' on rank 0 has NaN; .*rank 4 \('b'\), others. No"):
        checks.before_update()
    assert not checks.noted
    checks.before_update()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({2: "c"}, "rank 2 differs from ranks 0, 1, 3, 4; the first tensor that differs is 'b'"),
        ({0: "c", 4: "d"}, "ranks 0, 4 differ from ranks 1, 2, 3; the first tensor that differs is 'b'"),
        ({1: "c", 2: "c", 3: "d"}, "and no majority tells which are right; the first tensor"),
    ],
)
def test_the_odd_ranks_are_those_that_differ_from_the_majority(
    others: Callable[[list], None], monkeypatch: pytest.MonkeyPatch, wrong: dict[int, str], said: str
) -> None:
    monkeypatch.setenv("HOROVOD_CHECK_PARAMETERS_EVERY", "7")
    others(
        [
            lambda mine: {rank: wrong.get(rank, mine) for rank in range(5)},
            lambda mine: {
                rank: [mine[0], [mine[1][0], wrong.get(rank, mine[1][1]), mine[1][2]]] for rank in range(5)
            },
        ]
    )
    checks = _checks([("a", b"1"), ("b", b"2"), ("c", b"")])
    with pytest.raises(ParameterDivergenceError) as caught:
        checks.before_update()
    assert said in str(caught.value) and "(1 of 3 do)" in str(caught.value)
    for _ in range(6):
        checks.before_update()
    assert checks.step == 7


def test_long_names_lose_their_middle() -> None:
    assert shown("x" * 200) == "x" * 200
    assert shown("é" * 201) == "é" * 91 + "...(402 bytes)..." + "é" * 91
    long = shown("a\n" * 5000)
    assert shown(long) == long and len(long) <= 200 and "(10000 bytes)" in long


def test_a_training_that_describes_itself_keeps_its_count(
    others: Callable[[list], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same description is the same training until the job ends, for all ranks count from 1 then."""
    assert step_checks.of_steps(global_process_set, "tape", ("w",), "") is None
    monkeypatch.setenv("HOROVOD_CHECK_PARAMETERS_EVERY", "2")
    monkeypatch.setattr(step_checks, "_of_steps", weakref.WeakKeyDictionary())

    def due(*key: str) -> bool:
        checks = step_checks.of_steps(global_process_set, "tape", key, "")
        assert checks is not None
        return checks.count_step()

    assert [due("w"), due("w"), due("x"), due("w"), due("x")] == [True, False, True, True, False]
    monkeypatch.setattr(step_checks, "phase", lambda: (-1, 0))  # another one
    assert [due("w"), due("w")] == [True, False]


def test_all_ranks_say_the_same_of_tensors_that_they_call_differently(
    others: Callable[[list], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_CHECK_PARAMETERS_EVERY", "1")
    others([lambda _: {1: "a", 2: "b"}, lambda _: {1: [["dense0"], ["a"]], 2: [["dense7"], ["b"]]}])
    with pytest.raises(ParameterDivergenceError, match="differs is 'dense0'"):
        _checks([("dense7", b"1")]).before_update()


@pytest.mark.parametrize(("rank", "speaks"), [(1, True), (2, False)])
def test_models_that_differ_after_the_first_step_are_a_warning_of_one_rank(
    others: Callable[[list], None], monkeypatch: pytest.MonkeyPatch, rank: int, speaks: bool
) -> None:
    monkeypatch.setenv("HOROVOD_CHECK_FIRST_STEP", "1")
    monkeypatch.setattr(step_checks._core, "topology", lambda: (rank, 3, 0, 1, 0, 1))
    monkeypatch.setattr(remarks, "_texts", [])
    lines: list[str] = []
    monkeypatch.setattr(step_checks, "log", lambda *line: lines.append(line[-1]))
    others([lambda _: {1: "a", 2: "b"}, lambda _: {1: [["w", "b"], ["x", "a"]], 2: [["w", "b"], ["x", "b"]]}])
    checks = StepChecks(global_process_set, lambda: [("w", b"1")], remedy="hvd.broadcast_parameters(model)")
    checks.before_update()
    assert not checks.is_over
    for _ in range(3):
        checks.before_update()
    assert checks.is_over and lines == remarks._texts and len(lines) == speaks
    for part in (
        "first tensor that differs is 'b' (1 of 2",
        "rank 2 differs from",
        "Add hvd.broadcast_param",
    ):
        assert part in "".join(lines) or not speaks


def test_tensors_that_not_all_ranks_have_differ() -> None:
    text = step_checks._divergence_text(["a"], {0: ["x"], 1: ["x", "y"]})
    assert "the first tensor that differs is 'one that not all have'" in text


@pytest.mark.parametrize("value", ["maybe", "-1", ""])
def test_what_is_no_value_is_the_default(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    for variable in ("HOROVOD_CHECK_NONFINITE", "HOROVOD_CHECK_PARAMETERS_EVERY"):
        monkeypatch.setenv(variable, value)
    assert _checks().is_over


@settings(deadline=None)
@given(st.binary(min_size=1), st.integers(0, 200_000), st.data())
def test_a_fingerprint_tells_tensors_apart(pattern: bytes, size: int, data: st.DataObject) -> None:
    content = bytearray((pattern * (size // len(pattern) + 1))[:size])
    before = fingerprint(bytes(content))
    assert before == fingerprint(memoryview(content))
    if content:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        assert before != fingerprint(bytes(content))
