"""`autograd.Function`: everything that ctx offers."""

from __future__ import annotations

from typing import Any

from tests.engine.recording import Topic, attempt

topic = Topic()


def function(t: Any, forward: Any, backward: Any = None, setup: Any = None, name: str = "Made") -> Any:
    """A Function with these rules."""
    rules: dict[str, Any] = {"forward": staticmethod(forward)}
    if backward is not None:
        rules["backward"] = staticmethod(backward)
    if setup is not None:
        rules["setup_context"] = staticmethod(setup)
    return type(name, (t.autograd.Function,), rules)


def save(ctx: Any, *items: Any) -> None:
    ctx.save_for_backward(*items)


@topic
def plain(t: Any) -> Any:
    f = function(
        t,
        lambda ctx, x, k: (save(ctx, x), setattr(ctx, "k", k), x * k)[2],
        lambda ctx, g: (g * ctx.k + ctx.saved_tensors[0] * 0, None),
        name="Scale",
    )
    x = t.tensor([1.0, 2.0], requires_grad=True)
    y = f.apply(x, 3)
    y.sum().backward()
    return (
        y,
        x.grad,
        type(y.grad_fn).__name__,
        y.grad_fn.name(),
        isinstance(y.grad_fn, f) if False else 0,
        f.apply(x.detach(), 2),
    )


@topic
def setup_context(t: Any) -> Any:
    seen = []

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        seen.append([len(inputs), type(output).__name__])
        ctx.save_for_backward(inputs[0], output[1] if isinstance(output, tuple) else output)

    f = function(
        t,
        lambda x, y: (x * y, x.exp()),
        lambda ctx, g, h: (g + h * ctx.saved_tensors[1], g * ctx.saved_tensors[0]),
        setup,
    )
    x, y = t.tensor([1.0], requires_grad=True), t.tensor([2.0], requires_grad=True)
    a, b = f.apply(x, y)
    (a + b).sum().backward()
    return seen, a, b, x.grad, y.grad


@topic
def needs_input_grad(t: Any) -> Any:
    seen = []
    f = function(t, lambda ctx, a, b, c: a * b + c, lambda ctx, g: (seen.append(ctx.needs_input_grad), g, None, g)[1:])
    a, b, c = t.ones(2, requires_grad=True), t.ones(2), t.ones(2, requires_grad=True)
    f.apply(a, b, c).sum().backward()
    f.apply(a, b, c.detach()).sum().backward()
    return seen, a.grad, b.grad, c.grad


@topic
def mark_dirty(t: Any) -> Any:
    f = function(t, lambda ctx, x: (ctx.mark_dirty(x), x.mul_(3))[1], lambda ctx, g: g * 3)
    x = t.ones(2, requires_grad=True)
    y = x * 1
    z = f.apply(y)
    same = z is y
    z.sum().backward()
    w = t.ones(2)
    f.apply(w)
    return same, z, y._version, x.grad, w, attempt(lambda: f.apply(x)), type(y.grad_fn).__name__


@topic
def mark_dirty_on_a_view(t: Any) -> Any:
    f = function(t, lambda ctx, x: (ctx.mark_dirty(x), x.mul_(3))[1], lambda ctx, g: g * 3)
    x = t.ones(4, requires_grad=True)
    y = x * 1
    v = y[1:3]
    f.apply(v)
    (y * y).sum().backward()
    return y, x.grad


