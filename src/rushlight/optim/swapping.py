"""A step of an optimizer on other tensors than its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rushlight import Tensor
from rushlight.optim.optimizer import Optimizer

__all__ = ["swap_in_optimizer_params_and_state"]

_NAME = "swap_in_optimizer_params_and_state"


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: dict[str, Tensor], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:
    """Inside, the optimizer works on these parameters and this state; afterwards it has its own again, untouched.

    `swapin_parameters` are in the order of the optimizer's own, `swapin_optim_state` is what `optimizer.state_dict()`
    looks like. Tensors of that state are changed in place; entries that the step adds or replaces are dropped with the
    region. RuntimeError where the optimizer has no state yet, or where groups, sizes or keys are not the optimizer's.

    >>> import rushlight as torch
    >>> weight, other = torch.ones(1, requires_grad=True), torch.zeros(1)
    >>> optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.5)
    >>> weight.grad = torch.ones(1)
    >>> optimizer.step()
    >>> other.grad = torch.ones(1)
    >>> with torch.optim.swap_in_optimizer_params_and_state(optimizer, {"w": other}, optimizer.state_dict()):
    ...     optimizer.step()
    >>> weight.detach(), other
    (tensor([0.]), tensor([-1.5000]))
    """
    parameters = _paired(optimizer, swapin_parameters, swapin_optim_state)
    own_state, own_groups = optimizer.state, [dict(group) for group in optimizer.param_groups]
    state: defaultdict[Any, Any] = defaultdict(dict)
    try:
        for group, given, tensors in zip(
            optimizer.param_groups, swapin_optim_state["param_groups"], parameters, strict=True
        ):
            group.update({**given, "params": tensors})
            for tensor, number in zip(tensors, given["params"], strict=True):
                state[tensor] = dict(swapin_optim_state["state"].get(number, {}))
        optimizer.state = state
        yield
    finally:
        for group, before in zip(optimizer.param_groups, own_groups, strict=True):
            group.clear()
            group.update(before)
        optimizer.state = own_state


def _paired(optimizer: Optimizer, parameters: dict[str, Tensor], state_dict: Any) -> list[list[Tensor]]:
    """The parameters by groups; RuntimeError where anything does not fit the optimizer."""
    if not optimizer.state:
        raise RuntimeError(f"{_NAME} requires initialized optimizer state.")
    state, groups = _checked_parts(state_dict)
    if len(groups) != len(optimizer.param_groups):
        raise RuntimeError("swapin_optim_state has a different number of parameter groups than the live optimizer.")
    left, found, numbers = list(parameters.values()), [], set()
    for place, (own, given) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        _check_group(place, own, given)
        count = len(given["params"])
        if count > len(left):
            raise RuntimeError(
                f"{_NAME} requires the explicit parameter state to match optimizer.param_groups ordering."
            )
        found.append(left[:count])
        left = left[count:]
        numbers.update(given["params"])
    extra = [key for key in state if key not in numbers]
    if extra:
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['state'] to be keyed only by packed parameter ids from param_groups[*]['params']; "
            f"got extra keys {extra!r}."
        )
    return found


def _checked_parts(state_dict: Any) -> tuple[dict[Any, Any], list[Any]]:
    if not isinstance(state_dict, dict):
        raise RuntimeError(f"{_NAME} requires an optimizer state_dict, got {type(state_dict).__name__}.")
    state, groups = state_dict.get("state"), state_dict.get("param_groups")
    if not isinstance(state, dict):
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['state'] to be a dict by the numbers of parameters, got {type(state).__name__}."
        )
    if any(isinstance(key, Tensor) for key in state):
        raise RuntimeError(f"{_NAME} requires optimizer.state_dict()-style state keyed by packed parameter ids.")
    if any(isinstance(key, int) and not isinstance(value, dict) for key, value in state.items()):
        raise RuntimeError(f"{_NAME} requires per-parameter optimizer state entries to be dictionaries.")
    if not isinstance(groups, list):
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['param_groups'] to be a list of dicts, got {type(groups).__name__}."
        )
    return state, groups


def _check_group(place: int, own: dict[str, Any], given: Any) -> None:
    if not isinstance(given, dict):
        raise RuntimeError(f"{_NAME} requires each optimizer param group to be a dictionary.")
    numbers = given.get("params")
    if not isinstance(numbers, list) or not all(isinstance(n, int) for n in numbers):
        raise RuntimeError(
            f"{_NAME} requires optimizer.state_dict()-style param_groups[*]['params'] entries keyed by packed parameter ids."
        )
    if len(own["params"]) != len(numbers):
        raise RuntimeError(
            f"swapin_optim_state param group {place} has a different number of params than the live optimizer param group."
        )
    if own.keys() != given.keys():
        raise RuntimeError(
            f"{_NAME} requires param group keys to exactly match the live optimizer group keys for group {place}. Keys only in swap-in: "
            f"{[k for k in given if k not in own]}. Keys only in live: {[k for k in own if k not in given]}."
        )
