"""Ranges and index matrices: to the bit as PyTorch makes them, and beside NumPy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import rushlight as rl


def bits(x: Any) -> Any:
    return (x.float() if "bfloat16" in str(x.dtype) else x).numpy()


def test_triangles_beside_numpy() -> None:
    for rows, columns in ((3, 5), (5, 3), (1, 4), (0, 2)):
        for offset in (-6, -2, 0, 1, 6):
            np.testing.assert_array_equal(
                rl.tril_indices(rows, columns, offset).numpy(), np.stack(np.tril_indices(rows, offset, columns))
            )
            np.testing.assert_array_equal(
                rl.triu_indices(rows, columns, offset).numpy(), np.stack(np.triu_indices(rows, offset, columns))
            )
    with pytest.raises(NotImplementedError, match="tril_indices"):
        rl.tril_indices(2, 2, dtype=rl.float32)


def test_refused_ranges() -> None:
    with pytest.raises(RuntimeError, match="nonzero"):
        rl.arange(0, 1, 0)
    with pytest.raises(ValueError, match="nonzero"):
        rl.arange(0, 3, 0.5, dtype=rl.int64)
    with pytest.raises(RuntimeError, match="can't be safely cast"):
        rl.linspace(0, 1j, 3, dtype=rl.float32)
    with pytest.raises(NotImplementedError, match="arange_cpu"):
        rl.arange(3, dtype=rl.complex64)
    with pytest.raises(RuntimeError, match="0-dimensional"):
        rl.linspace(rl.tensor(0.0), rl.tensor([1.0]), 3)
    with pytest.raises(RuntimeError, match="does not match dtype of out"):
        rl.linspace(0, 1, 3, dtype=rl.float32, out=rl.empty(3, dtype=rl.float64))


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "int32", "uint8"])
def test_to_the_bit(name: str) -> None:
    torch = pytest.importorskip("torch")
    for start, end, steps in (
        (0.0, 1.0, 50),
        (0.1, 17.0, 7),
        (50.0, 2.5, 33),
        (3.3, 9.0, 1),
        (1.0, 2.0, 0),
        (3.0, 200.0, 101),
    ):
        expected = torch.linspace(start, end, steps, dtype=getattr(torch, name))
        np.testing.assert_array_equal(bits(rl.linspace(start, end, steps, dtype=getattr(rl, name))), bits(expected))
    for arguments in ((5,), (2.5,), (1, 3, 0.8), (0, 5.5, 2), (10, 0, -3)):
        expected = torch.arange(*arguments, dtype=getattr(torch, name))
        np.testing.assert_array_equal(bits(rl.arange(*arguments, dtype=getattr(rl, name))), bits(expected))
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-14}.get(name, 4e-7)
    expected = torch.logspace(0.0, 2.0, 5, 3.0, dtype=getattr(torch, name))
    np.testing.assert_allclose(
        bits(rl.logspace(0.0, 2.0, 5, 3.0, dtype=getattr(rl, name))), bits(expected), rtol=tolerance
    )


@pytest.mark.parametrize("package", ["rushlight", pytest.param("torch", marks=pytest.mark.oracle)])
def test_numbers_that_are_none_are_refused(package: str) -> None:
    """A tensor counts as a number where it has no dims and wants no gradient: that would be lost without a word."""
    torch = pytest.importorskip(package)
    x, number = torch.ones(3), torch.tensor(0.5)
    wanting = torch.tensor(0.5, requires_grad=True)
    calls = [
        lambda v: torch.full((3,), v), lambda v: torch.full_like(x, v), lambda v: x.new_full((3,), v), lambda v: x.clone().normal_(v),
        lambda v: x.clone().uniform_(0, v), lambda v: x.clone().exponential_(v), lambda v: torch.nn.functional.dropout(x, v),
        lambda v: torch.normal(v, 1.0, (3,)), lambda v: torch.norm(x, v).expand(3), lambda v: x.norm(p=v).expand(3),
    ]  # fmt: skip
    for call in calls:
        assert call(number).shape == (3,)
        for value in (wanting, torch.tensor([0.5])):
            with pytest.raises(TypeError, match="must be|invalid combination"):
                call(value)
    for value in (None, "a"):
        for call in calls[:4]:
            with pytest.raises(TypeError, match="must be"):
                call(value)
    assert torch.full_like(x, number).tolist() == [0.5] * 3


NESTED = (
    2.5, 3, True, -1, [], [[], []], [1.0, -0.0, float("inf")], (1, 2), [[1, 2], (3, 4)], [[True], [False]], [[[0.1, 1e300]]], [2**62, -(2**62)],
    [[[[[[[[[1.5]]]]]]]]], [3.5] * 1000, rl.Size([2, 3]), [rl.Size([2, 3])],
)  # fmt: skip


@pytest.mark.parametrize("dtype", [None, "float32", "float64", "int64", "int32", "bool", "float16"])
@pytest.mark.parametrize("data", NESTED, ids=lambda d: repr(d)[:24])
def test_numbers_beside_numpy(data: Any, dtype: str | None) -> None:
    plain = np.array(data)
    if (
        dtype is not None
        and plain.dtype.kind == "f"
        and dtype.startswith("int")
        and not (np.isfinite(plain) & (abs(plain) < 1e9)).all()
    ):
        return  # numbers that the dtype cannot hold are refused elsewhere
    if dtype == "int32" and plain.size and abs(plain).max() > 2**31:
        return
    wanted = dtype or {"f": "float32", "i": "int64", "b": "bool"}[plain.dtype.kind if plain.size else "f"]
    with np.errstate(over="ignore"):
        expected = plain.astype(wanted)
    for _ in range(2):  # made, then by what was kept
        made = rl.tensor(data, dtype=None if dtype is None else getattr(rl, dtype))
        assert str(made.dtype) == f"torch.{wanted}"
        assert made.is_contiguous()
        assert not made.requires_grad
        np.testing.assert_array_equal(made.numpy(), expected)
        np.testing.assert_array_equal(np.signbit(made.numpy()), np.signbit(expected))


def test_numbers_that_are_no_rectangle() -> None:
    for data in ([[1, 2], [3]], [1, [2]], [[1], 2], [[[1.0]], [[2.0, 3.0]]]):
        with pytest.raises((ValueError, TypeError)):
            rl.tensor(data)
    with pytest.raises((ValueError, OverflowError, RuntimeError)):
        rl.tensor([2**63])
    assert rl.tensor([1, 2.5]).tolist() == [1.0, 2.5]
    assert rl.tensor([True, 2]).tolist() == [1, 2]
    with rl.device("meta"):
        assert rl.tensor([1.0, 2.0]).device.type == "meta"
    assert rl.tensor([1.0, 2.0]).device.type == "cpu"


def test_copies_of_arrays() -> None:
    a = np.arange(6, dtype=np.int32).reshape(2, 3)
    for array in (a, a.T, a[:, ::-1], a.astype(">i4"), np.array(7, np.int32), np.broadcast_to(a[0], (4, 3))):
        for _ in range(2):
            for dtype in (None, rl.float64):
                made = rl.tensor(array, dtype=dtype)
                assert made.dtype is (dtype or rl.int32)
                assert made.is_contiguous()
                np.testing.assert_array_equal(made.numpy(), array)
                made.zero_()
    np.testing.assert_array_equal(a, np.arange(6).reshape(2, 3))


def test_fills_with_zero_and_other_ints() -> None:
    for value in (0, 3, 0, -2):
        assert rl.full((2, 2), value).tolist() == [[value, value]] * 2
        assert rl.full_like(rl.ones(2), value).tolist() == [value, value]
    assert rl.full((2,), False).dtype is rl.bool
    assert rl.full((1,), 0j).dtype is rl.complex64


@pytest.mark.parametrize("package", ["rushlight", pytest.param("torch", marks=pytest.mark.oracle)])
def test_limits_cannot_be_changed(package: str) -> None:
    torch = pytest.importorskip(package)
    for limits, name, value in (
        (torch.finfo(torch.float32), "eps", np.finfo("f4").eps),
        (torch.iinfo(torch.int16), "max", 2**15 - 1),
    ):
        with pytest.raises(AttributeError, match="not writable"):
            setattr(limits, name, 0)
        assert getattr(limits, name) == value
        assert limits == type(limits)(getattr(torch, limits.dtype))


@pytest.mark.parametrize(("name", "args", "want"), [
    ("arange", (6,), [0, 1, 2, 3, 4, 5]), ("linspace", (0, 5, 6), [0, 1, 2, 3, 4, 5]), ("logspace", (0, 5, 6, 2), [1, 2, 4, 8, 16, 32]),
    ("range", (0, 5), [0, 1, 2, 3, 4, 5]),
])  # fmt: skip
def test_rows_of_numbers_keep_the_shape_of_out(name: str, args: Any, want: list[int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for out in (rl.zeros(2, 3), rl.zeros(3, 2).t(), rl.zeros(2, 3, dtype=rl.int64)):
            strides = out.stride()
            assert getattr(rl, name)(*args, out=out) is out
            assert out.flatten().tolist() == want and out.shape == (2, 3) and out.stride() == strides
        grown = rl.zeros(0)
        assert getattr(rl, name)(*args, out=grown).tolist() == want


def test_cat_follows_the_format_that_its_operands_suggest() -> None:
    x = rl.zeros(5, 4, 3, 3).to(memory_format=rl.channels_last)
    for made in (rl.cat([x[:, :2], x[:, 2:]], 1), rl.cat([x[::2], x[1::2]])):
        assert made.is_contiguous(memory_format=rl.channels_last)
    empty = rl.zeros(0)
    assert rl.cat([x, empty]).is_contiguous() and rl.cat([empty, empty], 1).shape == (0,)


_FACTORIES: dict[str, Any] = {
    "zeros": ((2, 3),), "empty": ((2, 3),), "full": ((2, 3), 1), "rand": ((2, 3),), "randn": ((2, 3),), "randint": (5, (2, 3)),
    "randperm": (6,), "normal": (0.0, 1.0, (2, 3)), "arange": (6,), "range": (0, 5), "linspace": (0, 1, 6), "eye": (2, 3),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:torch.range")
@pytest.mark.parametrize("name", _FACTORIES)
def test_out_agrees_with_what_a_factory_is_asked_for(name: str) -> None:
    def call(**options: Any) -> Any:
        return getattr(rl, name)(*_FACTORIES[name], **options)

    out = rl.zeros(2, 3)
    for options, word in (({"dtype": rl.float64}, "dtype"), ({"device": "meta"}, "device type")):
        with pytest.raises(RuntimeError, match=f"^{word}.* does not match"):
            call(out=out, **options)
    if name != "full":
        with pytest.raises(RuntimeError, match="layout Sparse does not match layout of out parameter .Strided"):
            call(out=out, layout=rl.sparse_coo)
    assert call(out=out, dtype=rl.float32, layout=rl.strided, device="cpu") is out
    assert name == "normal" or call(out=out, requires_grad=True).requires_grad


def test_sparse_zeros_are_written_to_a_sparse_out() -> None:
    out = rl.ones(2, 3).to_sparse()
    assert rl.zeros(2, 3, layout=rl.sparse_coo, out=out) is out and out._nnz() == 0


def test_a_sequence_that_cannot_be_read_has_no_shape() -> None:
    class Broken:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, place: int) -> float:
            raise KeyError(place)

    for data in (Broken(), [Broken()]):
        with pytest.raises(ValueError, match="could not determine the shape of object type 'Broken'"):
            rl.tensor(data)


def test_asarray_takes_capsules() -> None:
    x = rl.arange(3.0)
    shared = rl.asarray(rl.to_dlpack(x))
    shared += 1
    assert x.tolist() == [1.0, 2.0, 3.0]
    assert rl.asarray(rl.to_dlpack(x), dtype=rl.int64, copy=True).tolist() == [1, 2, 3]


def test_legacy_constructors_refuse_a_tensor_with_a_device() -> None:
    i = rl.tensor([1])
    for make in (rl.Tensor, rl.LongTensor, i.new):
        with pytest.raises(RuntimeError, match="device"):
            make(i, device="cpu")


def test_storage_is_that_of_the_default_dtype() -> None:
    try:
        rl.set_default_dtype(rl.float64)
        assert rl.Storage is rl.DoubleStorage
    finally:
        rl.set_default_dtype(rl.float32)
    assert rl.Storage is rl.FloatStorage


def test_grids_are_of_one_device() -> None:
    with pytest.raises(RuntimeError, match="same device"):
        rl.meshgrid(rl.tensor([1]), rl.tensor([2], device="meta"), indexing="ij")


def test_lists_that_hold_themselves_are_refused_at_once() -> None:
    within: list[object] = []
    within += [within, within]
    other: list[object] = [within]
    within[0] = other
    for data in (within, [within, within], other):
        with pytest.raises(ValueError, match="^too many dimensions 'list'$"):
            rl.tensor(data)
    numbers: list[object] = [1.0]
    numbers.append(numbers)
    for data in (numbers, [1.0, numbers]):
        with pytest.raises((TypeError, ValueError)):
            rl.tensor(data)
    with pytest.raises(TypeError, match=r"^new\(\): self-referential lists are incompatible$"):
        rl.tensor(numbers)
    deep: object = 1.0
    for _ in range(10):
        deep = [deep]
    assert rl.tensor(deep).ndim == 10
