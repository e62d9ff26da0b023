"""In-place changes of a part of an input: a compiled program writes that part, and nothing else of the memory."""

from __future__ import annotations

import pytest

import rushlight as torch

ROWS, PART = 64, 8 * 16 * 4  # bytes of one row of the cache below


def sliced(cache, x, at):
    cache[:, 17:18] = x


def added(cache, x, at):
    cache[:, 17:18].add_(x)


def strided(cache, x, at):
    cache[::2, 1:9:4, 3:] = 7


def indexed(cache, x, at):
    cache[:, at] = x


def index_copied(cache, x, at):
    cache.index_copy_(1, at, x)


def index_added(cache, x, at):
    cache.transpose(0, 1).index_add_(0, at, x.transpose(0, 1))


def scattered(cache, x, at):
    cache.scatter_(1, at.view(1, 1, 1).expand(8, 1, 16), x)


def twice(cache, x, at):
    cache[:, 3:4] = x
    cache[:, 5:6] = cache[:, 3:4] * 2


def through_views(cache, x, at):
    turned = cache.permute(2, 1, 0)
    turned[:, 17] = x[:, 0].t()
    turned[:, 17].mul_(2)


@pytest.mark.parametrize(
    "change", [sliced, added, strided, indexed, index_copied, index_added, scattered, twice, through_views]
)
def test_no_more_is_written_than_changes(change):
    torch.manual_seed(0)
    cache, x, at = torch.randn(8, ROWS, 16), torch.randn(8, 1, 16), torch.tensor([11])
    expected = cache.clone()
    change(expected, x, at)
    compiled = torch.compile(change, fullgraph=True)
    compiled(cache, x, at)
    assert torch.equal(cache, expected)
    (segment,) = compiled._compiled.entry.segments
    assert sum(step.moved for step in segment.program._exe.steps()) <= 6 * PART < cache.nbytes // 8


def test_who_reads_the_memory_before_and_behind():
    def step(cache, x):
        before = cache.sum()
        cache[:, 17:18] = x
        between = cache[0].sum() + before
        cache[1, 4:6] = between
        return before, between, cache * 2

    torch.manual_seed(0)
    cache, x = torch.randn(8, ROWS, 16), torch.randn(8, 1, 16)
    expected = cache.clone()
    wanted = step(expected, x)
    compiled = torch.compile(step, fullgraph=True)
    for a, b in zip(compiled(cache, x), wanted, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(cache, expected)
    (segment,) = compiled._compiled.entry.segments
    whole = [step for step in segment.program._exe.steps() if step.moved > cache.nbytes // 4]
    assert len(whole) == 2  # the first sum and the last product


def test_a_part_that_is_read_elsewhere_first():
    """What is written is computed from other parts of the same memory: these are read before."""

    def step(cache):
        cache[:, 1:5] = cache[:, 0:4] + cache.flip(0)[:, 2:6]
        cache[2:6] = cache[1:5].clone()

    torch.manual_seed(0)
    cache = torch.randn(8, ROWS, 16)
    expected = cache.clone()
    step(expected)
    torch.compile(step, fullgraph=True)(cache)
    assert torch.equal(cache, expected)


def test_sums_of_what_is_read_from_rows_with_gaps():
    """A diagonal of a view with gaps is no view of whole rows: what is read behind it lies as the view does."""

    def step(x):
        x.diagonal().copy_(x.diagonal() * 2)
        return x.sum()

    torch.manual_seed(1)
    one = torch.randn(6, 8, 7)
    for _ in range(4):
        one = one * 1.5
        other = one.clone()
        wanted = step(one[1:5, 1:7, 1:6])
        assert torch.equal(torch.compile(step)(other[1:5, 1:7, 1:6]), wanted)
        assert torch.equal(one, other)
