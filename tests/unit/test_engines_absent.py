"""An engine that is not installed: importing its package says what to install."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("engine", "package"), [("ray", "ray"), ("spark", "pyspark")])
def test_import_says_what_to_install(engine: str, package: str) -> None:
    program = f"import sys; sys.modules['{package}'] = None; import horovod.{engine}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"pip install 'horovod[{engine}]'")
