"""What the distribution says of itself and what it puts on a machine."""

import ast
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="Python 3.10 has no parser of TOML")

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORK = re.compile(r"^(torch|tensorflow|keras|mxnet|numpy)\b")


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def declared_version() -> str:
    tree = ast.parse((ROOT / "frameworks/horovod/version.py").read_text())
    values = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    return ast.literal_eval(values[0])


def test_version_passes_checks_written_for_the_last_upstream_release():
    assert Version(declared_version()) > Version("0.28.1")


def test_package_and_metadata_agree_on_the_version():
    assert metadata.version("horovod") == declared_version()


def test_no_framework_is_required(project):
    assert [name for name in project["project"]["dependencies"] if FRAMEWORK.match(name)] == []
    assert not any(FRAMEWORK.match(name) for name in project["build-system"]["requires"])


def test_command_and_licence(project):
    assert project["project"]["scripts"] == {"horovodrun": "horovod.runner.launch:run_commandline"}
    assert project["project"]["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_framework_extras_exist(project):
    extras = project["project"]["optional-dependencies"]
    assert {
        "torch",
        "pytorch",
        "tensorflow",
        "keras",
        "mxnet",
        "all-frameworks",
        "dev",
        "test",
    } <= extras.keys()


def test_every_package_has_an_init(project):
    folders = {path.parent for path in (ROOT / "frameworks/horovod").rglob("*.py")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_import_loads_no_framework():
    code = "import sys, horovod; print({'torch', 'tensorflow', 'mxnet', 'numpy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_tools_that_shape_the_source_are_pinned():
    lines = (ROOT / "requirements/dev.txt").read_text().splitlines()
    pinned = {line.split("==")[0] for line in lines if "==" in line}
    assert {"torch", "ruff", "mypy", "clang-format"} <= pinned


@pytest.mark.full
def test_wheel_holds_the_module_and_the_types(tmp_path):
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(build, check=True, capture_output=True)
    names = zipfile.ZipFile(next(tmp_path.glob("horovod-*.whl"))).namelist()
    assert {"horovod/py.typed", "horovod/_core.pyi", "horovod/torch/__init__.py"} <= set(names)
    assert [name for name in names if re.fullmatch(r"horovod/_core\..*\.so", name)]
    assert all(name.startswith("horovod") for name in names)
