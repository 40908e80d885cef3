"""The study on the rank that has it: who gets which trial, what is counted, what is run again."""

import contextlib
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod.search import journal
from horovod.search.journal import mend, open_journal
from horovod.search.keeper import Keeper
from horovod.search.result import Result
from horovod.search.run import team_sizes
from horovod.search.sampler import seeded_sampler

optuna = pytest.importorskip("optuna", reason="the search needs optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:optuna")


def new_study(seed: int = 1, **options: Any) -> Any:
    return optuna.create_study(sampler=seeded_sampler(seed), **options)


def keeper_of(study: Any, wanted: int, whole: list[int] | None = None) -> Keeper:
    return Keeper(study, wanted, whole, say=lambda line: None)


def value(*values: float) -> list[dict[str, Any]]:
    return [{"rank": rank, "value": [each]} for rank, each in enumerate(values)]


def test_the_value_of_a_trial_is_the_mean_of_its_ranks() -> None:
    keeper = keeper_of(new_study(), 2)
    for given_values in ([1.0, 3.0], [4.0, 5.0]):
        number = keeper.next(0)
        assert number is not None
        keeper.end(number, value(*given_values))
    assert keeper.next(0) is None and keeper.best() == [0]
    assert [trial["values"] for trial in keeper.trials()] == [[2.0], [4.5]]


def test_what_optuna_warns_of_is_not_printed_by_one_rank_among_many() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        keeper = keeper_of(new_study(), 1)
        filters = list(warnings.filters)
        number = keeper.next(0)
        assert number is not None
        for _ in range(2):
            keeper.report(number, 1.0, 0)
        keeper.suggest(number, "float", "x", 0.0, 1.0, {"step": 0.3, "log": False})
        keeper.suggest(number, "categorical", "c", [[1, 2], "a"], None, {})
        assert warnings.filters == filters
    assert not seen


def test_the_first_error_is_that_of_no_consequence() -> None:
    keeper = keeper_of(new_study(), 1)
    number = keeper.next(3)
    outcomes = [
        {"rank": 6, "error": "TeamError: another rank", "follows": True},
        {"rank": 7, "error": "RuntimeError: planted", "follows": False},
    ]
    assert number is not None
    keeper.end(number, outcomes)
    (trial,) = keeper.trials()
    assert trial["state"] == "FAIL" and trial["team"] == 3 and keeper.best() == []
    assert trial["error"] == {"rank": 7, "traceback": "RuntimeError: planted"}


def test_a_rank_that_prunes_first_prunes_for_all() -> None:
    keeper = keeper_of(new_study(), 2)
    for follows in (True, False):
        number = keeper.next(0)
        assert number is not None
        error = {"rank": 1, "error": "Error: of this trial", "follows": follows}
        keeper.end(number, [{"rank": 0, "pruned": True}, error])
    assert [trial["state"] for trial in keeper.trials()] == ["PRUNED", "FAIL"]


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([[], []], "its objective returned nothing: let it return a number, on one rank at least"),
        ([[1.0], [float("nan")]], "its objective returned NaN"),
        ([[1.0], [1.0, 2.0]], "its objective returned 2 numbers; directions of the study: 1"),
    ],
)
def test_a_value_that_the_study_refuses_fails_the_trial(values: list[list[float]], error: str) -> None:
    said: list[str] = []
    keeper = Keeper(new_study(), 1, say=said.append)
    number = keeper.next(0)
    assert number is not None
    keeper.end(number, [{"rank": rank, "value": each} for rank, each in enumerate(values)])
    (trial,) = keeper.trials()
    assert trial["state"] == "FAIL" and trial["error"] == {"rank": None, "traceback": error}
    assert said == [f"search: 1 of 1 trials; trial 0 failed: {error}"]


@pytest.mark.parametrize(
    "shown",
    ["RuntimeError: two \\x1b[31m lines", "RuntimeError: one"],
)
def test_the_line_of_a_trial_that_raises_has_its_exception(shown: str) -> None:
    said: list[str] = []
    keeper = Keeper(new_study(), 1, say=said.append)
    number = keeper.next(0)
    assert number is not None
    message = "two \x1b[31m lines\n\n(of advice)" if "two" in shown else "one"
    try:
        raise KeyError("first") from None
    except KeyError:
        try:
            raise RuntimeError(message)
        except RuntimeError:
            error = traceback.format_exc()
    keeper.end(number, [{"rank": 2, "error": error, "follows": False}])
    assert said == [f"search: 1 of 1 trials; trial 0 failed on rank 2: {shown}"]


