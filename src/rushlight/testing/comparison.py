"""`assert_close`: numbers, tensors of any layout, and nests of them, compared within tolerances; a report of how they
differ.

First the two nests are walked side by side and every pair of leaves becomes a `Pair`; what does not fit (lengths, keys,
types) is reported at once.  Then the pairs are compared in order, and the first that differs is reported.
"""

from __future__ import annotations

import cmath
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import rushlight
from rushlight import Tensor

__all__ = ["assert_allclose", "assert_close", "default_tolerances"]

_FLOAT32 = (1.3e-6, 1e-5)
# (rtol, atol); what is not here is compared for equality
_TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": _FLOAT32, "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5), "complex64": _FLOAT32, "complex128": (1e-7, 1e-7),
    "quint8": _FLOAT32, "quint2x4": _FLOAT32, "quint4x2": _FLOAT32, "qint8": _FLOAT32, "qint32": _FLOAT32,
}  # fmt: skip
# Too coarse for a distance: these agree when they are the same number.
_COARSE = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2")
_NUMBERS = {int: "int64", float: "float64", complex: "complex128"}
_COMPRESSED = {
    "sparse_csr": ("CSR", "crow_indices", "col_indices"),
    "sparse_bsr": ("BSR", "crow_indices", "col_indices"),
    "sparse_csc": ("CSC", "ccol_indices", "row_indices"),
    "sparse_bsc": ("BSC", "ccol_indices", "row_indices"),
}


@dataclass(frozen=True)
class Rules:
    """The rules of a call of `assert_close`."""

    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool


@dataclass(frozen=True)
class Pair:
    """Two leaves at one place of the nests, with the tolerances that apply to them."""

    actual: Any
    expected: Any
    place: str
    rules: Rules
    rtol: float = 0.0
    atol: float = 0.0


class Mismatch(AssertionError):
    """A difference, before the user's `msg` has its say."""


def _located(text: str, place: str) -> str:
    return f"{text}\n\nThe failure occurred for item {place}" if place else text


def _tolerances(rules: Rules, place: str, *names: str) -> tuple[float, float]:
    """Those given, or the largest of the dtypes' own."""
    if (rules.rtol is None) is not (rules.atol is None):
        missing = "rtol" if rules.rtol is None else "atol"
        text = f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
        raise ValueError(_located(text, place))
    if rules.rtol is not None and rules.atol is not None:
        return rules.rtol, rules.atol
    return default_tolerances(*names)


def default_tolerances(*names: str) -> tuple[float, float]:
    """(rtol, atol) of dtypes by their names: the largest of each."""
    own = [_TOLERANCES.get(name, (0.0, 0.0)) for name in names]
    return max(r for r, _ in own), max(a for _, a in own)


# ***** walking: from nests to pairs *****


def _numpy_types(*names: str) -> tuple[type, ...]:
    """Types of NumPy, if the program has loaded it: nobody else can hold a value of them."""
    numpy = sys.modules.get("numpy")
    return tuple(getattr(numpy, name) for name in names) if numpy is not None else ()


def _related(actual: Any, expected: Any, rules: Rules) -> bool:
    if not rules.allow_subclasses:
        return type(actual) is type(expected)
    return isinstance(actual, type(expected)) or isinstance(expected, type(actual))


def _no_pair(actual: Any, expected: Any, place: str) -> TypeError:
    text = f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}."
    return TypeError(_located(text, place))


def _plain(value: Any) -> Any:
    """A NumPy number as Python's."""
    numbers: Any = _numpy_types("number")
    return value.item() if isinstance(value, numbers) else value


def _number_pair(actual: Any, expected: Any, place: str, rules: Rules) -> Pair:
    for value in (actual, expected):
        if isinstance(value, bool):
            # neither a number nor, beside one, a truth value: PyTorch gives up in the same way
            raise RuntimeError(
                _located(
                    f"assert_close: cannot compare {actual!r} with {expected!r}: one is a bool, one a number", place
                )
            )
    actual, expected = _plain(actual), _plain(expected)
    names = [next(name for kind, name in _NUMBERS.items() if isinstance(v, kind)) for v in (actual, expected)]
    return Pair(actual, expected, place, rules, *_tolerances(rules, place, *names))


