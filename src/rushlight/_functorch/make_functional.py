"""Modules as functions of their parameters and buffers: what `torch.func.functional_call` has taken the place of.

>>> import rushlight as torch
>>> function, parameters = make_functional(torch.nn.Linear(2, 1))
>>> function([torch.ones(1, 2), torch.zeros(1)], torch.tensor([[3.0, 4.0]]))
tensor([[7.]])
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.func import functional_call
from rushlight.nn.modules.module import Module

__all__ = [
    "FunctionalModule",
    "FunctionalModuleWithBuffers",
    "combine_state_for_ensemble",
    "make_functional",
    "make_functional_with_buffers",
]


def _stateless(model: Module) -> Module:
    """A copy of a module whose tensors have no data."""
    with rushlight.no_grad():
        return copy.deepcopy(model).to("meta")


class FunctionalModuleWithBuffers(Module):
    """A module as `f(parameters, buffers, *args)`; both are sequences in the order of `named_parameters` and
    `named_buffers`.
    """

    def __init__(self, stateless_model: Module, param_names: Sequence[str], buffer_names: Sequence[str]) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = tuple(param_names), tuple(buffer_names)

    @staticmethod
    def _create_from(
        model: Module, disable_autograd_tracking: bool = False
    ) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
        parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
        made = FunctionalModuleWithBuffers(_stateless(model), list(parameters), list(buffers))
        return made, _values(parameters, disable_autograd_tracking), tuple(buffers.values())

    def forward(self, params: Sequence[Any], buffers: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """The module with these tensors in the place of its own."""
        given = {
            **dict(zip(self.param_names, params, strict=True)),
            **dict(zip(self.buffer_names, buffers, strict=True)),
        }
        return functional_call(self.stateless_model, given, args, kwargs)


class FunctionalModule(Module):
    """A module without buffers as `f(parameters, *args)`."""

    def __init__(self, stateless_model: Module, param_names: Sequence[str]) -> None:
        super().__init__()
        self.stateless_model, self.param_names = stateless_model, tuple(param_names)

    @staticmethod
    def _create_from(model: Module, disable_autograd_tracking: bool = False) -> tuple[Any, tuple[Any, ...]]:
        parameters = dict(model.named_parameters())
        return FunctionalModule(_stateless(model), list(parameters)), _values(parameters, disable_autograd_tracking)

    def forward(self, params: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """The module with these parameters in the place of its own."""
        return functional_call(self.stateless_model, dict(zip(self.param_names, params, strict=True)), args, kwargs)


def _values(parameters: dict[str, Any], detached: bool) -> tuple[Any, ...]:
    return tuple(each.detach() if detached else each for each in parameters.values())


def make_functional(model: Module, disable_autograd_tracking: bool = False) -> tuple[FunctionalModule, tuple[Any, ...]]:
    """(function of parameters and arguments, the parameters) of a module without buffers; ValueError for one that has
    some.
    """
    if any(True for _ in model.buffers()):
        raise ValueError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead."
        )
    return FunctionalModule._create_from(model, disable_autograd_tracking)


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """(function of parameters, buffers and arguments, the parameters, the buffers) of a module."""
    return FunctionalModuleWithBuffers._create_from(model, disable_autograd_tracking)


def combine_state_for_ensemble(
    models: Sequence[Module],
) -> tuple[FunctionalModuleWithBuffers, tuple[Any, ...], tuple[Any, ...]]:
    """The function of several modules of one class, and their parameters and buffers stacked, for `vmap`; RuntimeError
    where they do not agree.
    """
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError("combine_state_for_ensemble: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise RuntimeError("combine_state_for_ensemble: Expected all models to be of the same class.")
    made = [make_functional_with_buffers(model) for model in models]
    parameters = tuple(
        rushlight.stack(each).detach().requires_grad_() for each in zip(*(each[1] for each in made), strict=True)
    )
    buffers = tuple(rushlight.stack(each) for each in zip(*(each[2] for each in made), strict=True))
    return made[0][0], parameters, buffers
