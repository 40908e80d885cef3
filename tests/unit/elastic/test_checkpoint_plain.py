"""Python values as JSON: what comes back is what was given, of the same types; what has no form is named."""

import collections
import json
import math
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod.elastic.checkpoint.errors import CheckpointError, UnstorableObjectError
from horovod.elastic.checkpoint.formats import ArrayFormat, Pieces
from horovod.elastic.checkpoint.plain import decode, encode


def through(value, allow_pickle=False):
    """Written as a file is, and read."""
    pieces = Pieces([ArrayFormat()])
    text = json.dumps(encode(value, "value", pieces.set_aside, allow_pickle), allow_nan=False)
    data = Bytes()
    tensors = {name: piece.value for name, piece in pieces.found.items()}
    if tensors:
        ArrayFormat().write(data, tensors)
        tensors = ArrayFormat().read(bytes(data.content))
    return decode(json.loads(text), tensors, allow_pickle)


class Bytes:
    """A file that can only be written to."""

    def __init__(self):
        self.content = bytearray()

    def write(self, data):
        self.content += data
        return len(data)

    def flush(self):
        pass


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, (list, tuple, collections.deque)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=True)
        return len(one) == len(other) and all(same(a, c) and same(b, d) for (a, b), (c, d) in pairs)
    if isinstance(one, (np.ndarray, np.generic)):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return one == other


_ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.binary(max_size=20),
    st.text(st.characters(exclude_categories=[]), max_size=20),
    st.sampled_from(["$tuple", "$", "$int", -(2**63), 2**63, -0.0, range(3, -9, -2)]),
)
_KEYS = st.one_of(st.text(max_size=5), st.integers(), st.tuples(st.integers(), st.text(max_size=3)))
_VALUES = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.lists(inner, max_size=5).map(lambda items: collections.deque(items, 9)),
        st.dictionaries(_KEYS, inner, max_size=5),
        st.dictionaries(st.sampled_from(["$dict", "$tuple", "a"]), inner, max_size=2),
        st.dictionaries(_KEYS, inner, max_size=5).map(collections.OrderedDict),
    ),
    max_leaves=30,
)


@settings(max_examples=400, deadline=None)
@given(_VALUES)
def test_values_come_back(value):
    assert same(through(value), value)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats() | st.integers() | st.integers(-5, 5), max_size=20))
def test_lists_of_numbers_come_back(numbers):
    for value in (numbers, [float(0 if abs(n) > 1e300 else n) for n in numbers if n == n]):
        assert same(through(value), value)


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        frozenset({"a", (1, 2)}),
        collections.Counter({3: 2, 5: 1}),
        bytearray(b"\0\xff"),
        np.float32(0.1),
        np.int64(-5),
        np.bool_(True),
        np.complex64(1 - 2j),
        np.float64("nan"),
        np.datetime64("2020-01-01T00:00:01"),
        [np.float32(1.5), {"x": np.arange(6, dtype=np.int8).reshape(2, 3)}],
        {"a/b": np.ones(2), "a": {"b": np.zeros(3)}, 5: np.array(7.0), "empty": np.zeros((0, 3))},
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(["a", "bc"]),
        np.zeros(2, dtype=[("x", "i4"), ("y", "f8")]),
        {"\n": np.ones(1), "\x00\ud800": np.ones(2)},
    ],
    ids=repr,
)
def test_other_types_come_back(value):
    assert same(through(value), value)


def test_a_number_of_any_length_comes_back():
    assert through([10**5000, -(10**5000)]) == [10**5000, -(10**5000)]


def test_what_is_written_shares_nothing_with_the_value():
    value = {"numbers": [1, 2], "floats": [1.0], "text": ["a"], "array": np.zeros(3)}
    pieces = Pieces([ArrayFormat()])
    written = encode(value, "value", pieces.set_aside)
    before = json.dumps(written)
    for name in ("numbers", "floats", "text"):
        value[name].append(9)
    value["array"] += 1
    assert json.dumps(written) == before
    assert pieces.found["value/array"].value.tolist() == [0, 0, 0]


class Ours:
    def __eq__(self, other):
        return type(other) is Ours

    def __hash__(self):
        return 0


class Text(str):
    pass


@pytest.mark.parametrize(
    "value", [Ours(), Text("a"), lambda: 0, np.array([Ours()]), Ours, object()], ids=repr
)
def test_what_has_no_form_is_named(value):
    with pytest.raises(UnstorableObjectError, match=r"log/2/x of the state.*pickle"):
        encode([1, 2, {"x": value}], "log", Pieces([ArrayFormat()]).set_aside)


def test_what_contains_itself_is_refused():
    value = []
    value.append(value)
    with pytest.raises(UnstorableObjectError, match=r"log cannot be written.*itself"):
        encode(value, "log", Pieces([]).set_aside)


def test_pickle_only_when_it_is_allowed():
    value = {"a": Ours()}
    assert through(value, allow_pickle=True) == value
    written = encode(value, "x", Pieces([]).set_aside, allow_pickle=True)
    with pytest.raises(CheckpointError, match="allow_pickle=True"):
        decode(written, {})
    with pytest.raises(UnstorableObjectError, match=r"x/0 of the state cannot be pickled"):
        encode([(n for n in [])], "x", Pieces([]).set_aside, allow_pickle=True)


def test_nothing_that_is_read_runs():
    class Evil:
        def __reduce__(self):
            return pytest.fail, ("it ran",)

    pieces = Pieces([])
    text = encode(pickle.dumps(Evil()), "x", pieces.set_aside)
    assert isinstance(decode(text, {}), bytes)
    for forged in ({"$pickle": text["$bytes"]}, {"$scalar": ["|O", "AAAAAAAAAAA="]}, {"$eval": "1"}):
        with pytest.raises(CheckpointError):
            decode(forged, {})


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["$int", "$float", "$complex", "$bytes", "$range", "$tuple", "$set", "$deque"]
                )
                | st.sampled_from(["$dict", "$counter", "$tensor", "$scalar", "$pickle", "a"]),
                inner,
                max_size=2,
            )
        ),
        max_leaves=10,
    )
)
def test_any_json_is_a_value_or_a_clear_error(told):
    try:
        decode(told, {})
    except CheckpointError:
        pass
