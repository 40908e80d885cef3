"""Where an estimator keeps its training data, checkpoints and logs: a folder of any file system that fsspec
knows.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from fsspec.core import url_to_fs

from . import parquet


class Store:
    """The base of stores. One of your own has the methods of ``FilesystemStore``.

    A store travels to the ranks with the training, so it has to be one that cloudpickle takes.
    """

    @staticmethod
    def create(prefix_path: str, *args: Any, **kwargs: Any) -> FilesystemStore:
        """The store for a path.

        Args:
            prefix_path: a folder: of this machine, of DBFS (``/dbfs/...``, ``dbfs:/...``), of HDFS
                (``hdfs://host:port/...``, ``webhdfs://...``), or the URL of anything else that fsspec knows,
                such as ``s3://bucket/folder`` with s3fs installed. Each rank and the driver have to see it.
            args, kwargs: those of the class that the path belongs to.
        """
        kinds: tuple[type[FilesystemStore], ...] = (DBFSLocalStore, HDFSStore, LocalStore)
        kind = next((kind for kind in kinds if kind.matches(prefix_path)), FilesystemStore)
        return kind(prefix_path, *args, **kwargs)


class FilesystemStore(Store):
    """A folder of any file system of fsspec.

    Args:
        prefix_path: the folder, as a path or a URL.
        train_path, val_path, test_path, runs_path: where data and runs are, if not below ``prefix_path``.
        save_runs: whether checkpoints and logs are kept.
        storage_options, kwargs: arguments of the file system, such as ``key`` and ``secret``.
    """

    def __init__(
        self,
        prefix_path: str,
        train_path: str | None = None,
        val_path: str | None = None,
        test_path: str | None = None,
        runs_path: str | None = None,
        save_runs: bool = True,
        storage_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.prefix_path = self.normalize_path(prefix_path).rstrip("/")
        self.storage_options = {**(storage_options or {}), **kwargs}
        self._train_path = self._at(train_path, "intermediate_train_data")
        self._val_path = self._at(val_path, "intermediate_val_data")
        self._test_path = self._at(test_path, "intermediate_test_data")
        self._runs_path = self._at(runs_path, "runs")
        self._save_runs = save_runs

    @classmethod
    def matches(cls, path: str) -> bool:
        """Whether the path is one for this class."""
        return True

    @staticmethod
    def normalize_path(path: str) -> str:
        """The form in which paths of this store are given."""
        return path

    @property
    def filesystem(self) -> Any:
        """Of fsspec, which keeps one for the same arguments. It remembers no folders: Spark and ranks, which
        are other processes, write into them.
        """
        found = url_to_fs(self.prefix_path, **self.storage_options)[0]
        found.invalidate_cache()
        return found

    @property
    def fs(self) -> Any:
        """The same as ``filesystem``."""
        return self.filesystem

    def get_full_path(self, path: str) -> str:
        """The path as Spark is told it."""
        return path

    def get_train_data_path(self, idx: object = None) -> str:
        """The folder of Parquet files to train with; ``idx`` tells several sets of them apart."""
        return _numbered(self._train_path, idx)

    def get_val_data_path(self, idx: object = None) -> str:
        """As ``get_train_data_path``, for validation."""
        return _numbered(self._val_path, idx)

    def get_test_data_path(self, idx: object = None) -> str:
        """As ``get_train_data_path``, for tests."""
        return _numbered(self._test_path, idx)

    def is_parquet_dataset(self, path: str) -> bool:
        """Whether there are Parquet files at the path."""
        try:
            return bool(parquet.files_at(path, self.filesystem))
        except (FileNotFoundError, ValueError):
            return False

    def get_parquet_dataset(self, path: str) -> Any:
        """The files as a ``pyarrow.dataset.Dataset``."""
        return parquet.opened(path, self.filesystem)

    def saving_runs(self) -> bool:
        """Whether checkpoints and logs are kept."""
        return self._save_runs

    def get_runs_path(self) -> str:
        """The folder of all runs."""
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        """The folder of a run."""
        return f"{self._runs_path}/{run_id}"

    def get_checkpoint_path(self, run_id: str) -> str | None:
        """The file of a run's last checkpoint; None where runs are not kept."""
        return f"{self.get_run_path(run_id)}/{self.get_checkpoint_filename()}" if self._save_runs else None

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> list[str]:
        """The files of a run with this ending, in the order of their names."""
        folder = self.get_run_path(run_id)
        if not self.exists(folder):
            return []
        names = [path.rsplit("/", 1)[-1] for path in self.filesystem.ls(folder, detail=False)]
        return [f"{folder}/{name}" for name in sorted(names) if name.endswith(suffix)]

    def get_checkpoint_filename(self) -> str:
        """The name of a checkpoint in the folder of its run."""
        return "checkpoint"

    def get_logs_path(self, run_id: str) -> str | None:
        """The folder of a run's logs; None where runs are not kept."""
        return f"{self.get_run_path(run_id)}/{self.get_logs_subdir()}" if self._save_runs else None

    def get_logs_subdir(self) -> str:
        """The name of the folder of logs in that of a run."""
        return "logs"

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return bool(self.filesystem.exists(path))

    def read(self, path: str) -> bytes:
        """What is in a file.

        Raises:
            FileNotFoundError: there is none.
        """
        return bytes(self.filesystem.cat_file(path))

    def write(self, path: str, data: bytes) -> None:
        """Replaces a file; its folder is made."""
        self.filesystem.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self.filesystem.pipe_file(path, data)

    def write_text(self, path: str, text: str) -> None:
        """Replaces a file by a text in UTF-8."""
        self.write(path, text.encode())

    def delete(self, path: str) -> None:
        """Removes a file, or a folder and all that is in it, if it is there."""
        if self.exists(path):
            self.filesystem.rm(path, recursive=True)

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], contextlib.AbstractContextManager[str]]:
        """Makes a folder of the rank's machine for the files of a run, which ``sync_fn`` then uploads."""
        return tempfile.TemporaryDirectory

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """A function that puts the files of a local folder into that of the run."""
        target = self.get_run_path(run_id)

        def sync(local_run_path: str) -> None:
            self.filesystem.makedirs(target, exist_ok=True)
            self.filesystem.put(local_run_path.rstrip("/") + "/", target + "/", recursive=True)

        return sync

    def _at(self, path: str | None, name: str) -> str:
        return f"{self.prefix_path}/{name}" if path is None else self.normalize_path(path).rstrip("/")


