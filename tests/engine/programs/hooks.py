"""Hooks of tensors, nodes and leaves; hooks for saved tensors."""

from __future__ import annotations

from typing import Any

from tests.engine.recording import Topic, attempt, warned

topic = Topic()


@topic
def tensor_hooks(t: Any) -> Any:
    x, seen = t.ones(2, requires_grad=True), []
    y = x * 3
    handle = y.register_hook(lambda g: seen.append(("first", g.tolist())))
    y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: seen.append(("third", g.tolist())))
    x.register_hook(lambda g: g + 1)
    x.register_hook(lambda g: seen.append(("leaf", g.tolist())))
    y.sum().backward()
    handle.remove()
    (y * 1).sum().backward() if False else None
    return seen, x.grad


@topic
def removing(t: Any) -> Any:
    x, seen = t.ones(2, requires_grad=True), []
    handle = x.register_hook(lambda g: seen.append(1))
    x.sum().backward()
    handle.remove()
    handle.remove()
    x.sum().backward()
    with x.register_hook(lambda g: seen.append(2)):
        x.sum().backward()
    x.sum().backward()
    return seen, x.grad


@topic
def leaf_hook_sees_each_sum(t: Any) -> Any:
    x, seen = t.ones(2, requires_grad=True), []
    x.register_hook(lambda g: seen.append(g.clone()))
    (x * 2 + x * 3).sum().backward()
    return seen


@topic
def hook_returns_wrong(t: Any) -> Any:
    found = []
    for bad in (5, "a", t.ones(3)):
        x = t.ones(2, requires_grad=True)
        y = x * 1
        y.register_hook(lambda g, bad=bad: bad)
        found.append(attempt(lambda y=y: y.sum().backward()))
    return found


@topic
def hooks_on_what_has_no_gradient(t: Any) -> Any:
    x = t.ones(2)
    y = t.ones(2, requires_grad=True) * 1
    return (
        attempt(lambda: x.register_hook(print)),
        attempt(lambda: x.retain_grad()),
        attempt(lambda: y.register_post_accumulate_grad_hook(print)),
        (attempt(lambda: x.register_post_accumulate_grad_hook(print))),
    )


@topic
def retain_grad(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    x.retain_grad()
    z = y * y
    z.sum().backward(retain_graph=True)
    first = y.grad.clone()
    z.sum().backward()
    return first, y.grad, y.retains_grad, x.retains_grad, warned(lambda: y.grad)[1]


@topic
def retain_grad_after_hooks(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    (y * 1).sum().backward()
    return y.grad, x.grad


@topic
def hooks_then_in_place(t: Any) -> Any:
    x, seen = t.ones(2, requires_grad=True), []
    y = x * 2
    y.register_hook(lambda g: seen.append(("before", g.tolist())))
    y.mul_(3)
    y.register_hook(lambda g: seen.append(("after", g.tolist())))
    (y * y).sum().backward()
    return seen, x.grad


@topic
def hooks_with_grad(t: Any) -> Any:
    x, seen = t.ones(2, requires_grad=True), []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.clone()))
    y.register_hook(lambda g: g * 5)
    z = (y * 3).sum()
    a = t.autograd.grad(z, y, retain_graph=True)
    b = t.autograd.grad(z, x, retain_graph=True)
    x.register_hook(lambda g: g * 7)
    c = t.autograd.grad(z, x)
    return seen, a, b, c


@topic
def node_hooks(t: Any) -> Any:
    x, seen = t.ones(2, requires_grad=True), []
    y = x * 2
    node = y.grad_fn
    node.register_prehook(lambda gs: seen.append(("pre", [g.tolist() for g in gs])))
    node.register_prehook(lambda gs: tuple(g * 10 for g in gs))
    node.register_hook(
        lambda ins, outs: seen.append(
            ("post", [None if g is None else g.tolist() for g in ins if g is not None], [g.tolist() for g in outs])
        )
    )
    handle = node.register_hook(lambda ins, outs: tuple(None if g is None else g + 1 for g in ins))
    y.sum().backward(retain_graph=True)
    handle.remove()
    y.sum().backward()
    return seen, x.grad


@topic
def order_of_kinds(t: Any) -> Any:
    x, seen = t.ones(2, requires_grad=True), []
    y = x * 2
    y.grad_fn.register_prehook(lambda gs: seen.append("node pre"))
    y.register_hook(lambda g: seen.append("tensor"))
    y.grad_fn.register_hook(lambda a, b: seen.append("node post"))
    x.register_hook(lambda g: seen.append("leaf tensor"))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(("leaf post", p.grad.tolist())))
    y.sum().backward()
    return seen


@topic
def post_accumulate(t: Any) -> Any:
    x, seen = t.ones(2, requires_grad=True), []

    def step(p: Any) -> None:
        seen.append(p.grad.clone())
        with t.no_grad():
            p.sub_(p.grad, alpha=0.5)
        p.grad = None

    handle = x.register_post_accumulate_grad_hook(step)
    (x * x).sum().backward()
    (x * x).sum().backward()
    handle.remove()
    (x * x).sum().backward()
    t.autograd.grad((x * x).sum(), x)
    return seen, x, x.grad


