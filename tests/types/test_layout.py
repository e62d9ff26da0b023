"""Layout algebra: properties over random layouts, with NumPy as the judge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rushlight._types.layout import (
    Size,
    broadcast_shapes,
    broadcast_strides,
    channels_last_strides,
    collapse,
    contiguous_strides,
    dense_strides,
    extent,
    infer_size,
    is_channels_last,
    is_contiguous,
    is_dense,
    memory_order,
    numel,
    overlaps_itself,
    restride,
    view_strides,
    wrap_dim,
    wrap_dims,
)
from rushlight._types.shape_env import ShapeEnv

sizes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
full_sizes = st.lists(st.integers(1, 4), max_size=4).map(tuple)
quick = settings(max_examples=200, deadline=None)


@st.composite
def layouts(draw, smallest: int = 1):
    """A shape and strides: a dense block permuted, sliced with steps, and with some dims expanded."""
    shape = draw(st.lists(st.integers(smallest, 4), max_size=4))
    steps = [draw(st.integers(1, 2)) for _ in shape]
    order = draw(st.permutations(range(len(shape))))
    outer = [size * step for size, step in zip(shape, steps, strict=True)]
    strides = [s * step for s, step in zip(dense_strides(outer, order), steps, strict=True)]
    for d in range(len(shape)):
        if draw(st.integers(0, 5)) == 0:
            strides[d] = 0
    return tuple(shape), tuple(strides)


def places(shape, strides) -> np.ndarray:
    """The place in memory of every element."""
    total = np.zeros(shape, dtype=np.int64)
    for d, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        total += (np.arange(size) * stride).reshape([size if i == d else 1 for i in range(len(shape))])
    return total


def factorings(count: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes with this many elements."""

    @st.composite
    def make(draw):
        rest, shape = count, []
        while rest > 1:
            divisor = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
            shape.append(divisor)
            rest //= divisor
        for _ in range(draw(st.integers(0, 2))):
            shape.insert(draw(st.integers(0, len(shape))), 1)
        return tuple(shape)

    return make()


@quick
@given(sizes)
def test_contiguous_strides(shape) -> None:
    strides = contiguous_strides(shape)
    assert is_contiguous(shape, strides)
    if numel(shape):
        np.testing.assert_array_equal(places(shape, strides).ravel(), np.arange(numel(shape)))
    assert extent(shape, strides) == numel(shape)


@quick
@given(layouts())
def test_is_contiguous_and_dense(layout) -> None:
    shape, strides = layout
    found = places(shape, strides).ravel()
    assert is_contiguous(shape, strides) == (found.tolist() == list(range(numel(shape))))
    assert is_dense(shape, strides) == (sorted(found.tolist()) == list(range(numel(shape))))
    assert extent(shape, strides) == found.max() + 1


@quick
@given(layouts())
def test_overlap_of_expanded_dims_is_found(layout) -> None:
    shape, strides = layout
    found = places(shape, strides).ravel()
    assert overlaps_itself(shape, strides) == (len(set(found.tolist())) < found.size)


def test_overlapping_windows_may_be_written() -> None:
    assert (
        not overlaps_itself((3, 2), (1, 1))
        and not overlaps_itself((0, 2), (0, 0))
        and not overlaps_itself((1, 2), (0, 1))
    )


@quick
@given(st.data())
def test_view_strides_show_the_same_elements_or_refuse_rightly(data) -> None:
    shape, strides = data.draw(layouts())
    target = data.draw(factorings(numel(shape)))
    found = view_strides(shape, strides, target)
    want = places(shape, strides).reshape(target)
    if found is not None:
        np.testing.assert_array_equal(places(target, found), want)
        return
    # refused: then no strides show it, or two dims of the target would have to disagree about the step
    steps = []
    for d, size in enumerate(target):
        if size > 1:
            lines = np.diff(np.moveaxis(want, d, -1), axis=-1)
            steps.append(len(set(lines.ravel().tolist())) == 1)
    assert not all(steps), f"{shape} {strides} can be seen as {target}"


