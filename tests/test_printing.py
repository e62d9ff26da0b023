"""The printed form of tensors against PyTorch's: stored for the cases below, and asked live where torch is installed.

`python tests/test_printing.py` (with torch installed) writes tests/data/printing.json anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rushlight._engine.core.printing import OPTIONS, get_printoptions, printoptions, set_printoptions, tensor_repr
from rushlight._types.dtype import BY_NAME, FLOAT32, FLOAT64

STORED = Path(__file__).parent / "data" / "printing.json"
NAN, INF = float("nan"), float("inf")


def _floats() -> dict[str, np.ndarray]:
    f4 = np.float32
    rng = np.random.default_rng(0)
    cases = {
        "scalar": np.array(1.5, f4), "scalar_whole": np.array(3.0, f4), "scalar_nan": np.array(NAN, f4), "scalar_tiny": np.array(1e-7, f4),
        "row": np.array([1.5, 2.0, -3.25], f4), "whole": np.array([1, 2, -30], f4), "whole_nan": np.array([1, NAN, INF, -INF], f4),
        "frac_nan": np.array([0.5, NAN, INF, -INF], f4), "zeros": np.zeros(3, f4), "minus_zero": np.array([-0.0, 0.0], f4),
        "minus_zero_frac": np.array([-0.0, 0.5], f4), "only_nan": np.array([NAN, NAN], f4), "only_inf": np.array([INF, -INF], f4),
        "range_1000": np.array([1.0, 1000.5], f4), "range_1001": np.array([1.0, 1001.5], f4), "range_whole": np.array([1, 1001], f4),
        "range_whole_1000": np.array([1, 1000], f4), "big": np.array([1e8], f4), "bigger": np.array([1.1e8, 2e8], f4),
        "small": np.array([1e-4, 2e-4], f4), "smaller": np.array([0.9e-4], f4), "huge": np.array([1e38, 1e-38], f4),
        "sci_nan": np.array([1e-9, NAN, -INF, 0.0, -1.0], f4), "denormal": np.array([1e-45], f4), "max": np.array([3.4e38, -3.4e38], f4),
        "rounding": np.array([0.00005, 0.12345, 0.99995, 2.5], f4), "empty": np.zeros(0, f4), "empty_2d": np.zeros((0, 3), f4),
        "empty_3d": np.zeros((2, 0, 3), f4), "one": np.ones((1, 1), f4), "ones_5d": np.ones((1, 2, 1, 2, 1), f4),
        "normal_2d": rng.standard_normal((3, 4)).astype(f4), "normal_3d": rng.standard_normal((2, 3, 4)).astype(f4),
        "normal_4d": rng.standard_normal((2, 2, 2, 2)).astype(f4), "wrap": rng.standard_normal(40).astype(f4),
        "wrap_2d": rng.standard_normal((2, 30)).astype(f4), "wrap_exact": np.full(10, 0.5, f4), "n1000": rng.standard_normal(1000).astype(f4),
        "n1001": rng.standard_normal(1001).astype(f4), "wide": rng.standard_normal((4, 300)).astype(f4),
        "tall": rng.standard_normal((300, 4)).astype(f4), "tall_wide": rng.standard_normal((40, 40)).astype(f4),
        "deep": rng.standard_normal((8, 8, 8, 3)).astype(f4), "six": rng.standard_normal((6, 200)).astype(f4),
        "outlier_hidden": np.where(np.arange(2000) == 1000, 1e9, 0.5).astype(f4), "strided": rng.standard_normal((6, 8)).astype(f4)[::2, ::3],
        "transposed": np.arange(12, dtype=f4).reshape(3, 4).T, "broadcast": np.broadcast_to(np.array([0.25], f4), (3, 2)),
    }  # fmt: skip
    return cases


def _others() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    c8 = np.complex64
    return {
        "int": np.array([1, -20, 300]), "int_scalar": np.array(7), "int_2d": np.arange(-6, 6).reshape(3, 4), "int_long": np.arange(60) * 1000,
        "int_summary": np.arange(2000), "int_empty": np.zeros(0, np.int64), "int_empty_2d": np.zeros((3, 0), np.int64),
        "int32": np.array([1, 2], np.int32), "int16": np.array([[-1], [200]], np.int16), "int8": np.array([-128, 127], np.int8),
        "uint8": np.array([0, 255], np.uint8), "uint16": np.array([65535], np.uint16), "uint32": np.array([2**32 - 1], np.uint32),
        "uint64": np.array([2**64 - 1], np.uint64), "int64_ends": np.array([-(2**63), 2**63 - 1]), "bool": np.array([True, False]),
        "bool_scalar": np.array(True), "bool_2d": np.array([[True, True], [False, True]]), "bool_empty": np.zeros(0, bool),
        "all_true": np.ones(30, bool), "f64": np.array([0.1, 0.2], np.float64), "f64_whole": np.array([1.0, 2.0], np.float64),
        "f16": np.array([0.1, 65504.0], np.float16), "f16_small": np.array([0.1, 0.25, NAN], np.float16), "f16_empty": np.zeros((2, 0), np.float16),
        "c": np.array([1 + 2j, 3.5 - 4j], c8), "c_scalar": np.array(1 - 0j, c8), "c_minus_zero": np.array([complex(1, -0.0), complex(-0.0, 0.0)], c8),
        "c_nan": np.array([complex(NAN, INF), complex(1, -INF)], c8), "c_sci": np.array([1e-6 + 1j, 1e6 + 1000j], c8),
        "c_2d": (rng.standard_normal((3, 9)) + 1j * rng.standard_normal((3, 9))).astype(c8), "c128": np.array([1j, 2.0], np.complex128),
        "c_summary": (rng.standard_normal(1500) + 1j * rng.standard_normal(1500)).astype(c8), "c_empty": np.zeros(0, c8),
    }  # fmt: skip


# name -> array, flags of the tensor, print options
def cases() -> dict[str, tuple[np.ndarray, dict, dict]]:
    plain = {**_floats(), **_others()}
    out: dict[str, tuple[np.ndarray, dict, dict]] = {name: (a, {}, {}) for name, a in plain.items()}
    for name in ("row", "whole_nan", "sci_nan", "normal_3d", "n1001", "wrap", "scalar"):
        bits = np.asarray(plain[name].astype(np.float32).view(np.uint32) >> 16, np.uint16)
        out["bf16_" + name] = (bits, {"dtype": "bfloat16"}, {})
    for name in ("row", "wrap", "wrap_exact", "empty_2d", "scalar", "normal_3d", "f64", "c"):
        out["grad_" + name] = (plain[name], {"requires_grad": True}, {})
        out["gradfn_" + name] = (plain[name], {"grad_fn": True}, {})
    out["param"] = (plain["row"], {"requires_grad": True, "is_parameter": True}, {})
    out["param_f64"] = (plain["f64"], {"requires_grad": True, "is_parameter": True}, {})
    for name in ("row", "empty_2d", "int", "f16", "c", "scalar"):
        out["meta_" + name] = (plain[name], {"meta": True}, {})
    for name in ("f64", "row", "c", "c128", "f64_whole", "int", "int_empty", "empty"):
        out["default64_" + name] = (plain[name], {"default": "float64"}, {})
    options = {
        "p2": {"precision": 2}, "p0": {"precision": 0}, "p8": {"precision": 8}, "t5": {"threshold": 5}, "e1": {"edgeitems": 1, "threshold": 3},
        "e0": {"edgeitems": 0, "threshold": 3}, "w40": {"linewidth": 40}, "w1": {"linewidth": 1}, "short": {"profile": "short"},
        "full": {"profile": "full"}, "sci": {"sci_mode": True}, "fixed": {"sci_mode": False}, "mix": {"profile": "short", "precision": 6},
    }  # fmt: skip
    for label, opts in options.items():
        for name in (
            "row",
            "whole_nan",
            "sci_nan",
            "wrap_2d",
            "n1001",
            "c",
            "c_2d",
            "int_2d",
            "deep",
            "big",
            "scalar",
            "bool_2d",
            "zeros",
        ):
            if label == "full" and name in ("n1001", "deep") or label == "w1" and name in ("n1001", "deep", "c_2d"):
                continue  # long texts that show nothing new
            out[f"{label}_{name}"] = (plain[name], {}, opts)
    return out


CASES = cases()


def _ours(array: np.ndarray, flags: dict, options: dict) -> str:
    flags = dict(flags)
    dtype = BY_NAME[flags.pop("dtype", array.dtype.name)]
    default = BY_NAME[flags.pop("default", "float32")]
    if flags.pop("grad_fn", False):
        flags["grad_fn"] = "MulBackward0"
    if flags.pop("meta", False):
        flags.update(device="meta", shape=array.shape)
        array = None
    with printoptions(**options):
        above = "Parameter containing:\n" if flags.pop("is_parameter", False) else ""  # as `Parameter.__repr__` does
        return above + tensor_repr(array, dtype=dtype, default_dtype=default, **flags)


def _torchs(array: np.ndarray, flags: dict, options: dict) -> str:
    import torch

    if flags.get("dtype") == "bfloat16":
        tensor = torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(np.array(array))
    if flags.get("meta"):
        tensor = tensor.to("meta")
    if flags.get("is_parameter"):
        tensor = torch.nn.Parameter(tensor)
    elif flags.get("requires_grad"):
        tensor.requires_grad_()
    elif flags.get("grad_fn"):
        tensor = tensor.requires_grad_() * 1
    torch.set_default_dtype(getattr(torch, flags.get("default", "float32")))
    torch.set_printoptions(**{"profile": "default", **options})
    try:
        return repr(tensor)
    finally:
        torch.set_printoptions(profile="default")
        torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def stored() -> dict[str, str]:
    return json.loads(STORED.read_text())


@pytest.mark.parametrize("name", CASES)
def test_as_stored(name: str, stored: dict[str, str]) -> None:
    assert _ours(*CASES[name]) == stored[name]


def test_every_case_is_stored(stored: dict[str, str]) -> None:
    assert stored.keys() == CASES.keys()


@pytest.mark.oracle
@pytest.mark.parametrize("name", CASES)
def test_as_torch(name: str) -> None:
    assert _ours(*CASES[name]) == _torchs(*CASES[name])


@pytest.mark.oracle
def test_as_torch_random() -> None:
    rng = np.random.default_rng(7)
    kinds = [np.float32, np.float64, np.float16, np.int64, np.uint8, np.bool_, np.complex64]
    for _ in range(300):
        shape = tuple(rng.integers(0 if rng.random() < 0.1 else 1, 12, rng.integers(0, 4)))
        scale = 10.0 ** rng.integers(-6, 9) if rng.random() < 0.5 else 1.0
        values = rng.standard_normal(shape) * scale
        if rng.random() < 0.3:
            values = np.round(values)
        values = np.where(rng.random(shape) < 0.1, rng.choice([0.0, NAN, INF, -0.0]), values)
        kind = kinds[rng.integers(len(kinds))]
        if kind in (np.int64, np.uint8):
            values = np.nan_to_num(values, posinf=0).clip(-(2**62), 2**62)
            values = values % 256 if kind is np.uint8 else values
        with np.errstate(over="ignore"):
            array = np.asarray(values).astype(kind)
        options = {"threshold": 20, "edgeitems": int(rng.integers(0, 4))} if rng.random() < 0.4 else {}
        assert _ours(array, {}, options) == _torchs(array, {}, options), (shape, kind, options)


def test_options_return() -> None:
    before = get_printoptions()
    assert before == {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
    with pytest.raises(KeyError), printoptions(precision=1, sci_mode=True):
        assert OPTIONS.precision == 1 and OPTIONS.sci_mode is True
        raise KeyError
    assert get_printoptions() == before
    set_printoptions(sci_mode=True)
    set_printoptions(precision=3)  # as in PyTorch, sci_mode returns to None
    assert get_printoptions()["sci_mode"] is None
    set_printoptions(profile="default")
    assert get_printoptions() == before


class _Watched(np.ndarray):
    """Counts the elements that become Python numbers."""

    read = 0

    def tolist(self):
        _Watched.read += self.size
        return super().tolist()


@pytest.mark.parametrize("shape", [(10**8,), (1000, 100_000), (100, 100, 10_000)])
def test_reads_only_what_it_shows(shape: tuple[int, ...]) -> None:
    # Half a terabyte would be read if it were touched: the array is one element seen many times.
    array = np.broadcast_to(np.array(0.5, np.float32), shape).view(_Watched)
    _Watched.read = 0
    text = tensor_repr(array, dtype=FLOAT32, default_dtype=FLOAT32)
    assert text.startswith("tensor([") and "..." in text
    assert _Watched.read == 6 ** len(shape)


def test_subclass_and_tangent() -> None:
    one = np.array([1.0])
    assert tensor_repr(one, dtype=FLOAT64, default_dtype=FLOAT64, type_name="Mine") == "Mine([1.])"
    text = tensor_repr(one, dtype=FLOAT64, default_dtype=FLOAT32, tangent="tensor([2.])")
    assert text == "tensor([1.], dtype=torch.float64, tangent=tensor([2.]))"


if __name__ == "__main__":
    STORED.write_text(json.dumps({name: _torchs(*case) for name, case in CASES.items()}, indent=0) + "\n")
