"""The printed form of every dtype under many options: digests of PyTorch's texts are stored, and where PyTorch is installed it is asked."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rushlight

DIGESTS = json.loads((Path(__file__).parent.parent / "data" / "printed.json").read_text())
DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "int8", "bool", "complex64", "complex128", "complex32", "float8_e4m3fn",
    "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "uint16", "uint32", "uint64", "int16",
)  # fmt: skip
OPTIONS: list[dict[str, Any]] = [
    {}, {"profile": "short"}, {"profile": "full"}, {"precision": 8}, {"precision": 0}, {"threshold": 5}, {"edgeitems": 1, "threshold": 3},
    {"linewidth": 40}, {"linewidth": 200}, {"sci_mode": True}, {"sci_mode": False}, {"edgeitems": 0, "threshold": 2},
    {"precision": 2, "sci_mode": True, "linewidth": 60},
]  # fmt: skip


def arrays() -> Iterator[np.ndarray]:
    wave = np.sin(np.arange(1400.0) * 1.7) * 3
    specials = [
        [], 1.5, 3.0, [1e-5, 1, 2], [1e-3, 1, 1e6], [1.0, 2, 300], [1e9, 2e9], [math.nan, 1.5, math.inf, -math.inf], [math.nan] * 2, [math.inf, -math.inf],
        [-0.0, 0, 1.5], [math.nan, 1, 2, math.inf], [99999999.0, 1], [1e-40, 1e-38], [123456.789, 0.1], [-1.0, -20.5],
    ]  # fmt: skip
    yield from (np.array(s, dtype=np.float64) for s in specials)
    yield from (
        np.zeros((2, 0, 3)),
        np.zeros((2, 3)),
        np.ones((1, 200)),
        wave[:12].reshape(3, 4),
        wave[:24].reshape(2, 3, 4) * 100,
    )
    yield from (
        wave[:90].reshape(3, 30),
        wave,
        wave.reshape(7, 200),
        wave[:1200].reshape(6, 10, 20),
        wave[:2].reshape(1, 1, 2),
    )


def made(module: Any, array: np.ndarray, name: str) -> Any:
    if name[0] in "iub" and name != "bfloat16":
        array = np.clip(np.nan_to_num(array), -100, 100)
        array = np.abs(array) if name[0] == "u" else array
    x = module.from_numpy(np.array(array))
    if name.startswith("complex"):
        x = module.complex(x, x.flip(0) * 2 if x.dim() else x)
    return x.to(getattr(module, name))


def forms(module: Any, name: str) -> Iterator[str]:
    for array in arrays():
        x = made(module, array, name)
        for options in OPTIONS:
            if options.get("profile") != "full" or array.size < 300:
                module.set_printoptions(profile="default")
                module.set_printoptions(**options)
                yield repr(x)
    module.set_printoptions(profile="default")


def digest(module: Any, name: str) -> str:
    return hashlib.sha256("\n".join(forms(module, name)).encode()).hexdigest()[:16]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", DTYPES)
def test_printed_forms_are_pytorchs(name: str) -> None:
    assert digest(rushlight, name) == DIGESTS[name]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DTYPES)
def test_printed_forms_beside_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    for mine, theirs in zip(forms(rushlight, name), forms(torch, name), strict=True):
        assert mine == theirs


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_suffixes_beside_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for mine, theirs in zip(suffixed(rushlight), suffixed(torch), strict=True):
        assert repr(mine) == repr(theirs) and str(mine) == str(theirs)


def suffixed(m: Any) -> Iterator[Any]:
    class Sub(m.Tensor):
        pass

    w = m.ones(2, requires_grad=True)
    yield from (
        w,
        w * 2,
        m.nn.Parameter(m.ones(2, 3)),
        m.ones(2).as_subclass(Sub),
        w.view(2, 1),
        w[:1],
        w.double(),
        (w * 1j),
        m.zeros(0, 3, requires_grad=True),
    )
    yield from (
        m.ones(3, device="meta"),
        m.ones(3, dtype=m.int32, device="meta"),
        m.nn.Parameter(m.ones(2, device="meta")),
        m.ones(2, 2).as_subclass(Sub) * 2,
    )
    yield from (
        m.nn.Parameter(m.ones(2, dtype=m.half)),
        m.ones(1500, requires_grad=True) * 2,
        m.tensor(True),
        m.ones(2, 3).t(),
        m.ones(3).expand(2, 3),
    )
    yield from (m.finfo(getattr(m, n)) for n in DTYPES if getattr(m, n).is_floating_point)
    yield from (
        m.Size([1, 2]),
        m.device("cpu"),
        m.float32,
        m.strided,
        m.preserve_format,
        m.iinfo(m.uint16),
        m.finfo(m.complex32),
    )
