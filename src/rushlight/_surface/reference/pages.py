"""A documentation page for every operator and composite, written from the operator table.

What a page says is found, not written a second time: forms from the schema, the formula from the docstring, shapes and
dtypes from traces of the samples, the derivative from the rule that the engine uses, the example from a run of the
references, and the source from the file.

`python -m rushlight docs --out FOLDER` writes them.
"""

from __future__ import annotations

import inspect
import os
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from rushlight._base.errors import NotDifferentiableError
from rushlight._engine.dispatch.lower import differentiate
from rushlight._engine.dispatch.plans.native_plans import is_function
from rushlight._graph.core import Graph
from rushlight._graph.printer import describe, to_source
from rushlight._ops.samples import samples_of
from rushlight._ops.table import OPERATORS, Operator
from rushlight._surface.operators import BINARY, INPLACE, REVERSED, UNARY
from rushlight._surface.reference.annotations import Names
from rushlight._surface.reference.example import Example, call_name, example_of
from rushlight._surface.reference.signatures import operator_forms, python_forms
from rushlight._surface.registry import SPACES, row_of

__all__ = ["composites", "index", "operator_page", "pages", "summary", "write"]

ROOT = Path(__file__).resolve().parents[4]
_WORDS = {"DType": "dtype", "Device": "device", "Layout": "layout", "MemoryFormat": "memory_format"}
_PROMOTION = {
    None: "The operands keep the dtypes that were given.",
    "same": "The operands are brought to their common dtype (`torch.result_type`).",
    "float": "The operands are brought to their common dtype; integers and bool become the default float dtype.",
    "opmath": "The operands keep their dtypes; float16 and bfloat16 are computed in float32 and rounded at the end.",
}
_LAYOUT = {
    "operands": "The result lies in memory in the order of the operands (dense operands of one order keep it).",
    "image": "The result is channels last where the input is, else contiguous.",
    "contiguous": "The result is contiguous.",
}


class PlainNames(Names):
    """Types as users write them."""

    def use(self, module: str, name: str) -> str:
        return _WORDS.get(name, name)

    def use_module(self, module: str) -> str:
        return module.removeprefix("rushlight.")


# ***** what a docstring says *****


def summary(op: Operator) -> str:
    """The first paragraph of an operator's text."""
    return " ".join(text_of(op.doc).partition("\n\n")[0].split())


def text_of(doc: str | None) -> str:
    """A docstring without its indentation and without its formula field."""
    text = inspect.cleandoc(doc or "")
    return re.sub(r"(?m)^formula: .*\n?", "", text).strip()


def formula(op: Operator) -> str:
    """The formula of an operator: the docstring's `formula:` field, else the text, which says it in its first sentence."""
    found = re.search(r"(?m)^formula: (.*)$", inspect.cleandoc(op.doc or ""))
    return found[1].strip() if found else summary(op)


# ***** sections *****


def _signature(op: Operator) -> list[str]:
    names = PlainNames()
    flagged = "inplace_flag" in op.tags and "nn.functional" in op.spaces
    forms = operator_forms(op, names, inplace_flag=flagged)
    lines = [
        "```text",
        *[f"{call_name(op)}{form}" for form in forms],
        "```",
        "",
        "| argument | type | default | |",
        "| --- | --- | --- | --- |",
    ]
    for argument in op.schema.arguments:
        notes = []
        if argument.name in op.numbers:
            notes.append("or a number")
        if argument.base in ("Scalar", "Tensor") and argument.name in op.static:
            notes.append("a number is part of the code")
        if argument.keyword_only:
            notes.append("by name only")
        default = "" if argument.required else f"`{argument.default!r}`"
        lines.append(f"| `{argument.name}` | {argument.type} | {default} | {'; '.join(notes)} |")
    return lines


def _rules(op: Operator, example: Example | None) -> list[str]:
    lines = [_PROMOTION[op.promote]]
    if op.promote_over:
        lines.append(f"Only {', '.join(f'`{n}`' for n in op.promote_over)} take part in that.")
    lines.append("The result is a view: it shares the memory of the input." if op.kind == "view" else _layout(op))
    lines = [" ".join(lines), "", "| arguments | results |", "| --- | --- |"]
    for each in _traced(op, example):
        given = ", ".join(f"`{s.dtype.name}{list(s.shape)}`" for s in each.specs) or "no tensors"
        results = ", ".join(f"`{describe(v)}`" for v in each.graph.outputs[: each.count])
        lines.append(f"| {given} | {results} |")
    return lines


def _layout(op: Operator) -> str:
    if isinstance(op.like, str):
        return _LAYOUT[op.like]
    return f"The layout of the result: {text_of(getattr(op.like, '__doc__', '')).partition(chr(10))[0] or 'decided by a function of the operator'}"


