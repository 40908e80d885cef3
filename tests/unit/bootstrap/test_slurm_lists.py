"""Slurm's compressed lists, in full."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.bootstrap.slurm import nodes, tasks_per_node


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), min_size=1, max_size=8))
def test_tasks_of_nodes(groups: list[tuple[int, int]]) -> None:
    text = ",".join(f"{tasks}(x{count})" if count > 1 else f"{tasks}" for tasks, count in groups)
    assert tasks_per_node(text) == [tasks for tasks, count in groups for _ in range(count)]


@pytest.mark.parametrize("text", ["", "2(x3", "2,,1", "a", "2(x)", "1" * 9])
def test_what_is_no_list_of_tasks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of tasks"):
        tasks_per_node(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[01-03,7],gpu[1-2]a", ["n01", "n02", "n03", "n7", "gpu1a", "gpu2a"]),
        ("rack[1-2]n[8-10]", [f"rack{r}n{n}" for r in (1, 2) for n in (8, 9, 10)]),
        ("a,b-2.local,c[5]", ["a", "b-2.local", "c5"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
    ],
)
def test_node_lists(text: str, names: list[str]) -> None:
    assert nodes(text) == names
    assert nodes(text, 1) == names[:1]


_RANGES = st.lists(
    st.tuples(st.integers(0, 2000), st.integers(0, 30), st.integers(1, 5)), min_size=1, max_size=4
)
_PATTERNS = st.tuples(
    st.from_regex("[a-z][a-z0-9.-]{0,5}", fullmatch=True), st.none() | _RANGES, st.sampled_from(["", "a"])
)


@given(st.lists(_PATTERNS, min_size=1, max_size=4))
def test_any_node_list_in_full(patterns) -> None:
    texts, names = [], []
    for prefix, ranges, suffix in patterns:
        if ranges is None:
            texts.append(prefix + suffix)
            names.append(prefix + suffix)
            continue
        spans = [(f"{first:0{width}}", f"{first + more:0{width}}") for first, more, width in ranges]
        texts.append(f"{prefix}[{','.join(a if a == b else f'{a}-{b}' for a, b in spans)}]{suffix}")
        for (a, _), (first, more, _width) in zip(spans, ranges, strict=True):
            names += [f"{prefix}{number:0{len(a)}}{suffix}" for number in range(first, first + more + 1)]
    assert nodes(",".join(texts)) == names


@pytest.mark.parametrize(
    "text",
    ["", "n[", "n]", "n[1", "n[1-]", "n[-1]", "n[2-1]", "n[1,]", "n[a]", "a,,b", "a,", "n[[1]]", "n[]"],
)
def test_what_is_no_node_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of nodes"):
        nodes(text)


def test_a_list_of_billions_is_cut() -> None:
    assert len(nodes("n[0-999999999999999999]", 1000)) == 1000
    assert len(nodes("n[0-99999]x[0-99999]")) == 1 << 20


@given(st.text("n01,[-]", max_size=20))
def test_no_text_does_anything_but_raise_value_error(text: str) -> None:
    try:
        names = nodes(text, 100)
    except ValueError:
        return
    assert names and all(names)
