"""Normalisation over the batch, with running statistics: `BatchNorm1d`, `BatchNorm2d`, `BatchNorm3d`, `SyncBatchNorm`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import LazyModule
from rushlight.nn import functional as F
from rushlight.nn import init
from rushlight.nn.modules.lazy import LazyModuleMixin
from rushlight.nn.modules.module import Module
from rushlight.nn.modules.normalization import add_affine

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "SyncBatchNorm",
]  # fmt: skip

batch_statistics: Any = LazyModule("rushlight.nn.parallel.batch_statistics")


class _NormBase(Module):
    """Common base of batch and instance normalisation: scale and shift, running statistics."""

    # State dicts of version 1 have no `num_batches_tracked`.
    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]

    _dims: tuple[int, ...] = ()
    _expected = ""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        add_affine(self, num_features, affine, bias, device, dtype)
        stats = (None, None, None)
        if track_running_stats:
            stats = (
                rushlight.zeros(num_features, device=device, dtype=dtype),
                rushlight.ones(num_features, device=device, dtype=dtype),
                rushlight.tensor(0, dtype=rushlight.int64, device=device),
            )
        for name, value in zip(("running_mean", "running_var", "num_batches_tracked"), stats, strict=True):
            self.register_buffer(name, value)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the statistics of the batches seen so far."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Set the scale to one, the shift to zero, and forget the statistics."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() not in self._dims:
            raise ValueError(f"expected {self._expected} input (got {input.dim()}D input)")

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *args: Any) -> None:
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            count = self.num_batches_tracked
            known = count is not None and not count.is_meta
            state_dict[key] = count if known else rushlight.tensor(0, dtype=rushlight.int64)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)


class _BatchNorm(_NormBase):
    """The part that does not depend on the number of dimensions."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise each channel: with the batch's statistics in training, with the running ones in evaluation."""
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                # The plain average over all batches so far.
                factor = 1.0 / float(self.num_batches_tracked)
        mean, var = self.running_mean, self.running_var
        use_batch = self.training or (mean is None and var is None)
        if self.training and not self.track_running_stats:
            mean = var = None
        return F.batch_norm(input, mean, var, self.weight, self.bias, use_batch, factor, self.eps)


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L).

    Example: `nn.BatchNorm1d(100)(torch.randn(20, 100))`
    """

    _dims = (2, 3)
    _expected = "2D or 3D"


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W): running = (1 - momentum) * running + momentum * batch.

    The running variance is the unbiased one. `momentum=None` takes the plain average over all batches.

    Example: `nn.BatchNorm2d(16)(torch.randn(8, 16, 35, 45))`
    """

    _dims = (4,)
    _expected = "4D"


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W).

    >>> import rushlight as torch
    >>> torch.nn.BatchNorm3d(2)(torch.randn(3, 2, 4, 4, 4)).shape
    torch.Size([3, 2, 4, 4, 4])
    """

    _dims = (5,)
    _expected = "5D"


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation of (N, C, *) whose statistics are those of the batches of all processes of a group.

    In a single process, and in evaluation, it is `BatchNorm`.  The processes may have batches of different sizes.

    Example: `nn.SyncBatchNorm(3)(torch.randn(8, 3, 5))`
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def forward(self, input: Any) -> Any:
        """The normalised input."""
        group = batch_statistics.group_of_several(self.process_group) if self.training else None
        if group is None:
            return super().forward(input)
        self._check_input_dim(input)
        running = None
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            momentum = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            running = (self.running_mean, self.running_var, momentum)
        return batch_statistics.normalised(input, self.weight, self.bias, running, self.eps, group)

    def _check_input_dim(self, input: Any) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """`module` with every batch normalisation in it replaced by a `SyncBatchNorm` with the same parameters and
        statistics.
        """
        made = module
        if isinstance(module, _BatchNorm):
            made = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            made.weight, made.bias = module.weight, module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            made.num_batches_tracked = module.num_batches_tracked
            made.training = module.training
            if hasattr(module, "qconfig"):  # how it is to be quantized
                made.qconfig = module.qconfig
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


# ***** lazy *****


class _LazyNormBase(LazyModuleMixin):
    """Common base of the lazy normalisations: the number of channels comes with the first input."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        # Neither parameters nor statistics: they would be made for no channels and thrown away.
        super().__init__(0, eps, momentum, False, False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        made = {"device": device, "dtype": dtype}
        if affine:
            self.weight = rushlight.nn.UninitializedParameter(**made)
            if bias:
                self.bias = rushlight.nn.UninitializedParameter(**made)
        if track_running_stats:
            self.running_mean = rushlight.nn.UninitializedBuffer(**made)
            self.running_var = rushlight.nn.UninitializedBuffer(**made)
            self.num_batches_tracked = rushlight.tensor(0, dtype=rushlight.int64, device=device)

    def reset_parameters(self: Any) -> None:
        """Set the scale to one, the shift to zero, and forget the statistics, if they have shapes."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self: Any, input: Any) -> None:
        """Make parameters and statistics for an input (N, C, *)."""
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        members = [self.weight, self.bias] if self.affine else []
        if self.track_running_stats:
            members += [self.running_mean, self.running_var]
        for member in members:
            if member is not None:
                member.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """A `BatchNorm1d` that takes `num_features` from its first input, and is a `BatchNorm1d` from then on.

    >>> import rushlight as torch
    >>> layer = torch.nn.LazyBatchNorm1d()
    >>> layer(torch.randn(3, 2)).shape
    torch.Size([3, 2])
    >>> layer.num_features
    2
    """

    cls_to_become = BatchNorm1d
    _dims = BatchNorm1d._dims
    _expected = BatchNorm1d._expected


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """A `BatchNorm2d` that takes `num_features` from its first input, and is a `BatchNorm2d` from then on."""

    cls_to_become = BatchNorm2d
    _dims = BatchNorm2d._dims
    _expected = BatchNorm2d._expected


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """A `BatchNorm3d` that takes `num_features` from its first input, and is a `BatchNorm3d` from then on."""

    cls_to_become = BatchNorm3d
    _dims = BatchNorm3d._dims
    _expected = BatchNorm3d._expected
