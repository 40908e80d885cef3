"""The arrows between layers: includes in core/ and imports in frameworks/horovod/, against the two tables."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ENGINE = "runtime/engine/engine.h"
BELOW_PROGRESS = {
    *("base", "settings", "transport", "collective", "backend", "fusion", "negotiate"),
    *("runtime/operation", "runtime/peer", "runtime/control", "runtime/tune", "runtime/liveness"),
}

# What a folder of core/ may include besides itself: a layer, or one header of a layer. A folder of layers has
# a row for each of them and none for itself.
CORE = {
    "digest": set(),
    "base": {"digest"},
    "settings": {"base"},
    "trace": {"settings", "base"},
    "transport": {"base", "digest"},
    "collective": {"transport", "settings", "base"},
    "backend": {"collective", "transport", "base"},
    "backend/backend.h": {"base"},
    "fusion": {"backend/backend.h", "base"},
    "negotiate": {"base"},
    "runtime/tune": {"negotiate", "settings", "base"},
    "runtime/liveness": {"transport", "settings", "base", "digest"},
    "runtime/operation": {"negotiate", "base"},
    "runtime/peer": {"runtime/operation", "negotiate", "transport", "base"},
    "runtime/control": {"runtime/operation", "negotiate", "transport", "base"},
    "runtime/progress": BELOW_PROGRESS,
    "runtime/engine": BELOW_PROGRESS | {"runtime/progress", "trace"},
    "api": {ENGINE, "base"},
    "python": {"api", ENGINE, "settings", "base"},
}

# What native code of a framework may include besides itself.
NATIVE = {ops: {"api/c_api.h", "base"} for ops in ("tensorflow_ops", "mxnet_ops", "xla_ops")}

ROOMS = {"bootstrap.network", "bootstrap.store", "bootstrap.mesh", "bootstrap.rendezvous"}
PARTS = {f"bootstrap.{part}" for part in ("engine", "membership", "secret", "start")}
BOOTSTRAP = {"bootstrap", *PARTS, *ROOMS}
COMMON = {"common", "common.collective", "common.training"}
ADAPTER = COMMON | {"elastic", "search", "version"}
ADAPTERS = {"torch", "torch.distributed", "_keras", "keras", "tensorflow"}

# What a package of horovod may import of horovod besides itself. "" is horovod/__init__.py. A package within
# a package may have a row of its own.
PYTHON = {
    "": {"version", "bootstrap", "runner"},
    "__main__": {"runner"},
    "version": set(),
    "bootstrap": {"_core", "version"},
    "bootstrap.membership": {"bootstrap.store", "bootstrap"},
    "bootstrap.summary": {"bootstrap.mesh", "bootstrap.network", "bootstrap"},
    "bootstrap.secret": {"bootstrap.network", "bootstrap"},
    "bootstrap.engine": {"bootstrap.mesh", "bootstrap.store", "bootstrap.secret", "bootstrap", "_core"},
    "bootstrap.start": {"bootstrap", "bootstrap.summary", "_core", "version", *PARTS, *ROOMS},
    "bootstrap.network": {"bootstrap"},
    "bootstrap.store": {"bootstrap.network", "bootstrap"},
    "bootstrap.mesh": {"bootstrap.store", "bootstrap.network", "bootstrap", "version"},
    "bootstrap.rendezvous": {"bootstrap.store", "bootstrap.network", "bootstrap.secret", "bootstrap"},
    "common": {"_core", *BOOTSTRAP, "version"},
    "common.collective": {"common", "_core", *BOOTSTRAP, "version"},
    "common.training": {"common", "common.collective", "_core", *BOOTSTRAP},
    "elastic": {*COMMON, *BOOTSTRAP, "version"},
    "elastic.driver": set(),
    "search": {*COMMON, *BOOTSTRAP, "elastic"},
    "data": set(),
    "torch": ADAPTER,
    "torch.distributed": {"torch", "_core", *COMMON},
    "_keras": COMMON | {"elastic", "version"},
    "tensorflow": ADAPTER | {"_keras", "xla"},
    "tensorflow.data": {"tensorflow", "bootstrap", "bootstrap.network", "bootstrap.store"},
    "mxnet": ADAPTER,
    "xla": COMMON,
    "jax": ADAPTER | {"xla"},
    "keras": ADAPTER | {"_keras", "torch", "tensorflow", "jax"},
    "runner": {"elastic", "elastic.driver", "runner.probes", *BOOTSTRAP, "version"},
    "runner.probes": {"runner", *COMMON, *BOOTSTRAP, "version"},
    "ray": {"runner", "elastic", *BOOTSTRAP, *COMMON, "version"},
    "spark": {"data", "tensorflow.data", "runner", "elastic", *BOOTSTRAP, *COMMON, "version", *ADAPTERS},
}

# Which frameworks a package may import; one that is not listed may import none.
FRAMEWORKS = {"torch", "tensorflow", "tf_keras", "keras", "mxnet", "jax"}
USES_FRAMEWORK = {
    "torch": {"torch"},
    "torch.distributed": {"torch"},
    "tensorflow": {"tensorflow", "keras", "tf_keras"},
    "tensorflow.data": {"tensorflow"},
    "keras": {"keras", "torch", "jax"},
    "mxnet": {"mxnet"},
    "jax": {"jax"},
    "spark": FRAMEWORKS,
}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def layer_of(name: str) -> str:
    """The row of the table that a file of core/ belongs to; the top folder where there is none."""
    top, *rest = name.split("/")
    room = f"{top}/{rest[0]}" if rest else top
    return room if room in CORE and not room.endswith(".h") else top


def wrong_includes(core: Path) -> list[str]:
    """One line for each include that the table does not have."""
    found = []
    for file in sorted(path for path in core.rglob("*") if path.suffix in {".h", ".cc"}):
        name = file.relative_to(core).as_posix()
        layer = layer_of(name)
        allowed = CORE.get(name, CORE.get(layer))
        for header in INCLUDE.findall(file.read_text(encoding="utf-8")):
            target = layer_of(header)
            if allowed is None or target not in CORE or not (core / header).is_file():
                found.append(f"{name} includes {header}: not a file of a layer, named from the root of core/")
            elif target == layer and name in CORE:
                found.append(f"{name} includes {header}: this header may include {sorted(allowed)} only")
            elif target != layer and not {target, header} & allowed:
                found.append(f"{name} includes {header}: {layer} -> {target} is not an arrow of the design")
    return found


def wrong_native_includes(frameworks: Path) -> list[str]:
    """One line for each include of native code that its table does not have."""
    found = []
    for folder, allowed in NATIVE.items():
        for file in sorted(path for path in (frameworks / folder).rglob("*") if path.suffix in {".h", ".cc"}):
            for header in INCLUDE.findall(file.read_text(encoding="utf-8")):
                if not {header, header.split("/")[0]} & {folder, *allowed}:
                    found.append(f"{file.relative_to(frameworks)} includes {header}")
    return found


def imported_modules(file: Path, package: list[str]) -> list[str]:
    """Absolute names of what a file imports, relative imports resolved; `package` holds the file."""
    modules = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            modules += [f"{start}.{alias.name}" for alias in node.names]
    return modules


def package_of(names: list[str]) -> str:
    """The row of the table for a module or file of horovod, given the names below horovod."""
    inner = ".".join(names[:2])
    return next((row for row in (inner, *names[:1]) if row in {*PYTHON, "_core"}), "")


def wrong_imports(horovod: Path) -> list[str]:
    """One line for each import that the tables do not have."""
    found = []
    for file in sorted(horovod.rglob("*.py")):
        parts = list(file.relative_to(horovod).with_suffix("").parts)
        layer = "" if parts == ["__init__"] else package_of(parts) or parts[0]
        for module in imported_modules(file, ["horovod", *parts[:-1]]):
            top, *rest = module.split(".")
            where = f"{file.relative_to(horovod)} imports {module}"
            if top in FRAMEWORKS - USES_FRAMEWORK.get(layer, set()):
                found.append(f"{where}: this package may not know {top}")
            if top != "horovod" or rest == ["__version__"]:
                continue
            target = package_of(rest)
            if target not in {layer, *PYTHON.get(layer, set())}:
                found.append(f"{where}: {layer or 'horovod'} -> {target or 'horovod'} is not an arrow")
            elif layer not in PYTHON:
                found.append(f"{where}: {layer} is not in the table")
    return found


def test_core_follows_the_table():
    assert wrong_includes(ROOT / "core") == []


def test_python_follows_the_table():
    assert wrong_imports(ROOT / "frameworks" / "horovod") == []


def test_native_code_follows_the_table():
    assert wrong_native_includes(ROOT / "frameworks") == []


def test_forbidden_include_of_native_code_is_found(tmp_path):
    place(tmp_path, "tensorflow_ops/a.cc", '#include "api/c_api.h"\n#include "tensorflow_ops/b.h"\n')
    place(tmp_path, "tensorflow_ops/b.h", '#include "base/types.h"\n')
    assert wrong_native_includes(tmp_path) == []
    place(tmp_path, "tensorflow_ops/a.cc", f'#include "{ENGINE}"\n')
    assert len(wrong_native_includes(tmp_path)) == 1


def test_every_folder_of_the_core_is_a_layer():
    core = ROOT / "core"
    folders = {path.name for path in core.iterdir() if path.is_dir()}
    rooms = {f"runtime/{path.name}" for path in (core / "runtime").iterdir() if path.is_dir()}
    assert folders - {"runtime"} | rooms <= set(CORE)


@pytest.mark.parametrize(
    ("file", "header"),
    [
        ("base/status.h", "trace/writer.h"),
        ("transport/window.h", "collective/ring.h"),
        ("fusion/plan.cc", "backend/host/host.h"),
        ("backend/backend.h", "transport/window.h"),
        ("backend/backend.h", "backend/host/host.h"),
        ("negotiate/sequencer.cc", ENGINE),
        ("python/module.cc", "runtime/progress/cycle.h"),
        ("api/c_api.cc", "negotiate/message.h"),
        ("runtime/control/member.cc", "runtime/progress/cycle.h"),
        ("runtime/cycle.cc", "base/status.h"),
        ("collective/ring.cc", "absent.h"),
        ("collective/ring.cc", "../base/status.h"),
        ("surplus/a.cc", "base/status.h"),
    ],
)
def test_forbidden_include_is_found(tmp_path, file, header):
    place(tmp_path, "base/status.h", "")
    if not header.startswith(("..", "absent")):
        place(tmp_path, header, "")
    place(tmp_path, file, f'#include <vector>\n#include "{header}"\n')
    assert [line.split(" includes ")[0] for line in wrong_includes(tmp_path)] == [file]


@pytest.mark.parametrize(
    ("file", "header"),
    [
        ("fusion/plan.cc", "backend/backend.h"),
        ("python/m.cc", ENGINE),
        ("runtime/progress/cycle.cc", "fusion/plan.h"),
    ],
)
def test_allowed_include_passes(tmp_path, file, header):
    place(tmp_path, header, "")
    place(tmp_path, file, f'#include "{header}"\n')
    assert wrong_includes(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("common/collective/collectives.py", "import torch"),
        ("common/collective/collectives.py", "from horovod.torch import functions"),
        ("common/collective/collectives.py", "from ...runner import launch"),
        ("common/basics.py", "from horovod.common.collective import handles"),
        ("common/basics.py", "from .training import agreement"),
        ("common/collective/handles.py", "from horovod.common.training import agreement"),
        ("runner/launch.py", "def f():\n    import torch.distributed"),
        ("runner/launch.py", "import horovod.torch"),
        ("runner/launchers/direct.py", "from ...torch import ops"),
        ("bootstrap/connect.py", "from horovod import common"),
        ("torch/ops.py", "from horovod.tensorflow import ops"),
        ("torch/ops.py", "import tensorflow as tf"),
        ("__init__.py", "import torch"),
        ("__init__.py", "from . import torch"),
        ("surplus/a.py", "import horovod.common"),
    ],
)
def test_forbidden_import_is_found(tmp_path, file, line):
    place(tmp_path, file, f"import os\n{line}\n")
    assert len(wrong_imports(tmp_path)) == 1


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("torch/ops.py", "import torch\nfrom horovod.common.collective import collectives"),
        ("torch/ops.py", "from ..common.training import agreement\nfrom . import functions"),
        ("common/basics.py", "from horovod import _core, bootstrap"),
        (
            "common/training/agreement.py",
            "from horovod.common import basics\nfrom ..collective import handles",
        ),
        ("runner/launch.py", "from horovod import __version__\nfrom horovod.bootstrap import identity"),
    ],
)
def test_allowed_import_passes(tmp_path, file, line):
    place(tmp_path, file, line + "\n")
    assert wrong_imports(tmp_path) == []


def place(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
