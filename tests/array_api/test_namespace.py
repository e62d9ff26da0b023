"""The namespace itself: names and signatures of the standard, inspection, dtypes, and what tensors say of themselves."""

from __future__ import annotations

import inspect
import math
import operator

import numpy as np
import pytest
from tests.array_api.arrays import ALL, INTEGER, NUMERIC, REAL, join, kind, numbers, ours, same

import rushlight as torch
import rushlight.array_api as xp

pytest.importorskip("numpy", minversion="2.1")

# Function: its parameters in the standard's words. "/" ends what is positional only, "*" begins what is keyword only.
SIGNATURES = {
    **dict.fromkeys("abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan log log10 log1p log2 logical_not negative positive real reciprocal round sign signbit sin sinh sqrt square tan tanh trunc nonzero unique_all unique_counts unique_inverse unique_values matrix_transpose linalg.det linalg.eigh linalg.eigvalsh linalg.inv linalg.slogdet linalg.svdvals".split(), "x /"),
    **dict.fromkeys("add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal pow remainder subtract matmul linalg.outer linalg.solve".split(), "x1 x2 /"),
    **dict.fromkeys(("all", "any", "argmax", "argmin", "count_nonzero", "max", "mean", "min"), "x / * axis keepdims"),
    **dict.fromkeys(("sum", "prod"), "x / * axis dtype keepdims"),
    **dict.fromkeys(("std", "var"), "x / * axis correction keepdims"),
    **dict.fromkeys(("cumulative_sum", "cumulative_prod"), "x / * axis dtype include_initial"),
    **dict.fromkeys(("sort", "argsort"), "x / * axis descending stable"),
    **dict.fromkeys(("empty", "ones", "zeros"), "shape * dtype device"),
    **dict.fromkeys(("empty_like", "ones_like", "zeros_like"), "x / * dtype device"),
    **{f"fft.{n}": "x / * n axis norm" for n in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{f"fft.{n}": "x / * s axes norm" for n in ("fftn", "ifftn", "rfftn", "irfftn")},
    **{f"fft.{n}": "n / * d dtype device" for n in ("fftfreq", "rfftfreq")},
    **{f"fft.{n}": "x / * axes" for n in ("fftshift", "ifftshift")},
    "arange": "start / stop step * dtype device", "asarray": "obj / * dtype device copy", "eye": "n_rows n_cols / * k dtype device",
    "from_dlpack": "x / * device copy", "full": "shape fill_value * dtype device", "full_like": "x / fill_value * dtype device",
    "linspace": "start stop / num * dtype device endpoint", "meshgrid": "*arrays indexing", "tril": "x / * k", "triu": "x / * k",
    "astype": "x dtype / * copy device", "can_cast": "from_ to /", "finfo": "type /", "iinfo": "type /", "isdtype": "dtype kind",
    "result_type": "*arrays_and_dtypes", "clip": "x / min max", "take": "x indices / * axis", "take_along_axis": "x indices / * axis",
    "broadcast_arrays": "*arrays", "broadcast_to": "x / shape", "concat": "arrays / * axis", "expand_dims": "x / axis", "flip": "x / * axis",
    "moveaxis": "x source destination /", "permute_dims": "x / axes", "repeat": "x repeats / * axis", "reshape": "x / shape * copy",
    "roll": "x / shift * axis", "squeeze": "x / axis", "stack": "arrays / * axis", "tile": "x repetitions /", "unstack": "x / * axis",
    "searchsorted": "x1 x2 / * side sorter", "where": "condition x1 x2 /", "diff": "x / * axis n prepend append",
    "tensordot": "x1 x2 / * axes", "vecdot": "x1 x2 / * axis", "linalg.cholesky": "x / * upper", "linalg.cross": "x1 x2 / * axis",
    "linalg.diagonal": "x / * offset", "linalg.matrix_norm": "x / * keepdims ord", "linalg.matrix_power": "x n /",
    "linalg.matrix_rank": "x / * rtol", "linalg.pinv": "x / * rtol", "linalg.qr": "x / * mode", "linalg.svd": "x / * full_matrices",
    "linalg.trace": "x / * offset dtype", "linalg.vector_norm": "x / * axis keepdims ord", "__array_namespace_info__": "",
}  # fmt: skip
NAMES = "e inf nan newaxis pi __array_api_version__ linalg fft".split() + ALL


def words(function: object) -> str:
    """A signature as above."""
    said, last = [], None
    for p in inspect.signature(function).parameters.values():  # type: ignore[arg-type]
        if last is p.POSITIONAL_ONLY and p.kind is not p.POSITIONAL_ONLY:
            said.append("/")
        if p.kind is p.KEYWORD_ONLY and last not in (p.KEYWORD_ONLY, p.VAR_POSITIONAL):
            said.append("*")
        said.append("*" + p.name if p.kind is p.VAR_POSITIONAL else p.name)
        last = p.kind
    return " ".join([*said, "/"] if last is inspect.Parameter.POSITIONAL_ONLY else said)


def test_signatures() -> None:
    for name, want in SIGNATURES.items():
        function = operator.attrgetter(name)(xp)
        assert words(function) == want, name
        assert function.__doc__, name
    for name in ("matmul", "tensordot", "vecdot", "matrix_transpose"):
        assert getattr(xp.linalg, name) is getattr(xp, name)


def test_all_names_are_there_and_no_others() -> None:
    core = {n for n in SIGNATURES if "." not in n} | set(NAMES)
    assert set(xp.__all__) == core and all(hasattr(xp, n) for n in core)
    for part in ("linalg", "fft"):
        names = {n.partition(".")[2] for n in SIGNATURES if n.startswith(part + ".")}
        assert names <= set(getattr(xp, part).__all__)
    assert math.isnan(xp.nan) and (xp.e, xp.pi, xp.inf, xp.newaxis) == (math.e, math.pi, math.inf, None)


def test_namespace_of_a_tensor() -> None:
    x = torch.ones(2)
    assert x.__array_namespace__() is xp is torch.array_api
    for version in ("2021.12", "2022.12", "2023.12", "2024.12", None):
        assert x.__array_namespace__(api_version=version) is xp
    with pytest.raises(ValueError, match="found '2020.01'"):
        x.__array_namespace__(api_version="2020.01")
    assert x.to_device("cpu") is x and x.to_device(torch.device("cpu")).device == x.device
    with pytest.raises(ValueError, match="expected no stream"):
        x.to_device("cpu", stream=1)
    assert words(torch.Tensor.to_device) == "self device / * stream"
    assert x.__dlpack_device__() == (1, 0)


def test_inspection() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert info.default_device() in info.devices()
    assert info.default_dtypes() == {
        "real floating": xp.float32, "complex floating": xp.complex64, "integral": xp.int64, "indexing": xp.int64,
    }  # fmt: skip
    assert list(info.dtypes()) == [
        *["bool"],
        *["int8", "int16", "int32", "int64"],
        *["uint8", "uint16", "uint32", "uint64"],
        *ALL[9:],
    ]
    assert list(info.dtypes(kind="unsigned integer")) == ["uint8", "uint16", "uint32", "uint64"]
    assert list(info.dtypes(kind=("bool", "complex floating"))) == ["bool", "complex64", "complex128"]


def test_promotion() -> None:
    for a in ALL:
        for b in ALL:
            ours_a, ours_b = getattr(xp, a), getattr(xp, b)
            if join(a, b):
                want = np.result_type(a, b)
                assert xp.result_type(ours_a, ours_b) is getattr(xp, want.name), (a, b)
                assert xp.can_cast(ours_a, ours_b) == (want == np.dtype(b)), (a, b)
                array = xp.asarray(1, dtype=ours_a)  # arrays without dims count like all others
                assert xp.result_type(array, xp.ones(2, dtype=ours_b)) is getattr(xp, want.name)
    assert not xp.can_cast(xp.uint64, xp.int8)
    assert xp.result_type(xp.uint8, 1, True) is xp.uint8 and xp.result_type(xp.int8, 1.0) is xp.float32
    assert xp.result_type(xp.float64, 1j) is xp.complex128 and xp.result_type(xp.bool, 1) is xp.int64
    for wrong, error in (
        ((1, 2.0), ValueError),
        ((), ValueError),
        (("float32",), TypeError),
        ((xp.uint64, xp.int64), TypeError),
    ):
        with pytest.raises(error):
            xp.result_type(*wrong)


def test_kinds_and_limits() -> None:
    for dtype in ALL:
        for one in (
            "bool",
            "signed integer",
            "unsigned integer",
            "integral",
            "real floating",
            "complex floating",
            "numeric",
        ):
            assert xp.isdtype(getattr(xp, dtype), one) == np.isdtype(np.dtype(dtype), one)
        assert xp.isdtype(getattr(xp, dtype), (xp.bool, "numeric"))
    with pytest.raises(ValueError, match="found 'float'"):
        xp.isdtype(xp.float32, "float")
    for dtype in REAL + ["complex64", "complex128"]:
        found, want = xp.finfo(getattr(xp, dtype)), np.finfo(dtype)
        assert (found.bits, found.eps, found.max, found.min, found.smallest_normal) == (
            want.bits, float(want.eps), float(want.max), float(want.min), float(want.smallest_normal),
        )  # fmt: skip
        assert found.dtype is getattr(xp, want.dtype.name)
    for dtype in INTEGER:
        found, want = xp.iinfo(xp.ones((), dtype=getattr(xp, dtype))), np.iinfo(dtype)
        assert (found.bits, found.max, found.min, found.dtype) == (want.bits, want.max, want.min, getattr(xp, dtype))
    for call in (lambda: xp.finfo(xp.int8), lambda: xp.iinfo(xp.float32), lambda: xp.iinfo(xp.bool)):
        with pytest.raises(TypeError):
            call()


OPERATORS = {
    "add": NUMERIC, "sub": NUMERIC, "mul": NUMERIC, "truediv": ALL[9:], "floordiv": INTEGER, "mod": INTEGER, "pow": NUMERIC,
    "and_": ALL[:9], "or_": ALL[:9], "xor": ALL[:9], "lshift": INTEGER, "rshift": INTEGER, "eq": ALL, "ne": ALL,
    "lt": INTEGER + REAL, "le": INTEGER + REAL, "gt": INTEGER + REAL, "ge": INTEGER + REAL,
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_tensors(name: str) -> None:
    """Tensors follow PyTorch; where both operands have one dtype, or one is a number, that is the standard's."""
    act, inplace = getattr(operator, name), getattr(operator, "i" + name.rstrip("_"), None)
    for dtype in OPERATORS[name]:
        x, y = numbers(dtype, (4,), False), numbers(dtype, (4,), False, "right")
        if kind(dtype) == "i":
            x, y = (abs(v % v.dtype.type(5) + v.dtype.type(1)) for v in (x, y))
        number = {"b": True, "i": 3, "f": 2.5, "c": 1.5 + 1j}[kind(dtype)]
        with np.errstate(all="ignore"):
            for left, right in ((x, y), (x, number), (number, x)):
                want = act(left, right)
                same(act(ours(left), ours(right)), want, (name, left, right))
                if inplace is not None and left is x and want.dtype == x.dtype:
                    same(inplace(ours(x.copy()), ours(right)), want, (name, left, right))


def test_operators_on_wide_unsigned_integers() -> None:
    x, y = xp.asarray([1, 2], dtype=xp.uint16), xp.asarray([-1, 5], dtype=xp.int8)
    same(x + y, np.array([0, 7], np.int32))
    same(x < y, np.array([False, True]))
    same(x & xp.asarray([3, 3], dtype=xp.uint32), np.array([1, 2], np.uint32))
    x += xp.asarray([1, 1], dtype=xp.uint8)
    same(x, np.array([2, 3], np.uint16))
    with pytest.raises(RuntimeError, match="Promotion for uint16, uint32, uint64 types is not supported"):
        xp.ones(2, dtype=xp.uint64) + xp.ones(2, dtype=xp.int8)


def test_python_numbers_of_tensors() -> None:
    for dtype in INTEGER:
        x = xp.asarray(7, dtype=getattr(xp, dtype))
        assert (int(x), float(x), complex(x), operator.index(x), [*range(10)][x]) == (7, 7.0, 7 + 0j, 7, 7)
    assert complex(xp.asarray(1 + 2j)) == 1 + 2j and bool(xp.asarray(False)) is False
    with pytest.raises(TypeError):
        operator.index(xp.asarray(1.0))


def test_dlpack_takes_the_words_of_the_protocol() -> None:
    x = xp.asarray([1, 2])
    for copy in (None, True, False):
        for version in (None, (0, 0), (1, 0), (2, 0)):
            assert x.__dlpack__(copy=copy, max_version=version, dl_device=(1, 0)) is not None
