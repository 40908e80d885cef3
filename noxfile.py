"""The matrix of frameworks, versions and Pythons: each cell is an environment of its own, made once.

make matrix                       every cell that this machine can make
make matrix CELLS="core-3.13"     some of them, by name

The cell of the newest PyTorch and TensorFlow on numpy 2 is .venv, where `make test` runs everything. In all
others the tests run against what is compiled here: a Python of another version builds its own horovod._core,
the operations of TensorFlow and MXNet are the same files everywhere.
"""

import hashlib
import sys
from dataclasses import dataclass, field
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "scripts"))

from pythons import interpreter  # noqa: E402 - found by the line above

INSTALL = ("--quiet", "--no-compile")  # Python compiles what is imported
TOOLS = ("pybind11>=3.0,<4", "cmake>=3.26,<5", "ninja>=1.11,<2", "setuptools>=77", "wheel")
OLDER_TENSORFLOW = [
    f"tests/tf/test_tf_{name}.py"
    for name in ("run_ranks", "matrix", "graph", "gradients", "errors", "sync_batch_norm")
]
FEW_RANKS = "not 4-shm and not 4-tcp"  # the newest version has run them with more

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True


@dataclass
class Cell:
    """What is installed, and what runs there."""

    name: str
    pythons: tuple[str, ...]  # the first that this machine has is taken
    install: list[str]
    tests: list[str]
    alone: list[str] = field(default_factory=list)  # installed without what they ask for
    select: str = ""

    def title(self) -> str:
        """For the list of cells."""
        return ", ".join([*self.install, *self.alone]) or "no framework"


ALL = ["torch==2.13.0", "tensorflow-cpu==2.21.0", "mxnet==1.9.1", "numpy==1.26.4", "ml-dtypes<0.6"]
JAX = [f"tests/jx/test_jax_{name}.py" for name in ("matrix", "programs", "parts", "gradients", "training")]
NO_FRAMEWORK = ["tests/unit", "tests/mp/test_no_framework.py"]
CELLS = [
    Cell("all-numpy1.26", ("3.11", "3.10"), ALL, ["tests/mx", "tests/tf/test_tf_run_ranks.py"]),
    Cell("mxnet-numpy1.23", ("3.11", "3.10"), ["mxnet==1.9.1", "numpy==1.23.5"], ["tests/mx"]),
    Cell("tensorflow2.15", ("3.11", "3.10"), ["tensorflow-cpu==2.15.1"], OLDER_TENSORFLOW, select=FEW_RANKS),
    Cell(
        "tensorflow2.18",
        ("3.12", "3.11", "3.10"),
        ["tensorflow-cpu==2.18.1"],
        OLDER_TENSORFLOW,
        alone=["tf_keras==2.18.0"],
        select=FEW_RANKS,
    ),
    Cell(
        "tensorflow2.19",
        ("3.12", "3.11", "3.10"),
        ["tensorflow-cpu==2.19.1"],
        ["tests/tf/test_tf_compiled.py", "tests/tf/test_tf_compiled_operations.py"],
        select=FEW_RANKS,
    ),
    *[
        Cell(
            f"jax{version[:3]}",
            ("3.12", "3.11", "3.10"),
            [f"jax=={version}", "optax==0.2.5"],
            JAX,
            select=FEW_RANKS,
        )
        for version in ("0.5.3", "0.6.2")
    ],
    *[Cell(f"core-{minor}", (minor,), ["numpy"], NO_FRAMEWORK) for minor in ("3.10", "3.12", "3.13", "3.14")],
]


def run(session: nox.Session, cell: Cell) -> None:
    """Makes the environment of a cell, builds for its Python, and runs its tests."""
    session.install(*INSTALL, *TOOLS, "-r", "requirements/tests.txt", *cell.install)
    if cell.alone:
        session.install(*INSTALL, "--no-deps", *cell.alone)
    session.install("--quiet", "--no-deps", "--no-build-isolation", "-e", ".")
    for library in sorted((ROOT / "frameworks" / "horovod").glob("*/_ops.so")):
        session.log(f"{library.relative_to(ROOT)}: sha256 {hashlib.sha256(library.read_bytes()).hexdigest()}")
    session.run("horovodrun", "--check-build", "--verbose")
    options = ["-q", "-m", "not full", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile"]
    options += ["-k", cell.select] if cell.select else []
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1"}
    session.run("python", "-m", "pytest", *options, *cell.tests, env=environment)


def add(cell: Cell) -> None:
    """Makes a cell a session of nox; one that cannot be made says so and is skipped."""
    found = {python: path for python in cell.pythons if (path := interpreter(python))}
    python = next(iter(found), None)

    def session(session: nox.Session) -> None:
        if python is None:
            session.skip(f"needs Python {' or '.join(cell.pythons)}, which this machine does not have")
        run(session, cell)

    session.__doc__ = f"{cell.title()}" + ("" if python else " (no such Python here)")
    nox.session(session, name=cell.name, python=found[python] if python else False)


for each in CELLS:
    add(each)
