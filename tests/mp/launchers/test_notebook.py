"""horovod.run in a real Jupyter kernel."""

import queue
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import ROOT, Launcher
from load import within

NEEDS = "notebooks need ipykernel and jupyter_client (requirements/dev.txt)"
ipykernel = pytest.importorskip("ipykernel.kernelspec", reason=NEEDS)
jupyter_client = pytest.importorskip("jupyter_client", reason=NEEDS)

SUM = """
import horovod

def total(number):
    from horovod.common import basics as hvd
    from horovod.common.collective.byte_objects import objects
    hvd.init()
    print("this is rank", hvd.rank())
    return sum(objects.allgather_object(number + hvd.rank()))
"""
WAIT = """
import time

def wait():
    print("waiting", flush=True)
    while True:
        time.sleep(0.1)

horovod.run(wait, num_proc=2)
"""


class Notebook:
    """A kernel, and what its cells showed."""

    def __init__(self, folder: Path) -> None:
        self.launcher = Launcher()
        ipykernel.write_kernel_spec(folder / "kernels" / "own")  # of this Python, whatever the user has
        specs = jupyter_client.kernelspec.KernelSpecManager(kernel_dirs=[str(folder / "kernels")])
        self.manager = jupyter_client.KernelManager(
            kernel_name="own",
            kernel_spec_manager=specs,
            transport="ipc",
            connection_file=str(folder / "kernel.json"),
        )
        self.manager.start_kernel(env=self.launcher.environment, cwd=str(ROOT / "tests"))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=within(60))

    def begin(self, code: str) -> None:
        """Runs a cell; ``read`` tells what becomes of it."""
        self.cell = self.client.execute(code)
        self.shown: dict[str, str] = {"stdout": "", "stderr": "", "result": "", "error": "", "traceback": ""}

    def read(self, until: str = "", count: int = 1) -> None:
        """Until the cell has ended, or has shown a text so many times."""
        deadline = time.monotonic() + within(60)
        while not until or self.shown["stdout"].count(until) < count:
            try:
                message = self.client.get_iopub_msg(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the cell does not end; it showed {self.shown}") from None
            if message["parent_header"].get("msg_id") == self.cell and self._take(message):
                assert not until, self.shown
                return

    def run(self, code: str) -> dict[str, str]:
        """Runs a cell to its end."""
        self.begin(code)
        self.read()
        return self.shown

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def _take(self, message: dict) -> bool:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            self.shown[content["name"]] += content["text"]
        elif kind == "execute_result":
            self.shown["result"] = content["data"]["text/plain"]
        elif kind == "error":
            self.shown["error"] = f"{content['ename']}: {content['evalue']}"
            self.shown["traceback"] = "\n".join(content["traceback"])
        return kind == "status" and content["execution_state"] == "idle"


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    notebook = Notebook(tmp_path)
    yield notebook
    notebook.close()
    notebook.launcher.wait_until_gone(2.0)


@pytest.mark.slow
def test_cells_run_functions_as_often_as_they_like(notebook):
    shown = notebook.run(SUM + "horovod.run(total, (10,), num_proc=2)")
    assert (shown["result"], shown["error"], shown["stderr"]) == ("[21, 21]", "", "")
    lines = sorted(shown["stdout"].splitlines())
    assert lines == ["[0]<stdout>:this is rank 0", "[1]<stdout>:this is rank 1"]
    assert notebook.run("horovod.run(total, (20,), num_proc=2)")["result"] == "[41, 41]"
    redefined = SUM.replace("number + ", "100 * number + ")
    assert notebook.run(redefined + "horovod.run(total, (1,), num_proc=3)")["result"] == "[303, 303, 303]"


def test_an_error_of_a_rank_is_shown_in_the_cell(notebook):
    code = "class Own(Exception): pass\ndef fail(): raise Own('of this cell')\n"
    shown = notebook.run(f"import horovod\n{code}\nhorovod.run(fail, num_proc=2)")
    assert shown["error"] == "Own: of this cell"
    assert "RemoteTraceback" in shown["traceback"] and "in fail" in shown["traceback"]
    assert "def fail(): raise Own('of this cell')" in shown["stderr"]  # the line of the cell
    assert shown["stderr"].count("Own: of this cell") == 1 and "[0-1]<stderr>:" in shown["stderr"]
    assert "Own: of this cell" in shown["stderr"]
    caught = "try: horovod.run(fail)\nexcept Own as error: print('caught', error)"
    assert "caught of this cell\n" in notebook.run(caught)["stdout"]


def test_an_interrupt_ends_the_ranks_and_the_notebook_goes_on(notebook):
    notebook.run("import horovod")
    notebook.begin(WAIT)
    notebook.read("<stdout>:waiting", 2)
    notebook.manager.interrupt_kernel()
    notebook.read()
    assert notebook.shown["error"].startswith("KeyboardInterrupt")
    assert "horovodrun: SIGINT: ending all ranks" in notebook.shown["stderr"]
    assert len(notebook.launcher.survivors()) == 1  # the kernel
    assert notebook.run("horovod.run(lambda: 'again', num_proc=2)")["result"] == "['again', 'again']"


def test_the_end_of_the_kernel_is_the_end_of_its_job(notebook):
    notebook.run("import horovod")
    notebook.begin(WAIT)
    notebook.read("<stdout>:waiting", 2)
    assert len(notebook.launcher.survivors()) > 3
    notebook.close()
    notebook.launcher.wait_until_gone(2.0)
