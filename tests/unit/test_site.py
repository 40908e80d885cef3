"""What scripts/site.py and scripts/api_reference.py make of the repository, without building the site."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"```.*?```", re.DOTALL)


def script(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


site, api_reference = script("site"), script("api_reference")


@pytest.mark.parametrize(
    ("page", "link", "on_the_site"),
    [
        ("index.md", "[a](docs/torch.md#gpus)", "[a](torch.md#gpus)"),
        ("index.md", "[PyTorch]: docs/torch.md", "[PyTorch]: torch.md"),
        ("torch.md", "[a](../examples/torch_digits.py)", "[a](examples/torch_digits.md)"),
        ("torch.md", "[a](concepts.md#process-sets)", "[a](concepts.md#process-sets)"),
        ("examples/index.md", "[a](torch_digits.py)", "[a](torch_digits.md)"),
        ("slurm.md", "[a](../examples/slurm/job.sbatch)", "[a](examples/slurm/job.md)"),
        ("migrating.md", "[a](../README.md#what-works)", "[a](index.md#what-works)"),
        ("torch.md", "[a](https://example.org/docs/torch.md)", "[a](https://example.org/docs/torch.md)"),
        ("torch.md", "[a](#gpus)", "[a](#gpus)"),
    ],
)
def test_links_lead_to_pages_of_the_site(page, link, on_the_site):
    assert site.relinked(f"text\n\n{link}\n", page) == f"text\n\n{on_the_site}\n"


def test_links_in_code_stay():
    code = "```python\nrow = rows[0](docs/torch.md)\n```\n"
    assert site.relinked(code, "index.md") == code


def test_cells_of_a_table_name_their_columns():
    head = "<thead><tr><th>a <code>b</code></th><th align='right'>c &amp; \"d\"</th></tr></thead>"
    row = "<tr>\n<td>1</td>\n<td align='right'>2</td>\n</tr>"
    table = f"<table>{head}<tbody>{row}{row}</tbody></table>"
    labels = ["a b", "c &amp; &quot;d&quot;"]
    assert re.findall(r'<td data-label="(.*?)"', site.labelled(table)) == labels * 2
    assert re.sub(r' data-label=".*?"', "", site.labelled(table)) == table


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"^ +- (?:[\w. ]+: )?(\S+\.md)$", text, re.MULTILINE))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | {"index.md"}
    assert pages - listed == set()
    made = {site.reference_page(module) for module in site.MODULES}
    assert made <= listed
    assert listed - pages - made - set(site.PAGES.values()) == set()


def test_the_reference_of_pytorch_has_every_public_name_with_a_text():
    page = api_reference.page(importlib.import_module("horovod.torch"))
    parts = dict(re.findall(r"^### (\S+)\n(.*?)(?=^###? |\Z)", page, re.MULTILINE | re.DOTALL))
    parts |= dict(re.findall(r"^\| <span id='hvd\.(\w+)'></span>`\S+` \| (.*) \|$", page, re.MULTILINE))
    hvd = importlib.import_module("horovod.torch")
    names = {name for name in hvd.__all__ if not name.startswith("__")} - {"metric", "elastic"}
    assert names - parts.keys() == set()
    assert {name for name in names if not CODE.sub("", parts[name]).strip()} == set()


def test_the_reference_of_run_explains_every_argument():
    page = api_reference.page(importlib.import_module("horovod"))
    assert page.startswith("# horovod\n\n`import horovod`. ") and "[horovod.run](../run.md)" in page
    call = re.search(r"^```python\nhorovod\.run\(\n(.*?)\n\)$", page, re.MULTILINE | re.DOTALL)[1]
    named = re.findall(r"^    (\w+)", call, re.MULTILINE)
    assert len(named) == 27 and [name for name in named if f"\n* `{name}`: " not in page] == []


def test_the_reference_has_what_a_distributed_optimizer_can_do():
    page = api_reference.page(importlib.import_module("horovod.torch"))
    optimizer = page.partition("### DistributedOptimizer\n")[2].partition("\n### ")[0]
    assert {"synchronize", "skip_synchronize", "no_sync"} <= set(re.findall(r"^#### (\w+)", optimizer, re.M))


def test_the_reference_of_an_estimator_has_its_params_and_what_it_shares_with_others():
    pytest.importorskip("pyspark")
    module = importlib.import_module("horovod.spark.torch")
    page = api_reference.page(module)
    assert page.startswith(
        "# horovod.spark.torch\n\n`from horovod.spark.torch import TorchEstimator, TorchModel`"
    )
    of_estimator, of_model = page.partition("### TorchModel\n")[::2]
    for text, kind, method in (
        (of_estimator, module.TorchEstimator, "fit"),
        (of_model, module.TorchModel, "transform"),
    ):
        assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == {
            param.name for param in kind().params
        }
        assert f"#### {method}\n" in text and "#### getInputShapes" not in text


def test_a_module_of_functions_shows_its_own_alone():
    page = api_reference.page(importlib.import_module("horovod.torch"))
    assert re.findall(r"^### (metric\.\w+)", page, re.MULTILINE) == ["metric.get_global_mean"]


def test_a_docstring_becomes_markdown():
    text = (
        "Does ``x``.\n\nArgs:\n    a: one thing\n        in two lines.\n    b: another.\n\nReturns:\n    It."
    )
    assert api_reference.markdown(text).split("\n") == [
        *(
            "Does `x`.",
            "",
            "",
            "**Arguments**",
            "",
            "* `a`: one thing",
            "  in two lines.",
            "* `b`: another.",
            "",
        ),
        *("", "**Returns**", "", "It."),
    ]


def test_a_site_without_a_framework_says_so(tmp_path, monkeypatch):
    (tmp_path / "tensorflow.py").write_text("raise ModuleNotFoundError(\"No module named 'tensorflow'\")\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    page = site.reference("horovod.tensorflow")
    assert page.startswith("# horovod.tensorflow\n") and "tensorflow was not installed" in page


def test_the_search_fetches_nothing_from_elsewhere():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "plugins: [search, offline]" in text and "polyfills: [iframe-worker.js]" in text
    assert (ROOT / "docs" / "iframe-worker.js").is_file()
