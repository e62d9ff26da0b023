"""What is said of names that do not exist: those of PyTorch's that rushlight lacks, and those that were not written as meant."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from typing import Any

import pytest

import rushlight as torch
from rushlight._base.naming import _pages, is_pytorchs

TYPOS = [
    ("torch", "sofmax", "softmax"), ("torch", "tensr", "tensor"), ("torch", "Float32", "float32"), ("torch.nn", "Linaer", "Linear"),
    ("torch.nn", "relu", "ReLU"), ("torch.nn.functional", "crossentropy", "cross_entropy"), ("torch.optim", "Adm", "Adam"),
    ("torch.linalg", "choleski", "cholesky"), ("torch.fft", "iftt", "ifft"), ("torch.utils.data", "Dataloader", "DataLoader"),
    ("torch.nn.utils", "clip_grad_nrm_", "clip_grad_norm_"), ("torch.distributed", "al_reduce", "all_reduce"),
]  # fmt: skip


def page(name: str) -> Any:
    return importlib.import_module(name.replace("torch", "rushlight", 1))


@pytest.mark.parametrize(("where", "typed", "meant"), TYPOS)
def test_a_typing_error_gets_the_name_that_was_meant(where: str, typed: str, meant: str) -> None:
    with pytest.raises(AttributeError) as met:
        getattr(page(where), typed)
    module = where.replace("torch", "rushlight", 1)
    assert str(met.value) == f"module {module!r} has no attribute {typed!r}. Did you mean: {meant!r}?"
    assert met.value.name == typed and str(pickle.loads(pickle.dumps(met.value))) == str(met.value)
    assert not hasattr(page(where), typed) and getattr(page(where), typed, 3) == 3


def test_nothing_is_suggested_for_what_is_like_nothing() -> None:
    with pytest.raises(AttributeError, match="^module 'rushlight' has no attribute 'xyzzy_plugh'$"):
        torch.xyzzy_plugh


def test_yet_is_said_of_what_pytorch_has() -> None:
    lacking = [
        (where, name)
        for where in ("", "nn", "optim", "cuda", "distributed")
        for name in _pages()[where]
        if not hasattr(page(f"torch.{where}".rstrip(".")), name)
    ]
    for where, name in lacking:
        with pytest.raises(AttributeError) as met:
            getattr(page(f"torch.{where}".rstrip(".")), name)
        assert "yet" in str(met.value) or "rushlight computes on the CPU only" in str(met.value)
    assert lacking, "then this test may go"


@pytest.mark.parametrize("expression", ["torch.ones(2).sofmax", "torch.Tensor.sofmax", "torch.nn.init.xavier_unifrom_"])
def test_python_suggests_the_rest(expression: str) -> None:
    """Of classes and of pages that are plain modules Python itself does, where it prints the error."""
    done = subprocess.run(
        [sys.executable, "-c", f"import rushlight as torch; torch.nn.init; {expression}"],
        capture_output=True,
        text=True,
    )
    assert done.stderr.count("Did you mean: ") == 1, done.stderr


def test_the_stored_names() -> None:
    assert (
        is_pytorchs("nn.Linear")
        and is_pytorchs("softmax")
        and is_pytorchs("mtia")
        and is_pytorchs("_ops")
        and is_pytorchs("Tensor.sum")
    )
    assert is_pytorchs("sofmax") is False and is_pytorchs("nn.os") is False and is_pytorchs("_not_there") is None


@pytest.mark.oracle
def test_the_stored_names_are_those_of_the_installed_pytorch() -> None:
    for where in ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.linalg"):
        theirs = pytest.importorskip(where)
        for name in _pages()[where.partition(".")[2]]:
            # pages that an import of them loads have no attribute before
            assert hasattr(theirs, name) or importlib.util.find_spec(f"{where}.{name}") is not None, (where, name)


@pytest.mark.parametrize(
    ("page_name", "names"),
    [
        ("torch", ("zeros", "float32", "long", "Tensor", "relu", "save", "Generator", "manual_seed", "inf", "channels_last", "no_grad")),
        ("torch.nn.functional", ("relu", "cross_entropy", "softmax", "conv2d", "interpolate", "scaled_dot_product_attention")),
        ("torch.fft", ("fft", "irfftn", "fftshift")),
        ("torch.linalg", ("svd", "norm", "LinAlgError")),
        ("torch.special", ("expit", "zeta")),
    ],
)  # fmt: skip
def test_all_names_of_a_page_come_by_a_star(page_name: str, names: tuple[str, ...]) -> None:
    """Names that the first use loads are there too."""
    space: dict[str, Any] = {}
    exec(f"from {page_name.replace('torch', 'rushlight', 1)} import *", space)  # noqa: S102
    assert all(space[name] is getattr(page(page_name), name) for name in names)
    assert len(set(page(page_name).__all__)) == len(page(page_name).__all__)