def _leaf(actual: Any, expected: Any, place: str, rules: Rules) -> Pair:
    """The pair of two leaves: anything and None, truth values, numbers, or tensors."""
    if actual is None or expected is None:
        return Pair(actual, expected, place, rules)
    booleans = (bool, *_numpy_types("bool_"))
    if isinstance(actual, booleans) and isinstance(expected, booleans):
        return Pair(bool(actual), bool(expected), place, rules)
    numbers = (int, float, complex, *_numpy_types("number"))
    if isinstance(actual, numbers) and isinstance(expected, numbers):
        return _number_pair(actual, expected, place, rules)
    if not _related(actual, expected, rules):
        raise _no_pair(actual, expected, place)
    try:
        tensors = [v if isinstance(v, Tensor) else rushlight.as_tensor(v) for v in (actual, expected)]
    except Exception:  # `as_tensor` calls methods of the values
        raise _no_pair(actual, expected, place) from None
    tensors = _parts_of(*tensors)
    tolerances = _tolerances(rules, place, *(t.dtype.name for t in tensors))
    return Pair(tensors[0], tensors[1], place, rules, *tolerances)


def _parts_of(actual: Any, expected: Any) -> list[Any]:
    """The local tensors of two that are spread over processes alike; other tensors as they are."""
    spread = [hasattr(x, "placements") and hasattr(x, "device_mesh") for x in (actual, expected)]
    if not any(spread):
        return [actual, expected]
    if not all(spread):
        raise TypeError(
            "Comparing a DTensor to a non-DTensor is ambiguous. Call .full_tensor() to compare the full logical tensor"
            " or .to_local() to compare the local shard."
        )
    for name, text in (("placements", "placements"), ("device_mesh", "device meshes")):
        here, there = getattr(actual, name), getattr(expected, name)
        if here != there:
            raise AssertionError(f"DTensor {text} do not match: {here} != {there}")
    return [actual.to_local(), expected.to_local()]


def _pairs(actual: Any, expected: Any, place: str, rules: Rules) -> Iterator[Pair]:
    if _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            text = f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
            raise AssertionError(_located(text, place))
        for i in range(len(actual)):
            yield from _pairs(actual[i], expected[i], f"{place}[{i!r}]", rules)
    elif isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if missing_or_more := set(actual) ^ set(expected):
            missing, more = (sorted(missing_or_more & set(side)) for side in (expected, actual))
            text = (
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {missing}\nAdditional keys in the actual mapping: {more}"
            )
            raise AssertionError(_located(text, place))
        for key in _in_order(actual):
            yield from _pairs(actual[key], expected[key], f"{place}[{key!r}]", rules)
    else:
        yield _leaf(actual, expected, place, rules)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _in_order(keys: Any) -> list[Any]:
    try:
        return sorted(keys)
    except TypeError:
        return list(keys)


# ***** comparing a pair *****


def _allowed(tolerance: float, exact: bool) -> str:
    return "" if exact else f" (up to {tolerance} allowed)"


def _number_report(pair: Pair, what: str, actual: Any, expected: Any) -> str:
    exact = pair.rtol == 0 and pair.atol == 0
    difference = abs(actual - expected)
    relative = math.inf if expected == 0 else difference / abs(expected)
    return (
        f"{what} are not {'equal' if exact else 'close'}!\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {difference}{_allowed(pair.atol, exact)}\n"
        f"Relative difference: {relative}{_allowed(pair.rtol, exact)}"
    )


def _compare_numbers(pair: Pair) -> None:
    actual, expected = pair.actual, pair.expected
    if pair.rules.check_dtype and type(actual) is not type(expected):
        raise Mismatch(f"The (d)types do not match: {type(actual)} != {type(expected)}.")
    if actual == expected or (pair.rules.equal_nan and cmath.isnan(actual) and cmath.isnan(expected)):
        return
    difference = abs(actual - expected)
    if not (math.isfinite(difference) and difference <= pair.atol + pair.rtol * abs(expected)):
        raise Mismatch(_number_report(pair, "Scalars", actual, expected))


def _attribute(name: str, actual: Any, expected: Any) -> Mismatch:
    return Mismatch(f"The values for attribute '{name}' do not match: {actual} != {expected}.")


def _compare_attributes(pair: Pair) -> None:
    actual, expected, rules = pair.actual, pair.expected, pair.rules
    strided = rushlight.strided
    asked = [
        ("shape", True, lambda t: t.shape),
        ("is_quantized", True, lambda t: t.is_quantized),
        ("qscheme()", actual.is_quantized and expected.is_quantized, lambda t: t.qscheme()),
        ("layout", rules.check_layout, lambda t: t.layout),
        ("stride()", rules.check_stride and actual.layout is strided is expected.layout, lambda t: t.stride()),
        ("device", rules.check_device, lambda t: t.device),
        ("dtype", rules.check_dtype, lambda t: t.dtype),
    ]
    for name, wanted, get in asked:
        if wanted and (ours := get(actual)) != (theirs := get(expected)):
            raise _attribute(name, ours, theirs)


