"""Programs to compile ahead of time, as plain data that other processes can read."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["CallLayout", "Request", "SizeRange", "TensorInfo"]


class Request(NamedTuple):
    """A program: its graph as plain data, strides of inputs and results, switches of passes, and for each input
    that is a weight where it begins among the weights (-1: an argument).
    """

    graph: Any
    in_layouts: list[Any]
    out_layouts: list[Any]
    options: dict[str, Any]
    weights: list[int]


class TensorInfo(NamedTuple):
    """A tensor of a call: its name, dtype, shape and bytes, row-major."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class CallLayout(NamedTuple):
    """Inputs and results of a call: `sources` says for each word of the program which input it is (-1: a weight), and bytes
    from there; `results` for each result of the program which output it is.
    """

    inputs: list[TensorInfo]
    outputs: list[TensorInfo]
    sources: list[tuple[int, int]]
    results: list[int]


class SizeRange(NamedTuple):
    """A size that calls may choose: its name, the least and the greatest."""

    name: str
    least: int
    most: int
