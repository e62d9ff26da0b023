"""Less memory for more work: parts of a model that keep nothing for backward and are computed again there.

>>> import rushlight as torch
>>> from rushlight.utils.checkpoint import checkpoint
>>> x = torch.ones(2, requires_grad=True)
>>> checkpoint(lambda v: (v * v).exp(), x, use_reentrant=False).sum().backward()
>>> x.grad
tensor([5.4366, 5.4366])
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import rushlight
from rushlight.autograd.function import Function
from rushlight.autograd.graph import saved_tensors_hooks

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_early_stop"]

_EARLY_STOP = [True]


class CheckpointError(RuntimeError):
    """The part computed something else the second time."""


class _Done(Exception):
    """Everything that backward needs has been computed again."""


def noop_context_fn() -> tuple[Any, Any]:
    """Contexts for the first and the second computation that do nothing."""
    return nullcontext(), nullcontext()


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Any:
    """Inside, whether computing again ends as soon as all that was asked for is there."""
    before = _EARLY_STOP[0]
    _EARLY_STOP[0] = enable
    try:
        yield
    finally:
        _EARLY_STOP[0] = before


@contextmanager
def _random_state(state: Any) -> Any:
    """Inside, random numbers start from `state` (None: go on); afterwards they go on as if nothing had happened."""
    if state is None:
        yield
        return
    before = rushlight.get_rng_state()
    rushlight.set_rng_state(state)
    try:
        yield
    finally:
        rushlight.set_rng_state(before)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which only the arguments are kept for backward.

    `use_reentrant=True` runs a backward inside of the backward, and sees only tensors among the positional arguments; with False each
    tensor that backward asks for is computed again when it is asked for.  CheckpointError where the second time differs.
    """
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check must be 'default' or 'none', got '{determinism_check}'")
    if use_reentrant is None:
        warnings.warn(
            "checkpoint: pass use_reentrant explicitly; without it the reentrant form is used, as in PyTorch. use_reentrant=False is recommended.",
            UserWarning,
            stacklevel=2,
        )
        use_reentrant = True
    if use_reentrant:
        if kwargs:
            raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}")
        if context_fn is not noop_context_fn or debug:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return _Reentrant.apply(function, preserve_rng_state, *args)
    state = rushlight.get_rng_state() if preserve_rng_state else None
    first, second = context_fn()
    again = _Again(function, args, kwargs, state, second, determinism_check == "default", early_stop)
    if not rushlight.is_grad_enabled():
        return function(*args, **kwargs)
    with saved_tensors_hooks(again.pack, again.unpack), first:
        return function(*args, **kwargs)


class _Again:
    """One checkpointed call: numbers stand for its saved tensors until backward asks for them."""

    def __init__(
        self, function: Any, args: Any, kwargs: Any, state: Any, context: Any, check: bool, early_stop: bool
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.state, self.context, self.check, self.early_stop = state, context, check, early_stop
        self.shown: list[tuple[Any, Any]] = []
        self.values: dict[int, Any] = {}

    def pack(self, tensor: Any) -> int:
        self.shown.append((tensor.shape, tensor.dtype))
        return len(self.shown) - 1

    def unpack(self, number: int) -> Any:
        if number not in self.values:
            self._compute()
        if number not in self.values:
            raise CheckpointError(
                f"the checkpointed function saved {len(self.shown)} tensors at first and fewer when it was computed again"
            )
        return self.values.pop(number)

    def _compute(self) -> None:
        found: list[Any] = []

        def pack(tensor: Any) -> int:
            if len(found) >= len(self.shown):
                raise CheckpointError(
                    f"the checkpointed function saved {len(self.shown)} tensors at first and more when it was computed again"
                )
            self._check(len(found), tensor)
            found.append(tensor.detach())
            if len(found) == len(self.shown) and self.early_stop and _EARLY_STOP[0]:
                raise _Done
            return len(found) - 1

        try:
            with rushlight.enable_grad(), _random_state(self.state), self.context:
                with saved_tensors_hooks(pack, lambda number: found[number]):
                    self.function(*self.args, **self.kwargs)
        except _Done:
            pass
        self.values.update(enumerate(found))

    def _check(self, number: int, tensor: Any) -> None:
        shape, dtype = self.shown[number]
        if self.check and (tensor.shape != shape or tensor.dtype is not dtype):
            raise CheckpointError(
                f"the checkpointed function saved {dtype} {list(shape)} at first and {tensor.dtype} {list(tensor.shape)} when it was "
                "computed again"
            )


class _Reentrant(Function):
    """The older form: backward runs the part again, and a backward of its own through it."""

    @staticmethod
    def forward(ctx: Any, function: Any, preserve: bool, *args: Any) -> Any:
        ctx.function = function
        ctx.state = rushlight.get_rng_state() if preserve else None
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, rushlight.Tensor)]
        ctx.rest = [None if isinstance(a, rushlight.Tensor) else a for a in args]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        args = list(ctx.rest)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[place] = tensor.detach().requires_grad_(tensor.requires_grad)
        with rushlight.enable_grad(), _random_state(ctx.state):
            outputs = ctx.function(*args)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [
            (o, g)
            for o, g in zip(outputs, grads, strict=True)
            if isinstance(o, rushlight.Tensor) and o.requires_grad and g is not None
        ]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        rushlight.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *[a.grad if isinstance(a, rushlight.Tensor) else None for a in args])


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, preserve_rng_state: bool = True
) -> Any:
    """Modules one after another, in `segments` parts of which all but the last are checkpointed."""
    modules: Sequence[Any] = (
        list(functions.children()) if isinstance(functions, rushlight.nn.Sequential) else list(functions)
    )
    size = max(1, len(modules) // segments)

    def part(start: int, stop: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for module in modules[start:stop]:
                x = module(x)
            return x

        return run

    start = 0
    for _ in range(segments - 1):
        input = checkpoint(
            part(start, start + size), input, use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state
        )
        start += size
    return part(start, len(modules))(input)
