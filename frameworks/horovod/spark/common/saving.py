"""Stages in files: params that JSON can have in ``metadata``, as those of pyspark, all others in ``values``.

``values`` is one pickle, so that an optimizer stays that of its model. Whoever can write it can run code
where it is loaded, as with every pickle. Backend and store are not saved: they belong to a session, and may
hold credentials.
"""

from __future__ import annotations

import json
import os
from typing import Any

import cloudpickle
from pyspark.ml.util import (
    DefaultParamsReader,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)

NOT_SAVED = ("backend", "store")


class Saved(MLWritable, MLReadable):
    """A stage that has ``write``, ``save``, ``read`` and ``load``."""

    def write(self) -> _Writer:
        return _Writer(self)

    @classmethod
    def read(cls) -> _Reader:
        return _Reader(cls)

    def _packed(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values as they are pickled; a framework whose models are no pickles replaces them."""
        return values

    def _unpacked(self, values: dict[str, Any]) -> dict[str, Any]:
        """The opposite."""
        return values


class _Writer(MLWriter):
    def __init__(self, stage: Any) -> None:
        super().__init__()
        self._stage = stage

    def save(self, path: str) -> None:
        """Writes the stage.

        Raises:
            AnalysisException: the path exists, and there was no ``overwrite()``.
            TypeError: a param cannot be pickled; the text names it.
        """
        given = {param.name: value for param, value in self._stage._paramMap.items()}
        given = {name: value for name, value in given.items() if name not in NOT_SAVED}
        simple = {name: value for name, value in given.items() if _is_simple(value)}
        others = {name: value for name, value in given.items() if name not in simple}
        session = self.sparkSession
        text = DefaultParamsWriter._get_metadata_to_save(self._stage, session, paramMap=simple)
        values = pickled(self._stage._packed(others))
        mode = "overwrite" if self.shouldOverwrite else "error"
        frame = session.createDataFrame([(text,)], "value string")
        frame.coalesce(1).write.mode(mode).text(os.path.join(path, "metadata"))
        frame = session.createDataFrame([(bytearray(values),)], "value binary")
        frame.coalesce(1).write.mode(mode).parquet(os.path.join(path, "values"))


class _Reader(MLReader):
    def __init__(self, cls: type) -> None:
        super().__init__()
        self._cls = cls

    def load(self, path: str) -> Any:
        """Reads a stage; from nowhere but where you trust."""
        text = self.sparkSession.read.text(os.path.join(path, "metadata")).first()[0]
        metadata = DefaultParamsReader._parseMetaData(text)
        if metadata["class"].rpartition(".")[2] != self._cls.__name__:
            raise ValueError(f"{path} holds a {metadata['class']}, and no {self._cls.__name__}")
        stage: Any = self._cls()
        stage._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(stage, metadata)
        values = self.sparkSession.read.parquet(os.path.join(path, "values")).first()[0]
        stage._set(**stage._unpacked(cloudpickle.loads(bytes(values))))
        return stage


def _is_simple(value: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


def pickled(values: dict[str, Any]) -> bytes:
    """Params, as one pickle.

    Raises:
        TypeError: one cannot be pickled; the text names it.
    """
    try:
        return bytes(cloudpickle.dumps(values))
    except Exception as error:
        for name, value in values.items():
            try:
                cloudpickle.dumps(value)
            except Exception:
                raise TypeError(f"the param {name!r} cannot be pickled: {error}") from error
        raise
