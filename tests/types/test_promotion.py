"""Promotion against PyTorch's own tables, stored in data/promotion.json (and against PyTorch itself where it is installed)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rushlight._types.dtype import BY_NAME, DTYPES, FLOAT32, FLOAT64, INT64
from rushlight._types.promotion import (
    can_cast,
    default_dtype,
    join,
    number_dtype,
    promote,
    result_type,
    set_default_dtype,
)

TABLE = json.loads((Path(__file__).parent.parent / "data" / "promotion.json").read_text())
NUMBERS = {"bool": True, "int": 1, "float": 1.0, "complex": 1j}


@pytest.fixture
def default() -> Iterator[None]:
    yield
    set_default_dtype(FLOAT32)


def found(function) -> str | None:
    """The name of a dtype, or None where the promotion is refused."""
    try:
        return function().name
    except RuntimeError:
        return None


def operands(key: str):
    """`float32[1] int` as ([(dtype, ndim)...], [number dtypes...])."""
    tensors, numbers = [], []
    for word in key.split():
        if word in NUMBERS:
            numbers.append(number_dtype(NUMBERS[word]))
        else:
            tensors.append((BY_NAME[word[:-3]], int(word[-2])))
    return tensors, numbers


def test_promote_types() -> None:
    assert len(TABLE["promote_types"]) == len(DTYPES) ** 2
    for key, want in TABLE["promote_types"].items():
        a, b = (BY_NAME[n] for n in key.split())
        assert found(lambda a=a, b=b: promote(a, b)) == want, key


def test_can_cast() -> None:
    for key, want in TABLE["can_cast"].items():
        a, b = (BY_NAME[n] for n in key.split())
        assert can_cast(a, b) == want, key


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_result_type(name: str, default: None) -> None:
    set_default_dtype(BY_NAME[name])
    for key, want in TABLE["result_type"][name].items():
        tensors, numbers = operands(key)
        assert found(lambda t=tensors, n=numbers: result_type(t, n)) == want, key


def test_default_dtype(default: None) -> None:
    assert default_dtype() is FLOAT32 and number_dtype(1.0) is FLOAT32 and number_dtype(1) is INT64
    set_default_dtype(FLOAT64)
    assert number_dtype(1.0) is FLOAT64 and number_dtype(1j).name == "complex128"
    with pytest.raises(TypeError, match="only floating-point"):
        set_default_dtype(INT64)
    with pytest.raises(TypeError, match="invalid dtype object"):
        set_default_dtype("float64")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="at least one"):
        result_type([], [])
    with pytest.raises(TypeError, match="expected a number, got str"):
        number_dtype("1")


@pytest.mark.oracle
def test_the_stored_table_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    for key, want in TABLE["promote_types"].items():
        a, b = (getattr(torch, n) for n in key.split())
        try:
            got = str(torch.promote_types(a, b)).removeprefix("torch.")
        except RuntimeError:
            got = None
        assert got == want, key


def test_operators_join_wide_unsigned_integers_where_pytorch_refuses() -> None:
    """As NumPy does, where an integer dtype holds the values of both."""
    integers = [d for d in DTYPES if d.kind in "bui"]
    for a in integers:
        for b in integers:
            want = np.result_type(a.name, b.name).name
            if want == "float64":
                with pytest.raises(RuntimeError, match="Promotion for uint16, uint32, uint64"):
                    join(a, b)
                continue
            assert join(a, b).name == want, (a, b)
            assert join(a, b) is result_type([(a, 1), (b, 2)], [], join)
    for a in DTYPES:
        for b in DTYPES:
            if found(lambda a=a, b=b: promote(a, b)) is not None:
                assert join(a, b) is promote(a, b)


def test_elementwise_dtypes_of_prims_common() -> None:
    """Values of PyTorch 2.13."""
    import rushlight as rl
    from rushlight._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Kind
    from rushlight._prims_common import elementwise_dtypes

    half, ints, flag = (rl.ones(2, dtype=d) for d in (rl.float16, rl.int32, rl.bool))
    for args, kind, expected in (
        ((half, 2.5), Kind.DEFAULT, (rl.float32, rl.float16)),
        ((half, None, ints), Kind.NO_OPMATH, (rl.float16, rl.float16)),
        ((ints, True), Kind.INT_TO_FLOAT, (rl.float32, rl.float32)),
        ((half, 1j), Kind.COMPLEX_TO_FLOAT, (rl.complex64, rl.float16)),
        ((flag, True), Kind.BOOL_TO_LONG, (rl.int64, rl.int64)),
        ((ints, half), Kind.ALWAYS_BOOL, (rl.float32, rl.bool)),
    ):
        assert elementwise_dtypes(*args, type_promotion_kind=kind) == expected
    with pytest.raises(ValueError, match="Unexpected type"):
        elementwise_dtypes("x", type_promotion_kind=Kind.DEFAULT)
