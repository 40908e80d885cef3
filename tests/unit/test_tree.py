"""What must hold for every file of the repository: its size, and what it must not speak of."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = {".cc", ".h", ".c", ".py", ".pyi", ".md", ".txt", ".toml", ".yaml", ".cmake", ".in", ""}
NOT_OURS = {".git", "build", "demo", "dist", "LICENSE", "__pycache__"}
LONGEST = 400

# One bracketed letter in each word keeps a pattern from finding itself.
MACHINE_PATH = re.compile(r"(?:^|[^\w.-])/(?:hom[e]|roo[t]|wor[k]|tm[p]|op[t]|User[s])/[A-Za-z]")
REGISTRY = re.compile(r"inde[x]-url|find-link[s]|trusted-hos[t]|(?:pyp[i]|artifactor[y]|nexu[s])[\w-]*\.\w")
UNDONE = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X])\b")
BRANCH = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b(?!.*(?:__SSE|__AVX|__F16C|__x86|__aarch))")


def files_of(root: Path) -> list[Path]:
    """All text files but those in hidden folders (.ci is ours) and what a build leaves."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [each for each in folders if not _is_surplus(each)]  # which are not walked, then
        paths = [
            Path(folder, name) for name in files if name not in NOT_OURS and not name.endswith(".egg-info")
        ]
        found += [path for path in paths if path.suffix in TEXT and path.is_file()]
    return sorted(found)


def _is_surplus(folder: str) -> bool:
    hidden = folder.startswith(".") and folder != ".ci"
    return hidden or folder in NOT_OURS or folder.endswith(".egg-info")


def matches(root: Path, pattern: re.Pattern[str]) -> list[str]:
    """file:line of each line in which the pattern is found."""
    return [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in files_of(root)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def test_the_walk_sees_the_tree():
    names = {path.relative_to(ROOT).as_posix() for path in files_of(ROOT)}
    assert {"Makefile", ".ci/run", "core/base/status.h", "frameworks/horovod/_core.pyi"} <= names


def test_no_file_is_too_long():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files_of(ROOT)}
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > LONGEST} == {}


@pytest.mark.parametrize("pattern", [MACHINE_PATH, REGISTRY, UNDONE], ids=["path", "registry", "undone"])
def test_nothing_of_one_machine_and_nothing_undone(pattern):
    assert matches(ROOT, pattern) == []


def test_no_preprocessor_branches_in_shared_code():
    found = matches(ROOT / "core", BRANCH)
    assert [line for line in found if not line.startswith("backend/")] == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (MACHINE_PATH, "open('/" + "home/someone/x')"),
        (MACHINE_PATH, "see /" + "tmp/notes"),
        (REGISTRY, "pip install --index" + "-url somewhere torch"),
        (REGISTRY, "fetch pypi" + ".example/simple"),
        (UNDONE, "// TO" + "DO: later"),
        (BRANCH, "#if" + "def HAVE_MPI"),
    ],
)
def test_forbidden_line_is_found(tmp_path, pattern, line):
    (tmp_path / "file.py").write_text(f"first\n{line}\n")
    assert [found.split(": ")[0] for found in matches(tmp_path, pattern)] == ["file.py:2"]


def test_instruction_set_branches_are_allowed(tmp_path):
    (tmp_path / "kernels.cc").write_text("#if defined(__AVX2__)\n#endif\n")
    assert matches(tmp_path, BRANCH) == []
