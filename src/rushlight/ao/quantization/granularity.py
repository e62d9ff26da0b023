"""Which numbers share a scale, how ranges become scales, and dtypes of few bits: the words of torchao."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

__all__ = [
    "Granularity",
    "MappingType",
    "PerAxis",
    "PerBlock",
    "PerGroup",
    "PerRow",
    "PerTensor",
    "PerToken",
    "TorchAODType",
    "ZeroPointDomain",
    "get_block_size",
]


class MappingType(Enum):
    """How a range of numbers becomes one of integers: about zero, about zero without clipping its longer side, or from end to end."""

    SYMMETRIC = auto()
    SYMMETRIC_NO_CLIPPING_ERR = auto()
    ASYMMETRIC = auto()


class ZeroPointDomain(Enum):
    """Whether a zero point is an integer, a float, or there is none."""

    INT = auto()
    FLOAT = auto()
    NONE = auto()


class TorchAODType(Enum):
    """Integers of one to seven bits."""

    INT1 = auto()
    INT2 = auto()
    INT3 = auto()
    INT4 = auto()
    INT5 = auto()
    INT6 = auto()
    INT7 = auto()


@dataclass(frozen=True)
class Granularity:
    """Base of the descriptions of which numbers share a scale."""


@dataclass(frozen=True)
class PerBlock(Granularity):
    """Blocks of this size share a scale."""

    block_size: tuple[int, ...]


@dataclass(frozen=True)
class PerTensor(Granularity):
    """All numbers share one scale."""


@dataclass(frozen=True)
class PerAxis(Granularity):
    """Each place along the dim `axis` has a scale."""

    axis: int


@dataclass(frozen=True)
class PerGroup(Granularity):
    """Groups of `group_size` neighbours along the last dim share a scale."""

    group_size: int


class PerRow(Granularity):
    """Each row (along the last dim) has a scale."""


class PerToken(Granularity):
    """Each token (along the last dim) has a scale."""


def get_block_size(input_shape: tuple[int, ...], granularity: Granularity) -> tuple[int, ...]:
    """The size of the blocks that share a scale in a tensor of this shape.

    >>> import rushlight as torch
    >>> torch.ao.quantization.get_block_size((4, 64), torch.ao.quantization.PerGroup(32))
    (1, 32)
    """
    if not isinstance(granularity, Granularity):
        raise AssertionError("Please provide an instance of Granularity, not subclass of it")
    shape = list(input_shape)
    found: Any
    if isinstance(granularity, PerTensor):
        return tuple(shape)
    if isinstance(granularity, PerAxis):
        shape[granularity.axis] = 1
        return tuple(shape)
    if isinstance(granularity, PerBlock):
        found = granularity.block_size
    elif isinstance(granularity, (PerRow, PerToken)):
        found = (1,) * (len(shape) - 1) + (shape[-1],)
    elif isinstance(granularity, PerGroup):
        if len(shape) != 2:
            raise AssertionError(
                f"Expecting input shape dim to be 2 for per group quantization, gotinput shape: {input_shape}"
            )
        found = (1, granularity.group_size)
    else:
        raise ValueError(f"Unsupported Granularity: {granularity}")
    return tuple(found)