def test_view_strides_of_empty_and_single() -> None:
    assert view_strides((0, 3), (3, 1), (5, 0)) == contiguous_strides((5, 0))
    assert view_strides((2, 0), (7, 7), (2, 0)) == (7, 7)
    assert view_strides((), (), (1, 1)) is not None
    assert view_strides((1,), (5,), ()) == ()


@quick
@given(st.lists(layouts(), min_size=1, max_size=1), st.data())
def test_collapse_keeps_the_order_of_every_operand(first, data) -> None:
    shape, strides = first[0]
    other = data.draw(st.permutations(range(len(shape)))) if shape else []
    second = dense_strides(shape, other)
    merged, found = collapse(shape, strides, second)
    assert 1 not in merged and len(merged) <= len(shape)
    for before, after in zip((strides, second), found, strict=True):
        np.testing.assert_array_equal(places(shape, before).ravel(), places(merged, after).ravel())


@quick
@given(full_sizes)
def test_collapse_of_a_contiguous_layout_is_one_dim(shape) -> None:
    merged, (steps,) = collapse(shape, contiguous_strides(shape))
    assert len(merged) <= 1 and (steps == (1,) or not steps)


@quick
@given(st.lists(sizes, min_size=1, max_size=3))
def test_broadcast_shapes(shapes) -> None:
    try:
        want = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(RuntimeError, match="must match the size"):
            broadcast_shapes(*shapes)
        return
    assert broadcast_shapes(*shapes) == want


@quick
@given(layouts(), st.lists(st.integers(1, 3), max_size=2), st.data())
def test_broadcast_strides(layout, lead, data) -> None:
    shape, strides = layout
    target = (*lead, *(data.draw(st.integers(2, 3)) if s == 1 and data.draw(st.booleans()) else s for s in shape))
    found = broadcast_strides(shape, strides, target)
    np.testing.assert_array_equal(places(target, found), np.broadcast_to(places(shape, strides), target))


@quick
@given(layouts())
def test_restride_is_dense_in_the_same_order(layout) -> None:
    shape, strides = layout
    fresh = restride(shape, strides)
    assert is_dense(shape, fresh)
    if is_dense(shape, strides):
        np.testing.assert_array_equal(places(shape, fresh), places(shape, strides))
    order = memory_order(shape, strides)
    assert sorted(order) == list(range(len(shape)))
    real = [d for d in order if shape[d] > 1 and strides[d] > 0]
    assert [strides[d] for d in real] == sorted((strides[d] for d in real), reverse=True)


@quick
@given(layouts(), st.data())
def test_slicing_is_offset_and_steps(layout, data) -> None:
    shape, strides = layout
    starts = [data.draw(st.integers(0, s - 1)) for s in shape]
    steps = [data.draw(st.integers(1, 3)) for _ in shape]
    want = places(shape, strides)[tuple(slice(a, None, b) for a, b in zip(starts, steps, strict=True))]
    offset = sum(a * b for a, b in zip(starts, strides, strict=True))
    np.testing.assert_array_equal(
        places(want.shape, [a * b for a, b in zip(strides, steps, strict=True)]) + offset, want
    )


@pytest.mark.oracle
@quick
@given(layouts(), st.data())
def test_fresh_results_have_pytorchs_strides(layout, data) -> None:
    torch = pytest.importorskip("torch")
    shape, strides = layout
    strides = [
        data.draw(st.integers(0, 9)) if size == 1 else stride for size, stride in zip(shape, strides, strict=True)
    ]
    x = torch.zeros(5000).as_strided(shape, strides)
    assert torch.neg(x).stride() == restride(shape, strides)


def test_channels_last() -> None:
    assert channels_last_strides((2, 3, 4, 5)) == (60, 1, 15, 3)
    assert channels_last_strides((2, 3, 4, 5, 6)) == (360, 1, 90, 18, 3)
    assert is_channels_last((2, 3, 4, 5), (60, 1, 15, 3)) and not is_channels_last((2, 3, 4, 5), (60, 20, 5, 1))
    assert not is_channels_last((3, 4), (4, 1))
    with pytest.raises(RuntimeError, match="required rank 4"):
        channels_last_strides((2, 3))


