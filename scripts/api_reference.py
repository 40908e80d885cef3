"""Writes the reference of an adapter as a page: every public name, with its signature and docstring.

python scripts/api_reference.py horovod.torch
"""

import importlib
import inspect
import re
import sys
import types
from collections.abc import Iterator
from functools import partial
from typing import Any

# Headings, in the order of the page; the first whose pattern fits a name takes it.
SECTIONS = {
    "Training": r"Distributed|Partial|broadcast_(parameters|optimizer|variables|global)|Broadcast|load_model"
    r"|SyncBatch|convert_|Compression|callbacks",
    "Starting and asking": r"run$|init|shutdown|is_|(local_|cross_)?(rank|size)$|\w+_op$|counters|stacks",
    "Collectives": r"(grouped_|sparse_)?(allreduce|allgather|broadcast|alltoall|reducescatter)|barrier|join",
    "Handles": r"poll|synchronize|wait",
    "Process sets": r"ProcessSet|\w*process_set",
    "Timeline": r"\w+_timeline",
    "Reductions": r"Average|Sum|Adasum|Min|Max|Product",
    "Errors": r"\w+(Error|Interrupt)$",
    "What can be used": r"\w+_(built|enabled|supported|available)",
    "More": r"",
}
FIELDS = {"Args:": "Arguments", "Returns:": "Returns", "Raises:": "Raises", "Yields:": "Yields"}
# Names that are no functions and no classes.
CONSTANTS = {
    "Average": "The sum of all inputs, divided by the number of ranks. This is the default.",
    "Sum": "The sum of all inputs.",
    "Min": "The least of all inputs, element by element.",
    "Max": "The greatest of all inputs, element by element.",
    "Product": "The product of all inputs.",
    "Adasum": "Adaptive summation, see [collectives](../collectives.md#reductions-and-types).",
    "global_process_set": "The set of all ranks of the job.",
}
# The page that a reader of an adapter's reference reads first, and what it is called.
GUIDES = {
    "horovod": ("run.md", "horovod.run"),
    "horovod.torch": ("torch.md", "PyTorch"),
    "horovod.tensorflow": ("tensorflow.md", "TensorFlow"),
    "horovod.keras": ("keras.md", "Keras"),
    "horovod.tensorflow.keras": ("keras.md", "Keras"),
    "horovod.mxnet": ("mxnet.md", "MXNet"),
    "horovod.jax": ("jax.md", "JAX"),
    "horovod.spark": ("spark.md", "Spark"),
    "horovod.spark.torch": ("spark.md#from-a-dataframe-to-predictions", "Spark"),
    "horovod.spark.keras": ("spark.md#from-a-dataframe-to-predictions", "Spark"),
    "horovod.spark.lightning": ("spark.md#from-a-dataframe-to-predictions", "Spark"),
}
# Functions whose result is an object of a class that users do not name, with that class.
RESULTS = {"horovod.torch.optimizer.DistributedOptimizer": "_DistributedOptimizer"}


class Absent(type):
    """Its classes pass for whatever a framework has that is not installed, as far as looking at functions
    needs it: each attribute is another one.
    """

    def __getattr__(cls, name: str) -> "Absent":
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(name, (), {"__init__": lambda *_, **__: None})


def load(name: str) -> types.ModuleType:
    """The adapter. That of MXNet also where there is no MXNet, so that one environment makes all pages."""
    if name == "horovod.mxnet":
        try:
            return importlib.import_module(name)
        except ImportError:
            for part in [key for key in sys.modules if key.startswith("horovod.mxnet")]:
                del sys.modules[part]
            native = types.ModuleType("horovod.mxnet.native")
            vars(native)["__getattr__"] = partial(getattr, Absent("mxnet", (), {}))
            sys.modules["horovod.mxnet.native"] = native
    return importlib.import_module(name)


def section_of(name: str) -> str:
    return next(title for title, pattern in SECTIONS.items() if re.match(pattern, name))


def markdown(text: str) -> str:
    """A docstring as Markdown: its code in single backquotes, its sections as lists."""
    lines, field = [], ""
    for line in text.replace("``", "`").splitlines():
        if line.strip() in FIELDS:
            field = line.strip()
            lines += ["", f"**{FIELDS[field]}**", ""]
        elif not field or not line.strip():
            lines.append(line.replace("::", ":") if line.endswith("::") else line)
        elif re.match(r" {4}\S", line):
            lines.append(item(field, line.strip()))
        else:
            lines.append(f"  {line.strip()}")
    return "\n".join(lines)


def item(field: str, line: str) -> str:
    """One line of a section: the name that it explains, if it explains one, is code."""
    name, colon, rest = line.partition(": ")
    named = field in ("Args:", "Raises:") and colon and re.fullmatch(r"[\w*., ]+", name)
    return f"* `{name}`: {rest}" if named else f"* {line}" if field == "Raises:" else line