def _alike(pair: Pair) -> Pair:
    """The two on one device, of one dtype, in one layout."""
    actual, expected = pair.actual, pair.expected
    if actual.device != expected.device:
        actual, expected = actual.cpu(), expected.cpu()
    if actual.dtype != expected.dtype:
        dtype = rushlight.promote_types(actual.dtype, expected.dtype)
        actual, expected = actual.to(dtype), expected.to(dtype)
    if actual.layout != expected.layout:
        actual, expected = (t if t.layout == rushlight.strided else t.to_dense() for t in (actual, expected))
    return replace(pair, actual=actual, expected=expected)


def _compare_tensors(pair: Pair) -> None:
    _compare_attributes(pair)
    if any(t.device.type == "meta" for t in (pair.actual, pair.expected)):
        return
    pair = _alike(pair)
    actual, expected = pair.actual, pair.expected
    layout = str(actual.layout).removeprefix("torch.")
    if actual.is_quantized:
        _compare_values(
            replace(pair, actual=actual.dequantize(), expected=expected.dequantize()), "Quantized tensor-likes"
        )
    elif layout == "sparse_coo":
        _compare_members(pair, "COO", ("_indices",), "_values")
    elif layout in _COMPRESSED:
        name, *indices = _COMPRESSED[layout]
        _compare_members(pair, name, indices, "values")
    else:
        _compare_values(pair)


def _compare_members(pair: Pair, name: str, indices: Sequence[str], values: str) -> None:
    """Sparse tensors: as many elements, the same indices, values that are close."""
    actual, expected = pair.actual, pair.expected
    if actual._nnz() != expected._nnz():
        raise Mismatch(
            f"The number of specified values in sparse {name} tensors does not match: {actual._nnz()} != {expected._nnz()}"
        )
    for method in indices:
        member = replace(pair, actual=getattr(actual, method)(), expected=getattr(expected, method)(), rtol=0, atol=0)
        _compare_values(member, f"Sparse {name} {method.removeprefix('_')}")
    member = replace(pair, actual=getattr(actual, values)(), expected=getattr(expected, values)())
    _compare_values(member, f"Sparse {name} values")


def _compare_values(pair: Pair, what: str | None = None) -> None:
    actual, expected = pair.actual.detach(), pair.expected.detach()
    coarse = actual.dtype.name in _COARSE
    if coarse and actual.dim() > 0:
        _compare_coarse(pair, what or "Tensor-likes")
        return
    if coarse:
        actual, expected = actual.float(), expected.float()
    matches = rushlight.isclose(actual, expected, rtol=pair.rtol, atol=pair.atol, equal_nan=pair.rules.equal_nan)
    if bool(matches.all()):
        return
    if actual.dim() == 0:
        raise Mismatch(_number_report(pair, what or "Scalars", actual.item(), expected.item()))
    raise Mismatch(_tensor_report(pair, what or "Tensor-likes", actual, expected, matches))


def _compare_coarse(pair: Pair, what: str) -> None:
    """Floats of eight bits and fewer: no tolerance, and no place in them for the report's differences."""
    if pair.rtol != 0 or pair.atol != 0:
        raise Mismatch(
            f"Rtol={pair.rtol} and atol={pair.atol} are not supported for bitwise comparison of low dimensional floats. "
            "Please use rtol=0.0 and atol=0.0."
        )
    actual, expected = pair.actual.detach().float(), pair.expected.detach().float()
    different = actual != expected
    if pair.rules.equal_nan:
        different = different & ~(actual.isnan() & expected.isnan())
    if bool(different.any()):
        first = different.flatten().to(rushlight.uint8).argmax()
        raise Mismatch(
            f"{what} are not 'equal'!\n\n{_counted(~different)}\n"
            f"The first mismatched element is at index {_unravel(int(first), different.shape)}."
        )


def _counted(matches: Any) -> str:
    total = matches.numel()
    wrong = total - int(matches.sum())
    return f"Mismatched elements: {wrong} / {total} ({wrong / total:.1%})"


