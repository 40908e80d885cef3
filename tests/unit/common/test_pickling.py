"""Objects as bytes: plain ones by pickle alone, all others by cloudpickle."""

import collections
import pickle
import subprocess
import sys
from typing import Any, NamedTuple

import numpy
import pytest

from horovod.common.collective import pickling


class Pair(NamedTuple):
    first: int
    second: str


class Text(str):
    __slots__ = ()


CIRCLE: list[Any] = [1]
CIRCLE.append(CIRCLE)

PLAIN = [
    None,
    True,
    1 << 70,
    1.5,
    2j,
    "ä\ud800",
    b"\0",
    bytearray(b"a"),
    (1, [2, {"a": {3, frozenset("b")}}]),
]


@pytest.mark.parametrize("obj", [*PLAIN, Pair(1, "a"), Text("a"), collections.Counter("aab"), int, len])
def test_a_copy_is_equal_and_of_the_same_type(obj: Any) -> None:
    copy = pickle.loads(pickling.dumps(obj))
    assert copy == obj and type(copy) is type(obj)


def test_what_contains_itself() -> None:
    copy = pickle.loads(pickling.dumps(CIRCLE))
    assert copy[0] == 1 and copy[1] is copy


def test_functions_and_arrays_within_plain_objects() -> None:
    number = 3
    copy = pickle.loads(pickling.dumps({"f": lambda: number, "a": [numpy.arange(3)]}))
    assert copy["f"]() == 3 and copy["a"][0].tolist() == [0, 1, 2]


def test_an_error_of_the_object_is_raised() -> None:
    class Broken:
        def __reduce__(self) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pickling.dumps([1, Broken()])


def test_plain_objects_need_no_cloudpickle() -> None:
    program = (
        "import sys; from horovod.common.collective.pickling import dumps; "
        "dumps([(1, 'a', {2.5: b'c'})]); assert 'cloudpickle' not in sys.modules; "
        "dumps(lambda: 0); assert 'cloudpickle' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
