"""Where NCCL is found, and on what the ranks agree."""

import ctypes
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from horovod.bootstrap import gpu_libraries
from horovod.bootstrap.errors import BootstrapError
from horovod.bootstrap.gpu_libraries import NONE, VARIABLE
from horovod.bootstrap.mesh.places import Place, decode, rank_without_gpus

OWN = Place("a", "m", 1, "", ("unix:@x",), gpu_library="nccl")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without GPUs: what it has itself is not found."""
    monkeypatch.setattr(gpu_libraries, "_STANDARD", ())
    vendors = [vendor._replace(folders=()) for vendor in gpu_libraries._VENDORS]
    monkeypatch.setattr(gpu_libraries, "_VENDORS", vendors)
    monkeypatch.setattr(gpu_libraries, "_package_folders", lambda: ())
    monkeypatch.setattr(gpu_libraries, "_loaded", lambda names: "")


def files(folder: Path, *names: str) -> dict[str, str]:
    """Makes empty files in a new folder, which LD_LIBRARY_PATH names."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return {"LD_LIBRARY_PATH": f"/nowhere:{folder}"}


def test_a_machine_without_gpus_has_none(tmp_path: Path) -> None:
    assert gpu_libraries.find({}) == NONE
    assert gpu_libraries.find(files(tmp_path / "a", "libnccl.so.2")) == NONE
    assert gpu_libraries.find(files(tmp_path / "b", "libcuda.so.1")) == NONE
    assert gpu_libraries.wanted(0, {}) == NONE
    assert gpu_libraries.find_library("nccl", {}) == ""


def test_a_library_is_found_without_a_driver(tmp_path: Path) -> None:
    environ = files(tmp_path / "a", "libnccl.so.2")
    assert gpu_libraries.find_library("nccl", environ) == f"{tmp_path}/a/libnccl.so.2"
    assert gpu_libraries.find_library("rccl", environ) == ""


def test_the_pair_of_one_vendor(tmp_path: Path) -> None:
    cuda = files(tmp_path / "cuda", "libcuda.so.1", "libnccl.so.2", "librccl.so.1")
    found = gpu_libraries.find(cuda)
    assert found == ("nccl", f"{tmp_path}/cuda/libcuda.so.1", f"{tmp_path}/cuda/libnccl.so.2", False)
    rocm = files(tmp_path / "rocm", "libamdhip64.so.6", "libnccl.so.2", "librccl.so.1")
    found = gpu_libraries.find(rocm)
    assert found == ("rccl", f"{tmp_path}/rocm/libamdhip64.so.6", f"{tmp_path}/rocm/librccl.so.1", False)
    both = files(tmp_path / "both", "libcuda.so.1", "libamdhip64.so.6", "librccl.so.1")
    assert gpu_libraries.find(both).name == "rccl"


def test_the_users_wish_is_first_then_what_is_loaded_then_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files(tmp_path / "path", "libcuda.so.1", "libnccl.so.2")
    for folder in ("home/lib64", "lib", "package/nccl/lib", "loaded"):
        files(tmp_path / folder, "libnccl.so.2")

    def library(**more: str) -> str:
        found = gpu_libraries.find({**path, **more}).library
        return str(Path(found).relative_to(tmp_path))

    assert library() == "path/libnccl.so.2"
    monkeypatch.setattr(gpu_libraries, "_package_folders", lambda: [f"{tmp_path}/package/nccl/lib"])
    assert library() == "package/nccl/lib/libnccl.so.2"
    loaded = f"{tmp_path}/loaded/libnccl.so.2"
    monkeypatch.setattr(gpu_libraries, "_loaded", lambda names: loaded if names == ("libnccl.so.2",) else "")
    assert library() == "loaded/libnccl.so.2"
    home = {"HOROVOD_NCCL_HOME": f"{tmp_path}/home"}
    assert library(**home) == "home/lib64/libnccl.so.2"
    assert library(**home, HOROVOD_NCCL_LIB=f"{tmp_path}/lib") == "lib/libnccl.so.2"
    assert library(**home, HOROVOD_NCCL_LIB=f"{tmp_path}/lib/libnccl.so.2") == "lib/libnccl.so.2"
    assert library(HOROVOD_NCCL_HOME="/nowhere", HOROVOD_NCCL_LIB="/nowhere") == "loaded/libnccl.so.2"


