"""What the tests of the array API share: dtypes, numbers with the awkward ones among them, and the comparison with NumPy,
which is itself a namespace of the standard and therefore says what is right."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

import rushlight as torch
import rushlight.array_api as xp

SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
INTEGER = SIGNED + UNSIGNED
REAL = ["float32", "float64"]
COMPLEX = ["complex64", "complex128"]
FLOATING = REAL + COMPLEX
NUMERIC = INTEGER + FLOATING
BITS = ["bool", *INTEGER]
ALL = ["bool", *NUMERIC]

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 1e30, -1e-30]


def kind(name: str) -> str:
    """b, i, f or c."""
    return "b" if name == "bool" else "i" if "int" in name else name[0]


def join(a: str, b: str) -> bool:
    """Whether the standard says what two dtypes have in common."""
    same = kind(a) == kind(b) or {kind(a), kind(b)} == {"f", "c"}
    return same and not ("uint64" in (a, b) and "i" in (a[0], b[0]))


def numbers(name: str, shape: Any = (3, 4), special: bool = True, seed: str = "") -> np.ndarray:
    """Numbers of a dtype; with `special` the ends of integers and the specials of floats are among them."""
    rng = np.random.default_rng(zlib.crc32(f"{name}{shape}{seed}".encode()))
    count, dtype = int(np.prod(shape)), np.dtype(name)
    if name == "bool":
        return rng.integers(0, 2, count).astype(bool).reshape(shape)
    if kind(name) == "i":
        ends = np.iinfo(dtype)
        made = rng.integers(max(ends.min, -9), 10, count).astype(dtype)
        if special and count > 1:
            made[0], made[1] = ends.max, ends.min
    elif kind(name) == "f":
        made = (rng.standard_normal(count) * 3).astype(dtype)
        if special:
            where = rng.random(count) < 0.5
            made[where] = np.array(SPECIAL, dtype)[rng.integers(0, len(SPECIAL), count)][where]
    else:
        made = (rng.standard_normal(count) * 2 + 1j * rng.standard_normal(count)).astype(dtype)
    return made.reshape(shape)


def same(got: Any, want: Any, about: Any = "", tolerance: float | None = None) -> None:
    """`got` (ours, or several) has the shape, dtype and values of `want`; zeros have their signs."""
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want), about
        for g, w in zip(got, want, strict=True):
            same(g, w, about, tolerance)
        return
    assert isinstance(got, torch.Tensor), (about, type(got))
    found, want = got.numpy(), np.asarray(want)
    assert found.shape == want.shape, (about, found.shape, want.shape)
    assert found.dtype == want.dtype, (about, found.dtype, want.dtype)
    if want.dtype.kind not in "fc":
        np.testing.assert_array_equal(found, want, str(about))
        return
    narrow = want.dtype in (np.float32, np.complex64)
    eps = tolerance or (3e-5 if narrow else 1e-11)
    np.testing.assert_allclose(found, want, rtol=eps, atol=eps, err_msg=str(about))
    if want.dtype.kind == "f":
        zeros = (found == 0) & (want == 0)
        np.testing.assert_array_equal(np.signbit(found)[zeros], np.signbit(want)[zeros], str(about))


def agree(
    name: str, *args: Any, space: tuple[Any, Any] = (xp, np), tolerance: float | None = None, **keywords: Any
) -> None:
    """Our function and NumPy's of the same name give the same for the same arguments (NumPy's arrays become ours)."""
    with np.errstate(all="ignore"):
        want = getattr(space[1], name)(*args, **keywords)
    got = getattr(space[0], name)(*[ours(a) for a in args], **{k: ours(v) for k, v in keywords.items()})
    same(got, want, (name, args, keywords), tolerance)


def ours(value: Any) -> Any:
    """NumPy's arrays and dtypes as ours, also inside lists; anything else as it is."""
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [ours(v) for v in value]
    if isinstance(value, np.dtype):
        return getattr(xp, value.name)
    return xp.asarray(value) if isinstance(value, np.ndarray) else value
