"""Pooling as users call it: the forms that may return indices, and those that adapt."""

from __future__ import annotations

from typing import Any

from rushlight._engine.tensor import Tensor
from rushlight._ops.forms import forms
from rushlight._surface.registry import composite, function_of

__all__: list[str] = []


def _max_pool(n: int) -> None:
    with_indices, values = f"max_pool{n}d_with_indices", f"max_pool{n}d_values"

    @forms(
        "(input: Tensor, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, ceil_mode: bool = False, return_indices: Literal[False] = False) -> Tensor",
        "(input: Tensor, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, ceil_mode: bool = False, *, return_indices: Literal[True]) -> tuple[Tensor, Tensor]",
    )
    def function(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
                 return_indices: bool = False) -> Any:  # fmt: skip
        if isinstance(stride, (list, tuple)) and not stride:
            stride = None
        name = with_indices if return_indices else values
        return function_of(name)(input, kernel_size, stride, padding, dilation, ceil_mode)

    function.__doc__ = f"The greatest value of each {n}-dimensional window; with `return_indices` also its place in the flattened plane."
    composite(f"max_pool{n}d", spaces=("torch", "nn.functional"))(function)


def _adaptive_max_pool(n: int) -> None:
    @forms(
        "(input: Tensor, output_size: int | Sequence[int | None], return_indices: Literal[False] = False) -> Tensor",
        "(input: Tensor, output_size: int | Sequence[int | None], return_indices: Literal[True]) -> tuple[Tensor, Tensor]",
    )
    def function(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        found = function_of(f"adaptive_max_pool{n}d_with_indices")(input, output_size)
        return found if return_indices else found[0]

    function.__doc__ = "Max pooling with windows chosen so that the result has `output_size`."
    composite(f"adaptive_max_pool{n}d", spaces=("nn.functional",))(function)


for _n in (1, 2, 3):
    _max_pool(_n)
    _adaptive_max_pool(_n)


@composite("adaptive_max_pool1d", spaces=("torch",))
@forms("(input: Tensor, output_size: int | Sequence[int]) -> tuple[Tensor, Tensor]")
def adaptive_max_pool1d(input: Tensor, output_size: Any) -> Any:
    """(values, indices), as `torch.adaptive_max_pool1d` returns them."""
    return function_of("adaptive_max_pool1d_with_indices")(input, output_size)


def _lp_pool(n: int) -> None:
    def function(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
        kernel = (kernel_size,) * n if isinstance(kernel_size, int) else tuple(kernel_size)
        step = kernel if stride is None else (stride,) * n if isinstance(stride, int) else tuple(stride)
        return function_of("lp_pool_core")(input, float(norm_type), kernel, step, ceil_mode)  # type: ignore[no-any-return]

    function.__doc__ = f"The p-norm of each {n}-dimensional window."
    composite(f"lp_pool{n}d", spaces=("nn.functional",))(function)


for _n in (1, 2, 3):
    _lp_pool(_n)
