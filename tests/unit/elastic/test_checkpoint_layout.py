"""Names, manifests and the plan of a checkpoint: pure."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod.elastic.checkpoint import layout, notes
from horovod.elastic.checkpoint.errors import DamagedError
from horovod.elastic.checkpoint.layout import Extent, File, Manifest, Part
from horovod.elastic.checkpoint.notes import Note, dealt, plan
from horovod.elastic.checkpoint.options import Options

MANIFEST = Manifest(
    7, (File("state.json", 5, "ab" * 32), File("tensors-0.pt", 9, "cd" * 32)), Extent(10, 2), 3
)


def test_a_manifest_comes_back():
    assert layout.decode_manifest(MANIFEST.encode()) == MANIFEST
    part = Part(2, MANIFEST.files, ("a", "b/c"))
    assert layout.decode_part(part.encode()) == part


def test_a_truncated_manifest_is_refused_at_every_length():
    data = MANIFEST.encode()
    for length in range(len(data)):
        with pytest.raises(DamagedError):
            layout.decode_manifest(data[:length])


def test_a_flipped_bit_is_refused():
    data = MANIFEST.encode()
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        try:
            assert layout.decode_manifest(bytes(flipped)) == MANIFEST  # white space became other white space
        except DamagedError:
            pass


def test_a_newer_format_is_named():
    told = json.loads(MANIFEST.encode())
    told["format"] = layout.FORMAT + 1
    with pytest.raises(layout.NewerFormatError, match=f"its format is {layout.FORMAT + 1}; this version"):
        layout.decode_manifest(json.dumps(told).encode())


@pytest.mark.parametrize("name", ["../state.json", "/etc/passwd", "manifest.json", "a b.pt", ""])
def test_a_manifest_cannot_name_other_files(name):
    forged = Manifest(1, (File(name, 1, ""),)).encode()
    with pytest.raises(DamagedError, match="no checkpoint has"):
        layout.decode_manifest(forged)


def test_numbers_and_names():
    names = ["lock", "checkpoint-00000009", "checkpoint-00000010", "writing-00000011-ab12", "checkpoint-1"]
    assert layout.complete(names) == ["checkpoint-00000010", "checkpoint-00000009"]
    assert layout.next_number(names) == 12 and layout.next_number([]) == 1
    assert layout.number_of(layout.complete_name(10**8)) == 10**8
    assert layout.number_of("history.jsonl") is None


_NUMBERS = st.sets(st.integers(1, 20), min_size=1)


@settings(max_examples=200)
@given(_NUMBERS, st.sets(st.integers(1, 20)), st.integers(1, 4), st.randoms(use_true_random=False))
def test_what_is_removed(complete, left, keep, chance):
    names = [layout.complete_name(number) for number in complete]
    newest = layout.complete_name(max(complete))
    damaged = {name for name in names if chance.random() < 0.3} - {newest}
    others = ["lock", "history.jsonl", "notes.txt", *(layout.writing_name(number, "ab") for number in left)]
    removed = layout.superfluous([*names, *others], newest, keep, damaged)
    good = [name for name in layout.complete(names) if name not in damaged]
    assert set(good[:keep]).isdisjoint(removed) and newest not in removed
    assert set(names) - set(removed) == set(good[:keep])
    stale = {layout.writing_name(number, "ab") for number in left if number <= max(complete)}
    assert {name for name in removed if name in others} == stale


def test_the_ranks_agree_on_a_plan():
    zero = Note(5, name="writing-1-a", token="t", is_large=True)
    sees = Note(5, sees="t")
    assert plan({0: zero, 1: sees, 2: sees}, 3) == ("writing-1-a", (0, 1, 2))
    assert plan({0: zero, 1: sees, 2: Note(5)}, 3) == ("writing-1-a", (0,))  # another host's folder
    assert plan({0: zero._replace(is_large=False), 1: sees}, 2) == ("writing-1-a", (0,))
    assert plan({0: zero}, 1) == ("writing-1-a", (0,))
    for told in (
        {0: zero._replace(name=""), 1: sees},
        {0: zero, 1: sees._replace(is_busy=True)},
        {0: zero, 1: sees._replace(commit=4)},
    ):
        assert plan(told, len(told)) is None
    assert plan({0: zero}, 2) is None and plan({1: sees, 2: sees}, 3) is None  # some have joined


@settings(max_examples=100)
@given(
    st.dictionaries(st.text(max_size=4), st.sampled_from([0, *range(1, 1000)]), max_size=30),
    st.integers(1, 5),
)
def test_tensors_are_dealt_evenly(sizes, writers):
    sizes = {name: size * notes.SMALL_BYTES for name, size in sizes.items()}
    shares = dealt(sizes, writers)
    assert sorted(name for share in shares for name in share) == sorted(sizes)
    shuffled = list(sizes.items())
    random.Random(0).shuffle(shuffled)
    assert dealt(dict(shuffled), writers) == shares
    totals = [sum(sizes[name] for name in share) for share in shares]
    assert max(totals) - min(totals) <= max(sizes.values(), default=0)


def test_small_tensors_are_of_the_first():
    sizes = {"mean": 100, "variance": 100, "a": notes.SMALL_BYTES, "b": notes.SMALL_BYTES}
    assert dealt(sizes, 2) == [["a", "mean", "variance"], ["b"]]


def test_options():
    environment = {"HOROVOD_CHECKPOINT_DIR": "d", "HOROVOD_CHECKPOINT_PICKLE": "1"}
    assert Options().completed({}) == Options(seconds=60.0)
    assert Options().completed(environment) == Options("d", None, 60.0, 3, True)
    assert Options("mine", commits=5).completed(environment) == Options("mine", 5, None, 3, True)
    assert Options(commits=5).is_due(5, 0) and not Options(commits=5).is_due(4, 1e9)
    assert Options(seconds=2).is_due(1, 2) and not Options(commits=5, seconds=2).is_due(4, 1.9)
    for wrong in ({"commits": 0}, {"seconds": -1}, {"seconds": float("nan")}, {"keep": 0}):
        with pytest.raises(ValueError, match="at least"):
            Options(**wrong)