def _traced(op: Operator, example: Example | None) -> list[Example]:
    """The example, and up to two more samples of other shapes."""
    found = [] if example is None else [example]
    seen = {tuple(map(repr, e.specs)) for e in found}
    for call in samples_of(op):
        try:
            each = Example(op, call)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue
        if len(found) < 3 and tuple(map(repr, each.specs)) not in seen:
            seen.add(tuple(map(repr, each.specs)))
            found.append(each)
    return found


def _variants(op: Operator) -> list[str]:
    lines = [
        f"- function: {', '.join(f'`{name}`' for name in _functions(op))}"
        if op.spaces
        else "- no function of its own: others are made of it"
    ]
    if op.method:
        lines.append(f"- method: `Tensor.{op.method if isinstance(op.method, str) else op.public}`")
    if op.inplace:
        places = [f"`Tensor.{op.public}_`", *[f"`{_place(s)}.{op.public}_`" for s in op.inplace_spaces]]
        lines.append(f"- in place: {', '.join(places)}")
    if op.out:
        lines.append("- with `out=`: the result is written to a given tensor")
    if op.aliases:
        lines.append(f"- other names: {', '.join(f'`torch.{alias}`' for alias in op.aliases)}")
    special = [
        f"`{name}`" for table in (BINARY, REVERSED, INPLACE, UNARY) for name, row in table.items() if row == op.name
    ]
    if special:
        lines.append(f"- Python's operators: {', '.join(special)}")
    return lines


def _place(space: str) -> str:
    return "torch" if space == "torch" else f"torch.{space}"


def _functions(op: Operator) -> list[str]:
    return [f"{_place(space)}.{op.public.removeprefix(space + '_')}" for space in op.spaces]


def _derivative(op: Operator, example: Example | None) -> str:
    if example is None:
        return "There is no sample from which it could be shown."
    wrt = [i for i, s in enumerate(example.specs) if s.dtype.is_floating_point or s.dtype.is_complex]
    mask = [v.dtype.is_floating_point or v.dtype.is_complex for v in example.graph.outputs[: example.count]]
    if not wrt or not any(mask):
        return "No: the results are not continuous numbers." if wrt else "No: there is no argument to differentiate by."
    try:
        found = differentiate(op, example.template, example.specs, wrt, mask)
    except NotDifferentiableError as error:
        return f"No: {error}"
    names = [n for n, place in zip(_tensor_names(example), found.outputs, strict=True) if place is not None]
    if not names or found.graph.nodes and not any(node.inputs for node in found.graph.nodes):
        return "Yes, and it is 0 everywhere: the results are piecewise constant."
    how = (
        "by a rule of its own (`gradient` beside the body)" if op.gradient_rule is not None else "derived from the body"
    )
    node = op.node_name(example.named)
    steps = len(found.graph.nodes)
    return (
        f"Yes, {how}, with respect to {', '.join(f'`{n}`' for n in names)}: {steps} primitive{'s' * (steps != 1)} for the example. "
        f"The backward node is `{node}`. Second derivatives are derived from that."
    )


def _tensor_names(example: Example) -> list[str]:
    """For each floating point tensor of the call: its argument's name."""
    found: list[str] = []
    tensors = iter(example.specs)
    for argument, given in zip(example.op.schema.arguments, example.template, strict=True):
        if (
            argument.base != "Tensor"
            or given is None
            or type(given).__name__ == "Literal"
            or argument.name in example.op.numbers
            and isinstance(given, str)
        ):
            continue
        count = given.count if hasattr(given, "count") and argument.is_sequence else 1
        for _ in range(count):
            spec = next(tensors, None)
            if spec is not None and (spec.dtype.is_floating_point or spec.dtype.is_complex):
                found.append(argument.name)
    return found


def _source(function: Any, root: str) -> list[str]:
    """Where a function is written, with a link from a page to it, and its lines."""
    lines, start = inspect.getsourcelines(function)
    file = Path(inspect.getsourcefile(function) or "")
    place = file.relative_to(ROOT / "src") if file.is_relative_to(ROOT / "src") else Path(file.name)
    return [
        f"[{place}:{start}]({root}/src/{place}#L{start})",
        "",
        "```python",
        *inspect.cleandoc("\n" + "".join(lines)).split("\n"),
        "```",
    ]


def _graph(graph: Graph) -> list[str]:
    return ["```python", *to_source(graph).split("\n"), "```"]