def signature(name: str, value: Any) -> str:
    """As a program calls it, one argument a line where it is long; without types, which the text tells."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return name
    words = [shown(parameter) for parameter in parameters]
    short = f"{name}({', '.join(words)})"
    return short if len(short) <= 88 else f"{name}(\n" + "".join(f"    {word},\n" for word in words) + ")"


def shown(parameter: inspect.Parameter) -> str:
    star = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    text = star.get(parameter.kind, "") + parameter.name
    if parameter.default is inspect.Parameter.empty:
        return text
    return f"{text}={constant(parameter.name, parameter.default)}"


def constant(parameter: str, value: Any) -> str:
    """A default value as a program would write it."""
    if parameter == "process_set":
        return "global_process_set"
    if parameter == "compression":
        return "Compression.none"
    if parameter == "op" and value == 0:
        return "Average"
    return value.__name__ if inspect.isclass(value) else repr(value)


def entries(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """(name, value) of what the page shows: distributed optimizers first, callbacks and metrics one by
    one.
    """
    for name in sorted(
        set(module.__all__), key=lambda name: (not name.startswith("Distributed"), name.lower())
    ):
        value = getattr(module, name)
        if inspect.ismodule(value):
            for part in sorted(getattr(value, "__all__", vars(value)), key=str.lower):
                own = getattr(value, part)
                listed = hasattr(value, "__all__") or getattr(own, "__module__", "") == value.__name__
                if callable(own) and listed and not part.startswith("_"):
                    yield f"{name}.{part}", own
        elif not name.startswith("__"):
            yield name, value


def row(name: str, value: Any) -> str | None:
    """An entry that one line of a table can hold: a constant, or a function that takes nothing."""
    if name in CONSTANTS:
        return f"| <span id='hvd.{name}'></span>`hvd.{name}` | {CONSTANTS[name]} |\n"
    text = markdown(inspect.getdoc(value) or "")
    if inspect.isclass(value) or signature(name, value) != f"{name}()" or "\n\n" in text:
        return None
    return f"| <span id='hvd.{name}'></span>`hvd.{name}()` | {' '.join(text.split())} |\n"


def section(title: str, members: list[tuple[str, Any]]) -> str:
    """A table of the short entries, then the others one by one."""
    rows = [row(name, value) for name, value in members]
    short = [text for text in rows if text]
    table = "| | |\n|---|---|\n" + "".join(short) + "\n" if short else ""
    others = [entry(name, value) for (name, value), text in zip(members, rows, strict=True) if not text]
    return f"## {title}\n\n{table}{''.join(others)}"


def entry(name: str, value: Any) -> str:
    parts = [f"### {name}"]
    if not inspect.isclass(value) or value.__init__ is not object.__init__:
        of = "horovod." if value.__module__.startswith("horovod.runner.") else "hvd."
        if value.__module__.startswith("horovod.spark."):
            of = "" if inspect.isclass(value) else "horovod.spark."
        parts.append(f"```python\n{signature(f'{of}{name}', value)}\n```")
    parts.append(markdown(inspect.getdoc(value) or ""))
    if inspect.isclass(value):
        parts += [*choices(value), *params(value), *methods(value)]
    if result := RESULTS.get(f"{value.__module__}.{value.__qualname__}"):
        parts.append("**Methods of the result**, besides those of your optimizer:")
        parts += methods(getattr(sys.modules[value.__module__], result))
    return "\n\n".join(parts) + "\n\n"


def choices(value: type) -> Iterator[str]:
    """The classes that a class such as Compression offers."""
    own = {name: inner for name, inner in vars(value).items() if inspect.isclass(inner)}
    if own and not any(name.startswith("_") for name in own):
        yield "| | |\n|---|---|\n" + "\n".join(
            f"| `{name}` | {first(inner)} |" for name, inner in own.items()
        )


def params(value: type) -> Iterator[str]:
    """Those of a stage of Spark, and the methods that it shares with others."""
    if value.__module__.startswith("horovod.spark.") and (rows := getattr(value, "_rows", None)):
        yield "| param | |\n|---|---|\n" + "\n".join(f"| `{row.name}` | {row.doc} |" for row in rows.values())
        yield from methods(
            next(base for base in value.__mro__ if base.__module__.endswith("common.estimator"))
        )


def first(value: Any) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(markdown(inspect.getdoc(value) or "").partition("\n\n")[0].split()).replace("|", "\\|")


def methods(value: type) -> Iterator[str]:
    """Its own public ones that say something."""
    for name, method in vars(value).items():
        is_own = inspect.isfunction(method) and "<locals>" not in method.__qualname__
        if is_own and not name.startswith("_") and method.__doc__:
            call = signature(name, method).replace("(self, ", "(").replace("(self)", "()")
            yield f"#### {name}\n\n```python\n{call}\n```\n\n{markdown(inspect.getdoc(method) or '')}"


def page(module: types.ModuleType) -> str:
    """The whole page."""
    name = module.__name__
    summary = (module.__doc__ or "").partition("\n")[0].rstrip(":.")
    guide, title = GUIDES[name]
    line = f"import {name}" + ("" if name in ("horovod", "horovod.spark") else " as hvd")
    if name.startswith("horovod.spark."):
        line = f"from {name} import {', '.join(module.__all__)}"
    intro = f"# {name}\n\n`{line}`. {summary}. [{title}](../{guide}) shows how to use it.\n\n"
    by_section: dict[str, list[tuple[str, Any]]] = {title: [] for title in SECTIONS}
    for shown_as, value in entries(module):
        by_section[section_of(shown_as)].append((shown_as, value))
    return intro + "".join(section(title, own) for title, own in by_section.items() if own)


if __name__ == "__main__":
    print(page(load(sys.argv[1])))
