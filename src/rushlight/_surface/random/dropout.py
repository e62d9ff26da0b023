"""Dropouts, and the other functions of networks that draw: `gumbel_softmax`, `rrelu`."""

from __future__ import annotations

import warnings
from typing import Any

from rushlight._base.errors import warn_user
from rushlight._base.tracebacks import shorten
from rushlight._engine.core.memory import empty_spec, zeros_spec
from rushlight._engine.core.state import FUNCTION_MODE, STATE, VMAP
from rushlight._engine.core.tensor import Tensor, plain_classes
from rushlight._engine.random import random as streams
from rushlight._engine.random import sampling
from rushlight._engine.random.random import Generator
from rushlight._engine.random.sampling import METHODS, as_float, not_implemented, overridable
from rushlight._surface.random.random import named
from rushlight._surface.registry import SPACES, composite
from rushlight._types.dtype import BOOL, FLOAT32, FLOAT64
from rushlight._types.spec import Spec, check_memory

__all__: list[str] = []


# ***** dropouts *****


def _dropout(name: str, channels: int, alpha: bool, what: str) -> None:
    """`torch.NAME(input, p, train)` and `torch.NAME_`."""

    @overridable
    def function(input: Tensor, p: float, train: bool) -> Tensor:
        return sampling.dropout_with(name, input, p, train, channels, alpha, False)

    @overridable
    def in_place(input: Tensor, p: float, train: bool) -> Tensor:
        return sampling.dropout_with(name + "_", input, p, train, channels, alpha, True)

    function.__doc__ = f"{what} with probability `p` if `train`; see `torch.nn.functional.{name}`."
    in_place.__doc__ = f"In-place form of `{name}`."
    composite(name, overridable=False)(named(function, name))
    composite(name + "_", overridable=False)(named(in_place, name + "_"))


_dropout("dropout", 0, False, "Set elements to 0 and scale the rest by 1 / (1 - p)")
_dropout("feature_dropout", 2, False, "Set whole channels to 0 and scale the rest by 1 / (1 - p)")
_dropout("alpha_dropout", 0, True, "Set elements to SELU's negative limit, keeping mean and variance,")
_dropout("feature_alpha_dropout", 2, True, "Set whole channels to SELU's negative limit, keeping mean and variance,")


