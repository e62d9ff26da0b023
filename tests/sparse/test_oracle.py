"""Sparse tensors beside PyTorch: every expression and program of `cases.py` in both."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.sparse.cases import EXPRESSIONS, OF_ANY_DTYPE, PROGRAMS, names, of_dtype  # noqa: E402

import rushlight  # noqa: E402

pytestmark = pytest.mark.oracle


def outcome(text: str, module: Any) -> str:
    """What an expression gives, as printed."""
    try:
        return repr(eval(text, names(module)))  # noqa: S307
    except Exception as error:
        return f"raises {type(error).__name__}"


def notes(text: str, module: Any) -> list[str]:
    """What a program notes."""
    found: list[str] = []
    scope = names(module)

    def train(name: str, **options: Any) -> None:
        weight = module.arange(10.0).reshape(5, 2).requires_grad_()
        optimizer = getattr(module.optim, name)([weight], **options)
        for places in ([1, 2, 1], [0, 4], [1]):
            optimizer.zero_grad()
            rows = module.nn.functional.embedding(module.tensor(places), weight, sparse=True)
            ((rows * module.tensor([1.0, 2.0])) ** 2).sum().backward()
            optimizer.step()
        found.extend((repr(weight), repr(dict(optimizer.state[weight]))))

    scope.update(R=lambda *values: found.extend(map(repr, values)), O=train)
    try:
        exec(text, scope)  # noqa: S102
    except Exception as error:
        found.append(f"raises {type(error).__name__}")
    return found


def differences(texts: list[str], run: Any) -> list[str]:
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in texts:
            theirs, ours = run(text, torch), run(text, rushlight)
            if theirs != ours:
                wrong.append(f"{text}\n  PyTorch: {theirs}\n  rushlight: {ours}")
    return wrong


@pytest.mark.parametrize("part", range(4))
def test_expressions_as_pytorch(part: int) -> None:
    wrong = differences(EXPRESSIONS[part::4], outcome)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", ["int32", "complex64"])
def test_dtypes_as_pytorch(dtype: str) -> None:
    def run(text: str, module: Any) -> str:
        try:
            made = eval(text, of_dtype(module, dtype))  # noqa: S307
        except Exception as error:
            return f"raises {type(error).__name__}"
        return f"{made.layout} {made.to_dense()}" if hasattr(made, "layout") else repr(made)

    wrong = differences(OF_ANY_DTYPE, run)
    assert not wrong, "\n".join(wrong)


def test_gradients_and_optimizers_as_pytorch() -> None:
    wrong = differences(PROGRAMS, notes)
    assert not wrong, "\n".join(wrong)


def test_files_go_both_ways(tmp_path: Any) -> None:
    makers = (
        lambda m: m.eye(3).to_sparse(), lambda m: m.eye(2).to_sparse_csr(), lambda m: m.eye(2).to_sparse_csc(),
        lambda m: m.eye(4).to_sparse_bsr((2, 2)), lambda m: m.sparse_coo_tensor([[1, 0, 1]], [1.0, 2, 3], (3,)),
        lambda m: m.nn.Parameter(m.eye(3).to_sparse()),
    )  # fmt: skip
    path = tmp_path / "file.pt"
    for source, target in ((torch, rushlight), (rushlight, torch)):
        for make in makers:
            source.save({"x": make(source)}, path)
            assert repr(target.load(path)["x"]) == repr(make(target))