class LocalStore(FilesystemStore):
    """A folder of this machine, or one that all machines have mounted."""

    @classmethod
    def matches(cls, path: str) -> bool:
        return "://" not in path or path.startswith("file:")

    @staticmethod
    def normalize_path(path: str) -> str:
        return os.path.abspath(re.sub("^file:(//)?", "", path))

    def get_full_path(self, path: str) -> str:
        return f"file://{path}"

    def write(self, path: str, data: bytes) -> None:
        """In one step: who reads has the old file or the new one, also after a crash."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fresh = f"{path}.{uuid.uuid4().hex}"
        try:
            with open(fresh, "wb") as file:
                file.write(data)
            os.replace(fresh, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh)

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], contextlib.AbstractContextManager[str]]:
        path = self.get_run_path(run_id)

        def local_output_dir() -> contextlib.AbstractContextManager[str]:
            os.makedirs(path, exist_ok=True)
            return contextlib.nullcontext(path)

        return local_output_dir

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        target = self.get_run_path(run_id)
        upload = super().sync_fn(run_id)
        return lambda path: None if os.path.abspath(path) == target else upload(path)


class DBFSLocalStore(LocalStore):
    """A folder of DBFS, which each machine has below /dbfs."""

    @classmethod
    def matches(cls, path: str) -> bool:
        return cls.matches_dbfs(path)

    @staticmethod
    def matches_dbfs(path: str) -> bool:
        """Whether the path is one of DBFS."""
        return re.match("dbfs:/|(file:(//)?)?/dbfs/", path) is not None

    @staticmethod
    def normalize_path(path: str) -> str:
        """As machines see it: /dbfs/..."""
        return LocalStore.normalize_path(re.sub("^dbfs:/+", "/dbfs/", path))

    def get_full_path(self, path: str) -> str:
        return f"dbfs:{path.removeprefix('/dbfs')}" if path.startswith("/dbfs/") else f"file://{path}"


class HDFSStore(FilesystemStore):
    """A folder of HDFS, by libhdfs (``hdfs://``) or by its web server (``webhdfs://``).

    Args:
        prefix_path: ``hdfs://host:port/folder``, or a path on the cluster that Hadoop's settings name.
        host, port: the name node, in place of that of the path.
        user, kerb_ticket, extra_conf: who logs in, and more settings of Hadoop's.
        driver, temp_dir: mean nothing here.
        kwargs: those of ``FilesystemStore``.
    """

    def __init__(
        self,
        prefix_path: str,
        host: str | None = None,
        port: int | None = None,
        user: str | None = None,
        kerb_ticket: str | None = None,
        driver: str | None = None,
        extra_conf: dict[str, str] | None = None,
        temp_dir: str | None = None,
        **kwargs: Any,
    ) -> None:
        given = urlsplit(prefix_path if "://" in prefix_path else f"hdfs://{prefix_path}")
        if host is not None:
            given = given._replace(netloc=host if port is None else f"{host}:{port}")
        options: dict[str, Any] = {"user": user, "kerb_ticket": kerb_ticket, "extra_conf": extra_conf}
        options = {name: value for name, value in options.items() if value is not None}
        # urlunsplit would drop an empty host.
        prefix_path = f"{given.scheme}://{given.netloc}{given.path}"
        super().__init__(prefix_path, **options, **kwargs)

    @classmethod
    def matches(cls, path: str) -> bool:
        return path.startswith(("hdfs://", "webhdfs://"))


def _numbered(path: str, idx: object) -> str:
    return path if idx is None else f"{path}.{idx}"
