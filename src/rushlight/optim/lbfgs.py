"""`LBFGS`: a quasi-Newton method with limited memory, for few parameters and a loss without noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight.optim.optimizer import Optimizer, hyper, number

__all__ = ["LBFGS"]

# What is kept from step to step, in the order in which files have it.
_MEMORY = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")


class LBFGS(Optimizer):
    """Limited-memory BFGS: steps along the inverse curvature, as the last `history_size` steps show it.

    `step` needs a closure that clears the gradients, computes the loss, calls `backward` and returns the loss; it is
    called up to `max_eval` times in up to `max_iter` iterations. `line_search_fn` is None (steps of `lr`) or
    "strong_wolfe".  All parameters are in one group.

    Example: `torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe").step(closure)`
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if number(lr) < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Run up to `max_iter` iterations; returns what `closure` gave first."""
        with rushlight.no_grad():
            return self._step(rushlight.enable_grad()(closure))

    vars(step).update(  # as PyTorch's, it is not compiled
        _torchdynamo_disable=True,
        _torchdynamo_disable_msg="LBFGS.step() decides by elements of tensors how often it calls its closure",
    )

    def _step(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        search = group["line_search_fn"]
        if search not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        lr = hyper(group, "lr")
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = closure()
        loss, calls = float(first), 1
        state["func_evals"] += 1
        grad = self._gradient()
        if _size(grad) <= group["tolerance_grad"]:
            return first
        kept: dict[str, Any] = {name: state.get(name) for name in _MEMORY}
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            fresh = state["n_iter"] == 1
            direction = _restart(kept, grad) if fresh else _direction(state, kept, grad, group["history_size"])
            length = min(1.0, 1.0 / grad.abs().sum()) * lr if fresh else lr
            kept.update(d=direction, prev_flat_grad=grad, prev_loss=loss, t=length)
            slope = grad.dot(direction)
            if slope > -group["tolerance_change"]:
                break
            used = 0
            if search is not None:
                start = _Point(0, loss, grad, slope)
                probe = self._probe(closure, direction)
                found, used = _strong_wolfe(probe, length, _size(direction), start, group["max_eval"] - calls)
                loss, grad, length = found.loss, found.grad, found.t
                self._move(direction, length)
            else:
                self._move(direction, length)
                if iteration != group["max_iter"]:
                    loss, used = float(closure()), 1
                    grad = self._gradient()
            kept["t"] = length
            calls += used
            state["func_evals"] += used
            if iteration == group["max_iter"] or calls >= group["max_eval"] or _size(grad) <= group["tolerance_grad"]:
                break
            still = _size(direction * length) <= group["tolerance_change"]
            if still or abs(loss - kept["prev_loss"]) < group["tolerance_change"]:
                break
        state.update(kept)
        return first

    def _gradient(self) -> Any:
        """All gradients in one vector."""
        parts = [rushlight.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in self._params]
        return rushlight.cat([_real(part).reshape(-1) for part in parts])

    def _move(self, direction: Any, length: Any) -> None:
        offset = 0
        for p in map(_real, self._params):
            p.add_(direction[offset : offset + p.numel()].view_as(p), alpha=number(length))
            offset += p.numel()

    def _probe(self, closure: Callable[[], Any], direction: Any) -> Callable[[Any], _Point]:
        """A function that evaluates the loss some way along `direction` and leaves the parameters where they were."""
        origin = [p.clone() for p in self._params]

        def probe(t: Any) -> _Point:
            self._move(direction, t)
            loss = float(closure())
            grad = self._gradient()
            for p, old in zip(self._params, origin, strict=True):
                p.copy_(old)
            return _Point(t, loss, grad, grad.dot(direction))

        return probe


def _real(tensor: Any) -> Any:
    """A complex tensor as pairs of real numbers, in its memory; others as they are."""
    return rushlight.view_as_real(tensor) if tensor.is_complex() else tensor


def _size(vector: Any) -> Any:
    return vector.abs().max()


# ***** the direction *****


def _restart(kept: dict[str, Any], grad: Any) -> Any:
    kept.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
    return grad.neg()


def _direction(state: dict[str, Any], kept: dict[str, Any], grad: Any, history_size: int) -> Any:
    """Take the last step into the history, and multiply the gradient by the inverse curvature (two-loop recursion)."""
    changes, steps, weights = kept["old_dirs"], kept["old_stps"], kept["ro"]
    change = grad - kept["prev_flat_grad"]
    step = kept["d"] * kept["t"]
    curvature = change.dot(step)
    if float(curvature) > 1e-10:
        if len(changes) == history_size:
            for history in (changes, steps, weights):
                history.pop(0)
        changes.append(change)
        steps.append(step)
        weights.append(1.0 / curvature)
        kept["H_diag"] = curvature / change.dot(change)
    direction = grad.neg()
    shares = state.setdefault("al", [None] * history_size)
    for i in reversed(range(len(changes))):
        shares[i] = steps[i].dot(direction) * weights[i]
        direction.add_(changes[i], alpha=-shares[i])
    direction.mul_(kept["H_diag"])
    for i in range(len(changes)):
        back = changes[i].dot(direction) * weights[i]
        direction.add_(steps[i], alpha=shares[i] - back)
    return direction


# ***** the line search *****


class _Point(NamedTuple):
    """A place of the search. Slopes, and lengths found from them, are tensors: which way the search takes depends on
    how they are rounded.
    """

    t: Any
    loss: float
    grad: Any
    slope: Any


_DECREASE, _FLATTER, _CLOSE = 1e-4, 0.9, 1e-9


def _strong_wolfe(probe: Callable[[Any], _Point], t: Any, reach: Any, start: _Point, limit: int) -> tuple[_Point, int]:
    """A point that is low enough and flat enough, or the best of `limit` tries, and how often the loss was computed."""
    bracket, calls, tries = _bracket(probe, t, start, limit)
    if len(bracket) == 1:
        return bracket[0], calls
    stuck = False
    low, high = sorted(bracket, key=lambda point: point.loss)
    ordered = [*bracket]  # as the search met them: the cubic is fitted from the first to the second
    while tries < limit and abs(ordered[1].t - ordered[0].t) * reach >= _CLOSE:
        t = _cubic(ordered[0], ordered[1])
        left, right = sorted(point.t for point in ordered)
        margin = 0.1 * (right - left)
        # Keep away from the ends when two tries in a row came close to one.
        near = min(right - t, t - left) < margin
        if near and (stuck or not left < t < right):
            t = right - margin if abs(t - right) < abs(t - left) else left + margin
            near = False
        stuck = near
        new = probe(t)
        calls, tries = calls + 1, tries + 1
        place = 0 if ordered[0] is low else 1
        if new.loss > start.loss + _DECREASE * t * start.slope or new.loss >= low.loss:
            ordered[1 - place] = high = new
            low, high = sorted(ordered, key=lambda point: point.loss)
            continue
        if abs(new.slope) <= -_FLATTER * start.slope:
            return new, calls
        if new.slope * (high.t - low.t) >= 0:
            ordered[1 - place] = high = low
        ordered[place] = low = new
    return low, calls


def _bracket(probe: Callable[[Any], _Point], t: Any, start: _Point, limit: int) -> tuple[list[_Point], int, int]:
    """Go on until a good point (alone in the answer) or two points with one between them."""
    old, new = start, probe(t)
    calls, tries = 1, 0
    while tries < limit:
        if new.loss > start.loss + _DECREASE * new.t * start.slope or (tries > 1 and new.loss >= old.loss):
            return [old, new], calls, tries
        if abs(new.slope) <= -_FLATTER * start.slope:
            return [new], calls, tries
        if new.slope >= 0:
            return [old, new], calls, tries
        ahead = _cubic(old, new, (new.t + 0.01 * (new.t - old.t), new.t * 10))
        old, new = new, probe(ahead)
        calls, tries = calls + 1, tries + 1
    return [start, new], calls, tries


def _cubic(a: _Point, b: _Point, bounds: tuple[Any, Any] | None = None) -> Any:
    """Where the cubic through two points with their slopes is lowest, within bounds."""
    lowest, highest = bounds or (min(a.t, b.t), max(a.t, b.t))
    if a.t == b.t:
        return (lowest + highest) / 2.0
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (lowest + highest) / 2.0
    if a.t > b.t:
        a, b = b, a
    d2 = square.sqrt()
    return min(max(b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2)), lowest), highest)
