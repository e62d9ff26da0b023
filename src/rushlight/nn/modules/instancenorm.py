"""Normalisation of each channel of each sample: `InstanceNorm1d`, `InstanceNorm2d`, `InstanceNorm3d`."""

from __future__ import annotations

import warnings
from typing import Any

from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn.modules.batchnorm import _LazyNormBase, _NormBase

__all__ = [
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d",
]  # fmt: skip


class _InstanceNorm(_NormBase):
    """The part that does not depend on the number of dimensions; `_dims` are (without batch, with batch)."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool, *rest: Any
    ) -> None:
        # Files of version 1 hold running statistics even where they are not tracked.
        if local_metadata.get("version", None) is None and not self.track_running_stats:
            stale = [prefix + name for name in ("running_mean", "running_var") if prefix + name in state_dict]
            if stale:
                rest[2].append(
                    f"Unexpected running stats buffer(s) {' and '.join(repr(key) for key in stale)} for "
                    f"{type(self).__name__} with track_running_stats=False. If state_dict is a checkpoint saved before "
                    "0.4.0, this may be expected because the module does not track running stats by default since 0.4.0."
                )
                for key in stale:
                    state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *rest)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise each channel of each sample; statistics are the sample's own unless running ones are used."""
        self._check_input_dim(input)
        without_batch = self._dims[0]
        channels = input.dim() - without_batch
        if input.size(channels) != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={channels} to match num_features ({self.num_features}), "
                    f"but got: {input.size(channels)}."
                )
            warnings.warn(
                f"input's size at dim={channels} does not match num_features. You can silence this warning by not passing "
                "in num_features, which is not used because affine=False",
                stacklevel=3,
            )
        if input.dim() == without_batch:
            return self._normalise(input.unsqueeze(0)).squeeze(0)
        return self._normalise(input)

    def _normalise(self, input: Any) -> Any:
        return F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L) or (C, L).

    Example: `nn.InstanceNorm1d(100)(torch.randn(20, 100, 40))`
    """

    _dims = (2, 3)
    _expected = "2D or 3D"


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W).

    >>> import rushlight as torch
    >>> torch.nn.InstanceNorm2d(2)(torch.randn(3, 2, 4, 4)).shape
    torch.Size([3, 2, 4, 4])
    """

    _dims = (3, 4)
    _expected = "3D or 4D"


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W).

    >>> import rushlight as torch
    >>> torch.nn.InstanceNorm3d(2)(torch.randn(3, 2, 4, 4, 4)).shape
    torch.Size([3, 2, 4, 4, 4])
    """

    _dims = (4, 5)
    _expected = "4D or 5D"


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """An `InstanceNorm1d` that takes `num_features` from its first input (N, C, *), and is an `InstanceNorm1d` from
    then on.
    """

    cls_to_become = InstanceNorm1d
    _dims = InstanceNorm1d._dims
    _expected = InstanceNorm1d._expected


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """An `InstanceNorm2d` that takes `num_features` from its first input (N, C, *), and is an `InstanceNorm2d` from
    then on.
    """

    cls_to_become = InstanceNorm2d
    _dims = InstanceNorm2d._dims
    _expected = InstanceNorm2d._expected


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """An `InstanceNorm3d` that takes `num_features` from its first input (N, C, *), and is an `InstanceNorm3d` from
    then on.
    """

    cls_to_become = InstanceNorm3d
    _dims = InstanceNorm3d._dims
    _expected = InstanceNorm3d._expected