@topic
def accumulator_hooks(t: Any) -> Any:
    x, seen = t.ones(2, requires_grad=True), []
    node = x.expand_as(x).grad_fn.next_functions[0][0]
    node.register_hook(lambda ins, outs: seen.append(("acc", [g.tolist() for g in outs])))
    (x * 2).sum().backward()
    return seen, type(node).__name__


@topic
def multi_grad(t: Any) -> Any:
    a, b, c, seen = t.ones(1, requires_grad=True), t.ones(1, requires_grad=True), t.ones(1, requires_grad=True), []
    g = t.autograd.graph
    handle = g.register_multi_grad_hook(
        (a, b, c), lambda gs: seen.append([None if v is None else v.item() for v in gs])
    )
    (a * 2 + b * 3).sum().backward()
    (a * 2 + b * 3 + c).sum().backward()
    handle.remove()
    (a + b + c).sum().backward()
    other = g.register_multi_grad_hook((a, b), lambda v: seen.append(v.item()), mode="any")
    (a * 4 + b * 4).sum().backward()
    (a * 5 + b * 5).sum().backward()
    other.remove()
    return seen, attempt(lambda: g.register_multi_grad_hook((a,), print, mode="no"))


@topic
def saved_hooks(t: Any) -> Any:
    x, seen = t.ones(2, requires_grad=True), []

    def pack(v: Any) -> Any:
        seen.append(("pack", v.tolist()))
        return (v * 10,)

    def unpack(v: Any) -> Any:
        seen.append(("unpack", v[0].tolist()))
        return v[0]

    with t.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = x * t.full((2,), 3.0)
        z = y.exp()
    w = z * z
    w.sum().backward()
    return seen, x.grad


@topic
def saved_hooks_nested(t: Any) -> Any:
    x, seen = t.ones(2, requires_grad=True), []
    hooks = t.autograd.graph.saved_tensors_hooks
    with hooks(lambda v: seen.append("outer") or v, lambda v: v):
        with hooks(lambda v: seen.append("inner") or v, lambda v: v):
            y = x * x
        z = y.exp()
    (x * x).sum().backward()
    z.sum().backward()
    return seen, x.grad


@topic
def saved_hooks_errors(t: Any) -> Any:
    g = t.autograd.graph
    x = t.ones(2, requires_grad=True)
    with g.saved_tensors_hooks(lambda v: v, lambda v: 5):
        y = x.exp()

    def forbidden() -> None:
        with g.disable_saved_tensors_hooks("not here"), g.saved_tensors_hooks(lambda v: v, lambda v: v):
            pass

    with g.save_on_cpu():
        z = (x * x).sum()
    z.backward()
    return attempt(lambda: y.sum().backward()), attempt(forbidden), x.grad


@topic
def saved_hooks_of_functions(t: Any) -> Any:
    seen = []

    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * x
            ctx.save_for_backward(x, None, y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, nothing, y = ctx.saved_tensors
            seen.append(nothing)
            return 2 * g * x + 0 * y

    x = t.ones(2, requires_grad=True)
    with t.autograd.graph.saved_tensors_hooks(
        lambda v: seen.append("pack") or v.clone(), lambda v: seen.append("unpack") or v
    ):
        y = Square.apply(x)
    y.sum().backward()
    return seen, x.grad


@topic
def gradient_edges(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x * 2
    g = t.autograd.graph
    a, b = g.get_gradient_edge(x), g.get_gradient_edge(y)
    v = t.ones(2)
    g.increment_version(v)
    found = [
        type(a.node).__name__,
        a.output_nr,
        b.node is y.grad_fn,
        v._version,
        attempt(lambda: g.get_gradient_edge(t.ones(2))),
    ]
    z = (y * y).sum()
    return found, t.autograd.grad(z, b)


@topic
def hook_sees_modified_by_earlier_in_order(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    for k in (2.0, 3.0, 5.0):
        x.register_hook(lambda g, k=k: g * k + 1)
    x.sum().backward()
    return x.grad


@topic
def hook_in_the_backward_of_backward(t: Any) -> Any:
    x, seen = t.full((1,), 2.0, requires_grad=True), []
    y = x**3
    y.register_hook(lambda g: seen.append(g.requires_grad) or g * 2)
    (g,) = t.autograd.grad(y.sum(), x, create_graph=True)
    g.register_hook(lambda g: seen.append(("second", g.tolist())))
    (h,) = t.autograd.grad(g.sum(), x)
    return seen, g.detach(), h


@topic
def backward_inside_a_hook(t: Any) -> Any:
    x, w = t.ones(2, requires_grad=True), t.ones(2, requires_grad=True)
    y = x * 2

    def inner(g: Any) -> None:
        with t.enable_grad():
            (w * g.detach() * 3).sum().backward()

    y.register_hook(inner)
    y.sum().backward()
    return x.grad, w.grad
