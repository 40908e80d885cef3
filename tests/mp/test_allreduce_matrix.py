"""allreduce against numpy between processes: every dtype and operation, over shared memory and TCP."""

import pytest
from launch import horovodrun

SMALL = "0,1,7,1023,4097"


def run_matrix(ranks: int, transport: str, *arguments: str) -> None:
    result = horovodrun(
        ranks, "allreduce_matrix.py", *arguments, env={"HOROVOD_TRANSPORT": transport}, timeout=300
    )
    assert result.returncode == 0, result.output
    assert result.output.count(" checked") == ranks


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_every_dtype_and_operation(ranks: int, transport: str) -> None:
    run_matrix(ranks, transport, SMALL, "all", "all")


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize(
    ("ranks", "dtype", "per_mib"), [(2, "float32", 1 << 18), (3, "bfloat16", 1 << 19), (4, "int8", 1 << 20)]
)
def test_large(ranks: int, dtype: str, per_mib: int, transport: str) -> None:
    run_matrix(ranks, transport, f"{per_mib + 3},{64 * per_mib}", dtype, "Sum,Max")


@pytest.mark.full
@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_large_everywhere(ranks: int, transport: str) -> None:
    run_matrix(ranks, transport, f"{(1 << 20) + 3}", "all", "all")
    for dtype, count in (("float32", 1 << 24), ("bfloat16", 1 << 25), ("int8", 1 << 26)):
        run_matrix(ranks, transport, str(count), dtype, "Sum,Max")
