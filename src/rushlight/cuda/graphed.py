"""`torch.cuda.make_graphed_callables`: functions and modules whose forward and backward passes are graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight as torch
from rushlight._interface.base import tree_flatten, tree_unflatten
from rushlight.cuda.access import gpus, on_gpu

__all__ = ["make_graphed_callables"]


class _Passes:
    """The two graphs of one callable, and the tensors that they read and write."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], allow_unused: bool) -> None:
        self.function, self.args, self.allow_unused = function, args, allow_unused
        flat, self.spec = tree_flatten(tuple(args))
        if not all(isinstance(x, torch.Tensor) for x in flat):
            raise TypeError(
                "In the beta API, sample_args for each callable must contain only Tensors. Other types are not allowed."
            )
        self.inputs = flat
        self.parameters = list(function.parameters()) if isinstance(function, torch.nn.Module) else []
        self.leaves = [x for x in (*self.inputs, *self.parameters) if x.requires_grad]
        self.forward: Any = None
        self.backward: Any = None
        self.outputs: list[Any] = []
        self.out_spec: Any = None
        self.incoming: list[Any] = []
        self.gradients: list[Any] = []

    def run(self) -> list[Any]:
        """One forward pass."""
        flat, self.out_spec = tree_flatten(self.function(*self.args))
        return list(flat)

    def run_backward(self, outputs: Sequence[Any], incoming: Sequence[Any]) -> list[Any]:
        """One backward pass; gradients of the leaves."""
        wanted = [x for x in outputs if x.requires_grad]
        if not wanted or not self.leaves:
            return []
        return list(torch.autograd.grad(wanted, self.leaves, list(incoming), allow_unused=self.allow_unused))

    def warm_up(self, times: int) -> None:
        """Run both passes some times, so that kernels are compiled and memory is there."""
        for _ in range(times):
            outputs = self.run()
            self.run_backward(outputs, [torch.empty_like(x) for x in outputs if x.requires_grad])

    def capture_forward(self, pool: Any) -> None:
        self.forward = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.forward, pool=pool):
            self.outputs = self.run()

    def capture_backward(self, pool: Any) -> None:
        self.incoming = [torch.empty_like(x) for x in self.outputs if x.requires_grad]
        if not self.incoming or not self.leaves:
            return
        self.backward = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.backward, pool=pool):
            self.gradients = self.run_backward(self.outputs, self.incoming)

    def callable(self) -> Callable[..., Any]:
        """A function that replays the graphs."""
        passes, count = self, len(self.inputs)
        positions = [i for i, x in enumerate((*self.inputs, *self.parameters)) if x.requires_grad]

        class Graphed(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *tensors: Any) -> Any:
                for kept, given in zip(passes.inputs, tensors[:count], strict=True):
                    if kept.data_ptr() != given.data_ptr():
                        kept.copy_(given)
                passes.forward.replay()
                return tuple(x.detach() for x in passes.outputs)

            @staticmethod
            def backward(ctx: Any, *gradients: Any) -> Any:
                given = [g for g, x in zip(gradients, passes.outputs, strict=True) if x.requires_grad]
                for kept, new in zip(passes.incoming, given, strict=True):
                    if new is not None and kept.data_ptr() != new.data_ptr():
                        kept.copy_(new)
                passes.backward.replay()
                found: list[Any] = [None] * (count + len(passes.parameters))
                for position, gradient in zip(positions, passes.gradients, strict=True):
                    found[position] = None if gradient is None else gradient.detach()
                return tuple(found)

        def run(*args: Any) -> Any:
            flat, spec = tree_flatten(tuple(args))
            if spec != passes.spec:
                raise TypeError("a graphed callable takes arguments of the structure that its sample had")
            return tree_unflatten(list(Graphed.apply(*flat, *passes.parameters)), passes.out_spec)

        return run


def _as_module(module: Any, run: Callable[..., Any]) -> Any:
    """The module with the graphs in place of its forward pass, while it trains or not as it did at the capture."""
    training, plain = module.training, module.forward
    module.forward = lambda *args, **kwargs: (
        run(*args) if module.training == training and not kwargs else plain(*args, **kwargs)
    )
    return module


@on_gpu
def make_graphed_callables(
    callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False, pool: Any = None
) -> Any:  # fmt: skip
    """Functions or modules (one, or a tuple in the order of their use) whose passes replay graphs.

    `sample_args` are tensors as the calls will have them: shapes, dtypes and `requires_grad` must be the same later.  A
    module is changed in place.
    """
    single = not isinstance(callables, tuple)
    functions, samples = ((callables,), (sample_args,)) if single else (callables, sample_args)
    for function in functions:
        if isinstance(function, torch.nn.Module) and (
            function._forward_hooks or function._forward_pre_hooks or function._backward_hooks
        ):
            raise RuntimeError(
                "Modules must not have hooks registered at the time they are passed. However, registering hooks on modules after passing them through make_graphed_callables is allowed."
            )
    pool = gpus().next_pool() if pool is None else pool
    passes = [_Passes(f, args, allow_unused_input) for f, args in zip(functions, samples, strict=True)]
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for each in passes:
            each.warm_up(num_warmup_iters)
    torch.cuda.synchronize()
    for each in passes:
        each.capture_forward(pool)
    for each in reversed(passes):
        each.capture_backward(pool)
    made = [
        _as_module(f, p.callable()) if isinstance(f, torch.nn.Module) else p.callable()
        for f, p in zip(functions, passes, strict=True)
    ]
    return made[0] if single else tuple(made)
