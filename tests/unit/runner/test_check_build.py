"""horovodrun --check-build says what is true, at once, and imports nothing heavy for it."""

import json
import re
import subprocess
import sys

import pytest

from horovod.bootstrap import libraries
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
    assert "    [X] Gloo" in lines and "    [ ] NCCL" in lines


def test_the_table_says_how_to_learn_why():
    hint = "Add --verbose"
    assert hint in subprocess.run(CHECK, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    verbose = subprocess.run([*CHECK, "--verbose"], capture_output=True, text=True, check=True).stdout
    assert hint not in verbose
    for line in verbose.splitlines():  # every [ ] has its reason
        assert "[ ]" not in line or line.endswith(")"), line
    assert "    [ ] MPI (ranks agree without it; horovodrun --mpi starts them with mpirun)" in verbose
    for name in ("Gloo", "MPI"):
        (found,) = re.findall(rf"^    \[.\] {name} \((.*)\)$", verbose.partition("Operations")[2], re.M)
        assert re.search(r"\d\.\d.*\.so$" if libraries.installed(name.lower()) else "HOROVOD_WITH_", found)


def test_json_says_the_same_and_why():
    report = json.loads(subprocess.run([*CHECK, "--json"], capture_output=True, check=True).stdout)
    assert report["frameworks"] == {adapter.framework: adapter.available for adapter in adapters()}
    for name, adapter in report["adapters"].items():
        assert (adapter["lacks"] is None) == report["frameworks"][name]


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
