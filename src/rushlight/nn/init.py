"""Ways to fill parameters before training. The same seed gives the same numbers as PyTorch.

Every function changes its tensor in place, without recording a gradient, and returns it.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.operators import asking

__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_GAINS: dict[str, float] = {
    **dict.fromkeys(("linear", "sigmoid", *(f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3))), 1),
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which weights before `nonlinearity` are enlarged so that variances stay equal.

    `param` is the negative slope for `leaky_relu` (default 0.01). Raises `ValueError` for an unknown name.

    Example: `calculate_gain("leaky_relu", 0.2)`
    """
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, (int, float))):
            raise ValueError(f"negative_slope {param} not a valid number")
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


# ***** fillings without gradients: packages with schemes of their own call these *****


def _no_grad_uniform_(tensor: Any, a: float, b: float, generator: Any = None) -> Tensor:
    with rushlight.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def _no_grad_normal_(tensor: Any, mean: float, std: float, generator: Any = None) -> Tensor:
    with rushlight.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def _no_grad_fill_(tensor: Any, val: float) -> Tensor:
    with rushlight.no_grad():
        return tensor.fill_(val)


def _no_grad_zero_(tensor: Any) -> Tensor:
    with rushlight.no_grad():
        return tensor.zero_()


# ***** simple fillings *****


@asking
def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with draws from the uniform distribution on [a, b).

    >>> import rushlight as torch
    >>> float(torch.nn.init.uniform_(torch.empty(100), -1.0, 1.0).abs().max()) <= 1.0
    True
    """
    return _no_grad_uniform_(tensor, a, b, generator)


@asking
def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with draws from the normal distribution.

    >>> import rushlight as torch
    >>> torch.nn.init.normal_(torch.empty(2, 3), std=0.1).shape
    torch.Size([2, 3])
    """
    return _no_grad_normal_(tensor, mean, std, generator)


@asking
def constant_(tensor: Any, val: float) -> Tensor:
    """Fill with the value `val`.

    >>> import rushlight as torch
    >>> torch.nn.init.constant_(torch.empty(2, 3), 0.5)
    tensor([[0.5000, 0.5000, 0.5000],
            [0.5000, 0.5000, 0.5000]])
    """
    return _no_grad_fill_(tensor, val)


def ones_(tensor: Any) -> Tensor:
    """Fill with ones.

    >>> import rushlight as torch
    >>> torch.nn.init.ones_(torch.empty(2, 3))
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Any) -> Tensor:
    """Fill with zeros.

    >>> import rushlight as torch
    >>> torch.nn.init.zeros_(torch.empty(2, 3))
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    return _no_grad_zero_(tensor)


def eye_(tensor: Any) -> Tensor:
    """Fill a matrix with the identity (as much of it as fits).

    >>> import rushlight as torch
    >>> torch.nn.init.eye_(torch.empty(2, 3))
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with rushlight.no_grad():
        tensor.zero_()
        tensor.diagonal().fill_(1)
    return tensor


def dirac_(tensor: Any, groups: int = 1) -> Tensor:
    """Fill a convolution's weight (3 to 5 dimensions) so that it passes its input channels on, group by group.

    >>> import rushlight as torch
    >>> torch.nn.init.dirac_(torch.empty(2, 2, 3))[0]
    tensor([[0., 1., 0.],
            [0., 0., 0.]])
    """
    if tensor.ndimension() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    out_channels, in_channels, *kernel = tensor.size()
    if out_channels % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    if tensor.is_meta:
        return tensor
    per_group = out_channels // groups
    centre = tuple(n // 2 for n in kernel)
    with rushlight.no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(per_group, in_channels)):
                tensor[(group * per_group + channel, channel, *centre)] = 1
    return tensor


# ***** truncated normal *****


def trunc_normal_(
    tensor: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Fill with draws from the normal distribution, conditioned on lying in [a, b].

    >>> import rushlight as torch
    >>> float(torch.nn.init.trunc_normal_(torch.empty(100), a=-2.0, b=2.0).abs().max()) <= 2.0
    True
    """
    return _no_grad_trunc_normal_(tensor, mean, std, a, b, generator)


def _no_grad_trunc_normal_(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any = None) -> Tensor:
    if tensor.is_meta:
        return tensor
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=3,
        )

    def below(x: float) -> float:
        return (1.0 + math.erf((x - mean) / std / math.sqrt(2.0))) / 2.0

    with rushlight.no_grad():
        # Draw again what fell outside while most draws fall inside, else propose uniformly and reject. Which of the two
        # runs, and in which order it draws, is part of "the same numbers as PyTorch".
        if below(b) - below(a) > 0.3:
            _truncate_by_redrawing(tensor, mean, std, a, b, generator)
        else:
            _truncate_by_rejection(tensor, mean, std, a, b, generator)
    return tensor


