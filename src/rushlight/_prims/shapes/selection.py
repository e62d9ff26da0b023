"""The element of a rank, and the first elements: sequential algorithms, in Python, because their choice among equal
elements is part of the definition.

All work on a list of (key, index) in place and compare keys alone.  `hoare` is Hoare's selection, PyTorch's `kthvalue`;
`first` is `std::partial_sort`, or `std::nth_element` and `std::sort`, of the GNU library, PyTorch's `topk`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["first", "hoare"]

Row = list[tuple[Any, int]]


def _swap(row: Row, i: int, j: int) -> None:
    row[i], row[j] = row[j], row[i]


def hoare(row: Row, rank: int) -> int:
    """The index of the element that ends at `rank`.  The pivot is the median of the first, the middle and the last."""
    left, right = 0, len(row) - 1
    while right > left + 1:
        _swap(row, left + (right - left) // 2, left + 1)
        for i, j in ((left + 1, right), (left, right), (left + 1, left)):
            if row[i][0] > row[j][0]:
                _swap(row, i, j)
        pivot = row[left][0]
        i, j = left + 1, right
        while i <= j:
            i, j = i + 1, j - 1
            while pivot > row[i][0]:
                i += 1
            while row[j][0] > pivot:
                j -= 1
            if i <= j:
                _swap(row, i, j)
        _swap(row, left, j)
        left, right = (i if j <= rank else left), (j - 1 if j >= rank else right)
    if right == left + 1 and row[left][0] > row[right][0]:
        _swap(row, left, right)
    return row[rank][1]


def first(row: Row, count: int, ordered: bool) -> list[int]:
    """The indices of the least `count`: in order, or for a short row, if order is not required, in the algorithm's
    order."""
    if 64 * count <= len(row):
        _gather(row, 0, count, len(row))
        _line_up(row, 0, count)
    else:
        _select(row, count - 1)
        if ordered:
            _sort(row, count - 1)
    return [index for _, index in row[:count]]


def _sink(row: Row, start: int, hole: int, size: int, item: tuple[Any, int]) -> None:
    """Let `item` sink from `hole` in the heap of this size at `start`: to the bottom, and up from there."""
    top, child = hole, hole
    while child < (size - 1) // 2:
        child = 2 * (child + 1)
        child -= row[start + child][0] < row[start + child - 1][0]
        row[start + hole] = row[start + child]
        hole = child
    if size % 2 == 0 and child == (size - 2) // 2:
        row[start + hole] = row[start + 2 * child + 1]
        hole = 2 * child + 1
    while hole > top and row[start + (hole - 1) // 2][0] < item[0]:
        row[start + hole] = row[start + (hole - 1) // 2]
        hole = (hole - 1) // 2
    row[start + hole] = item


def _gather(row: Row, start: int, middle: int, stop: int) -> None:
    """Collect the least of row[start:stop] in row[start:middle], as a heap with the greatest at the top."""
    size = middle - start
    for hole in reversed(range(size // 2)):
        _sink(row, start, hole, size, row[start + hole])
    for i in range(middle, stop):
        if row[i][0] < row[start][0]:
            item, row[i] = row[i], row[start]
            _sink(row, start, 0, size, item)


def _line_up(row: Row, start: int, stop: int) -> None:
    """Sort a heap."""
    for last in range(stop - 1, start, -1):
        item, row[last] = row[last], row[start]
        _sink(row, start, 0, last - start, item)


def _part(row: Row, start: int, stop: int) -> int:
    """Partition row[start:stop] at the median of three; returns the start of the second part."""
    a, b, c = start + 1, start + (stop - start) // 2, stop - 1
    x, y, z = row[a][0], row[b][0], row[c][0]
    if x < y:
        middle = b if y < z else c if x < z else a
    else:
        middle = a if x < z else c if y < z else b
    _swap(row, start, middle)
    pivot = row[start][0]
    i, j = start + 1, stop
    while True:
        while row[i][0] < pivot:
            i += 1
        j -= 1
        while pivot < row[j][0]:
            j -= 1
        if i >= j:
            return i
        _swap(row, i, j)
        i += 1


def _settle(row: Row, start: int, stop: int) -> None:
    """Insertion sort, stable."""
    row[start:stop] = sorted(row[start:stop], key=lambda item: item[0])


def _select(row: Row, rank: int) -> None:
    start, stop, depth = 0, len(row), 2 * (len(row).bit_length() - 1)
    while stop - start > 3:
        if depth == 0:
            _gather(row, start, rank + 1, stop)
            _swap(row, start, rank)
            return
        depth -= 1
        cut = _part(row, start, stop)
        start, stop = (cut, stop) if cut <= rank else (start, cut)
    _settle(row, start, stop)


def _sort(row: Row, size: int) -> None:
    waiting = [(0, size, 2 * (size.bit_length() - 1))]
    while waiting:
        start, stop, depth = waiting.pop()
        while stop - start > 16:
            if depth == 0:
                _gather(row, start, stop, stop)
                _line_up(row, start, stop)
                break
            depth -= 1
            cut = _part(row, start, stop)
            waiting.append((cut, stop, depth))
            stop = cut
    _settle(row, 0, size)