def test_choices_that_are_alike_are_told_apart() -> None:
    keeper = keeper_of(new_study(), 40)
    choices = [1, 1.0, True, None, "1", float("nan")]
    found = set()
    while (number := keeper.next(0)) is not None:
        found.add(keeper.suggest(number, "categorical", "c", choices, None, {}))
        keeper.end(number, value(1.0))
    assert found == set(range(len(choices)))


def test_the_table_has_no_line_that_a_name_makes() -> None:
    row = {"number": 0, "state": "COMPLETE", "values": [1.0], "params": {"a\n\x1b[31m": "b\rc"}}
    lines = str(Result([{**row, "seconds": 1.0, "team": 0}], [0])).split("\n")
    assert len(lines) == 2 and all(line.isprintable() for line in lines)


@pytest.mark.parametrize(("directions", "count"), [(1, 4), (2, 2), (3, 2), (4, 1)])
def test_the_pictures_of_a_study(tmp_path: Path, directions: int, count: int) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws them").use("Agg")
    keeper = keeper_of(new_study(directions=["minimize"] * directions), 2)
    while (number := keeper.next(0)) is not None:
        keeper.suggest(number, "float", "x", 0.0, 1.0, {})
        keeper.end(number, [{"rank": 0, "value": [1 / 3] * directions}])
    result = Result(keeper.trials(), keeper.best(), keeper.study)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        files = result.plot(str(tmp_path / "pictures"))
    assert len(files) == count and all(path.stat().st_size > 1000 for path in files)
    assert str(result).count(", ".join(["0.3333"] * directions)) == 2 and "0.33333" not in str(result)


def test_ranks_that_return_none_leave_the_value_to_the_others() -> None:
    keeper = keeper_of(new_study(), 1)
    number = keeper.next(0)
    assert number is not None
    keeper.end(number, [{"rank": 0, "value": [4.0]}, {"rank": 1, "value": []}, {"rank": 2, "value": [6.0]}])
    assert [trial["values"] for trial in keeper.trials()] == [[5.0]]


def test_a_study_of_several_directions() -> None:
    keeper = keeper_of(new_study(directions=["minimize", "maximize"]), 2)
    for values in ([1.0, 2.0], [2.0, 3.0]):
        number = keeper.next(0)
        assert number is not None
        keeper.end(number, [{"rank": 0, "value": values}])
    assert keeper.best() == [0, 1] and [trial["values"] for trial in keeper.trials()] == [[1, 2], [2, 3]]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_values_do_not_depend_on_the_order_in_which_trials_ask(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 5))

    def drawn(order: list[int]) -> dict[int, tuple[Any, ...]]:
        keeper = keeper_of(new_study(5), count)
        for _ in range(count):
            keeper.next(0)
        found = {}
        for number in order:
            x = keeper.suggest(number, "float", "x", 0.0, 1.0, {"step": None, "log": False})
            n = keeper.suggest(number, "int", "n", 1, 100, {"step": 1, "log": True})
            found[number] = (x, n, keeper.suggest(number, "categorical", "c", [1, True, None], None, {}))
        return found

    assert drawn(data.draw(st.permutations(range(count)))) == drawn(list(range(count)))


@pytest.mark.parametrize(("whole", "again"), [(None, [0, 1]), ([1], [1]), ([], [])])
def test_trials_that_were_cut_off(whole: list[int] | None, again: list[int]) -> None:
    storage = optuna.storages.InMemoryStorage()
    study = new_study(storage=storage, study_name="one")
    first = keeper_of(study, 3)
    drawn = {}
    for _ in range(2):
        number = first.next(len(drawn))
        assert number is not None
        drawn[number] = first.suggest(number, "float", "x", 0.0, 1.0, {})
    opened = optuna.load_study(storage=storage, study_name="one", sampler=seeded_sampler(1))
    later = keeper_of(opened, 3, whole)
    seen = []
    while (number := later.next(1)) is not None:
        seen.append(later.suggest(number, "float", "x", 0.0, 1.0, {}))
        later.end(number, value(seen[-1]))
    assert seen[: len(again)] == [drawn[number] for number in again]
    states = [trial["state"] for trial in later.trials()]
    assert len(states) == 3 and states.count("FAIL") == 2 - len(again)


def test_news_of_hosts_ends_the_handing_out() -> None:
    news: list[bool] = []
    keeper = Keeper(new_study(), 5, None, lambda: bool(news), say=lambda line: None)
    number = keeper.next(0)
    assert number is not None
    news.append(True)
    assert keeper.next(1) is None and keeper.result() is None
    keeper.end(number, value(1.0))