def _truncate_by_redrawing(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any) -> None:
    # The bounds as the tensor's dtype sees them: a bound that rounds outward must not reject its own value.
    low = tensor.new_tensor(a).item()
    high = tensor.new_tensor(b).item()
    result = tensor.normal_(mean, std, generator=generator)
    while True:
        outside = (result < low) | (result > high)
        if not outside.any():
            break
        result = rushlight.where(outside, rushlight.empty_like(result).normal_(mean, std, generator=generator), result)
    if result is not tensor:
        tensor.copy_(result)


def _truncate_by_rejection(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any) -> None:
    mode = max(a, min(mean, b))
    log_peak = -0.5 * ((mode - mean) / std) ** 2
    candidates = rushlight.empty_like(tensor)
    accept = rushlight.empty_like(tensor)

    def rejected() -> Any:
        candidates.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(log_peak)
        return accept.uniform_(generator=generator).log_().gt(candidates)

    tensor.uniform_(a, b, generator=generator)
    candidates.copy_(tensor)
    pending = rejected()
    if not pending.any():
        return
    result = tensor
    while pending.any():
        candidates.uniform_(a, b, generator=generator)
        result = rushlight.where(pending, candidates, result)
        pending = rushlight.where(pending, rejected(), pending)
    tensor.copy_(result)


# ***** fillings that keep variances *****


def _calculate_fan_in_and_fan_out(tensor: Any) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    receptive_field = math.prod(tensor.shape[2:])
    return tensor.size(1) * receptive_field, tensor.size(0) * receptive_field


def _calculate_correct_fan(tensor: Any, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill uniformly on [-b, b], b = gain * sqrt(6 / (fan_in + fan_out)) (Glorot).

    >>> import rushlight as torch
    >>> float(torch.nn.init.xavier_uniform_(torch.empty(4, 2)).abs().max()) <= 1.0  # sqrt(6 / (2 + 4))
    True
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / float(fan_in + fan_out))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill normally with standard deviation gain * sqrt(2 / (fan_in + fan_out)) (Glorot).

    >>> import rushlight as torch
    >>> torch.nn.init.xavier_normal_(torch.empty(2, 3)).shape
    torch.Size([2, 3])
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / float(fan_in + fan_out))
    return normal_(tensor, 0.0, std, generator)


@asking
def kaiming_uniform_(
    tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Fill uniformly on [-b, b], b = gain * sqrt(3 / fan) (He). `a` is the negative slope for `leaky_relu`.

    >>> import rushlight as torch
    >>> float(torch.nn.init.kaiming_uniform_(torch.empty(4, 6)).abs().max()) <= 1.0  # sqrt(2) * sqrt(3 / 6)
    True
    """
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Fill normally with standard deviation gain / sqrt(fan) (He). `a` is the negative slope for `leaky_relu`.

    >>> import rushlight as torch
    >>> torch.nn.init.kaiming_normal_(torch.empty(2, 3), nonlinearity="relu").shape
    torch.Size([2, 3])
    """
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    return normal_(tensor, 0, std, generator)


def orthogonal_(tensor: Any, gain: float = 1, generator: Any = None) -> Tensor:
    """Fill with a (semi-)orthogonal matrix; more than two dimensions count as (size(0), everything else).

    >>> import rushlight as torch
    >>> w = torch.nn.init.orthogonal_(torch.empty(3, 3))
    >>> torch.allclose(w @ w.T, torch.eye(3), atol=1e-6)
    True
    """
    if tensor.ndimension() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    rows = tensor.size(0)
    cols = tensor.numel() // rows
    flat = tensor.new_empty((rows, cols)).normal_(0, 1, generator=generator)
    if rows < cols:
        flat.t_()
    q, r = rushlight.linalg.qr(flat)
    # QR leaves the signs open: fixing those of R's diagonal makes the distribution uniform.
    q *= rushlight.diag(r, 0).sign()
    if rows < cols:
        q.t_()
    with rushlight.no_grad():
        tensor.view_as(q).copy_(q)
        tensor.mul_(gain)
    return tensor


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fill a matrix normally, then set a fraction `sparsity` of each column, chosen at random, to zero.

    >>> import rushlight as torch
    >>> int((torch.nn.init.sparse_(torch.empty(10, 4), sparsity=0.3) == 0).sum())
    12
    """
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    if tensor.is_meta:
        return tensor
    rows, cols = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with rushlight.no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(cols):
            # The order is drawn from the default generator even when one is given, as PyTorch does.
            tensor[rushlight.randperm(rows)[:zeros], column] = 0
    return tensor


# ***** the old names, without the underscore *****


def _deprecated(function: Callable[..., Any]) -> Callable[..., Any]:
    new = function.__name__

    @functools.wraps(function)
    def old_name(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            f"`nn.init.{new[:-1]}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning, stacklevel=2
        )
        return function(*args, **kwargs)

    old_name.__name__ = new[:-1]
    return old_name


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)
