"""What a rank imports when it starts. All ranks of a host start together: 3 ms for a module are half a second
of a job of 256 ranks on 2 cores.
"""

import importlib.util
import json
import subprocess
import sys

import pytest

# Modules of Python that take long to import themselves, or bring such.
LATE = """
    argparse ast asyncio cloudpickle concurrent.futures dataclasses difflib importlib.metadata importlib.util
    inspect ipaddress json logging multiprocessing numbers numpy pathlib pickle platform random secrets shutil
    subprocess tempfile tokenize traceback urllib uuid
""".split()

ALONE = "from horovod.common import basics; basics.init(); basics.shutdown()"
AMONG_OTHERS = "import horovod.bootstrap.mesh.mesh, horovod.bootstrap.start, horovod.bootstrap.store.client"
OPERATIONS = "from horovod.common.collective.byte_objects import objects, operations"


@pytest.mark.parametrize("program", [ALONE, AMONG_OTHERS, OPERATIONS])
def test_a_start_imports_nothing_that_most_starts_have_no_use_for(program: str) -> None:
    assert not _imported_by(program) & set(LATE)


def test_parts_of_a_start_that_few_jobs_have_come_late() -> None:
    imported = _imported_by(f"{ALONE}; {AMONG_OTHERS}")
    elastic_or_mpi = ("communicator", "given", "membership", "rendezvous.rendezvous")
    assert not imported & {f"horovod.bootstrap.{name}" for name in elastic_or_mpi}


def test_the_list_names_modules() -> None:
    assert all(map(importlib.util.find_spec, LATE))


def _imported_by(program: str) -> set[str]:
    """The modules that are there after ``program`` and were not before."""
    show = f"import sys; before = set(sys.modules)\n{program}\nprint([*sys.modules.keys() - before])"
    command = [sys.executable, "-c", show]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(json.loads(output.replace("'", '"')))
