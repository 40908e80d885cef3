"""horovodrun --check-build says what is true, at once, and imports nothing heavy for it."""

import json
import os
import re
import subprocess
import sys

import pytest

from horovod.bootstrap import libraries
from horovod.runner import adapters as runner_adapters
from horovod.runner.adapters import adapters

CHECK = [sys.executable, "-m", "horovod.runner.launch", "--check-build"]
HEAVY = ("torch", "tensorflow", "mxnet", "keras", "numpy")


def test_the_table_has_the_sections_that_scripts_read():
    lines = subprocess.run(CHECK, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line for line in lines if line.startswith("Available")] == [
        "Available Frameworks:",
        "Available Controllers:",
        "Available Tensor Operations:",
    ]
    for adapter in adapters():
        assert f"    [{'X' if adapter.available else ' '}] {adapter.framework}" in lines
    assert "    [X] Gloo" in lines and any(line.endswith("] NCCL") for line in lines)


def test_the_table_says_how_to_learn_why():
    hint = "Add --verbose"
    assert hint in subprocess.run(CHECK, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    verbose = subprocess.run([*CHECK, "--verbose"], capture_output=True, text=True, check=True).stdout
    assert hint not in verbose
    for line in verbose.splitlines():  # every [ ] has its reason
        assert "[ ]" not in line or line.endswith(")"), line
    found = (
        "[X] MPI (HOROVOD_CONTROLLER=mpi" if libraries.installed("mpi") else "[ ] MPI (this installation was"
    )
    assert f"    {found}" in verbose.partition("Operations")[0]
    for name in ("Gloo", "MPI"):
        (found,) = re.findall(rf"^    \[.\] {name} \((.*)\)$", verbose.partition("Operations")[2], re.M)
        assert "Version" not in found and " v" not in found
        assert re.search(r"\d\.\d.*\.so$" if libraries.installed(name.lower()) else "HOROVOD_WITH_", found)


def test_json_says_the_same_and_why():
    report = json.loads(subprocess.run([*CHECK, "--json"], capture_output=True, check=True).stdout)
    assert report["frameworks"] == {adapter.framework: adapter.available for adapter in adapters()}
    for name, adapter in report["adapters"].items():
        assert (adapter["lacks"] is None) == report["frameworks"][name]


def test_nccl_and_the_gpus_are_shown(fake_gpu):
    environment = {**os.environ, "LD_LIBRARY_PATH": fake_gpu, "FAKE_NCCL_VERSION": "22304"}
    environment["HOROVOD_NCCL_HOME"] = fake_gpu
    table = subprocess.run([*CHECK, "--verbose"], env=environment, capture_output=True, check=True).stdout
    assert f"    [X] NCCL (2.23.4, by {fake_gpu}/libnccl.so.2)".encode() in table
    assert b"    Fake GPU 0\n    Fake GPU 1" in table
    said = subprocess.run([*CHECK, "--json"], env=environment, capture_output=True, check=True).stdout
    report = json.loads(said)
    path = f"{fake_gpu}/libnccl.so.2"
    assert report["libraries"]["NCCL"] == [{"name": "nccl", "version": "2.23.4", "path": path}]
    assert (report["gpus"], report["gpus_lack"]) == (["Fake GPU 0", "Fake GPU 1"], None)
    environment["FAKE_CUDA_INIT_FAILS"] = "1"
    said = subprocess.run([*CHECK, "--json"], env=environment, capture_output=True, check=True).stdout
    assert json.loads(said)["gpus_lack"].endswith("libcuda.so.1: cuInit of the driver says error 100")
    code = "import horovod.torch as hvd; print(hvd.nccl_built(), hvd.cuda_built(), hvd.rocm_built())"
    asked = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert asked.stdout == "22304 True False\n", asked.stderr


def test_it_takes_less_than_a_second_and_imports_nothing_heavy():
    code = (
        "import sys, time; start = time.process_time(); from horovod.runner import launch; "
        "launch.check_build(verbose=True); print(time.process_time() - start); "
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    *_, seconds, imported = output.splitlines()
    assert imported == "[]"
    assert float(seconds) < 1.0  # of CPU time: the machine may be busy


@pytest.mark.parametrize("adapter", adapters(), ids=lambda adapter: adapter.package)
def test_an_adapter_counts_exactly_when_it_can_be_imported(adapter):
    code = f"import horovod.{adapter.package}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == adapter.available, done.stderr[-2000:]


def test_keras_needs_the_framework_by_which_it_computes(monkeypatch, tmp_path):
    (keras,) = [needs for needs in runner_adapters._ADAPTERS if needs.package == "keras"]
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    (tmp_path / "keras.json").write_text('{"backend": "made_up"}')
    assert keras.more().startswith("keras computes by made_up, which is not installed")
    (tmp_path / "keras.json").write_text('{"backend": "json"}')  # any module that is there
    assert keras.more() is None
    monkeypatch.setenv("KERAS_BACKEND", "made_up")
    assert "made_up" in keras.more()