@topic
def mark_non_differentiable(t: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        values, places = x.sort()
        extra = x * 2
        ctx.mark_non_differentiable(places, extra)
        ctx.save_for_backward(places)
        return values, places, extra

    f = function(t, forward, lambda ctx, g, g2, g3: t.zeros_like(g).scatter(0, ctx.saved_tensors[0], g) + 0 * g3)
    x = t.tensor([3.0, 1.0, 2.0], requires_grad=True)
    values, places, extra = f.apply(x)
    (values * t.tensor([1.0, 2.0, 3.0])).sum().backward()
    return values, places, extra, x.grad


@topic
def materialize(t: Any) -> Any:
    found = []
    for flag in (True, False):
        seen = []

        def backward(ctx: Any, *gs: Any, seen: Any = seen) -> Any:
            seen.append([None if g is None else g.tolist() for g in gs])
            return gs[0]

        f = function(t, lambda ctx, x, flag=flag: (ctx.set_materialize_grads(flag), (x * 1, x * 2))[1], backward)
        x = t.ones(2, requires_grad=True)
        f.apply(x)[0].sum().backward()
        found.append([seen, x.grad])
    return found


@topic
def once(t: Any) -> Any:
    once_differentiable = t.autograd.function.once_differentiable
    f = function(
        t, lambda ctx, x: (save(ctx, x), x * x)[1], once_differentiable(lambda ctx, g: 2 * g * ctx.saved_tensors[0])
    )
    x = t.ones(2, requires_grad=True)
    f.apply(x).sum().backward()
    (g,) = t.autograd.grad(f.apply(x).sum(), x, create_graph=True)
    return x.grad, g.requires_grad, attempt(lambda: g.sum().backward())


@topic
def double_backward(t: Any) -> Any:
    f = function(t, lambda ctx, x: (save(ctx, x), x**3)[1], lambda ctx, g: 3 * g * ctx.saved_tensors[0] ** 2)
    h = function(t, lambda ctx, x: (lambda y: (save(ctx, y), y)[1])(x.exp()), lambda ctx, g: g * ctx.saved_tensors[0])
    x = t.tensor([0.5, 2.0], dtype=t.float64, requires_grad=True)
    found = []
    for rule in (f, h):
        y = rule.apply(x)
        for _ in range(3):
            (y,) = t.autograd.grad(y.sum(), x, create_graph=True)
            found.append(y.detach())
    return found, t.autograd.gradcheck(f.apply, x), t.autograd.gradgradcheck(h.apply, x)


@topic
def returning_inputs(t: Any) -> Any:
    f = function(t, lambda ctx, x: x, lambda ctx, g: g * 10)
    x = t.ones(2, requires_grad=True)
    y = f.apply(x)
    y.sum().backward()
    z = x * 1
    w = f.apply(z)
    return (
        y is x,
        y,
        x.grad,
        type(x.grad_fn).__name__,
        w is z,
        y.data_ptr() == x.data_ptr(),
        attempt(lambda: w.add_(1)),
        f.apply(t.ones(2)).requires_grad,
    )


@topic
def returning_views(t: Any) -> Any:
    f = function(t, lambda ctx, x: x.view(2, 2), lambda ctx, g: g.reshape(4) * 2)
    x = t.ones(4, requires_grad=True)
    y = f.apply(x * 1)
    y.sum().backward()
    return y, x.grad, attempt(lambda: f.apply(x * 1).add_(1)), y.requires_grad


@topic
def several_outputs(t: Any) -> Any:
    f = function(t, lambda ctx, x: (x * 2, 5, x * 3, None, "text"), lambda ctx, a, five, b, n, s: a * 2 + b * 3)
    x = t.ones(2, requires_grad=True)
    a, five, b, nothing, text = f.apply(x)
    (a + b).sum().backward()
    return a, five, b, nothing, text, x.grad, b.output_nr


@topic
def list_is_one_output(t: Any) -> Any:
    f = function(t, lambda ctx, x: [x * 2], lambda ctx, g: g)
    return attempt(lambda: type(f.apply(t.ones(2, requires_grad=True))).__name__)


@topic
def wrong_counts(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    found = []
    for rule in (
        lambda ctx, g: (g, g),
        lambda ctx, g: (),
        lambda ctx, g: (g, None),
        lambda ctx, g: 5,
        lambda ctx, g: g[:1],
        lambda ctx, g: t.ones(3),
        lambda ctx, g: None,
        lambda ctx, g: g.expand(4, 2),
        lambda ctx, g: g.double(),
    ):
        x.grad = None
        f = function(t, lambda ctx, x: x * 2, rule)
        found.append([attempt(lambda f=f: f.apply(x).sum().backward()), x.grad])
    return found


@topic
def misuse(t: Any) -> Any:
    f = function(t, lambda ctx, x: x * 2)
    x = t.ones(2, requires_grad=True)
    g = function(t, lambda ctx, x: (save(ctx, 5), x)[1], lambda ctx, g: g)
    h = function(t, lambda ctx, x: (save(ctx, x), x * 2)[1], lambda ctx, g: g * ctx.saved_tensors[0])
    y = h.apply(x)
    y.sum().backward()
    return [
        attempt(lambda: f.apply(x).sum().backward()),
        attempt(lambda: g.apply(x)),
        attempt(lambda: y.grad_fn.saved_tensors),
        attempt(lambda: y.sum().backward()),
        attempt(lambda: t.autograd.Function.apply(x)),
        attempt(lambda: f.apply(x, k=3)),
    ]


@topic
def saved_and_changed(t: Any) -> Any:
    f = function(
        t,
        lambda ctx, x, w: (save(ctx, x, w), x * w)[1],
        lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]),
    )
    x, w = t.ones(2, requires_grad=True), t.ones(2)
    y = f.apply(x, w)
    w.add_(1)
    return attempt(lambda: y.sum().backward())


