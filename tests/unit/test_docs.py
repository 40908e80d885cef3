"""README.md and docs/ are true where a test can tell: links, names of settings, words of make, commands."""

import difflib
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from horovod import _core
from horovod.bootstrap.variables import warn_of_unknown
from horovod.runner.command_line import parser
from horovod.runner.probes import command as probes

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "examples" / "README.md"]
CONTRIBUTORS = [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/internals.md")]
LINKED = [*PAGES, *CONTRIBUTORS[:2], *(ROOT / name / "README.md" for name in ("benchmarks", "tests/fuzz"))]
COLUMNS = 100

CODE = re.compile(r"^```.*?^```$|^<!--.*?-->$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)
NAMED = re.compile(r"`(\.?\w+(?:/[\w.]+)*/[\w.]*)`")


def each(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=[page.relative_to(ROOT).as_posix() for page in pages])


each_page = each(PAGES)


def prose(page: Path) -> str:
    """The text without blocks of code, which keep their lines."""
    return CODE.sub(lambda code: "\n" * code[0].count("\n"), page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """What a link may name behind the #: the headings, in small letters, with - for blanks."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    found = []
    for link in (first or second for first, second in LINK.findall(prose(page))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        known = target.exists() and (not anchor or anchor in anchors(target))
        if not known:
            found.append(link)
    return found


def missing_files(page: Path) -> list[str]:
    """Files and folders that the text names and that are not there. Names begin at the root, in core/ or in
    frameworks/horovod/, and may lack their ending.
    """
    folders = (ROOT, ROOT / "core", ROOT / "frameworks" / "horovod")
    endings = ("", ".h", ".cc", ".py")
    return [
        name
        for name in NAMED.findall(prose(page))
        if not any((folder / (name + ending)).exists() for folder in folders for ending in endings)
    ]


def commands(page: Path) -> list[str]:
    """The lines of code that start horovodrun, without what a shell would do with the rest of the line."""
    lines = re.findall(r"^(?: {4}|\$ )(?:\w+=\S+ )*(horovodrun .*)$", page.read_text("utf-8"), re.MULTILINE)
    return [line.partition("  #")[0].partition(" && ")[0].strip() for line in lines]


@each(LINKED)
def test_links_lead_somewhere(page):
    assert broken_links(page) == []


@each(CONTRIBUTORS)
def test_named_files_exist(page):
    assert missing_files(page) == []


@each([*LINKED, ROOT / "CHANGELOG.md"])
def test_lines_of_prose_are_short(page):
    lines = enumerate(prose(page).splitlines(), 1)
    assert [number for number, line in lines if len(line) > COLUMNS and line[0] not in "| !"] == []


@each_page
def test_settings_exist(page, recwarn):
    named = set(re.findall(r"\bHOROVOD_[A-Z0-9_]*[A-Z0-9]\b", page.read_text(encoding="utf-8")))
    warn_of_unknown(dict.fromkeys(named, "1"), [name for name, *_ in _core.settings()])
    assert [str(warning.message) for warning in recwarn] == []


@each_page
def test_words_of_make_exist(page):
    words = set(re.findall(r"`make ([a-z-]+)|^ {4}make ([a-z-]+)", page.read_text("utf-8"), re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert {first or second for first, second in words} - known == set()


def test_make_lists_its_words_in_a_line_each():
    done = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True)
    assert [line for line in done.stdout.splitlines() if len(line) > 100] == []


@each_page
def test_commands_are_understood(page, tmp_path, monkeypatch):
    (tmp_path / "hosts").write_text("node1 slots=4\nnode2 slots=4\n")  # where a page names such a file
    monkeypatch.chdir(tmp_path)
    for command in commands(page):
        words = [word for word in shlex.split(command)[1:] if word not in ("[...]", "...")]
        words = probes.words(words[0], words[1:]) if words[0] in probes.PROBES else words
        parser.parse([word.replace("SECONDS", "60") for word in words])


def test_the_readme_shows_how_the_examples_differ():
    names = ("torch_before.py", "torch_after.py")
    texts = [(ROOT / "examples" / name).read_text(encoding="utf-8").split('"""')[2] for name in names]
    before, after = (text.strip().splitlines() for text in texts)
    lines = list(difflib.unified_diff(before, after, lineterm="", n=len(after)))[3:]
    block = "```diff\n" + "".join(f"{line.rstrip()}\n" for line in lines) + "```"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert block in readme, f"README.md does not show how {names} differ"


def test_what_is_wrong_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A heading\n[a](none.md) [b](#a-heading) [c](page.md#nothing)\n", encoding="utf-8")
    assert broken_links(page) == ["none.md", "page.md#nothing"]
    page.write_text("`core/settings/log.h` `runtime/progress/loop` `core/base/nothing.h`\n", encoding="utf-8")
    assert missing_files(page) == ["core/base/nothing.h"]
    page.write_text("    A=1 horovodrun -np 2 python train.py   # two ranks\n", encoding="utf-8")
    assert commands(page) == ["horovodrun -np 2 python train.py"]
