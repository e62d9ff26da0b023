"""The pages of operators: every one has its sections, a formula, an example that was run, and its source."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import rushlight
from rushlight.__main__ import main
from rushlight._cli.docs import COMMAND
from rushlight._ops.table import OPERATORS
from rushlight._surface.reference import pages
from rushlight._surface.reference.example import example_of

# Copies, casts and fills of the engine: no samples are kept for them.
ENGINE = {"clone_core", "clone_contiguous", "clone_channels_last", "reshape_copy", "to_dtype", "copy", "fill", "zero"}
SECTIONS = ("Signature", "Formula", "Shapes and dtypes", "Variants", "Derivative", "Example", "Source", "Limits")
MATHEMATICS = re.compile(r"[=+*/^|<>\[&~]|\w\(|-\w|\d|`[\w.]+`")


def section(page: str, title: str) -> str:
    found = re.search(rf"^## {title}\n\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


@pytest.mark.parametrize("key", sorted(OPERATORS))
def test_every_operator_has_a_whole_page(key: str) -> None:
    op = OPERATORS[key]
    page = pages.operator_page(op)
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == list(SECTIONS)
    for title in SECTIONS:
        assert section(page, title), f"{key}: nothing under {title}"
    assert MATHEMATICS.search(section(page, "Formula")), f"{key}: its text says no formula: {op.doc!r}"
    shapes = section(page, "Shapes and dtypes")
    assert re.search(r"^\| .*`\w+\[.*\]( weak)?`.* \| `\w+\[.*\]", shapes, re.MULTILINE) or "no tensors" in shapes, (
        f"{key}: no shapes"
    )
    example = section(page, "Example")
    assert ">>> " in example and not example.rstrip("`\n").splitlines()[-1].startswith(">>>"), f"{key}: no result"
    source = section(page, "Source")
    place = re.match(r"\[(.*):(\d+)\]", source)
    assert (
        place is not None
        and (pages.ROOT / "src" / place[1]).is_file()
        and "```python\n" in source
        and "def graph(" in source
    )
    assert page.splitlines()[2].strip(), key


def test_what_a_page_says_about_derivatives() -> None:
    def said(key: str) -> str:
        return section(pages.operator_page(OPERATORS[key]), "Derivative")

    assert said("mul").startswith("Yes, ") and "`input`, `other`" in said("mul") and "MulBackward0" in said("mul")
    assert "by a rule of its own" in said("softmax") and "derived from the body" in said("square")
    assert said("eq").startswith("No: ") and said("floor").startswith(("Yes, and it is 0", "No: "))


def test_the_variants_are_those_that_exist() -> None:
    variants = section(pages.operator_page(OPERATORS["add"]), "Variants")
    for word in ("`torch.add`", "`Tensor.add`", "`Tensor.add_`", "`out=`", "`__iadd__`"):
        assert word in variants
    assert "`torch.special.expit`" in section(pages.operator_page(OPERATORS["sigmoid"]), "Variants")


@pytest.mark.parametrize("key", ["softmax", "topk", "cat", "where", "logaddexp", "cumsum"])
def test_examples_are_what_the_package_answers(key: str) -> None:
    """The references made the example; the kernels must print the same."""
    op = OPERATORS[key]
    example = example_of(op)
    assert example is not None
    tensors = {k: rushlight.from_numpy(np.ascontiguousarray(a)) for k, a in example._arrays.items()}

    def real(value: object) -> object:
        return [real(v) for v in value] if isinstance(value, list) else tensors.get(id(value), value)

    found = rushlight._surface.SPACES["torch"][op.public](
        *[real(a) for a in example.args], **{k: real(v) for k, v in example.kwargs.items()}
    )
    assert str(found).split("\n") == example.session()[-len(str(found).split("\n")) :]


def test_every_composite_has_a_text_and_a_page() -> None:
    found = pages.composites()
    assert len(found) > 100
    for name, function in found.items():
        page = pages.composite_page(name, function)
        assert section(page, "Signature") and section(page, "Source"), name
        assert (function.__doc__ or "").strip(), f"{name} does not say what it does"


def test_the_index_is_up_to_date() -> None:
    kept = pages.ROOT / "docs" / "operators-index.md"
    assert kept.is_file() and kept.read_text(encoding="utf-8") == pages.index(), (
        f"the index of operators is old; run `{COMMAND}` and commit"
    )


@pytest.mark.slow
def test_the_command_writes_a_folder_of_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "--out", str(tmp_path)]) == 0
    count = int(capsys.readouterr().out.split()[0])
    written = list(tmp_path.glob("*.md"))
    assert count == len(written) > len(OPERATORS) + 100
    assert (
        (tmp_path / "softmax.md").is_file()
        and (tmp_path / "linalg.norm.md").is_file()
        and (tmp_path / "index.md").is_file()
    )
