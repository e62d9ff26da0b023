"""Functions that PyTorch writes in Python and shows a second time, as `torch.functional`: the same objects as in the
package itself.
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.operators import SPACES

_NAMES = (
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors", "cartesian_prod", "cdist", "chain_matmul",
    "einsum", "istft", "lu", "meshgrid", "norm", "pca_lowrank", "split", "stft", "svd_lowrank", "tensordot", "unique", "unique_consecutive",
    "unravel_index",
)  # fmt: skip

__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES or name not in SPACES["torch"]:
        raise AttributeError(f"rushlight.functional has no {name!r}")
    value = globals()[name] = SPACES["torch"][name]
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *[name for name in _NAMES if name in SPACES["torch"]]})
