"""Stores: which one a path belongs to, where things are in it, and files on every kind of file system."""

import io
import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import cloudpickle
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from horovod.spark.common import dataset
from horovod.spark.common.arrow import Column
from horovod.spark.common.reader import Batches
from horovod.spark.common.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store


class Bucket(LocalFileSystem):
    """Stands in for a file system that only fsspec knows: bucket://folder is a folder of this machine."""

    protocol = "bucket"
    reads: ClassVar[list[int]] = []  # bytes of each

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix("bucket://"))

    def unstrip_protocol(self, name: str) -> str:
        return f"bucket://{self._strip_protocol(name)}"

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return Counted(super()._open(path, mode, **options))


class Counted(io.BufferedIOBase):
    """A file whose reads are counted."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.write, self.seek, self.tell = file.write, file.seek, file.tell
        self.readable, self.writable, self.seekable = file.readable, file.writable, file.seekable

    def read(self, size: int | None = -1) -> bytes:
        found: bytes = self._file.read(size)
        Bucket.reads.append(len(found))
        return found

    def close(self) -> None:
        self._file.close()
        super().close()


fsspec.register_implementation("bucket", Bucket, clobber=True)


@pytest.mark.parametrize(
    ("path", "kind", "prefix", "for_spark"),
    [
        ("/data/x/", LocalStore, "/data/x", "file:///data/x"),
        ("file:///data/x", LocalStore, "/data/x", "file:///data/x"),
        ("file:/data/x", LocalStore, "/data/x", "file:///data/x"),
        ("/dbfs/x", DBFSLocalStore, "/dbfs/x", "dbfs:/x"),
        ("dbfs:/x/y", DBFSLocalStore, "/dbfs/x/y", "dbfs:/x/y"),
        ("dbfs:///x", DBFSLocalStore, "/dbfs/x", "dbfs:/x"),
        ("file:///dbfs/x", DBFSLocalStore, "/dbfs/x", "dbfs:/x"),
        ("/dbfsother/x", LocalStore, "/dbfsother/x", "file:///dbfsother/x"),
        ("hdfs://node:8020/x", HDFSStore, "hdfs://node:8020/x", "hdfs://node:8020/x"),
        ("webhdfs://node:9870/x", HDFSStore, "webhdfs://node:9870/x", "webhdfs://node:9870/x"),
        ("s3a://bucket/x/", FilesystemStore, "s3a://bucket/x", "s3a://bucket/x"),
        ("memory://x", FilesystemStore, "memory://x", "memory://x"),
    ],
)
def test_which_store(path: str, kind: type, prefix: str, for_spark: str) -> None:
    store = Store.create(path)
    assert type(store) is kind and store.prefix_path == prefix
    assert store.get_full_path(store.prefix_path) == for_spark
    assert store.get_train_data_path() == f"{prefix}/intermediate_train_data"
    assert store.get_val_data_path(3) == f"{prefix}/intermediate_val_data.3"
    assert store.get_test_data_path("a") == f"{prefix}/intermediate_test_data.a"
    assert store.get_checkpoint_path("run1") == f"{prefix}/runs/run1/checkpoint"
    assert store.get_logs_path("run1") == f"{prefix}/runs/run1/logs"


def test_paths_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store.create("here", train_path="/data/train/", val_path="val", runs_path="runs", save_runs=False)
    assert store.prefix_path == str(tmp_path / "here")  # ranks have other working directories
    assert store.get_train_data_path() == "/data/train"
    assert store.get_val_data_path() == str(tmp_path / "val")
    assert store.get_run_path("r") == str(tmp_path / "runs" / "r")
    assert not store.saving_runs()
    assert store.get_checkpoint_path("r") is None and store.get_logs_path("r") is None


@pytest.mark.parametrize(
    ("arguments", "prefix"),
    [
        (["hdfs://node:8020/x"], "hdfs://node:8020/x"),
        (["/user/x", "node", 8020], "hdfs://node:8020/user/x"),
        (["hdfs:///x", "node"], "hdfs://node/x"),
        (["/user/x"], "hdfs:///user/x"),
    ],
)
def test_hdfs(monkeypatch: pytest.MonkeyPatch, arguments: list[Any], prefix: str) -> None:
    """What the library that speaks with HDFS is told."""
    found: dict[str, Any] = {}

    def hdfs(**options: Any) -> Any:
        found.update(options)
        return SimpleNamespace(type_name="hdfs")

    monkeypatch.setattr("pyarrow.fs.HadoopFileSystem", hdfs)
    store = HDFSStore(*arguments, user="me", extra_conf={"a": "b"}, driver="libhdfs")
    assert store.prefix_path == prefix
    fsspec.get_filesystem_class("hdfs").clear_instance_cache()
    assert store.filesystem is not None
    assert found["user"] == "me" and found["extra_conf"] == {"a": "b"}
    host = prefix.removeprefix("hdfs://").split("/")[0]
    assert (found["host"], found["port"]) == {
        "": ("default", 0),
        "node": ("node", 0),
        "node:8020": ("node", 8020),
    }[host]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A bucket of a server that speaks S3, which s3fs finds by variables of the environment."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    server = pytest.importorskip("moto.server", reason="moto, a server for S3, is not installed")
    served = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    served.start()
    host, port = served.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "none")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3").mkdir("for-tests")
        yield "s3://for-tests"
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    served.stop()


@pytest.fixture(params=["local", "memory", "bucket", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FilesystemStore:
    if request.param == "s3":
        return Store.create(f"{request.getfixturevalue('s3')}/{tmp_path.name}")
    prefix = {"local": f"{tmp_path}", "memory": f"memory://{tmp_path.name}", "bucket": f"bucket://{tmp_path}"}
    return Store.create(prefix[request.param])


def test_files(store: FilesystemStore, tmp_path: Path) -> None:
    path = store.get_checkpoint_path("run")
    assert path and not store.exists(path)
    with pytest.raises(FileNotFoundError):
        store.read(path)
    store.write(path, b"\0one")
    store.write(path, b"two\xff")
    assert store.read(path) == b"two\xff" and store.exists(store.get_run_path("run"))
    store.write_text(path + ".ckpt", "ä")
    assert store.read(path + ".ckpt") == "ä".encode()
    assert store.get_checkpoints("run") == [path + ".ckpt"] and store.get_checkpoints("other") == []
    assert cloudpickle.loads(cloudpickle.dumps(store)).read(path) == b"two\xff"
    store.delete(store.get_run_path("run"))
    store.delete(store.get_run_path("run"))
    assert not store.exists(path)


def test_a_local_folder_is_put_into_that_of_the_run(store: FilesystemStore) -> None:
    """Twice, and with another file the second time."""
    sync = store.sync_fn("run")
    with store.get_local_output_dir_fn("run")() as folder:
        Path(folder, "logs").mkdir()
        Path(folder, "logs", "a").write_text("1")
        sync(folder)
        Path(folder, "logs", "a").write_text("2")
        Path(folder, "b").write_text("3")
        sync(folder)
    assert store.read(store.get_run_path("run") + "/logs/a") == b"2"
    assert store.read(store.get_run_path("run") + "/b") == b"3"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.write(str(tmp_path / "a"), b"old")
    with pytest.raises(TypeError):
        store.write(str(tmp_path / "a"), "no bytes")  # type: ignore[arg-type]
    assert store.read(str(tmp_path / "a")) == b"old" and [path.name for path in tmp_path.iterdir()] == ["a"]


def place(store: FilesystemStore, rows: int) -> str:
    """Parquet files in the store, of numbers from 0 on."""
    path = store.get_train_data_path()
    for number in range(2):
        numbers = np.arange(number * rows // 2, (number + 1) * rows // 2)
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": numbers}), sink, row_group_size=10)
        store.write(f"{path}/part-{number}.parquet", sink.getvalue().to_pybytes())
    return path


def numbers_of(rank: int, store: bytes, path: str) -> list[int]:
    opened = cloudpickle.loads(store)
    batches = Batches(
        path,
        [Column("id", "int64", (), "scalar")],
        16,
        filesystem=opened.filesystem,
        rank=rank,
        size=2,
        shuffle=True,
        equal="join",
    )
    return [number for batch in batches.epoch() for number in batch["id"].tolist()]


def test_batches_of_a_store(store: FilesystemStore) -> None:
    assert not store.is_parquet_dataset(store.get_train_data_path())
    path = place(store, 100)
    assert store.is_parquet_dataset(path) and not store.is_parquet_dataset(store.get_run_path("run"))
    assert store.get_parquet_dataset(path).count_rows() == 100
    found = [numbers_of(rank, cloudpickle.dumps(store), path) for rank in range(2)]
    assert sorted(found[0] + found[1]) == list(range(100))


def test_a_row_group_of_another_file_system_is_one_request(tmp_path: Path) -> None:
    """Also with several columns of several pages."""
    random = np.random.default_rng(0)
    table = pa.table({name: random.random(100_000) for name in ("a", "b", "c", "unused")})
    pq.write_table(table, tmp_path / "0.parquet", row_group_size=25_000, data_page_size=10_000)
    columns = [Column(name, "float64", (), "scalar") for name in ("a", "b", "c")]
    batches = Batches(f"bucket://{tmp_path}", columns, 1000)
    Bucket.reads.clear()
    assert sum(len(batch["c"]) for batch in batches.epoch()) == 100_000
    whole = (tmp_path / "0.parquet").stat().st_size
    assert len(Bucket.reads) == 4 and 0.7 * whole < sum(Bucket.reads) < 0.8 * whole


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_what_other_processes_write(store: FilesystemStore) -> None:
    """Also into folders that this one has listed before."""
    other = fsspec.filesystem("s3", skip_instance_cache=True)
    checkpoint = store.get_checkpoint_path("run")
    assert checkpoint
    other.pipe_file(store.get_run_path("run") + "/logs/a", b"1")
    assert store.get_checkpoints("run", "") == [store.get_run_path("run") + "/logs"]
    other.pipe_file(checkpoint, b"2")
    assert store.exists(checkpoint)
    for name in ("first", "second"):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({name: [1]}), sink)
        store.delete(store.get_train_data_path())
        other.pipe_file(f"{store.get_train_data_path()}/{name}.parquet", sink.getvalue().to_pybytes())
        assert list(dataset.described(store).columns) == [name]


@pytest.mark.parametrize("store", ["bucket", "s3"], indirect=True)
def test_batches_of_a_store_in_other_processes(store: FilesystemStore) -> None:
    path = place(store, 100)
    arguments = [(rank, cloudpickle.dumps(store), path) for rank in range(2)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(numbers_of, arguments)
    assert sorted(found[0] + found[1]) == list(range(100))


@pytest.mark.parametrize("missing", ["fsspec", "pyarrow"])
def test_what_is_missing_is_named(missing: str) -> None:
    """Jobs without estimators need neither."""
    code = f"import sys; sys.modules['{missing}'] = None; import horovod.spark as s; print('is there')\n"
    code += "import horovod.spark.common.store"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "is there\n" and done.returncode
    assert "pip install 'horovod[spark]'" in done.stderr.splitlines()[-1]
