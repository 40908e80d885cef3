"""What the tests that all frameworks share need of one: its glue makes one instance of a subclass."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from operations import Running
from reference import DTYPES


class Framework(ABC):
    """``hvd`` is the adapter, ``running`` its ``Running``, ``dtypes`` the names of the types that it has.
    ``disagreement``, ``gone`` and ``mistake`` are the exceptions of an operation about which the ranks
    disagree, which lacks a rank, or which is wrong on this rank alone.
    """

    hvd: Any
    running: type[Running]
    dtypes: Sequence[str] = DTYPES
    disagreement: type[Exception] | tuple[type[Exception], ...]
    gone: type[Exception] | tuple[type[Exception], ...]
    mistake: type[Exception] | tuple[type[Exception], ...]

    @abstractmethod
    def tensor(self, array: np.ndarray) -> Any:
        """A tensor with memory of its own."""

    @abstractmethod
    def array(self, tensor: Any) -> np.ndarray:
        """What a tensor holds, once it is there."""

    @abstractmethod
    def concatenated(self, tensors: list[Any]) -> Any:
        """Along the first dimension; differentiable."""

    @abstractmethod
    def gradient(
        self, call: Callable[[Any], Any], weights: np.ndarray, array: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The result of ``call`` on the tensor ``array``, and the gradient of the sum of the products with
        the weights.
        """

    def ones(self, *shape: int) -> Any:
        """A tensor of float32."""
        return self.tensor(np.ones(shape, np.float32))
