"""`nn.init`: the numbers are PyTorch's."""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any

import pytest
from tests.nn.init_cases import CASES, run

import rushlight as torch
from rushlight.nn import init

EXPECTED = json.loads(pathlib.Path(__file__).with_name("init.json").read_text())


@pytest.mark.parametrize("name", CASES)
def test_stored(name: str) -> None:
    if name.startswith("orthogonal") and not hasattr(torch.linalg, "qr"):
        with pytest.raises(AttributeError, match="qr"):
            run(torch, name)
        return
    exact = name not in ("trunc_normal_ tail", "orthogonal_", "orthogonal_ wide")
    assert run(torch, name) == pytest.approx(EXPECTED[name], abs=1e-7 if exact else 2e-6)


@pytest.mark.oracle
def test_stored_numbers_are_those_of_the_installed_pytorch() -> None:
    real = pytest.importorskip("torch")
    for name in CASES:
        assert run(real, name) == pytest.approx(EXPECTED[name], abs=1e-6), name


def test_gains() -> None:
    assert (
        init.calculate_gain("linear") == init.calculate_gain("conv_transpose2d") == init.calculate_gain("sigmoid") == 1
    )
    assert init.calculate_gain("tanh") == 5 / 3 and init.calculate_gain("selu") == 0.75
    assert init.calculate_gain("relu") == math.sqrt(2) and init.calculate_gain("leaky_relu", 1) == 1
    with pytest.raises(ValueError, match="Unsupported nonlinearity swish"):
        init.calculate_gain("swish")
    with pytest.raises(ValueError, match="negative_slope True not a valid number"):
        init.calculate_gain("leaky_relu", True)


def test_parameters_keep_their_flags_and_record_nothing() -> None:
    p = torch.nn.Parameter(torch.empty(3, 3))
    for function in (init.kaiming_uniform_, init.eye_, init.trunc_normal_, init.zeros_, lambda x: init.sparse_(x, 0.5)):
        found = function(p)
        assert found is p and p.requires_grad and p.is_leaf


def test_errors() -> None:
    for function, size in (
        (init.eye_, (2,)),
        (init.dirac_, (2, 2)),
        (init.xavier_uniform_, (3,)),
        (init.orthogonal_, (3,)),
        (lambda x: init.sparse_(x, 0.1), (2, 2, 2)),
        (lambda x: init.dirac_(x, groups=2), (3, 1, 1)),
        (lambda x: init.kaiming_normal_(x, mode="fan_middle"), (2, 2)),
    ):
        with pytest.raises(ValueError):
            function(torch.empty(size))
    with pytest.warns(UserWarning, match="zero-element tensors is a no-op"):
        init.kaiming_uniform_(torch.empty(0, 3))
    with pytest.warns(UserWarning, match="more than 2 std"):
        init.trunc_normal_(torch.empty(3), mean=5.0)
    with pytest.warns(FutureWarning, match=r"deprecated in favor of `nn.init.normal_`"):
        init.normal(torch.empty(2))


def test_truncation_holds() -> None:
    for arguments in ((0.0, 1.0, -0.5, 0.5), (0.0, 1.0, 1.8, 4.0), (1.0, 0.1, 0.9, 1.0)):
        x: Any = init.trunc_normal_(torch.empty(500), *arguments)
        assert x.min().item() >= arguments[2] and x.max().item() <= arguments[3]


def test_meta_tensors_pass_through() -> None:
    x = torch.empty(3, 3, device="meta")
    for function in (init.trunc_normal_, init.orthogonal_, lambda t: init.sparse_(t, 0.1)):
        assert function(x) is x
    assert init.dirac_(torch.empty(2, 2, 3, device="meta")).is_meta
