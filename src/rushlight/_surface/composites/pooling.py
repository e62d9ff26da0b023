"""Pooling as users call it: the forms that may return indices, and those that adapt."""

from __future__ import annotations

from typing import Any

from rushlight._engine.core.tensor import Tensor
from rushlight._ops.forms import forms
from rushlight._surface.registry import SPACES, composite, function_of

__all__: list[str] = []


def _max_pool(n: int) -> None:
    with_indices, values = f"max_pool{n}d_with_indices", f"max_pool{n}d_values"

    @forms(
        "(input: Tensor, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, ceil_mode: bool = False, return_indices: Literal[False] = False) -> Tensor",
        "(input: Tensor, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, ceil_mode: bool = False, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]",
    )
    def function(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        if isinstance(stride, (list, tuple)) and not stride:
            stride = None
        name = with_indices if return_indices else values
        return function_of(name)(input, kernel_size, stride, padding, dilation, ceil_mode)

    function.__doc__ = f"The greatest value of each {n}-dimensional window; with `return_indices` also its place in the flattened plane."
    composite(f"max_pool{n}d", spaces=("torch", "nn.functional"), cached=True)(function)


def _adaptive_max_pool(n: int) -> None:
    @forms(
        "(input: Tensor, output_size: int | Sequence[int | None], return_indices: Literal[False] = False) -> Tensor",
        "(input: Tensor, output_size: int | Sequence[int | None], return_indices: Literal[True]) -> tuple[Tensor, Tensor]",
    )
    def function(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        found = function_of(f"adaptive_max_pool{n}d_with_indices")(input, output_size)
        return found if return_indices else found[0]

    function.__doc__ = "Max pooling with windows chosen so that the result has `output_size`."
    composite(f"adaptive_max_pool{n}d", spaces=("nn.functional",), cached=True)(function)


for _n in (1, 2, 3):
    _max_pool(_n)
    _adaptive_max_pool(_n)


@composite("adaptive_max_pool1d", spaces=("torch",))
@forms("(input: Tensor, output_size: int | Sequence[int]) -> tuple[Tensor, Tensor]")
def adaptive_max_pool1d(input: Tensor, output_size: Any) -> Any:
    """(values, indices), as `torch.adaptive_max_pool1d` returns them."""
    return function_of("adaptive_max_pool1d_with_indices")(input, output_size)


def _lp_pool(n: int) -> None:
    def function(
        input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> Tensor:
        kernel = (kernel_size,) * n if isinstance(kernel_size, int) else tuple(kernel_size)
        step = kernel if stride is None else (stride,) * n if isinstance(stride, int) else tuple(stride)
        return function_of("lp_pool_core")(input, float(norm_type), kernel, step, ceil_mode)

    function.__doc__ = f"The p-norm of each {n}-dimensional window."
    composite(f"lp_pool{n}d", spaces=("nn.functional",), cached=True)(function)


for _n in (1, 2, 3):
    _lp_pool(_n)


def _fractional_max_pool(n: int) -> None:
    name = f"fractional_max_pool{n}d"

    args = "input: Tensor, kernel_size: int | Sequence[int], output_size: int | Sequence[int] | None = None, "
    args += "output_ratio: float | Sequence[float] | None = None, "

    @forms(f"({args}return_indices: bool = False, _random_samples: Tensor | None = None) -> tuple[Tensor, Tensor]")
    def with_indices(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        if output_size is None:
            ratios = (output_ratio,) * n if isinstance(output_ratio, float) else tuple(output_ratio)
            if input._spec.ndim < n:
                raise IndexError(
                    f"Dimension out of range ({name} expects {n + 1}D or {n + 2}D input, but got: {list(input.shape)})"
                )
            if len(ratios) != n:
                raise ValueError(
                    f"{name} requires output_ratio to either be a single float or a tuple of {n} floats, got {output_ratio}"
                )
            output_size = [int(size * ratio) for size, ratio in zip(input.shape[-n:], ratios, strict=True)]
        if _random_samples is None:
            batch = 1 if input.dim() == n + 1 else input.size(0)
            _random_samples = SPACES["torch"]["rand"](
                batch, input.size(-n - 1), n, dtype=input.dtype, device=input.device
            )
        for word, given in (("kernel_size", kernel_size), ("output_size", output_size)):
            if isinstance(given, (tuple, list)) and len(given) != n:
                raise RuntimeError(f"{name}: {word} must either be a single int, or a tuple of {n} ints")
        return function_of(f"{name}_core")(input, kernel_size, output_size, _random_samples)

    @forms(
        f"({args}return_indices: Literal[False] = False, _random_samples: Tensor | None = None) -> Tensor",
        f"({args}*, return_indices: Literal[True], _random_samples: Tensor | None = None) -> tuple[Tensor, Tensor]",
    )
    def function(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        found = with_indices(input, kernel_size, output_size, output_ratio, return_indices, _random_samples)
        return found if return_indices else found[0]

    text = (
        f"The greatest value of each of `output_size` (or input size times `output_ratio`) windows over the last {n} dims, laid at random "
        "steps (Graham, Fractional Max-Pooling, 2014)"
    )
    function.__doc__ = f"{text}; with `return_indices` also its place in the flattened space."
    with_indices.__doc__ = f"{text}, and its place in the flattened space."
    composite(name, spaces=("nn.functional",))(function)
    composite(f"{name}_with_indices", spaces=("nn.functional",))(with_indices)


for _n in (2, 3):
    _fractional_max_pool(_n)
