"""Masks: what they select, around the edges of words and pieces, for all densities and element sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("share", [0, 0.01, 0.1, 0.5, 0.9, 1])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000, 65536, 65537, 150003])
def test_masks_of_one_dim(size, share):
    mask = RNG.random(size) < share
    given = torch.from_numpy(mask.copy())
    np.testing.assert_array_equal(given.nonzero().numpy()[:, 0], np.nonzero(mask)[0])
    for dtype in ("int8", "int16", "float32", "float64", "complex128"):
        a = (RNG.normal(size=size) * 50).astype(dtype)
        np.testing.assert_array_equal(torch.from_numpy(a.copy())[given].numpy(), a[mask])


@pytest.mark.parametrize("shape", [(300, 400), (30, 7, 40, 11), (300, 3, 1), (1, 1), (40000, 2)])
def test_masks_of_several_dims(shape):
    mask = RNG.random(shape) < 0.4
    a = RNG.normal(size=shape)
    given = torch.from_numpy(mask.copy())
    np.testing.assert_array_equal(given.nonzero().numpy(), np.argwhere(mask))
    np.testing.assert_array_equal(torch.from_numpy(a)[given].numpy(), a[mask])


@pytest.mark.parametrize(
    "shape", [(3,), (4, 5), (2, 3, 4), (1, 1, 5, 3), (2, 1, 1), (1,) * 20 + (3, 2), (2, *(1,) * 40, 3)]
)
@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_small_masks(shape, share):
    mask = RNG.random(shape) < share
    expected = np.argwhere(mask.squeeze()) if len(shape) > 32 else np.argwhere(mask)
    for given in (
        torch.from_numpy(mask.copy()),
        torch.from_numpy(mask.astype("float32") * -2.5),
        torch.from_numpy(mask.astype("int16")).float().requires_grad_(),
    ):
        found, columns = given.nonzero().numpy(), [c.numpy() for c in torch.where(given)]
        assert found.shape == (mask.sum(), len(shape)) and not given.nonzero().requires_grad
        np.testing.assert_array_equal(found, np.stack(columns, 1))
        np.testing.assert_array_equal(found[:, [0, -1]] if len(shape) > 32 else found, expected)


def test_any_byte_that_is_not_zero_is_true():
    values = RNG.integers(0, 256, 1000).astype(np.uint8)
    np.testing.assert_array_equal(torch.from_numpy(values.copy()).nonzero().numpy()[:, 0], np.nonzero(values)[0])


@pytest.mark.parametrize(("size", "count"), [(1, 1), (3, 5), (4, 4), (10, 1000), (1000, 7), (50, 33)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "complex64"])
def test_scatters_in_the_order_of_elements(size, count, dtype):
    x, v = ((RNG.normal(size=(6, n)) * 5).astype(dtype) for n in (size, count))
    places = RNG.integers(0, size, (6, count))
    added, written = x.copy(), x.copy()
    np.add.at(added, (np.arange(6)[:, None], places), v)
    for r in range(6):
        for c in range(count):
            written[r, places[r, c]] = v[r, c]
    given, index, source = (torch.from_numpy(a.copy()) for a in (x, places, v))
    np.testing.assert_allclose(given.scatter_add(1, index, source).numpy(), added, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(given.scatter(1, index, source).numpy(), written)
    index[3, count // 2] = size
    with pytest.raises(RuntimeError, match="out of bounds"):
        given.scatter_add(1, index, source)


# ***** indices that do not come back *****


def _any_index(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """A tuple of ints, slices and at most one `...`, or one of them alone."""
    items: list[Any] = []
    for n in shape[: rng.integers(len(shape) + 1)]:
        kind = rng.integers(4)
        bounds = [None if rng.integers(4) == 0 else int(rng.integers(-n - 2, n + 3)) for _ in range(2)]
        items.append(
            int(rng.integers(-n, n))
            if kind == 0
            else slice(*bounds)
            if kind < 3
            else slice(*bounds, int(rng.integers(1, 4)))
        )
    if rng.integers(3) == 0:
        items.insert(int(rng.integers(len(items) + 1)), ...)
        behind = len(items) - 1 - items.index(...)
        if behind:  # what comes after it counts from the last dim
            items[-behind:] = [
                int(rng.integers(-n, n)) if rng.integers(2) else slice(n // 2, None) for n in shape[-behind:]
            ]
    return items[0] if len(items) == 1 and rng.integers(2) else tuple(items)


def test_parts_are_the_same_before_and_after_they_have_a_plan() -> None:
    rng = np.random.default_rng(5)
    memory = np.arange(3.0 * 5 * 4 * 2).reshape(3, 5, 4, 2)
    whole = torch.tensor(memory)
    kinds = [
        (memory, whole), (memory.transpose(2, 0, 3, 1), whole.permute(2, 0, 3, 1)), (memory[1, ::2], whole[1, ::2]),
        (np.broadcast_to(memory[:1], (6, 5, 4, 2)), whole[:1].expand(6, 5, 4, 2)), (memory[:, 2:2], whole[:, 2:2]),
    ]  # fmt: skip
    for _ in range(400):
        array, x = kinds[rng.integers(len(kinds))]
        index = _any_index(rng, tuple(n or 1 for n in array.shape))
        try:
            expected = array[index]
        except IndexError:
            with pytest.raises(IndexError, match="out of bounds"):
                x[index]
            continue
        found = [x[index] for _ in range(7)]  # the last ones by a plan
        found.append(
            x[tuple([torch.tensor(i) if type(i) is int else i for i in index])]
            if isinstance(index, tuple)
            else x[index]
        )
        assert all(np.array_equal(part.numpy(), expected) and part._base is whole for part in found)
        assert {(part.shape, part.stride(), part.storage_offset()) for part in found} == {
            (found[-1].shape, found[-1].stride(), found[-1].storage_offset())
        }


def test_parts_are_written_before_and_after_they_have_a_plan() -> None:
    rng = np.random.default_rng(6)
    array, x = np.zeros((4, 6, 5), np.float32), torch.zeros(4, 6, 5)
    for turn in range(300):
        index = _any_index(rng, array.shape)
        for _ in range(6 if turn % 10 == 0 else 1):
            value: Any = [2.5, 3, True, torch.tensor(4.0), "part"][rng.integers(5)]
            if isinstance(value, str):
                value = torch.rand(x[index].shape, dtype=torch.float64)
            version = x._version
            given = (
                tuple([torch.tensor(i) if type(i) is int else i for i in index])
                if isinstance(index, tuple) and turn % 2
                else index
            )
            x[given] = value
            array[index] = np.asarray(value)
            assert x._version == version + 1
        np.testing.assert_array_equal(x.numpy(), array)
    with pytest.raises(RuntimeError, match="expand|broadcast|size"):
        x[1, 2:4] = torch.ones(3, 3)
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 1 with size 6"):
        x[0, 7] = 1


def test_autograd_knows_of_parts_without_a_plan() -> None:
    w = torch.ones(6, requires_grad=True)
    saved = torch.zeros(6)
    loss = (w * saved).sum()
    saved[1:5][2] = 1.0
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation[\s\S]*test_selecting\.py"):
        loss.backward()
    buffer = torch.zeros(4, 6)
    part = buffer[2, 1:4]
    buffer[2, 1:4] = w[:3] * 2  # the base gets a history, and with it what was taken before
    assert part.requires_grad and part.grad_fn is not None
    part.sum().backward()
    assert w.grad.tolist() == [2.0] * 3 + [0.0] * 3
    with torch.no_grad():
        assert w[3:5].requires_grad and w[3:5].grad_fn is None
    with pytest.raises(RuntimeError, match="no_grad mode"), torch.no_grad():
        inside = w[1:3]
        with torch.enable_grad():
            inside += 1
    with torch.inference_mode():
        made = torch.zeros(3)[1:]
        assert made.is_inference()
    assert torch.func.vmap(lambda row: row[2:4])(buffer.detach()).shape == (4, 2)
    assert torch.func.grad(lambda v: v[5].sum())(torch.ones(6)).tolist() == [0.0] * 5 + [1.0]


@pytest.mark.oracle
def test_strides_of_parts_are_pytorchs_also_where_sizes_leave_them_open() -> None:
    theirs = pytest.importorskip("torch")
    rng = np.random.default_rng(7)
    for _ in range(300):
        shape, perm = [int(n) for n in rng.choice([1, 2, 3, 5], 4)], [int(d) for d in rng.permutation(4)]
        x, y = torch.zeros(shape).permute(perm), theirs.zeros(shape).permute(perm)
        index = _any_index(rng, tuple(y.shape))
        items = list(index) if isinstance(index, tuple) else [index]
        if rng.integers(3) == 0:
            items.insert(int(rng.integers(len(items) + 1)), None)
        index, expected = tuple(items), y[tuple(items)]
        for _ in range(6):  # the last ones by a plan
            part = x[index]
            assert (tuple(part.shape), part.stride(), part.storage_offset()) == (
                tuple(expected.shape),
                expected.stride(),
                expected.storage_offset(),
            )


def test_a_bool_may_be_any_byte():
    values = RNG.integers(0, 256, 60).astype(np.uint8)
    for _ in range(2):
        given = torch.from_numpy(values.copy()).view(torch.bool)
        np.testing.assert_array_equal(given.nonzero().numpy()[:, 0], np.nonzero(values)[0])
        np.testing.assert_array_equal(given.view(5, 3, 4).nonzero().numpy(), np.argwhere(values.reshape(5, 3, 4)))
        for part, expected in zip(
            given.view(5, 12).nonzero(as_tuple=True), np.nonzero(values.reshape(5, 12)), strict=True
        ):
            np.testing.assert_array_equal(part.numpy(), expected)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3), (1,), (1, 1, 1)])
def test_coordinates_of_little(shape):
    for value in (0.0, 1.0):
        x = torch.full(shape, value)
        found = x.nonzero()
        assert tuple(found.shape) == (int(value != 0 and x.numel() > 0), len(shape))
        assert all(len(part) == found.shape[0] for part in x.nonzero(as_tuple=True))


@pytest.mark.parametrize(
    ("shape", "of_mask"),
    [((3, 4), (3, 4)), ((3, 4), (4,)), ((5, 1), (5, 7)), ((), ()), ((0, 3), (3,)), ((400, 300), (400, 300))],
)
def test_elements_written_in_order_where_a_mask_holds(shape, of_mask):
    mask = RNG.random(of_mask) < 0.5
    a, b = RNG.normal(size=shape), RNG.normal(size=np.broadcast_shapes(shape, of_mask) + (2,))
    x, y = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    found = x.masked_scatter(torch.tensor(mask), y)
    whole = np.broadcast_to(mask, found.shape)
    expected = np.array(np.broadcast_to(a, found.shape))
    expected[whole] = b.reshape(-1)[: whole.sum()]
    np.testing.assert_array_equal(found.detach().numpy(), expected)
    ct = RNG.normal(size=found.shape)
    from_x, from_y = torch.autograd.grad(found, (x, y), torch.tensor(ct), allow_unused=True)
    kept = np.where(whole, 0, ct)
    dims = tuple(
        d
        for d, (n, m) in enumerate(zip(found.shape, (1,) * (found.ndim - x.ndim) + tuple(x.shape), strict=True))
        if n != m
    )
    np.testing.assert_allclose(from_x.numpy(), kept.sum(dims, keepdims=True).reshape(a.shape))
    if from_y is not None:
        taken = np.zeros(b.size)
        taken[: whole.sum()] = ct[whole]
        np.testing.assert_array_equal(from_y.numpy().reshape(-1), taken)


def test_a_mask_with_more_places_than_elements():
    for source in (torch.ones(2), torch.ones(0)):
        with pytest.raises(RuntimeError, match="source < number of ones in mask"):
            torch.zeros(3).masked_scatter(torch.tensor([True, True, True]), source)
    x = torch.zeros(3)
    assert x.masked_scatter_(torch.tensor([True, False, True]), torch.arange(1.0, 3.0)) is x
    assert x.tolist() == [1, 0, 2] and torch.zeros(2).masked_scatter(torch.zeros(2) > 0, torch.ones(0)).tolist() == [
        0,
        0,
    ]


def test_tensors_without_memory_are_apart() -> None:
    """On the device meta no two tensors share memory."""
    x, places, values = (torch.empty(9, dtype=torch.int64, device="meta") for _ in range(3))
    x[places] = values
    assert x.index_put_((places,), values, accumulate=True).shape == x.scatter_(0, places, values).shape == (9,)
