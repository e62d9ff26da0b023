"""`autograd.Function` with tensors of subclasses: what forward, backward and the caller see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.engine.recording import Topic, attempt

topic = Topic()


def _classes(t: Any) -> list[Any]:
    class Quiet(t.Tensor):
        pass

    class Asking(t.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return super().__torch_function__(func, types, args, kwargs or {})

    class Plain(t.Tensor):
        __torch_function__ = t._C._disabled_torch_function_impl

    return [Quiet, Asking, Plain]


def _program(
    forward: Callable[..., Any], setup: Callable[..., Any] | None = None, then: Callable[..., Any] | None = None
) -> Callable[[Any], Any]:
    """A Function of two tensors, the gradient of whose results goes to both, with the first, the second and both of each class."""

    def program(t: Any) -> Any:
        seen: list[Any] = []

        def backward(ctx: Any, *grads: Any) -> Any:
            seen.append([type(g).__name__ for g in grads])
            seen.append([type(s).__name__ for s in ctx.saved_tensors])
            total = sum(g * (k + 2) for k, g in enumerate(grads) if g is not None)
            return total, total * 3

        def see(ctx: Any, x: Any, y: Any) -> Any:
            seen.append([type(x).__name__, type(y).__name__, list(getattr(ctx, "needs_input_grad", ()))])
            return forward(t, ctx, x, y)

        members = {"forward": staticmethod(see), "backward": staticmethod(backward)}
        if setup is not None:
            members = {
                "forward": staticmethod(lambda x, y: forward(t, None, x, y)),
                "setup_context": staticmethod(setup),
                "backward": staticmethod(backward),
            }
        made = type("Made", (t.autograd.Function,), members)
        found = [attempt(lambda c=cls, f=first, s=second, l=leaf: _run(t, made, c, f, s, l, then))  # type: ignore[misc]
                 for cls in _classes(t) for first, second in ((True, False), (False, True), (True, True)) for leaf in (False, True)]  # fmt: skip
        return found, seen

    return program


def _run(
    t: Any, function: Any, cls: Any, first: bool, second: bool, leaf: bool, then: Callable[..., Any] | None
) -> Any:
    p, q = t.arange(1.0, 4.0, requires_grad=True), t.linspace(0.5, 1.5, 3, requires_grad=True)
    a, b = (p, q) if leaf else (p * 1, q * 1)
    if leaf and first:
        a = p = t.arange(1.0, 4.0).as_subclass(cls).requires_grad_()
    elif first:
        a = a.as_subclass(cls)
    b = b.as_subclass(cls) if second else b
    made = function.apply(a, b)
    listed = list(made) if isinstance(made, tuple) else [made]
    found = [[x, x is a, x is b, x._base is not None, x._version] for x in listed]
    if then is not None:
        found.append([attempt(lambda: then(listed[0]))])
    total = sum([(x * (2 + k)).sum() for k, x in enumerate(listed) if x.requires_grad], t.zeros(()))
    return found, attempt(lambda: t.autograd.grad(total, [p, q], allow_unused=True))


def _saving(t: Any, ctx: Any, x: Any, y: Any) -> Any:
    z = x * y
    ctx.save_for_backward(x, y, z)
    return z


def _dirty(t: Any, ctx: Any, x: Any, y: Any) -> Any:
    x.mul_(2)
    ctx.mark_dirty(x)
    return x


def _no_gradient(t: Any, ctx: Any, x: Any, y: Any) -> Any:
    kept, other = x * y, y + 1
    ctx.mark_non_differentiable(other)
    return kept, other


def _no_gradient_of_input(t: Any, ctx: Any, x: Any, y: Any) -> Any:
    ctx.mark_non_differentiable(y)
    return x * 2, y


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs, output if not isinstance(output, tuple) else output[0])


topic.lines(
    computed=_program(_saving),
    first_as_it_is=_program(lambda t, ctx, x, y: x),
    second_as_it_is=_program(lambda t, ctx, x, y: y),
    both_as_they_are=_program(lambda t, ctx, x, y: (y, x)),
    one_twice=_program(lambda t, ctx, x, y: (x, x)),
    one_and_a_result=_program(lambda t, ctx, x, y: (x, x * y)),
    as_it_is_with_setup=_program(lambda t, ctx, x, y: x, _setup),
    computed_with_setup=_program(lambda t, ctx, x, y: (x * y, y.exp()), _setup),
    as_it_is_then_changed=_program(lambda t, ctx, x, y: x, None, lambda made: made.mul_(2)),
    a_view=_program(lambda t, ctx, x, y: x.view(3, 1)),
    a_view_then_changed=_program(lambda t, ctx, x, y: x.view(3, 1), None, lambda made: made.mul_(2)),
    detached=_program(lambda t, ctx, x, y: x.detach()),
    dirty=_program(_dirty),
    no_gradient=_program(_no_gradient),
    no_gradient_of_input=_program(_no_gradient_of_input),
)


@topic
def without_gradients(t: Any) -> Any:
    """Nothing requires gradients, or nothing is recorded."""

    class Same(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

    found = []
    for cls in _classes(t):
        x = t.ones(2).as_subclass(cls)
        w = t.ones(2, requires_grad=True).as_subclass(cls)
        with t.no_grad():
            y = Same.apply(w)
        z = Same.apply(x)
        found.append([y, y is w, y._base is not None, z, z is x, z._base is not None])
    p = t.nn.Parameter(t.ones(2))
    made = Same.apply(p)
    return found, type(made).__name__, made._base is p, made


@topic
def with_attributes(t: Any) -> Any:
    """A class with a say that hands attributes on sees how the input comes back."""

    class Tagged(t.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = super().__torch_function__(func, types, args, kwargs or {})
            if isinstance(made, cls):
                made.tag = getattr(func, "__name__", "")
            return made

    class Same(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 5

    p = t.ones(2, requires_grad=True)
    x = p.as_subclass(Tagged)
    made = Same.apply(x)
    return made, getattr(made, "tag", None), t.autograd.grad(made.sum(), p)
