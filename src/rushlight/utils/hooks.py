"""Handles that take hooks away again, and the machinery that runs a module's full backward hooks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import rushlight
from rushlight._base.handles import RemovableHandle
from rushlight.autograd import Function

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


def unserializable_hook(f: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a tensor hook as one that need not survive saving, so that saving its tensor does not warn."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warn that the backward hooks of `tensor` are lost when it is saved."""
    rare = tensor._autograd_meta
    for hook in ((rare.hooks if rare is not None else None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized. If this is expected, you can decorate the "
                "function with @torch.utils.hooks.unserializable_hook to suppress this warning",
                stacklevel=2,
            )


class BackwardHookFunction(Function):
    """Passes tensors through one node: the place where a module's gradients are seen."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Any, ...]:
        """The tensors themselves."""
        ctx.mark_non_differentiable(*[arg for arg in args if not arg.requires_grad])
        return args

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Their gradients."""
        return grads


class BackwardHook:
    """Runs full backward (pre-)hooks of one module call.

    The tensors that enter and leave the module pass through two autograd nodes. The node at the output delivers
    `grad_output` (and runs the pre-hooks); the node at the input delivers `grad_input` and runs the hooks, or the
    output node does when no input requires a gradient.
    """

    def __init__(self, module: Any, user_hooks: Sequence[Any], user_pre_hooks: Sequence[Any]) -> None:
        self.user_hooks = user_hooks
        self.user_pre_hooks = user_pre_hooks
        self.module = module
        self.grad_outputs: Any = None
        self.n_outputs = -1
        self.output_tensors_index: list[int] | None = None
        self.n_inputs = -1
        self.input_tensors_index: list[int] | None = None
        self._input_facts: list[tuple[Any, Any, Any]] = []

    def setup_input_hook(self, args: Any) -> Any:
        """Route the tensors in `args` through the input node and return the new arguments."""

        def attach(grad_fn: Any) -> None:
            grad_fn.register_hook(self._at_input)

        result, self.input_tensors_index = self._route(args, attach)
        self.n_inputs = len(args)
        self._input_facts = [_facts(args[i]) for i in self.input_tensors_index or ()]
        return result

    def setup_output_hook(self, args: Any) -> Any:
        """Route the tensors in the module's result through the output node and return the new result."""
        single = not isinstance(args, tuple)
        items = (args,) if single else args

        def attach(grad_fn: Any) -> None:
            grad_fn.register_hook(self._at_output)

        result, self.output_tensors_index = self._route(items, attach)
        self.n_outputs = len(items)
        return result[0] if single else result

    def _route(self, args: tuple[Any, ...], attach: Callable[[Any], None]) -> tuple[Any, list[int] | None]:
        places = [i for i, arg in enumerate(args) if isinstance(arg, rushlight.Tensor)]
        tensors = [args[i] for i in places]
        if not (rushlight.is_grad_enabled() and any(t.requires_grad for t in tensors)):
            return args, None
        routed = BackwardHookFunction.apply(*tensors)
        grad_fns = [
            t.grad_fn for t in routed if t.grad_fn is not None and t.grad_fn.name() == "BackwardHookFunctionBackward"
        ]
        if not grad_fns:
            raise RuntimeError("Error while setting up backward hooks: the module's tensors carry no hook node")
        attach(grad_fns[0])
        new_args = list(args)
        for place, tensor in zip(places, routed, strict=True):
            new_args[place] = tensor
        # Named tuples come back as what they were.
        rebuilt = tuple(new_args) if type(args) is tuple else type(args)(*new_args)
        return rebuilt, places

    def _at_output(self, grad_input: Any, grad_output: Any) -> Any:
        self.grad_outputs = _spread(self.output_tensors_index, grad_output, self.n_outputs)
        for hook in self.user_pre_hooks:
            given = hook(self.module, self.grad_outputs)
            if given is None:
                continue
            if len(given) != len(self.grad_outputs):
                raise RuntimeError(
                    "Backward pre hook returned an invalid number of grad_output, "
                    f"got {len(given)}, but expected {len(self.grad_outputs)}"
                )
            _require_sizes(hook, self.grad_outputs, given)
            self.grad_outputs = given
        local_grad_outputs = self.grad_outputs
        if self.input_tensors_index is None:
            self._run_without_input_grads()
        assert self.output_tensors_index is not None
        return _kept(grad_input, [local_grad_outputs[i] for i in self.output_tensors_index])

    def _run_without_input_grads(self) -> None:
        """No input takes a gradient, so the input node never runs: the hooks run at the output instead."""
        warnings.warn(
            "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require gradients. See "
            "https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.register_full_backward_hook for more details.",
            stacklevel=5,
        )
        grad_inputs = (None,) * self.n_inputs
        for hook in self.user_hooks:
            given = hook(self.module, grad_inputs, self.grad_outputs)
            if given is not None and not (isinstance(given, tuple) and all(g is None for g in given)):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should "
                    "always return None or None for all gradients."
                )
        self.grad_outputs = None

    def _at_input(self, grad_input: Any, _grad_output: Any) -> Any:
        if self.grad_outputs is None:
            # The gradient reached the input without passing the output (a double backward does this).
            return None
        # Every tensor has a gradient here; that of one that wants none is zero.
        filled = [
            _zeros(facts) if grad is None else grad for grad, facts in zip(grad_input, self._input_facts, strict=True)
        ]
        grad_inputs = _spread(self.input_tensors_index, filled, self.n_inputs)
        for hook in self.user_hooks:
            given = hook(self.module, grad_inputs, self.grad_outputs)
            if given is None:
                continue
            if len(given) != len(grad_inputs):
                raise RuntimeError(
                    "Backward hook returned an invalid number of grad_input, "
                    f"got {len(given)}, but expected {len(grad_inputs)}"
                )
            _require_sizes(hook, grad_inputs, given)
            grad_inputs = given
        self.grad_outputs = None
        assert self.input_tensors_index is not None
        return _kept(grad_input, [grad_inputs[i] for i in self.input_tensors_index])


def _kept(before: Sequence[Any], after: Sequence[Any]) -> tuple[Any, ...]:
    """Replacements of a node's gradients: none where a tensor takes no gradient, whatever hooks were shown for it."""
    return tuple(None if old is None else new for old, new in zip(before, after, strict=True))


def _require_sizes(hook: Any, before: Any, after: Any) -> None:
    for old, new in zip(before, after, strict=True):
        if isinstance(old, rushlight.Tensor) and isinstance(new, rushlight.Tensor) and old.shape != new.shape:
            raise RuntimeError(
                f"hook {getattr(hook, '__name__', hook)!r} has changed the size of value: found {tuple(new.shape)}, expected {tuple(old.shape)}"
            )


def _facts(tensor: Any) -> tuple[Any, Any, Any]:
    return tensor.shape, tensor.dtype, tensor.device


def _zeros(facts: tuple[Any, Any, Any]) -> Any:
    shape, dtype, device = facts
    return rushlight.zeros(shape, dtype=dtype, device=device)


def _spread(places: Iterable[int] | None, values: Sequence[Any], size: int) -> tuple[Any, ...]:
    """Put `values` at `places` of a tuple of `size` Nones."""
    result: list[Any] = [None] * size
    for place, value in zip(places or (), values, strict=True):
        result[place] = value
    return tuple(result)
