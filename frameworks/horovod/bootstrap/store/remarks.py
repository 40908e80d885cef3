"""What ranks say when they leave the job, for whoever looks at its end: that nothing was exchanged, or that
their models differ. A rank that has nothing to say sends nothing.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from ..text import escaped

PREFIX = "remark/"
_MOST_BYTES = 1 << 13
_MOST_SHOWN = 3


class Remark(NamedTuple):
    """``is_idle``: the rank has submitted no collective; ``has_reduced_nothing``: has run none that reduces,
    although it has broadcast parameters. ``texts``: what else it has to say.
    """

    is_idle: bool
    has_reduced_nothing: bool
    texts: Sequence[str]

    def encode(self) -> bytes:
        """For the store."""
        return json.dumps(
            [self.is_idle, self.has_reduced_nothing, [text[:2000] for text in self.texts[:3]]]
        ).encode()


class Remarks:
    """The remarks of a job's ranks. Filled on the thread of a store, read after the job."""

    def __init__(self) -> None:
        self._by_rank: dict[int, Remark] = {}

    def take(self, rank: int, _: bytes, value: bytes) -> str:
        """What ``rank`` says, in place of what it has said before. Returns why it is refused, or ""."""
        try:
            if len(value) > _MOST_BYTES:
                raise ValueError
            is_idle, has_reduced_nothing, texts = json.loads(value)
            self._by_rank[rank] = Remark(bool(is_idle), bool(has_reduced_nothing), list(map(str, texts)))
        except (ValueError, TypeError, RecursionError):
            return "not a remark"
        return ""

    def lines(self, size: int) -> list[str]:
        """The lines for the end of a job that went well, of ``size`` processes."""
        remarks = dict(sorted(self._by_rank.items()))
        lines = [escaped(text) for remark in remarks.values() for text in remark.texts][:_MOST_SHOWN]
        if size < 2 or len(remarks) < size:
            return lines
        if all(remark.is_idle for remark in remarks.values()):
            lines.append(idle(size))
        elif all(remark.is_idle or remark.has_reduced_nothing for remark in remarks.values()):
            lines.append(REDUCED_NOTHING)
        return lines


def idle(size: int) -> str:
    """For a job in which no rank has submitted a collective."""
    return (
        f"no rank called a collective, so each of the {size} worked alone. A training broadcasts its "
        "parameters at the start and takes its steps by an optimizer that hvd.DistributedOptimizer has made"
    )


REDUCED_NOTHING = (
    "the ranks broadcast their parameters and never reduced anything: if they trained, each trained a model "
    "of its own. Make the optimizer by hvd.DistributedOptimizer"
)


def never_started(size: int) -> str:
    """For a job in which no rank has come to ``hvd.init()``."""
    return (
        f"no rank called hvd.init(), so each of the {size} worked alone. For a program that looks for "
        "OMPI_COMM_WORLD_SIZE to see whether it is distributed, use horovodrun --mpi"
    )
