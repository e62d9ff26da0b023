"""Optimizers that step inside backward: a gradient is used and dropped as soon as it is complete."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rushlight.nn import Module, Parameter

__all__: list[str] = []


def _apply_optimizer_in_backward(
    optimizer_class: Any, params: Iterable[Parameter], optimizer_kwargs: dict[str, Any], register_hook: bool = True
) -> None:
    """Let backward step an optimizer of `optimizer_class(parameter, **optimizer_kwargs)` for each parameter.

    Its gradient is None afterwards, so that no more than one gradient is there at a time.  A parameter with several
    optimizers is stepped by each in turn.  Without `register_hook` they are made and kept, and the caller steps them.
    RuntimeError for a parameter that wants no gradient.

    >>> import rushlight as torch
    >>> layer = torch.nn.Linear(2, 1, bias=False)
    >>> _ = torch.nn.init.ones_(layer.weight)
    >>> torch.distributed.optim._apply_optimizer_in_backward(torch.optim.SGD, layer.parameters(), {"lr": 0.5})
    >>> layer(torch.ones(1, 2)).sum().backward()
    >>> layer.weight.tolist(), layer.weight.grad
    ([[0.5, 0.5]], None)
    """
    parameters: list[Any] = list(params)
    for parameter in parameters:
        if not parameter.requires_grad:
            raise RuntimeError("an optimizer in backward needs parameters that require gradients")
    for parameter in parameters:
        if not hasattr(parameter, "_in_backward_optimizers"):
            parameter._in_backward_optimizers = []
            parameter._optimizer_classes, parameter._optimizer_kwargs = [], []
        parameter._optimizer_classes.append(optimizer_class)
        parameter._optimizer_kwargs.append(optimizer_kwargs)
        parameter._in_backward_optimizers.append(optimizer_class([parameter], **optimizer_kwargs))
        if register_hook:
            parameter.register_post_accumulate_grad_hook(_step)


def _step(parameter: Any) -> None:
    for optimizer in parameter._in_backward_optimizers:
        optimizer.step()
    parameter.grad = None


def _get_in_backward_optimizers(module: Module) -> list[Any]:
    """The optimizers that `_apply_optimizer_in_backward` made for the parameters of a module."""
    return [one for parameter in module.parameters() for one in getattr(parameter, "_in_backward_optimizers", ())]