def check_p(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


@composite("dropout", spaces=("nn.functional",), overridable=False)
def functional_dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set each element to 0 with probability `p` and scale the others by 1 / (1 - p); the identity unless `training`."""
    try:
        if (
            training is True
            and not inplace
            and type(input) in plain_classes
            and type(p) is float
            and not STATE.word & (FUNCTION_MODE | VMAP)
        ):
            plan = sampling.NOISES.get((input._spec, p))
            if plan is not None:
                return input * plan()
        if STATE.word & VMAP or STATE.word & FUNCTION_MODE or type(input) not in plain_classes:
            return _asked_dropout(input, p, training, inplace)
        return _functional_dropout(input, p, training, inplace)
    except BaseException as error:
        shorten(error)
        raise


def _functional_dropout(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    check_p(p)
    return sampling.dropout_with("dropout", input, p, training, 0, False, inplace)


_asked_dropout = overridable(_functional_dropout, functional_dropout)


@composite("alpha_dropout", spaces=("nn.functional",), overridable=False)
@overridable
def functional_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for self-normalising networks: dropped elements get SELU's negative limit; mean and variance are kept."""
    check_p(p)
    return sampling.dropout_with("alpha_dropout", input, p, training, 0, True, inplace)


@composite("feature_alpha_dropout", spaces=("nn.functional",), overridable=False)
@overridable
def functional_feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels (dim 1)."""
    check_p(p)
    return sampling.dropout_with("feature_alpha_dropout", input, p, training, 2, True, inplace)


def _channels(name: str, batched: tuple[int, ...], single: int, warns: str) -> None:
    """`dropout1d`, `dropout2d`, `dropout3d`: whole channels of a batch or of a single sample."""

    @overridable
    def function(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        check_p(p)
        ndim = input.dim()
        if ndim not in (*batched, single):
            _wrong_rank(name, ndim, warns)
        elif name == "dropout2d" and ndim == 3:
            _warn_channels_first()
        # without a batch dim there is one dim less before the channels' own; three spatial dims are a batch only where
        # there are five dims
        channels = 1 if name != "dropout2d" and ndim not in batched else 2
        return sampling.dropout_with("feature_dropout", input, p, training, channels, False, inplace)

    function.__doc__ = (
        f"Set whole channels of a batch ({warns}) to 0 with probability `p`, and scale the others by 1 / (1 - p)."
    )
    composite(name, spaces=("nn.functional",), overridable=False)(named(function, name))


def _warn_channels_first() -> None:
    warnings.warn(
        "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired - input is interpreted as "
        "shape (N, C, L), where C is the channel dim. This behavior will change in a future release to interpret the input as one without a "
        "batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise dropout behavior, please switch to using dropout1d instead.",
        UserWarning,
        stacklevel=4,
    )


def _wrong_rank(name: str, ndim: int, warns: str) -> None:
    if name == "dropout1d":
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {ndim}D input. Note that dropout1d exists to provide {warns}"
        )
    warnings.warn(
        f"{name}: Received a {ndim}-D input to {name}, which is deprecated and will result in an error in a future release. To retain the "
        f"behavior and silence this warning, please use dropout instead. Note that {name} exists to provide {warns}",
        UserWarning,
        stacklevel=4,
    )


_channels(
    "dropout1d",
    (3,),
    2,
    "channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an optional batch dimension",
)
_channels(
    "dropout2d",
    (3, 4),
    4,
    "channel-wise dropout on inputs with 2 spatial dimensions, a channel dimension, and an optional batch dimension",
)
_channels(
    "dropout3d",
    (5,),
    4,
    "channel-wise dropout on inputs with 3 spatial dimensions, a channel dimension, and an optional batch dimension",
)


@composite("native_dropout", overridable=False)
@overridable
def native_dropout(input: Any, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(result, bool mask) of a dropout."""
    if input._spec.numel == 0:
        return input, zeros_spec(input._spec)
    p = as_float("native_dropout", "p", p)
    if train is False:
        return input, input.detach().new_ones(input.shape, dtype=BOOL)
    mask = METHODS["bernoulli_"](empty_spec(Spec.of(BOOL, input._spec.device, input._spec.shape)), 1 - p)
    scale = 0.0 if p == 1 else 1.0 / (1 - p)
    return input * mask * scale, mask


# ***** activations that draw *****


@composite("gumbel_softmax", spaces=("nn.functional",), overridable=False)
@overridable
def gumbel_softmax(logits: Any, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of the Gumbel-softmax distribution along `dim`; with `hard` one-hot, with the gradient of the soft
    sample.
    """
    if eps != 1e-10:
        warn_user("`eps` parameter is deprecated and has no effect.")
    noise: Any = METHODS["exponential_"](empty_spec(Spec.of(logits.dtype, logits.device, logits.shape)))
    soft = ((logits - noise.log()) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one_hot = zeros_spec(soft._spec).scatter_(dim, index, 1.0)
    return one_hot - soft.detach() + soft


def _rrelu(input: Any, lower: float, upper: float, training: bool, generator: Generator | None) -> Any:
    """The slopes as a tensor, or the mean slope."""
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return (lower + upper) / 2
    dtype = input._spec.dtype
    if not dtype.is_floating_point:
        raise not_implemented("rrelu_with_noise_out_cpu", dtype)
    generator = streams.generator_for(generator, input.device)
    wide = FLOAT64 if dtype is FLOAT64 else FLOAT32
    slopes: Any = empty_spec(Spec.of(wide, input._spec.device, input._spec.shape))
    if slopes._storage is not None and slopes._spec.numel:
        check_memory(input._spec)
        values = input.detach().to(wide).contiguous()
        # The bounds have the dtype in which the tensor computes, the uniform between them is float64
        if wide is FLOAT32:
            lower, upper = sampling.to_f32(lower), sampling.to_f32(upper)
        streams.fill_leaks(generator, slopes._ptr, slopes._spec.numel, wide, values._ptr, lower, upper)
    return slopes.to(dtype)


def _apply_slopes(input: Any, slopes: Any, inplace: bool) -> Tensor:
    if isinstance(slopes, Tensor):
        return input.mul_(slopes) if inplace else input * slopes
    leaky = SPACES["nn.functional"]["leaky_relu"](input, slopes)
    return input.copy_(leaky) if inplace else leaky


@composite("rrelu", spaces=("nn.functional",), overridable=False)
@overridable
def functional_rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Leaky rectifier whose slope is drawn from [lower, upper) for each element <= 0; the mean slope unless `training`."""
    return _apply_slopes(input, _rrelu(input, lower, upper, training, None), inplace)


def _rrelu_of_a_generator(name: str, spaces: tuple[str, ...], inplace: bool, what: str) -> None:
    """`torch.rrelu` and `rrelu_`."""

    @overridable
    def function(
        input: Tensor,
        lower: float = 1.0 / 8,
        upper: float = 1.0 / 3,
        training: bool = False,
        generator: Generator | None = None,
    ) -> Tensor:
        return _apply_slopes(input, _rrelu(input, lower, upper, training, generator), inplace)

    function.__doc__ = what
    composite(name, spaces=spaces, overridable=False)(named(function, name))


_rrelu_of_a_generator("rrelu", ("torch",), False, "`torch.nn.functional.rrelu` with a generator.")
_rrelu_of_a_generator("rrelu_", ("torch", "nn.functional"), True, "In-place form of `rrelu`.")
