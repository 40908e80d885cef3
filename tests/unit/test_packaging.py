"""What the distribution says of itself and what it puts on a machine."""

import ast
import importlib
import os
import re
import subprocess
import sys
import tarfile
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
    assert project["project"]["scripts"] == {
        "horovodrun": "horovod.runner.launch:run_commandline",
        "horovodrun-agent": "horovod.runner.agent:run_commandline",
    }
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


def build_without(part: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What pip starts for a wheel, where one part of a compiling machine is missing."""
    preamble = "" if part != "headers" else "import sysconfig; sysconfig.get_path = lambda *_: '/nowhere'; "
    code = f"{preamble}import runpy; runpy.run_path('setup.py', run_name='__main__')"
    command = [sys.executable, "-c", code, "bdist_wheel"]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("part", "variables", "named"),
    [
        ("compiler", {"PATH": "/nowhere"}, "a C++17 compiler"),
        ("compiler", {"CXX": "c++-of-nobody"}, "the compiler of CXX=c++-of-nobody"),
        ("headers", {}, "Python.h"),
    ],
)
def test_a_machine_that_cannot_compile_is_told_in_three_lines(part, variables, named):
    done = build_without(part, **variables)
    lines = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 1 and len(lines) == 3, lines
    assert named in lines[1] and "apt-get install" in lines[1]


def test_a_first_build_says_what_it_does_before_it_compiles(tmp_path):
    for entry in ROOT.iterdir():
        if entry.name not in ("build", "setup.py"):
            (tmp_path / entry.name).symlink_to(entry)
    (tmp_path / "setup.py").write_text((ROOT / "setup.py").read_text())
    # `false` as compiler: CMake gives up as soon as it has tried it.
    environment = {**os.environ, "CXX": "false", "CMAKE_BUILD_PARALLEL_LEVEL": "7"}
    build = [sys.executable, "setup.py", "--quiet", "build_ext"]
    done = subprocess.run(build, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    said = done.stderr.splitlines()
    assert done.returncode != 0 and "horovod was not built" in said[-1], done.stderr
    assert "7 files at a time" in said[0] and "minutes" in said[1], done.stderr


def test_the_sources_are_packed_whole(tmp_path):
    """What git has of these folders is in the archive; `make test-package` installs it."""
    pack = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(tmp_path)]
    # The folder that is packed is made where setup.py runs: not where other tests look at all files.
    tree = tmp_path / "tree"
    tree.mkdir()
    for entry in ROOT.iterdir():
        (tree / entry.name).symlink_to(entry)
    subprocess.run(pack, cwd=tree, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("horovod-*.tar.gz"))) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"CMakeLists.txt", "setup.py", "pyproject.toml", "scripts/preflight.py", "LICENSE"}
    for folder in ("core", "cmake", "frameworks/tensorflow_ops", "frameworks/mxnet_ops"):
        needed |= {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.is_file()}
    assert needed - packed == set()
    assert not any(name.endswith((".so", ".pyc")) for name in packed)


@pytest.fixture
def package(monkeypatch):
    """The script, on a machine with two Pythons; instead of a wheel it makes a name."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    script = importlib.import_module("package")
    monkeypatch.setattr(script, "interpreter", {"3.11": "python3.11", "3.12": "python3.12"}.get)
    monkeypatch.setattr(script, "sdist", lambda: None)
    monkeypatch.setattr(script, "wheel", lambda python, source: ROOT / f"{python}.whl")
    yield script
    del sys.modules["package"], sys.modules["pythons"]


def test_wheels_are_built_for_each_python_that_is_there_or_for_those_named(package, capsys):
    package.wheels()
    built = "Python 3.11: python3.11.whl\nPython 3.12: python3.12.whl\n"
    absent = "Python {}: not on this machine\n"
    said = absent.format("3.10") + built + absent.format("3.13") + absent.format("3.14")
    assert capsys.readouterr().out == said
    package.wheels("3.12", "3.11")
    assert sorted(capsys.readouterr().out.splitlines(keepends=True)) == built.splitlines(keepends=True)


def test_a_python_that_is_named_and_not_there_fails_before_anything_is_built(package, capsys):
    with pytest.raises(SystemExit, match=r"Python 3\.13: not on this machine"):
        package.wheels("3.12", "3.13")
    assert capsys.readouterr().out == ""
