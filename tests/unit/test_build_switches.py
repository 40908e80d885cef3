"""What HOROVOD_WITH_ and HOROVOD_WITHOUT_ variables do to a build, and what it finds without them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
cmake = pytest.importorskip("cmake", reason="there is no CMake in this environment")
ninja = pytest.importorskip("ninja", reason="there is no Ninja in this environment")


@pytest.fixture
def mpirun_alone(tmp_path: Path) -> list[str]:
    """An mpicc as it comes with mpirun: it knows flags, but the headers are another package."""
    mpicc = tmp_path / "mpicc"
    mpicc.write_text("#!/bin/sh\necho -I/nowhere -lmpi_of_nobody\n")
    mpicc.chmod(0o755)
    return [f"-DHVD_MPICC_{kind}={mpicc}" for kind in ("openmpi", "mpich")]


def configured(tmp_path: Path, *definitions: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A configuration of the libraries that are optional, where there is no Gloo."""
    switches = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_WITH")}
    command = [
        os.path.join(cmake.CMAKE_BIN_DIR, "cmake"),
        *("-S", str(ROOT), "-B", str(tmp_path / "build"), "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={os.path.join(ninja.BIN_DIR, 'ninja')}",
        *("-DHVD_BUILD_PYTHON=OFF", "-DCMAKE_DISABLE_FIND_PACKAGE_Gloo=ON", *definitions),
    ]
    environment = {**switches, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def optional_targets(tmp_path: Path) -> str:
    return (tmp_path / "build/optional-targets").read_text()


def test_an_mpirun_without_headers_does_not_end_the_build(tmp_path: Path, mpirun_alone: list[str]) -> None:
    done = configured(tmp_path, *mpirun_alone)
    assert done.returncode == 0 and optional_targets(tmp_path) == "", done.stderr


@pytest.mark.parametrize(
    ("variable", "package"), [("HOROVOD_WITH_GLOO", "libgloo-dev"), ("HOROVOD_WITH_MPI", "libopenmpi-dev")]
)
def test_one_that_is_demanded_and_missing_ends_the_build(
    tmp_path: Path, mpirun_alone: list[str], variable: str, package: str
) -> None:
    done = configured(tmp_path, *mpirun_alone, **{variable: "1"})
    said = " ".join(done.stderr.split())
    assert done.returncode != 0 and f"{variable}=1, but" in said and package in said, said


def test_what_is_left_out_is_not_looked_for(tmp_path: Path) -> None:
    left_out = {"HOROVOD_WITHOUT_GLOO": "1", "HOROVOD_WITHOUT_MPI": "1"}
    done = configured(tmp_path, **left_out)
    assert done.returncode == 0 and optional_targets(tmp_path) == "", done.stderr
    assert "HVD_MPICC" not in (tmp_path / "build/CMakeCache.txt").read_text()
    done = configured(tmp_path, HOROVOD_WITH_MPI="1", **left_out)
    assert done.returncode != 0 and "Unset one of them" in " ".join(done.stderr.split())


def asked_for_nccl(**variables: str) -> subprocess.CompletedProcess[str]:
    """What setup.py says before it builds; the command would be unknown, so nothing is built."""
    code = (
        "import runpy, sys; sys.argv = ['setup.py', 'build', '--help']; "
        "runpy.run_path('setup.py', run_name='__main__')"
    )
    environment = {**os.environ, "HOROVOD_WITH_NCCL": "1", **variables}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_nccl_must_be_there_where_it_is_demanded(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libnccl.so.2").touch()
    assert asked_for_nccl(HOROVOD_NCCL_HOME=str(tmp_path)).returncode == 0
    assert asked_for_nccl(HOROVOD_WITH_NCCL="0").returncode == 0


def test_without_nccl_a_build_that_demands_it_says_how_to_get_it() -> None:
    done = asked_for_nccl()
    if done.returncode == 0:
        pytest.skip("this machine has NCCL")
    assert "nvidia-nccl-cu12" in done.stderr and "Traceback" not in done.stderr
