"""The statistics of a GPU's memory as a table."""

from __future__ import annotations

from typing import Any

__all__ = ["summary"]

_ROWS = (
    ("Allocated memory", "allocated_bytes", True), ("Active memory", "active_bytes", True), ("Requested memory", "requested_bytes", True),
    ("GPU reserved memory", "reserved_bytes", True), ("Non-releasable memory", "inactive_split_bytes", True), ("Allocations", "allocation", False),
    ("Active allocs", "active", False), ("GPU reserved segments", "segment", False), ("Non-releasable allocs", "inactive_split", False),
)  # fmt: skip
_OVERSIZE = (("Oversize allocations", "oversize_allocations"), ("Oversize GPU segments", "oversize_segments"))
_COLUMNS = (("Cur Usage", "current"), ("Peak Usage", "peak"), ("Tot Alloc", "allocated"), ("Tot Freed", "freed"))
_POOLS = (("from large pool", "large_pool"), ("from small pool", "small_pool"))
_WIDTH = 75


def _size(value: int) -> str:
    for unit in ("B  ", "KiB", "MiB", "GiB"):
        if abs(value) < 10 * 1024 or unit == "GiB":
            return f"{value:6d} {unit}"
        value //= 1024
    raise AssertionError


def _count(value: int) -> str:
    for unit in (" ", "K", "M"):
        if abs(value) < 10 * 1000 or unit == "M":
            return f"{value:6d} {unit}  "
        value //= 1000
    raise AssertionError


def _line(title: str, numbers: dict[str, int], sized: bool) -> str:
    show = _size if sized else _count
    return "|".join(["", f" {title:<21} ", *(f" {show(numbers[key]):>10} " for _, key in _COLUMNS), ""])


def summary(index: int, nested: dict[str, Any], abbreviated: bool) -> str:
    """The table for a device; `abbreviated` leaves the pools out."""
    rule, head = "=" * _WIDTH, "|".join(["", f" {'Metric':^21} ", *(f" {name:^10} " for name, _ in _COLUMNS), ""])
    lines = [f"|{rule}|", f"|{f' PyTorch CUDA memory summary, device ID {index} ':^{_WIDTH}}|", f"|{'-' * _WIDTH}|"]
    told = f" CUDA OOMs: {nested['num_ooms']:<12d} | cudaMalloc retries: {nested['num_alloc_retries']:<8d} "
    lines += [f"|{told:^{_WIDTH}}|", f"|{rule}|", head]
    for title, name, sized in _ROWS:
        lines += [f"|{'-' * _WIDTH}|", _line(title, nested[name]["all"], sized)]
        if not abbreviated:
            lines += [_line(f"      {word}", nested[name][pool], sized) for word, pool in _POOLS]
    for title, name in _OVERSIZE:
        lines += [f"|{'-' * _WIDTH}|", _line(title, nested[name], False)]
    return "\n".join([*lines, f"|{rule}|", ""])
