"""The description of a tensor that an operation begins with: by DLPack's table of functions where torch has
one, and by attributes. Both say the same.
"""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from horovod.torch import tensors
from horovod.torch.placements import DTYPES

BYTES = torch.arange(4096, dtype=torch.uint8)


def views(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The same elements in other ways, some of which are not one piece of memory."""
    yield tensor
    yield tensor.t()
    yield tensor[:, :1]
    yield tensor[1:]
    yield tensor[:0]
    yield tensor[:1].expand(3, -1)
    yield tensor.unsqueeze(1)
    yield tensor[:1, :1].squeeze()


@given(st.sampled_from(sorted(DTYPES, key=str)), st.integers(1, 4), st.integers(1, 5))
def test_both_ways_say_the_same(dtype: torch.dtype, rows: int, columns: int) -> None:
    size = rows * columns * dtype.itemsize
    for tensor in views(BYTES[:size].view(dtype).reshape(rows, columns)):
        assert tensors.describe(tensor) == tensors._describe(tensor)


def test_it_is_the_address_type_shape_and_size() -> None:
    tensor = torch.nn.Parameter(torch.ones(5, 3, dtype=torch.bfloat16)[2:])
    address = tensor.data_ptr()
    number = DTYPES[torch.bfloat16]
    assert tensors.describe(tensor) == (address, address, number, (3, 3), 18, 18)


class Named(torch.Tensor):
    """A class of a program's."""


NEGATED = torch.tensor([1 + 2j, 3 + 4j]).conj().imag
OTHERS = {
    "negated": NEGATED[0],
    "negated in one piece": torch.as_strided(NEGATED, (3,), (1,)),
    "conjugated": torch.tensor([1 + 2j]).conj(),
    "meta": torch.ones(2, device="meta"),
    "sparse": torch.eye(2).to_sparse(),
    "bool": torch.ones(2, dtype=torch.bool),
    "no tensor": 3.0,
    "nothing": None,
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_to_be_looked_at_more_closely(name: str) -> None:
    assert tensors.describe(OTHERS[name]) is None


def test_a_class_of_the_programs_is_described_by_attributes() -> None:
    tensor = torch.ones(3).as_subclass(Named)
    assert tensors.describe(tensor)[0] == tensor.data_ptr()


def test_within_a_transformation_there_is_no_memory() -> None:
    seen = []
    torch.vmap(lambda row: (seen.append(tensors.describe(row)), row)[1])(torch.ones(2, 3))
    assert seen == [None]
