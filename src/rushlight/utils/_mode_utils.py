"""`torch.utils._mode_utils`: calls that skip `__torch_dispatch__`, as modes make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._interface.tensors import STATE

__all__ = ["all_same_mode", "no_dispatch"]


def all_same_mode(modes: Sequence[Any]) -> bool:
    """Whether all modes equal the first.

    >>> torch.utils._mode_utils.all_same_mode([1, 1]), torch.utils._mode_utils.all_same_mode([1, 2])
    (True, False)
    """
    return all(mode == modes[0] for mode in modes)


class no_dispatch:
    """A region in which neither classes nor modes with `__torch_dispatch__` are asked."""

    def __enter__(self) -> None:
        STATE.dispatch_off += 1

    def __exit__(self, *exc: object) -> None:
        STATE.dispatch_off -= 1