def test_the_table_of_a_result() -> None:
    rows = [
        {"number": 0, "state": "COMPLETE", "values": [0.25], "params": {"x": 1.5}, "seconds": 2.0, "team": 1},
        {"number": 2, "state": "FAIL", "values": None, "params": {"k": "a"}, "seconds": None, "team": 0},
    ]
    result = Result(rows, [0])
    lines = str(result).splitlines()
    assert lines[0].split() == ["trial", "state", "value", "k", "x", "seconds", "team"]
    assert lines[1].split() == ["0", "complete", "0.25", "-", "1.5", "2", "1", "best"]
    assert lines[2].split() == ["2", "fail", "-", "a", "-", "-", "0"]
    assert result.best_params == {"x": 1.5} and result.best_value == 0.25
    with pytest.raises(ValueError, match="no trial of the search is complete"):
        _ = Result(rows[1:], []).best_value


@pytest.mark.parametrize(
    ("ranks", "asked", "sizes"), [(4, 2, [2, 2]), (5, 2, [2, 2]), (4, [2, 1, 1], [2, 1, 1]), (3, 3, [3])]
)
def test_teams(ranks: int, asked: int | list[int], sizes: list[int]) -> None:
    assert team_sizes(ranks, asked) == sizes


@pytest.mark.parametrize("asked", [0, -1, 5, [], [2, 0], [3, 2]])
def test_teams_that_cannot_be(asked: int | list[int]) -> None:
    with pytest.raises(ValueError, match="the job has 4 ranks"):
        team_sizes(4, asked)


@given(lost_bytes=st.integers(0, 400))
@settings(max_examples=20, deadline=None)
def test_a_journal_whose_end_is_lost_goes_on(
    tmp_path_factory: pytest.TempPathFactory, lost_bytes: int
) -> None:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path = tmp_path_factory.mktemp("journal") / "study"

    def keeper() -> Keeper:
        mend(path)
        storage = JournalStorage(JournalFileBackend(str(path)))
        study = new_study(storage=storage, study_name="s", load_if_exists=True)
        return keeper_of(study, 3, whole=[])

    first = keeper()
    for _ in range(2):
        number = first.next(0)
        assert number is not None
        first.suggest(number, "float", "x", 0.0, 1.0, {})
        first.end(number, value(1.0))
    path.write_bytes(path.read_bytes()[: -lost_bytes or None])
    Path(f"{path}.lock").symlink_to(path)
    second = keeper()
    while (number := second.next(0)) is not None:
        second.suggest(number, "float", "x", 0.0, 1.0, {})
        second.end(number, value(1.0))
    assert len(second.trials()) == 3 and len(keeper().trials()) == 3


def test_one_job_at_a_time_uses_a_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_SECONDS", 0.2)
    path = tmp_path / "study"
    with contextlib.ExitStack() as mine, contextlib.ExitStack() as others:
        open_journal(path, mine, goes_on=False)
        Path(f"{path}.lock").touch()
        with pytest.raises(ValueError, match=f"another job uses {path}"):
            open_journal(path, others, goes_on=False)
        assert Path(f"{path}.lock").exists()
        open_journal(path, others, goes_on=True)  # this job, on a rank 0 that has come after another one
    with contextlib.ExitStack() as mine:
        open_journal(path, mine, goes_on=False)


def test_a_study_goes_on_where_its_lines_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stderr", full)
        keeper = Keeper(new_study(), 1)
        number = keeper.next(0)
        assert number is not None
        keeper.end(number, value(1.0))
        assert keeper.is_full and keeper.best() == [0]
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()


def test_a_trial_that_has_lost_a_rank_is_told_like_the_others() -> None:
    study, said = new_study(), list[str]()
    assert keeper_of(study, 2).next(1) == 0
    Keeper(study, 2, [0], say=said.append)
    assert said == ["search: 1 of 2 trials; trial 0 failed: a rank of this trial is gone"]


def test_a_trial_of_which_no_team_has_heard_is_run_again() -> None:
    study = new_study()
    study.ask()
    keeper = keeper_of(study, 1, whole=[])
    number = keeper.next(0)
    assert number is not None and study.trials[number].user_attrs["horovod.ordinal"] == 0
    keeper.end(number, value(1.0))
    assert [trial["number"] for trial in keeper.trials()] == [1] and keeper.is_full


def test_teams_for_which_ranks_are_gone_are_dropped() -> None:
    assert team_sizes(3, [2, 1, 1], has_lost=True) == [2, 1]
    assert team_sizes(1, 2, has_lost=True) == team_sizes(1, [2, 1], has_lost=True) == []