def test_memory_order_of_expanded_dims_keeps_their_place() -> None:
    assert memory_order((2, 3, 4), (4, 0, 1)) == [0, 1, 2] and memory_order((2, 1, 2), (1, 0, 2)) == [2, 1, 0]
    assert memory_order((2, 3), (1, 2)) == [1, 0]
    assert memory_order((2, 3), (3, 1)) == [0, 1]


@pytest.mark.parametrize(
    ("shape", "count", "want"),
    [((2, -1), 6, (2, 3)), ((-1,), 0, (0,)), ((6,), 6, (6,)), ((0, -1, 2), 0, None), ((2, 3), 6, (2, 3)), ((), 1, ())],
)
def test_infer_size(shape, count, want) -> None:
    if want is None:
        with pytest.raises(RuntimeError, match="ambiguous"):
            infer_size(shape, count)
    else:
        assert infer_size(shape, count) == want


@pytest.mark.parametrize(
    ("shape", "count", "text"),
    [((-1, -1), 6, "only one dimension"), ((4, -1), 6, "invalid for input of size 6"), ((2, -3), 6, "invalid shape dimension -3"), ((5,), 6, "invalid")],
)  # fmt: skip
def test_infer_size_refuses(shape, count, text) -> None:
    with pytest.raises(RuntimeError, match=text):
        infer_size(shape, count)


def test_wrapping_dims() -> None:
    assert wrap_dim(-1, 3) == 2 and wrap_dim(0, 0) == 0 and wrap_dim(-1, 0) == 0
    with pytest.raises(IndexError, match=r"range of \[-3, 2\], but got 3"):
        wrap_dim(3, 3)
    assert wrap_dims(None, 3) == (0, 1, 2) and wrap_dims(-1, 3) == (2,) and wrap_dims((2, -3), 3) == (2, 0)
    with pytest.raises(RuntimeError, match="dim 0 appears multiple times"):
        wrap_dims((0, -3), 3)


def test_size_is_a_tuple_that_knows_its_count() -> None:
    size = Size((2, 3))
    assert repr(size) == "torch.Size([2, 3])" and size == (2, 3) and size.numel() == 6
    assert (
        isinstance(size[1:], Size)
        and isinstance(size + (4,), Size)
        and isinstance((4,) + size, Size)
        and isinstance(size * 2, Size)
    )
    assert (4,) + size == (4, 2, 3) and Size(()).numel() == 1


def test_items_of_a_size() -> None:
    import rushlight

    shape = rushlight.ones(2, 3, 4).shape
    for size in (shape, Size((2, 3, 4))):
        plain = (2, 3, 4)
        for item in (0, 2, -1, -3, True, np.int64(1), slice(None), slice(1, None), slice(None, None, -1), slice(5, 1)):
            found, expected = size[item], plain[item]
            assert found == expected == size.__getitem__(item)
            assert type(found) is (Size if isinstance(item, slice) else int)
            assert type(size.__getitem__(item)) is type(found)
        for item in (3, -4, 2**70, -(2**70)):
            with pytest.raises(IndexError):
                size[item]
        for item in ("a", 1.0, None):
            with pytest.raises(TypeError):
                size[item]


def test_view_strides_of_symbols_are_those_of_their_sizes() -> None:
    """A dim of one item before a symbolic one has the stride of a step over all of that."""
    shape, strides, target = (6, 6, 9), (54, 9, 1), (1, 6, 6, 3, 3)
    n, m = ShapeEnv([6, 7]).symbols
    found = view_strides((n, m, 9), (m * 9, 9, 1), (1, n, m, 3, 3))
    assert found is not None and [int(s) for s in found] == [378, 63, 9, 3, 1]
    assert view_strides(shape, strides, target) == (324, 54, 9, 3, 1)
