"""Random programs of views, indexing and in-place changes: values against NumPy, gradients against finite differences and PyTorch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import rushlight

SHAPES = [(4,), (2, 3), (3, 2, 2), (2, 1, 4), (5, 1), (2, 2, 2, 2)]


def view_step(rng: random.Random, shape: tuple[int, ...]) -> Any:
    """A view of something with this shape, as a function that NumPy arrays and tensors both take."""
    n = len(shape)
    kinds = ["index", "none"] + (["transpose", "permute"] if n > 1 else []) + (["int"] if n > 1 else [])
    kind = rng.choice(kinds)
    if kind == "transpose":
        a, b = rng.sample(range(n), 2)
        return lambda x: x.swapaxes(a, b)
    if kind == "permute":
        order = rng.sample(range(n), n)
        return lambda x: x.transpose(order) if isinstance(x, np.ndarray) else x.permute(order)
    if kind == "none":
        at = rng.randrange(n + 1)
        place = (*[slice(None)] * at, None)
        return lambda x: x[place]
    items: list[Any] = []
    for size in shape:
        start = rng.randrange(size)
        stop = rng.randrange(start + 1, size + 1)
        items.append(slice(start, stop, rng.choice([1, 1, 2])))
    if kind == "int":
        at = rng.randrange(n)
        items[at] = rng.randrange(-shape[at], shape[at])
    index = tuple(items)
    return lambda x: x[index]


def change_step(rng: random.Random, shape: tuple[int, ...]) -> Any:
    """An in-place change of something with this shape."""
    value = rng.choice([2.0, -1.5, 0.5])
    row = np.array([rng.choice([0.5, 1.5, -1.0]) for _ in range(shape[-1])]) if shape else np.array(1.5)
    mask = np.array([rng.random() < 0.5 for _ in range(int(np.prod(shape)))]).reshape(shape)
    kind = rng.choice(["mul", "add", "row", "assign", "mask", "list"] if shape else ["mul", "add"])

    def change(x: Any, lift: Any) -> None:
        if kind == "mul":
            x *= value
        elif kind == "add":
            x += value
        elif kind == "row":
            x *= lift(row)
        elif kind == "assign":
            x[0] = value
        elif kind == "mask":
            x[lift(mask)] = value
        else:
            x[[0, shape[0] - 1]] = value

    return change


def program(seed: int) -> tuple[tuple[int, ...], Any]:
    """(shape, function of a fresh tensor and of `lift`, which makes tensors of arrays)."""
    rng = random.Random(seed)
    shape = rng.choice(SHAPES)
    steps: list[tuple[int, Any, Any]] = []
    shapes = [shape]
    for _ in range(rng.randrange(2, 7)):
        source = rng.randrange(len(shapes))
        if rng.random() < 0.55:
            view = view_step(rng, shapes[source])
            shapes.append(view(np.zeros(shapes[source])).shape)
            steps.append((source, view, None))
        else:
            steps.append((source, None, change_step(rng, shapes[source])))

    def run(x: Any, lift: Any) -> list[Any]:
        known = [x]
        for source, view, change in steps:
            if view is not None:
                known.append(view(known[source]))
            else:
                change(known[source], lift)
        return known

    return shape, run


def start(shape: tuple[int, ...]) -> Any:
    return np.linspace(-1.0, 2.0, int(np.prod(shape))).reshape(shape)


@pytest.mark.parametrize("seed", range(150))
def test_values_against_numpy(seed: int) -> None:
    shape, run = program(seed)
    wanted = run(start(shape), lambda a: a)
    found = run(rushlight.tensor(start(shape)), lambda a: rushlight.tensor(a))
    for f, w in zip(found, wanted, strict=True):
        assert tuple(f.shape) == w.shape
        np.testing.assert_allclose(f.numpy(), w)


def gradients(library: Any, seed: int) -> list[Any]:
    """The values and the gradient of a program with a history."""
    shape, run = program(seed)
    x = library.tensor(start(shape), requires_grad=True)
    known = run(x * x, lambda a: library.tensor(a))
    total = sum((y * y * (i + 1)).sum() for i, y in enumerate(known))
    total.backward()
    return [[k.detach().numpy() for k in known], x.grad.numpy(), [k.requires_grad for k in known]]


@pytest.mark.parametrize("seed", range(0, 150, 3))
def test_gradients_against_finite_differences(seed: int) -> None:
    shape, run = program(seed)

    def total(values: Any) -> float:
        known = run(values * values, lambda a: a)
        return float(sum((y * y * (i + 1)).sum() for i, y in enumerate(known)))

    found = gradients(rushlight, seed)[1]
    point, h = start(shape), 1e-6
    for place in np.ndindex(*shape):
        up, down = point.copy(), point.copy()
        up[place] += h
        down[place] -= h
        assert abs((total(up) - total(down)) / (2 * h) - found[place]) < 1e-4


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(150))
def test_gradients_against_pytorch(seed: int) -> None:
    torch = pytest.importorskip("torch")
    found, wanted = gradients(rushlight, seed), gradients(torch, seed)
    for f, w in zip(found[0], wanted[0], strict=True):
        np.testing.assert_allclose(f, w)
    np.testing.assert_allclose(found[1], wanted[1], atol=1e-10)
    assert found[2] == wanted[2]


# ***** indexing *****


def random_index(rng: random.Random, shape: tuple[int, ...], as_numpy: bool = True) -> Any:
    """Ints, slices, None, `...`, arrays and masks.

    NumPy counts an int beside arrays as an array, PyTorch selects with it first: with `as_numpy` the two do not come together.
    """
    items: list[Any] = []
    dims = list(shape)
    length = rng.choice([0, 1, 2, 3])
    dim = 0
    while dim < len(dims):
        kind = rng.choice(["int", "slice", "full", "array", "mask", "none"])
        size = dims[dim]
        if kind == "int":
            items.append(rng.randrange(-size, size))
        elif kind == "slice":
            items.append(
                slice(rng.randrange(-size - 1, size + 1), rng.randrange(-size - 1, size + 2), rng.choice([None, 1, 2]))
            )
        elif kind == "full":
            items.append(slice(None))
        elif kind == "array":
            items.append(np.array([rng.randrange(-size, size) for _ in range(length)], dtype=np.int64))
        elif kind == "mask":
            mask = np.zeros(size, dtype=bool)
            mask[rng.sample(range(size), min(length, size))] = True
            items.append(mask if mask.sum() == length else slice(None))
        else:
            items.append(None)
            continue
        dim += 1
    if as_numpy and any(isinstance(i, np.ndarray) for i in items):
        items = [slice(i, i + 1 or None) if isinstance(i, int) else i for i in items]
    if rng.random() < 0.3:
        cut = rng.randrange(len(items) + 1)
        drop = rng.randrange(cut, len(items) + 1)
        if all(isinstance(i, slice) and i == slice(None) for i in items[cut:drop]):
            items[cut:drop] = [Ellipsis]
    return tuple(items)


def lifted(index: Any) -> Any:
    return tuple(rushlight.tensor(i) if isinstance(i, np.ndarray) else i for i in index)


@pytest.mark.parametrize("seed", range(200))
def test_indexing_against_numpy(seed: int) -> None:
    rng = random.Random(seed)
    shape = rng.choice(SHAPES)
    index = random_index(rng, shape)
    array = np.arange(float(np.prod(shape))).reshape(shape)
    wanted = array[index]
    found = rushlight.tensor(array)[lifted(index)]
    assert tuple(found.shape) == wanted.shape, index
    np.testing.assert_array_equal(found.numpy(), wanted)

    x = rushlight.tensor(array)
    x[lifted(index)] = -1.0
    array[index] = -1.0
    np.testing.assert_array_equal(x.numpy(), array)


@pytest.mark.parametrize("seed", range(200))
def test_indexing_of_strided_tensors_against_numpy(seed: int) -> None:
    rng = random.Random(1000 + seed)
    shape = rng.choice(SHAPES)
    order = rng.sample(range(len(shape)), len(shape))
    array = np.arange(float(np.prod(shape)) * 2).reshape(*shape[:-1], shape[-1] * 2)[..., ::2].transpose(order)
    index = random_index(rng, array.shape)
    x = rushlight.from_numpy(array.copy("K"))
    assert x.tolist() == array.tolist()
    np.testing.assert_array_equal(x[lifted(index)].numpy(), array[index])
    values = -np.arange(1.0, array[index].size + 1).reshape(array[index].shape)
    if any(isinstance(i, np.ndarray) and i.dtype == np.int64 for i in index):
        values = np.full_like(values, -2.0)  # a place named twice gets either value
    changed = array.copy("K")
    changed[index] = values
    x[lifted(index)] = rushlight.tensor(values)
    np.testing.assert_array_equal(x.numpy(), changed)


def strides_of(x: Any) -> Any:
    """The strides that matter."""
    return np.array([step for step, size in zip(x.stride(), x.shape, strict=True) if size > 1 and x.numel()])


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(200))
def test_indexing_against_pytorch(seed: int) -> None:
    torch = pytest.importorskip("torch")
    rng = random.Random(5000 + seed)
    shape = rng.choice(SHAPES)
    index = random_index(rng, shape, as_numpy=False)
    found, wanted = [], []
    for library, into in ((rushlight, found), (torch, wanted)):
        x = library.arange(float(np.prod(shape)), dtype=library.float64).reshape(shape).requires_grad_()
        place = tuple(library.tensor(i) if isinstance(i, np.ndarray) else i for i in index)
        y = x[place]
        (y * y).sum().backward()
        z = x.detach().clone()
        z[place] = -1.0
        into += [y.detach().numpy(), x.grad.numpy(), z.numpy(), strides_of(y)]
    for f, w in zip(found, wanted, strict=True):
        assert f.shape == w.shape, index
        np.testing.assert_array_equal(f, w)
