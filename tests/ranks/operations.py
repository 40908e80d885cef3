"""Any operation with random data, in any form, on any process set, checked by numpy. Of no framework: what
one makes of it is a subclass of ``Running``.

A case is made alike by all members of the set: everything about it follows from its fields.
"""

import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import reference
from reference import ADASUM, DTYPES, FLOATS, OPS

FACTORS = [(1.0, 1.0), (1.0, 1.0), (0.5, 3.0)]


@dataclass
class Case:
    """One operation. The fields from ``name`` on need not be equal on all members."""

    kind: str
    dtype: str
    op: str  # of those that reduce
    number: int  # seed of the data
    shape: tuple[int, ...]
    process_set: Any
    hops: int = 0  # ranks at which a result may be rounded
    present: list[int] | None = None  # members that take part, when the others have joined
    name: str | None = None
    wait: bool = True
    in_place: bool = False

    @property
    def ranks(self) -> int:
        return len(self.process_set.ranks)

    @property
    def me(self) -> int:
        return self.process_set.rank()

    @property
    def here(self) -> list[int]:
        return list(range(self.ranks)) if self.present is None else self.present

    def inputs(self, rows: Callable[[int], int] | None = None) -> list[np.ndarray]:
        """The array of each member; ``rows`` says how many rows each has."""
        shapes = [(rows(member), *self.shape[1:]) if rows else self.shape for member in range(self.ranks)]
        seed = [self.number, len(self.shape)]
        return [reference.numbers(member, self.dtype, shape, seed) for member, shape in enumerate(shapes)]

    def of_those_here(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [arrays[member] for member in self.here]

    def draw(self, *key: int) -> int:
        """A number of rows, often 0."""
        scale = max(1, self.shape[0] // 8) if self.shape else 1
        return max(0, random.Random(f"{self.number} {key}").randrange(-3, 12)) * scale


@dataclass
class Plan:
    """What a case calls, and what must come out of it."""

    mine: list[np.ndarray]
    expected: list[np.ndarray]
    options: dict[str, Any] = field(default_factory=dict)
    bound: float = 0.0
    everywhere: bool = True  # all members get the same
    received: list[int] | None = None  # splits
    dtypes: list[str] = field(default_factory=list)  # of ``mine``, when they are not all that of the case


def _mine(case: Case, arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [arrays[case.me]]


def _reduction(case: Case) -> tuple[dict[str, Any], tuple[float, float]]:
    if case.op == "Adasum":
        return {"op": ADASUM}, (1.0, 1.0)
    factors = FACTORS[case.number % len(FACTORS)]
    return {"op": OPS[case.op], "prescale_factor": factors[0], "postscale_factor": factors[1]}, factors


def _added_up(case: Case, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """What a reduction is made of: members that have joined bring zeros, which turn -0.0 into 0.0, or what
    changes nothing.
    """
    if case.op in ("Sum", "Average", "Adasum"):
        return [a if m in case.here else np.zeros_like(a) for m, a in enumerate(arrays)]
    return case.of_those_here(arrays)


def _allreduce(case: Case) -> Plan:
    (options, factors), arrays, bound = _reduction(case), case.inputs(), 0.0
    taking_part = _added_up(case, arrays)
    if case.op == "Adasum":
        bound = 64 * reference.DIGITS[case.dtype] * float(max(np.abs(a).max(initial=0) for a in arrays))
    expected = reference.allreduce(taking_part, case.dtype, options["op"], *factors, ranks=case.ranks)
    return Plan(_mine(case, arrays), [expected], options, bound)


def _reducescatter(case: Case) -> Plan:
    (options, factors), arrays = _reduction(case), case.inputs()
    taking_part = _added_up(case, arrays)
    expected = reference.reducescatter(
        taking_part, case.dtype, options["op"], case.me, *factors, ranks=case.ranks
    )
    return Plan(_mine(case, arrays), [expected], options, everywhere=False)


def _allgather(case: Case) -> Plan:
    arrays = case.inputs(case.draw)
    return Plan(_mine(case, arrays), [reference.allgather(case.of_those_here(arrays))])


def _broadcast(case: Case) -> Plan:
    arrays, root = case.inputs(), case.here[case.number % len(case.here)]
    return Plan(_mine(case, arrays), [arrays[root]], {"root_rank": case.process_set.ranks[root]})


def _alltoall(case: Case) -> Plan:
    """Half of them with splits, of which some are 0, and perhaps with a row that goes to nobody."""
    members, equal = range(case.ranks), case.number % 2 == 0
    splits = [
        [case.shape[0] if equal else case.draw(sender, receiver) for receiver in members]
        for sender in members
    ]
    arrays = case.inputs(lambda member: sum(splits[member]) + (not equal and case.number % 3 == 0))
    options = {} if equal else {"splits": splits[case.me]}
    sent = [rows if member in case.here else [0] * case.ranks for member, rows in enumerate(splits)]
    expected, received = reference.alltoall(arrays, sent, case.me)
    return Plan(_mine(case, arrays), [expected], options, everywhere=False, received=received)


def _grouped(plan: Callable[[Case], Plan], case: Case) -> Plan:
    """Three tensors, of one type or of two."""
    other = case.dtype if case.op == "Adasum" or case.dtype == "bool" else "float64"
    cases = [case, replace(case, shape=(3,)), replace(case, shape=(0, 2), dtype=other)]
    plans = [plan(part) for part in cases]
    mine, expected = ([getattr(p, name)[0] for p in plans] for name in ("mine", "expected"))
    bound = max(p.bound for p in plans)
    dtypes = [part.dtype for part in cases]
    return Plan(mine, expected, plans[0].options, bound, plans[0].everywhere, dtypes=dtypes)


PLANS: dict[str, Callable[[Case], Plan]] = {
    "allreduce": _allreduce,
    "grouped_allreduce": lambda case: _grouped(_allreduce, case),
    "allgather": _allgather,
    "grouped_allgather": lambda case: _grouped(_allgather, case),
    "broadcast": _broadcast,
    "alltoall": _alltoall,
    "reducescatter": _reducescatter,
    "grouped_reducescatter": lambda case: _grouped(_reducescatter, case),
}


def table() -> list[tuple[str, str, str]]:
    """All (kind, dtype, op) that there are."""
    rows = []
    for kind in PLANS:
        for dtype in DTYPES:
            ops = list(OPS) if "reduce" in kind else [""]
            ops += ["Adasum"] if "allreduce" in kind and dtype in FLOATS else []
            rows += [(kind, dtype, op) for op in ops if (dtype, op) != ("bool", "Average")]
    return rows


class Running(ABC):
    """A case under way."""

    def __init__(self, case: Case) -> None:
        self.case, self.plan = case, self.planned(case)
        self.dtypes = self.plan.dtypes or [case.dtype]
        self.mine = [self.tensor(a, dtype) for a, dtype in zip(self.plan.mine, self.dtypes, strict=True)]
        self.called: Any = None  # what ``call`` has returned

    def planned(self, case: Case) -> Plan:
        """What to call, and what must come out."""
        return PLANS[case.kind](case)

    @abstractmethod
    def tensor(self, array: np.ndarray, dtype: str) -> Any:
        """The array as a tensor of the named type, with memory of its own."""

    @abstractmethod
    def array(self, tensor: Any) -> np.ndarray:
        """What the tensor holds, as ``reference`` shows it."""

    @abstractmethod
    def dtype(self, tensor: Any) -> str:
        """The name of its type."""

    @abstractmethod
    def call(self, tensors: Any, options: dict[str, Any]) -> Any:
        """Calls the operation with one tensor, or those of a group; returns its result or a handle.
        ``options`` hold what the case asks for, process set and name too, with splits as a list.
        """

    def result(self, called: Any) -> Any:
        """The result of an operation, from what ``call`` has returned."""
        return called

    def check_kept(self, results: Sequence[Any]) -> None:
        """Raises AssertionError when the input is not what it should be now."""
        for mine, array in zip(self.mine, self.plan.mine, strict=True):
            assert not reference.differs(self.array(mine), array, self.case.dtype), f"{self}: input changed"

    def start(self) -> "Running":
        """Calls the operation; one that waits is then complete."""
        self.called = self.called_with(self.mine)
        return self

    def called_with(self, tensors: Sequence[Any]) -> Any:
        """Calls the operation with other tensors than ``mine``."""
        options = {**self.plan.options, "name": self.case.name, "process_set": self.case.process_set}
        return self.call(tensors if self.case.kind.startswith("grouped") else tensors[0], options)

    def finish(self) -> list[np.ndarray]:
        """The results; raises AssertionError when they are wrong."""
        result = self.result(self.called)
        if isinstance(result, tuple):
            result, received = result
            assert self.array(received).tolist() == self.plan.received, f"{self}: received {received}"
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        assert len(results) == len(self.plan.expected), f"{self}: {len(results)} results"
        assert [self.dtype(one) for one in results] == self.dtypes, f"{self} changes the type"
        arrays = [self.array(one) for one in results]
        for actual, expected, dtype in zip(arrays, self.plan.expected, self.dtypes, strict=True):
            problem = reference.differs(actual, expected, dtype, self._hops(), self.plan.bound)
            assert not problem, f"{self}: {problem}"
        self.check_kept(results)
        return arrays

    def _hops(self) -> int:
        """Over links, and where a rank has joined, a factor is applied and a narrow float rounded before
        anything else.
        """
        case = self.case
        scaled = self.plan.options.get("prescale_factor", 1.0) != 1.0 and case.dtype in reference.NARROW
        ahead = os.environ.get("HOROVOD_TRANSPORT") == "tcp" or len(case.here) < case.ranks
        return case.hops or (2 if scaled and ahead else 0)

    def __str__(self) -> str:
        case = self.case
        form = f"{'sync' if case.wait else 'async'}{', in place if it can' if case.in_place else ''}"
        where = f"ranks {case.process_set.ranks}, of which take part {case.here}"
        return f"{case.kind} {case.dtype} {case.op} {case.shape} on {where}, {form}, number {case.number}"
