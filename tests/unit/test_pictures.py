"""docs/pictures/ holds what scripts/pictures.py draws."""

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("pictures", ROOT / "scripts" / "pictures.py")
pictures = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pictures)


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_picture_is_current(name):
    drawn = pictures.PICTURES[name]().svg()
    stale = f"docs/pictures/{name} is not current: run .venv/bin/python scripts/pictures.py"
    assert (pictures.FOLDER / name).read_text(encoding="utf-8") == drawn, stale


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_picture_is_an_image_with_a_title_inside_its_paper(name):
    drawing = pictures.PICTURES[name]()
    root = ElementTree.fromstring(drawing.svg())
    name_space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{name_space}title").text
    for box in root.iter(f"{name_space}rect"):
        right = float(box.get("x", 0)) + float(box.get("width"))
        bottom = float(box.get("y", 0)) + float(box.get("height"))
        assert right <= drawing.size[0] and bottom <= drawing.size[1]


def test_every_picture_is_shown():
    texts = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    pages = "".join(page.read_text(encoding="utf-8") for page in texts)
    assert [path.name for path in pictures.FOLDER.iterdir() if f"pictures/{path.name})" not in pages] == []


def test_figures_are_those_of_the_table():
    table = (ROOT / "docs" / "torch_distributed_reference.md").read_text(encoding="utf-8")
    rows = [line.split("|")[2:5] for line in table.splitlines() if line.count("|") == 5]
    figures = [[cell.strip().partition(" (")[0] for cell in row] for row in rows]
    assert [row for row in pictures.SPEED if list(row[1:]) not in figures] == []
