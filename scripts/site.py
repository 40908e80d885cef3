"""What mkdocs asks while it builds the site: pages from outside of docs/, and links that lead to them.

The pages are written for a reader of the repository. On the site README.md is the first page, each example is
a page of its own, and the reference of functions is made of their docstrings.
"""

import os
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?P<before>\]\(|^\[[^\]]+\]: )(?P<link>[^)\s#]+)(?P<anchor>#[^)\s]*)?", re.MULTILINE)
CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
TITLE = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
ROW = re.compile(r"<tr>\s*<td.*?</tr>", re.DOTALL)
TAG = re.compile(r"<[^>]+>")

# How code is coloured, by the ending of its file or by its name.
LANGUAGES = {".py": "python", ".json": "json", ".yaml": "yaml", ".sbatch": "bash", "Dockerfile": "docker"}
# File of the repository -> page of the site.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
    "benchmarks/README.md": "benchmarks.md",
    "tests/fuzz/README.md": "fuzz.md",
    "examples/README.md": "examples/index.md",
}
PAGES |= {
    path.relative_to(ROOT).as_posix(): path.relative_to(ROOT).with_suffix(".md").as_posix()
    for path in sorted((ROOT / "examples").rglob("*"))
    if path.suffix in LANGUAGES or path.name in LANGUAGES
}
# Who searches for "elastic" wants the page about it before a file of that name.
FOUND_LAST = "---\nsearch:\n  boost: 0.1\n---\n"
# Modules whose functions have a page.
MODULES = (
    "horovod",
    "horovod.torch",
    "horovod.tensorflow",
    "horovod.keras",
    "horovod.tensorflow.keras",
    "horovod.mxnet",
    "horovod.jax",
    "horovod.spark",
    "horovod.spark.torch",
    "horovod.spark.keras",
    "horovod.spark.lightning",
)
FRAMEWORKS = ("torch", "tensorflow", "keras", "mxnet", "jax", "pyspark", "pyarrow", "fsspec")


def source_of(page: str) -> str:
    """The file of the repository that a page of the site shows."""
    return next((source for source, own in PAGES.items() if own == page), f"docs/{page}")


def page_of(source: str) -> str | None:
    """The page of the site, or the picture, that shows a file of the repository; None if there is none."""
    return PAGES.get(source) or (source.removeprefix("docs/") if source.startswith("docs/") else None)


def relinked(markdown: str, page: str) -> str:
    """The text of a page with links between pages of the site instead of files of the repository."""
    folder = posixpath.dirname(source_of(page))

    def relink(match: re.Match[str]) -> str:
        link = match["link"]
        target = page_of(posixpath.normpath(posixpath.join(folder, link)))
        if "://" not in link and target is not None:
            link = posixpath.relpath(target, posixpath.dirname(page) or ".")
        return match["before"] + link + (match["anchor"] or "")

    parts = CODE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(relink, part) for part in parts)


def labelled(table: str) -> str:
    """A table in HTML whose cells say what their columns are called: on a narrow screen, where a row is shown
    as lines, site.css puts it in front of each.
    """
    titles = [TAG.sub("", title).strip().replace('"', "&quot;") for title in TITLE.findall(table)]

    def label(row: re.Match[str]) -> str:
        left = iter(titles)
        return re.sub(r"<td\b", lambda _: f'<td data-label="{next(left, "")}"', row[0])

    return ROW.sub(label, table)


def content(source: str) -> str:
    """A file of the repository as a page: text as it is, code in a frame."""
    text = (ROOT / source).read_text(encoding="utf-8")
    path = Path(source)
    if path.suffix == ".md":
        return text
    language = LANGUAGES.get(path.suffix) or LANGUAGES.get(path.name, "text")
    return f"{FOUND_LAST}# {path.name}\n\n```{language}\n{text}```\n"


def reference_page(module: str) -> str:
    """Where the page of a module's functions is."""
    return f"api/{module.removeprefix('horovod.').replace('.', '_')}.md"


def reference(module: str) -> str:
    """The page of a module's functions, made by a process that imports its framework."""
    command = [sys.executable, str(Path(__file__).with_name("api_reference.py")), module]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=quiet)
    absent = re.search(r"^ModuleNotFoundError: No module named '(\w+)'$", done.stderr, re.MULTILINE)
    if absent is not None and absent[1] in FRAMEWORKS:
        return (
            f"# {module}\n\n{absent[1]} was not installed where this site was built, so the reference of "
            f"`{module}` is missing. Install it, and run `make docs` again.\n"
        )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages from outside of docs/."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=content(source)))
    for module in MODULES:
        files.append(File.generated(config, reference_page(module), content=reference(module)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Makes the links of a page lead to pages of the site."""
    return relinked(markdown, page.file.src_uri)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Prepares the tables of a page for narrow screens."""
    return TABLE.sub(lambda table: labelled(table[0]), html)
