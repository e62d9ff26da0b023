"""`SGD`: stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.optim.elementwise import Change, ElementwiseOptimizer, moved
from rushlight.optim.optimizer import hyper, number

__all__ = ["SGD", "sgd"]


class SGD(ElementwiseOptimizer):
    """Stochastic gradient descent, optionally with momentum.

    With gradient g (plus `weight_decay` * p, negated if `maximize`): buffer = `momentum` * buffer + (1 - `dampening`) *
    g, the first buffer being g itself; p -= `lr` * buffer, or with `nesterov` p -= lr * (g + momentum * buffer).

    Raises `ValueError` for negative values, and for `nesterov` without momentum or with dampening.

    Example: `optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)`
    """

    _counters = ()
    _decays_complex = True

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: Any = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if number(lr) < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if number(weight_decay) < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for kept in self.state.values():
            if kept.get("momentum_buffer") is None:  # files may say so of a parameter that has made no step
                kept.pop("momentum_buffer", None)

    @classmethod
    def _states(cls, group: dict[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] != 0 else ()

    @classmethod
    def _changes(
        cls, triples: list[tuple[Any, Any, dict[str, Any]]], group: dict[str, Any], keeps: bool
    ) -> list[Change]:
        """Updates of a step; with dampening the host must know whether a device skipped the first, whose gradient becomes
        the buffer undampened.
        """
        for _, _, kept in triples:
            skipped = kept.pop("skipped", None)
            if skipped is not None and number(skipped):
                kept.clear()
        changes = super()._changes(triples, group, keeps)
        if keeps and group["dampening"] != 0 and group.get("found_inf") is not None:
            for _, _, kept, fresh in changes:
                if fresh:
                    kept["skipped"] = group["found_inf"]
        return changes

    @classmethod
    def _numbers(cls, group: dict[str, Any], kept: dict[str, Any], step: Any, fresh: bool) -> dict[str, Any]:
        numbers = {"move": -hyper(group, "lr")}
        if group["momentum"] != 0:
            # The first gradient becomes the buffer as it is, without dampening.
            keep, share = (None, None) if fresh else (group["momentum"], 1 - group["dampening"])
            numbers |= {"keep": keep, "share": share, "ahead": group["momentum"] if group["nesterov"] else None}
        return numbers

    @staticmethod
    def _rule(t: Any, x: Any, n: Any) -> None:
        way = x.grad
        if x.momentum_buffer is not None:
            x.momentum_buffer = x.grad if n.keep is None else t.add(x.momentum_buffer * n.keep, x.grad, alpha=n.share)
            way = x.momentum_buffer if n.ahead is None else t.add(x.grad, x.momentum_buffer, alpha=n.ahead)
        x.param = moved(t, x.param, way, n.move)

    @classmethod
    def _update_sparse(cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        """The step along a sparse gradient; the buffer is sparse too."""
        if group["fused"]:
            raise RuntimeError("`_fused_sgd` does not support sparse gradients")
        momentum = group["momentum"]
        with rushlight.no_grad():
            g = -grad if group["maximize"] else grad
            if group["weight_decay"] != 0:
                g = g.add(param, alpha=number(group["weight_decay"]))
            if momentum:
                buffer = kept.get("momentum_buffer")
                if buffer is None:
                    buffer = kept["momentum_buffer"] = g.clone().detach()
                else:
                    buffer.mul_(momentum).add_(g, alpha=1 - group["dampening"])
                g = g.add(buffer, alpha=momentum) if group["nesterov"] else buffer
            param.add_(g, alpha=-number(group["lr"]))


def sgd(
    params: list[Any],
    d_p_list: list[Any],
    momentum_buffer_list: list[Any],
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    """One step of `SGD` on lists of parameters and gradients; a buffer that is None is made, and put into its list."""
    group = {
        "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "dampening": dampening, "nesterov": nesterov, "maximize": maximize,
        "foreach": foreach, "fused": fused, "differentiable": False, "grad_scale": grad_scale, "found_inf": found_inf,
    }  # fmt: skip
    buffers = momentum_buffer_list if momentum else [None] * len(params)
    kept: list[dict[str, Any]] = [{} if buffer is None else {"momentum_buffer": buffer} for buffer in buffers]
    SGD._update(list(zip(params, d_p_list, kept, strict=True)), group)
    if momentum:
        momentum_buffer_list[:] = [state.get("momentum_buffer") for state in kept]