def operator_page(op: Operator, root: str = "..") -> str:
    """The page of one row of the table; `root` leads from the page to the sources."""
    example = example_of(op)
    text = text_of(op.doc)
    parts = [
        f"# {call_name(op)}",
        "",
        text,
        "",
        "## Signature",
        "",
        *_signature(op),
        "",
        "## Formula",
        "",
        f"`{formula(op)}`" if _is_bare(formula(op)) else formula(op),
    ]
    parts += [
        "",
        "## Shapes and dtypes",
        "",
        *_rules(op, example),
        "",
        "## Variants",
        "",
        *_variants(op),
        "",
        "## Derivative",
        "",
        _derivative(op, example),
    ]
    if example is not None:
        parts += ["", "## Example", "", "```pycon", *example.session(), "```"]
    parts += ["", "## Source", "", *_source(op.body, root)]
    if example is not None:
        parts += ["", "The primitives of the example:", "", *_graph(example.graph)]
    parts += ["", "## Limits", "", op.limits or "None known.", ""]
    return "\n".join(parts)


def _is_bare(text: str) -> bool:
    """Whether a formula stands alone, without markdown of its own."""
    return "`" not in text


# ***** composites *****


@cache
def composites() -> dict[str, Any]:
    """Public name -> function, of what is plain Python over tensors."""
    found = {}
    for space, names in SPACES.items():
        for name in sorted(names):
            value = names[name]
            row = row_of(value) if is_function(value) else None
            if is_function(value) and row is None:
                found[f"{_place(space)}.{name}"] = value
    return found


def composite_page(name: str, function: Any, root: str = "..") -> str:
    """The page of a composite: its forms, its docstring, its source."""
    inner = inspect.unwrap(function)
    parts = [f"# {name}", "", inspect.cleandoc(function.__doc__ or ""), "", "## Signature", "", "```text"]
    parts += [f"{name}{form}" for form in python_forms(function, PlainNames())]
    parts += [
        "```",
        "",
        "## Derivative",
        "",
        "That of the operators it calls.",
        "",
        "## Source",
        "",
        *_source(inner, root),
        "",
    ]
    return "\n".join(parts)


# ***** all of them *****


def pages(root: str = "..") -> dict[str, str]:
    """File name -> text of every page, and the index."""
    with warnings.catch_warnings():  # some operators advise against themselves when a sample is traced
        warnings.simplefilter("ignore")
        found = {f"{_file(call_name(op), op.name)}.md": operator_page(op, root) for op in OPERATORS.values()}
    for name, function in composites().items():
        found.setdefault(f"{name.removeprefix('torch.')}.md", composite_page(name, function, root))
    found["index.md"] = index("")
    return found


def _file(name: str, key: str) -> str:
    """A page's name: the public one, or the row's key where that is taken by another row; "index" is the page of all."""
    short = name.removeprefix("torch.")
    if short == "index":
        return "index_operator"
    others = [op for op in OPERATORS.values() if call_name(op) == name]
    return short if len(others) == 1 else key


def index(folder: str | None = None) -> str:
    """One line for each operator, by family, then the composites; with `folder`, the way to their pages, as links."""

    def linked(names: list[str], file: str) -> str:
        shown = ", ".join(f"`{name}`" for name in names)
        return shown if folder is None else f"[{shown}]({folder}{file}.md)"

    lines = [
        "# Operators",
        "",
        "Written by `python -m rushlight docs`. Full pages: `python -m rushlight docs --out FOLDER`.",
        "",
    ]
    families: dict[str, list[Operator]] = {}
    for op in OPERATORS.values():
        families.setdefault(op.body.__module__.rpartition(".")[2], []).append(op)
    public = sum(bool(op.spaces or op.method) for op in OPERATORS.values())
    lines += [
        f"{public} public operators over primitives, {len(OPERATORS) - public} that only others call, {len(composites())} composites.",
        "",
    ]
    for family, ops in sorted(families.items()):
        lines += [f"## {family}", ""]
        for op in sorted(ops, key=lambda op: op.name):
            names = _functions(op) or [call_name(op)]
            lines.append(f"- {linked(names, _file(call_name(op), op.name))}: {summary(op)}")
        lines.append("")
    lines += ["## composites", ""]
    for name, function in sorted(composites().items()):
        lines.append(
            f"- {linked([name], name.removeprefix('torch.'))}: {' '.join(inspect.cleandoc(function.__doc__ or '').partition(chr(10) * 2)[0].split())}"
        )
    return "\n".join([*lines, ""])


def write(folder: Path) -> int:
    """Write all pages into a folder; how many."""
    folder.mkdir(parents=True, exist_ok=True)
    found = pages(Path(os.path.relpath(ROOT, folder)).as_posix())
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")
    return len(found)