def _unravel(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        flat, at = divmod(flat, size)
        index.append(at)
    return tuple(reversed(index))


def _tensor_report(pair: Pair, what: str, actual: Any, expected: Any, matches: Any) -> str:
    exact = pair.rtol == 0 and pair.atol == 0
    if not (actual.dtype.is_floating_point or actual.dtype.is_complex):
        # differences of narrow and unsigned integers need room
        actual, expected = actual.to(rushlight.int64), expected.to(rushlight.int64)

    def greatest(name: str, differences: Any, tolerance: float) -> str:
        differences = differences.masked_fill(matches, 0)
        flat = int(differences.flatten().argmax())
        value = differences.flatten()[flat].item()
        return (
            f"Greatest {name} difference: {value} at index {_unravel(flat, matches.shape)}{_allowed(tolerance, exact)}"
        )

    difference = (actual - expected).abs()
    lines = [
        f"{what} are not {'equal' if exact else 'close'}!\n",
        _counted(matches),
        greatest("absolute", difference, pair.atol),
        greatest("relative", difference / expected.abs(), pair.rtol),
    ]
    return "\n".join(lines)


def _compare(pair: Pair) -> None:
    """Raise Mismatch, its place in the nest included, where two leaves differ."""
    actual, expected = pair.actual, pair.expected
    try:
        if actual is None or expected is None:
            if actual is not expected:
                raise Mismatch(f"None mismatch: {actual} is not {expected}")
        elif isinstance(actual, Tensor):
            _compare_tensors(pair)
        elif isinstance(actual, bool):
            if actual is not expected:
                raise Mismatch(f"Booleans mismatch: {actual} is not {expected}")
        else:
            _compare_numbers(pair)
    except Mismatch as mismatch:
        # PyTorch does not say where a truth value stood
        place = "" if isinstance(actual, bool) and expected is not None else pair.place
        raise Mismatch(_located(str(mismatch), place)) from None
    except Exception as error:
        text = f"assert_close: comparing {actual!r} with {expected!r} failed: {type(error).__name__}: {error}"
        raise RuntimeError(_located(text, pair.place)) from error


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """AssertionError unless |actual - expected| <= atol + rtol |expected| for every number of two tensors, numbers, or
    nests of them.

    Sequences are compared item by item and mappings key by key.  Leaves are tensors, NumPy arrays, and numbers; tensors
    of all layouts, quantized ones too (by their dequantized values).  Of tensors the shapes must agree, and unless a
    `check_...` is False also device, dtype and layout; with `check_stride=True` the strides.  For meta tensors that is
    all.  Infinities are close to themselves, NaN to nothing, or to NaN with `equal_nan=True`.

    `rtol` and `atol` are given both or not at all.  Otherwise the larger of the two dtypes' own count: float16 and
    complex32 1e-3 and 1e-5, bfloat16 1.6e-2 and 1e-5, float32, complex64 and quantized 1.3e-6 and 1e-5, float64 and
    complex128 1e-7 and 1e-7, and 0 for all others.  Python's int, float and complex count as int64, float64 and
    complex128.

    The message says how many elements differ and where the differences are greatest; `msg` replaces it, or makes a new
    one of it when it is a function.  TypeError for what cannot be compared, ValueError for one tolerance without the
    other.

        >>> torch.testing.assert_close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]))
        Traceback (most recent call last):
        ...
        AssertionError: Tensor-likes are not close!
        <BLANKLINE>
        Mismatched elements: 1 / 2 (50.0%)
        Greatest absolute difference: 0.5 at index (1,) (up to 1e-05 allowed)
        Greatest relative difference: 0.20000000298023224 at index (1,) (up to 1.3e-06 allowed)
    """
    rules = Rules(allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride)
    # all pairs are made before the first is compared: what does not fit is said first
    for pair in list(_pairs(actual, expected, "", rules)):
        try:
            _compare(pair)
        except Mismatch as mismatch:
            text = str(mismatch)
            raise AssertionError(msg(text) if callable(msg) else msg if isinstance(msg, str) else text) from None


# (rtol, atol) of the older function
_OLDER = {"float16": (1e-3, 1e-3), "float32": (1e-4, 1e-5), "float64": (1e-5, 1e-8)}


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """`assert_close` without a look at dtypes, with wider tolerances, and with NaN equal to NaN.  Deprecated.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     torch.testing.assert_allclose(torch.tensor([1.0]), [1.00001])
    """
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a future release. Please use "
        "`torch.testing.assert_close()` instead. You can find detailed upgrade instructions in "
        "https://github.com/pytorch/pytorch/issues/61844.",
        FutureWarning,
        stacklevel=2,
    )
    actual = actual if isinstance(actual, Tensor) else rushlight.tensor(actual)
    expected = expected if isinstance(expected, Tensor) else rushlight.tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        own = [_OLDER.get(t.dtype.name, (0.0, 0.0)) for t in (actual, expected)]
        rtol, atol = max(r for r, _ in own), max(a for _, a in own)
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=True, check_dtype=False, check_stride=False,
        msg=msg or None,
    )  # fmt: skip