@topic
def grad_mode_inside(t: Any) -> Any:
    seen = []

    def forward(ctx: Any, x: Any) -> Any:
        seen.append([t.is_grad_enabled(), (x * 2).requires_grad, x.requires_grad])
        with t.enable_grad():
            seen.append((x.detach().requires_grad_() * 2).requires_grad)
        return x * 2

    def backward(ctx: Any, g: Any) -> Any:
        seen.append(t.is_grad_enabled())
        return g * 2

    f = function(t, forward, backward)
    x = t.ones(2, requires_grad=True)
    f.apply(x).sum().backward()
    f.apply(x).sum().backward(create_graph=True)
    with t.no_grad():
        y = f.apply(x)
    return seen, y.requires_grad


@topic
def checkpoint_by_hand(t: Any) -> Any:
    class Again(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return (x * x).sin()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            inner = x.detach().requires_grad_()
            with t.enable_grad():
                y = (inner * inner).sin()
            y.backward(g)
            return inner.grad

    x = t.tensor([0.5, 1.0], requires_grad=True)
    (Again.apply(x) * 2).sum().backward()
    return x.grad


@topic
def straight_through(t: Any) -> Any:
    f = function(t, lambda ctx, x: x.round(), lambda ctx, g: g)
    x = t.tensor([0.4, 1.6], requires_grad=True)
    (f.apply(x) * t.tensor([2.0, 3.0])).sum().backward()
    y = t.tensor([0.4, 1.6], requires_grad=True)
    (y + (y.round() - y).detach()).sum().backward()
    return x.grad, y.grad


@topic
def attributes_and_types(t: Any) -> Any:
    f = function(
        t,
        lambda ctx, x, d, s: (setattr(ctx, "shape", x.shape), setattr(ctx, "d", d), x.sum())[2],
        lambda ctx, g: (g.expand(ctx.shape) * ctx.d["k"], None, None),
    )
    x = t.ones(2, 2, requires_grad=True)
    y = f.apply(x, {"k": 4}, "text")
    y.backward()
    return x.grad, y, len(y.grad_fn.next_functions)


@topic
def subclasses_of_functions(t: Any) -> Any:
    class A(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    class B(A):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 5

    x = t.ones(1, requires_grad=True)
    A.apply(x).sum().backward()
    B.apply(x).sum().backward()
    return x.grad, type(B.apply(x).grad_fn).__name__


@topic
def through_the_middle_of_a_graph(t: Any) -> Any:
    f = function(
        t,
        lambda ctx, a, b: (save(ctx, a, b), (a * b, a + b))[1],
        lambda ctx, g, h: (g * ctx.saved_tensors[1] + h, g * ctx.saved_tensors[0] + h),
    )
    x = t.tensor([2.0, 3.0], dtype=t.float64, requires_grad=True)

    def whole(x: Any) -> Any:
        a, b = f.apply(x * x, x.exp())
        c, d = f.apply(a, b)
        return (c - d).sin()

    whole(x).sum().backward()
    return (
        x.grad,
        t.autograd.gradcheck(whole, x.detach().mul(0.1).requires_grad_()),
        t.autograd.gradgradcheck(whole, x.detach().mul(0.1).requires_grad_()),
    )


@topic
def integer_outputs(t: Any) -> Any:
    f = function(t, lambda ctx, x: (x * 2, x.argmax()), lambda ctx, g, i: g * 2)
    x = t.ones(2, requires_grad=True)
    y, place = f.apply(x)
    y.sum().backward()
    return y, place, x.grad


@topic
def saved_for_forward_and_extras(t: Any) -> Any:
    f = function(
        t, lambda ctx, x: (ctx.save_for_forward(x), save(ctx), x * 2)[2], lambda ctx, g: (ctx.saved_tensors, g)[1]
    )
    x = t.ones(2, requires_grad=True)
    f.apply(x).sum().backward()
    return x.grad
