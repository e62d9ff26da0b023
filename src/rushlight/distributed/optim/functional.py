"""Optimizers that are given gradients: `.grad` of the parameters is neither read nor written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight import Tensor
from rushlight._interface.tensors import alias
from rushlight.optim import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Optimizer, RMSprop, Rprop

__all__ = ["FunctionalOptimizer", "as_functional_optim", "functional_optim_map"]


class FunctionalOptimizer:
    """Steps of an optimizer on gradients that are given, over the memory of the parameters.

    >>> import rushlight as torch
    >>> from rushlight.distributed.optim import as_functional_optim
    >>> weight = torch.ones(2, requires_grad=True)
    >>> as_functional_optim(torch.optim.SGD, lr=0.5).step_param(weight, torch.ones(2))
    >>> weight
    tensor([0.5000, 0.5000], requires_grad=True)
    """

    optimizer_class: type[Optimizer]

    def __init__(
        self, params: Sequence[Tensor] = (), *args: Any, _allow_empty_param_list: bool = False, **kwargs: Any
    ) -> None:
        params = list(params)
        if not params and not _allow_empty_param_list:
            raise ValueError("optimizer got an empty parameter list")
        self._settings = args, kwargs
        self._places: dict[int, tuple[Tensor, Tensor]] = {}  # parameter, and the leaf that is stepped
        self._optimizer: Optimizer | None = None
        self.params = params
        self._take(params)

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer underneath; None while there are no parameters."""
        return self._optimizer

    def _take(self, params: Sequence[Tensor]) -> None:
        new = []
        for param in params:
            place = alias(param)
            place.requires_grad_()
            self._places[id(param)] = (param, place)
            new.append(place)
        if self._optimizer is not None and new:
            self._optimizer.add_param_group({"params": new})
        elif new:
            args, kwargs = self._settings
            self._optimizer = self.optimizer_class(new, *args, **kwargs)

    def step(self, gradients: Sequence[Tensor | None]) -> None:
        """One step with a gradient, or None, for each parameter; ValueError for another number of them."""
        if len(gradients) != len(self.params):
            raise ValueError(
                "the gradients passed in does not equal to the size of the parameters! "
                f"Params length: {len(self.params)}. Gradients length: {len(gradients)}"
            )
        self._step(list(zip(self.params, gradients, strict=True)))

    def step_param(self, param: Tensor, grad: Tensor | None) -> None:
        """One step of one parameter, which need not be known yet."""
        if id(param) not in self._places:
            self.params.append(param)
            self._take([param])
        self._step([(param, grad)])

    def _step(self, pairs: Sequence[tuple[Tensor, Tensor | None]]) -> None:
        if self._optimizer is None:
            return
        places = [(self._places[id(param)][1], grad) for param, grad in pairs]
        for place, grad in places:
            place.grad = grad
        try:
            self._optimizer.step()
        finally:
            for place, _ in places:
                place.grad = None


def functional(optimizer_class: type[Optimizer]) -> type[FunctionalOptimizer]:
    """The class of an optimizer that is given gradients."""
    return type(f"_Functional{optimizer_class.__name__}", (FunctionalOptimizer,), {"optimizer_class": optimizer_class})


functional_optim_map: dict[type[Optimizer], type[FunctionalOptimizer]] = {
    cls: functional(cls) for cls in (Adagrad, Adam, AdamW, SGD, Adadelta, RMSprop, Rprop, Adamax)
}


def as_functional_optim(optim_cls: type[Optimizer], *args: Any, **kwargs: Any) -> FunctionalOptimizer:
    """An optimizer of this class that is given gradients, without parameters yet; ValueError for a class that has none."""
    made = functional_optim_map.get(optim_cls)
    if made is None:
        raise ValueError(f"Optimizer {optim_cls} does not have a functional counterpart!")
    return made([], *args, _allow_empty_param_list=True, **kwargs)
