"""Averages of a model's weights over training: stochastic weight averaging, exponential moving averages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import rushlight
from rushlight.nn.modules.batchnorm import _BatchNorm
from rushlight.nn.modules.module import Module
from rushlight.optim.lr_scheduler import LRScheduler, _for_each_group
from rushlight.optim.optimizer import Optimizer

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], Any]:
    """The exponential moving average of one parameter: decay * average + (1 - decay) * new.

    >>> import rushlight as torch
    >>> torch.optim.swa_utils.get_ema_avg_fn(0.9)(torch.tensor(1.0), torch.tensor(2.0), 5)
    tensor(1.1000)
    """
    _check_decay(decay)

    def update(average: Any, new: Any, num_averaged: Any) -> Any:
        with rushlight.no_grad():
            return decay * average + (1 - decay) * new

    return update


def get_swa_avg_fn() -> Callable[[Any, Any, Any], Any]:
    """The plain average of one parameter over all updates.

    >>> import rushlight as torch
    >>> torch.optim.swa_utils.get_swa_avg_fn()(torch.tensor(1.0), torch.tensor(2.0), 3)
    tensor(1.2500)
    """

    def update(average: Any, new: Any, num_averaged: Any) -> Any:
        with rushlight.no_grad():
            return average + (new - average) / (num_averaged + 1)

    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[list[Any], list[Any], Any], None]:
    """The exponential moving average of lists of parameters, in place."""
    _check_decay(decay)

    def update(averages: list[Any], new: list[Any], num_averaged: Any) -> None:
        with rushlight.no_grad():
            for average, value in zip(averages, new, strict=True):
                if average.is_floating_point() or average.is_complex():
                    average.lerp_(value, 1 - decay)
                else:
                    average.copy_(average * decay + value * (1 - decay))

    return update


def get_swa_multi_avg_fn() -> Callable[[list[Any], list[Any], Any], None]:
    """The plain average of lists of parameters, in place."""

    def update(averages: list[Any], new: list[Any], num_averaged: Any) -> None:
        with rushlight.no_grad():
            count = num_averaged.item() if isinstance(num_averaged, rushlight.Tensor) else int(num_averaged)
            share = 1 / float(count + 1)
            for average, value in zip(averages, new, strict=True):
                if average.is_floating_point() or average.is_complex():
                    average.lerp_(value, share)
                else:
                    average.copy_(average + (value - average) * share)

    return update


class AveragedModel(Module):
    """A copy of `model` whose parameters are averages of the model's.

    `update_parameters(model)` takes the present values in; `avg_fn(average, new, count)` or `multi_avg_fn(averages,
    news, count)` says how (default: the plain average). With `use_buffers` buffers are averaged too, else copied.

    Example: `ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))`
    """

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[..., Any] | None = None,
        multi_avg_fn: Callable[..., None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", rushlight.tensor(0, dtype=rushlight.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the averaged model."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the present parameters of `model` into the average."""
        own, theirs = _members(self.module, self.use_buffers), _members(model, self.use_buffers)
        averages = [p.detach() for p in own]
        new = [p.detach().to(q.device) for p, q in zip(theirs, averages, strict=True)]
        if rushlight.compiler.is_compiling():
            self._update_either_way(averages, new)
        elif int(self.n_averaged) == 0:
            for average, value in zip(averages, new, strict=True):
                average.copy_(value)
        else:
            self._average(averages, new)
        if not self.use_buffers:
            for mine, other in zip(self.module.buffers(), model.buffers(), strict=True):
                mine.detach().copy_(other.detach())
        self.n_averaged += 1

    def _average(self, averages: list[Any], new: list[Any]) -> None:
        if self.avg_fn is None:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(averages, new, self.n_averaged)
            return
        for average, value in zip(averages, new, strict=True):
            average.copy_(self.avg_fn(average, value, self.n_averaged))

    def _update_either_way(self, averages: list[Any], new: list[Any]) -> None:
        """An update that does not ask whether it is the first one."""
        self._average(averages, new)
        first = self.n_averaged == 0
        for average, value in zip(averages, new, strict=True):
            average.copy_(rushlight.where(first, value, average))


def _members(model: Module, use_buffers: bool) -> list[Any]:
    return list(itertools.chain(model.parameters(), model.buffers() if use_buffers else ()))


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of batch normalisation anew, by one pass over `loader` in training mode.

    Batches that are lists or tuples give their first element to the model.

    >>> import rushlight as torch
    >>> model = torch.nn.Sequential(torch.nn.BatchNorm1d(1))
    >>> torch.optim.swa_utils.update_bn([torch.tensor([[1.0], [3.0]])], model)
    >>> model[0].running_mean
    tensor([2.])
    """
    momenta = {module: module.momentum for module in model.modules() if isinstance(module, _BatchNorm)}
    if not momenta:
        return
    was_training = model.training
    model.train()
    with rushlight.no_grad():
        for module in momenta:
            module.reset_running_stats()
            # No momentum: the plain average over all batches.
            module.momentum = None
        for batch in loader:
            given = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(given if device is None else given.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Moves the rate to `swa_lr` in `anneal_epochs` epochs ("cos" or "linear") and leaves it there.

    >>> import rushlight as torch
    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.0, anneal_epochs=2, anneal_strategy="linear")
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for group, rate in zip(optimizer.param_groups, _for_each_group("swa_lr", optimizer, swa_lr), strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: float) -> float:
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Any]:
        """The next rates."""
        self._check_inside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        found = []
        for group in self.optimizer.param_groups:
            rate, target = group["lr"], group["swa_lr"]
            start = target if before == 1 else (rate - before * target) / (1 - before)
            found.append(target * now + start * (1 - now))
        return found