def test_a_package_is_found_without_an_import(tmp_path: Path) -> None:
    files(tmp_path / "nvidia/nccl/lib", "libnccl.so.2")
    code = (
        "import sys; from horovod.bootstrap import gpu_libraries as g; print(list(g._package_folders())[0], "
        "'nvidia' in sys.modules)"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert said == [f"{tmp_path}/nvidia/nccl/lib", "False"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler")
def test_what_is_loaded_is_told_from_what_only_could_be(tmp_path: Path) -> None:
    library = tmp_path / "libhvdtest.so.7"
    command = ["cc", "-shared", "-Wl,-soname,libhvdtest.so.7", "-x", "c", "/dev/null", "-o", str(library)]
    subprocess.run(command, check=True)
    code = (
        "import ctypes, sys; from horovod.bootstrap import gpu_libraries as g; names = ('libhvdtest.so.7',); "
        "before = g._loaded(names); ctypes.CDLL(sys.argv[1]); print([before, g._loaded(names)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(library)],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(["", str(library)])


@pytest.mark.parametrize("value", ["host", "HOST"])
def test_host_looks_for_nothing(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setattr(gpu_libraries, "find", lambda environ: pytest.fail("looked"))
    assert gpu_libraries.wanted(0, {VARIABLE: value}) == NONE


@pytest.mark.parametrize(
    ("value", "reason"), [("MPI", "CPU only"), ("ddl", "DDL"), ("\x1b[2J", "no such library")]
)
def test_what_is_not_supported_is_refused_with_what_is(value: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        gpu_libraries.wanted(3, {VARIABLE: value})
    text = str(caught.value)
    assert text.startswith("rank 3: ") and "nccl" in text and "host" in text and "\x1b" not in text


def test_what_is_asked_for_and_missing_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match=r"rank 1: .*=NCCL: there is no driver.*--gpus all.*unset"):
        gpu_libraries.wanted(1, {VARIABLE: "NCCL"})
    driver = files(tmp_path / "driver", "libcuda.so.1")
    with pytest.raises(BootstrapError, match=r"nvidia-nccl-cu12 .*-cu13.*HOROVOD_NCCL_HOME.*unset"):
        gpu_libraries.wanted(1, {**driver, VARIABLE: "nccl"})
    both = files(tmp_path / "both", "libcuda.so.1", "libnccl.so.2")
    assert gpu_libraries.wanted(1, {**both, VARIABLE: "nccl"}).demanded
    assert not gpu_libraries.wanted(1, both).demanded


def test_the_search_takes_about_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    times = []
    for _ in range(10):
        start = time.perf_counter()
        gpu_libraries.wanted(0, {})
        times.append(time.perf_counter() - start)
    assert min(times) < 0.01  # 0.4 ms on an idle machine


@pytest.mark.parametrize(
    ("code", "text"), [(22304, "2.23.4"), (21005, "2.10.5"), (2708, "2.7.8"), (22703, "2.27.3")]
)
def test_versions(code: int, text: str) -> None:
    assert gpu_libraries.version_text(code) == text


def test_a_file_that_is_no_library_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "libnccl.so.2").write_bytes(b"not a library")
    assert gpu_libraries.version_code(str(tmp_path / "libnccl.so.2")) == 0
    assert gpu_libraries.version_code(str(ctypes.CDLL(None)._name or "")) == 0


def test_a_place_says_what_its_rank_has() -> None:
    for place in (OWN, OWN._replace(gpu_demanded=True), OWN._replace(gpu_library="")):
        assert decode(1, place.encode()) == place


def test_all_ranks_have_the_same_or_none_uses_it() -> None:
    without, rccl = OWN._replace(gpu_library=""), OWN._replace(gpu_library="rccl")
    assert rank_without_gpus([OWN, OWN]) is None
    assert rank_without_gpus([rccl, rccl]) is None
    assert rank_without_gpus([OWN, OWN, without]) == 2
    assert rank_without_gpus([without, OWN]) == 0
    assert rank_without_gpus([without, without]) == 0
    assert rank_without_gpus([OWN, rccl]) == 1


def test_ranks_that_demand_it_hear_who_has_none() -> None:
    demanding = OWN._replace(host="b", gpu_demanded=True)
    assert rank_without_gpus([OWN, demanding]) is None
    with pytest.raises(BootstrapError, match=r"rank 1 on b asks .*=nccl, and rank 0 on a has no NCCL.*pip"):
        rank_without_gpus([OWN._replace(gpu_library=""), demanding])
    with pytest.raises(BootstrapError, match=r"rank 1 on b asks .* rank 2 on a has rccl"):
        rank_without_gpus([OWN, demanding, OWN._replace(gpu_library="rccl")])
