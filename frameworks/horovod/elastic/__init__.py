"""Elastic jobs: training that goes on when workers die, come and go.

``driver`` decides in the launcher which workers there are; everything else here runs in the workers.
"""

from typing import Any

_PUBLIC = {
    "ElasticBatches": "batches",
    "ElasticIndices": "indices",
    "ObjectState": "state",
    "RateScale": "rate",
    "State": "state",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:  # late: the launcher needs none of them
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
