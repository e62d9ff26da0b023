"""Regions of memory as views of arrays, against NumPy's own strides."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from rushlight._backends.reference import run
from rushlight._capture.recording.regions import RegionError, gathered, path_to, rewritten, scattered, shown
from rushlight._graph.core import trace
from rushlight._types.dtype import INT64

SIZES = (1, 2, 3, 4, 6)


def layout(x: Any, buffer: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    start = (x.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]) // 8
    return x.shape, tuple(s // 8 for s in x.strides), start


def step(x: Any, rng: random.Random) -> Any:
    """A view of an array."""
    kind = rng.randrange(6)
    dim = rng.randrange(x.ndim) if x.ndim else 0
    if kind <= 1 and x.ndim:
        start = rng.randrange(x.shape[dim])
        chosen = slice(start, rng.randint(start + 1, x.shape[dim]), rng.choice((1, 1, 2, 3)))
        return x[tuple(chosen if d == dim else slice(None) for d in range(x.ndim))]
    if kind == 2:
        return x.transpose(rng.sample(range(x.ndim), x.ndim))
    if kind == 3 and x.ndim > 1 and x.shape[-1] == x.shape[-2]:
        return np.diagonal(x, axis1=-2, axis2=-1)
    if kind == 4:
        return np.expand_dims(x, rng.randint(0, x.ndim))
    if kind == 5 and 1 in x.shape:
        return np.broadcast_to(x, [3 if d == x.shape.index(1) else n for d, n in enumerate(x.shape)])
    return x


def cases(count: int, seed: int) -> Any:
    """(buffer, array over it, view of the array)."""
    rng = random.Random(seed)
    for _ in range(count):
        shape = [rng.choice(SIZES) for _ in range(rng.randint(0, 4))]
        buffer = np.arange(int(np.prod(shape)))
        x = buffer.reshape(shape).transpose(rng.sample(range(len(shape)), len(shape)))
        if rng.random() < 0.3:
            x = x[(..., *(slice(0, max(n - 1, 1)) for n in x.shape))]  # with gaps
        view = x
        for _ in range(rng.randint(0, 4)):
            view = step(view, rng)
        yield buffer, x, view


def read(x: Any, path: Any) -> Any:
    graph = trace(lambda v: shown(v, path), [(x.shape, INT64)])
    return run(graph, [np.array(x)])[0]


def test_views_are_paths() -> None:
    found = refused = 0
    for buffer, x, view in cases(600, 1):
        try:
            path = path_to(*layout(x, buffer), *layout(view, buffer))
        except RegionError:
            refused += 1
            continue
        got = read(x, path)
        assert got.shape == view.shape
        assert got.tolist() == view.tolist()
        found += 1
    assert found > 50 * refused


def test_writes_through_paths() -> None:
    for buffer, x, view in cases(300, 2):
        if 0 in view.strides or not view.ndim:
            continue
        try:
            path = path_to(*layout(x, buffer), *layout(view, buffer))
        except RegionError:
            continue
        part = np.arange(1000, 1000 + view.size).reshape(view.shape)
        graph = trace(lambda v, p, path=path: rewritten(v, p, path), [(x.shape, INT64), (view.shape, INT64)])
        (got,) = run(graph, [np.array(x), part])
        view.setflags(write=True)
        view[...] = part
        assert got.tolist() == x.tolist()


def test_any_region_of_a_row_element_by_element() -> None:
    row = np.arange(12)
    shape, strides, offset = (3, 4), (2, 1), 3  # windows that overlap
    (got,) = run(trace(lambda v: gathered(v, shape, strides, offset), [((12,), INT64)]), [row])
    assert got.tolist() == [[3, 4, 5, 6], [5, 6, 7, 8], [7, 8, 9, 10]]
    part = np.full((2, 2), -1)
    (got,) = run(trace(lambda v, p: scattered(v, p, (2, 2), (5, 3), 1), [((12,), INT64), ((2, 2), INT64)]), [row, part])
    assert np.flatnonzero(got == -1).tolist() == [1, 4, 6, 9]


def test_a_path_is_short() -> None:
    assert path_to((4, 6), (6, 1), 0, (6, 4), (1, 6), 0) == [("transpose", {"perm": (1, 0)})]
    assert path_to((4, 6), (6, 1), 0, (24,), (1,), 0) == [("reshape", {"shape": (24,)})]
    (only,) = path_to((4, 6), (6, 1), 0, (4, 2), (6, 1), 1)
    assert only == ("slice", {"starts": (0, 1), "stops": (4, 3), "steps": (1, 1)})


def test_places_outside_are_refused() -> None:
    with pytest.raises(RegionError):
        path_to((3,), (1,), 0, (4,), (1,), 0)
    with pytest.raises(RegionError):
        path_to((3,), (1,), 2, (1,), (1,), 1)
    with pytest.raises(RegionError):
        path_to((2, 2), (4, 1), 0, (3,), (1,), 0)  # one of them lies in a gap


def test_dims_that_divide_a_row_after_a_slice() -> None:
    """Rows of a slice that are seen as several dims are a view, so that sums over them are added as eager adds them."""
    found = path_to((1088,), (1,), 0, (2, 32, 4, 4), (544, 1, 128, 32), 32)
    assert [name for name, _ in found] == ["reshape", "slice", "reshape", "transpose"]
