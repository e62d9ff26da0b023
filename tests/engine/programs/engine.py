"""Which nodes a backward call runs, what hooks see, gradients that are retained, callbacks, views that may not change, tangents of Functions."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from tests.engine.recording import Topic, attempt

topic = Topic()


def watched(t: Any, seen: list[Any]) -> tuple[Any, Any]:
    """A leaf and a non-leaf with hooks of every kind."""
    x = t.ones(2, requires_grad=True)
    y = x * x
    y.register_hook(lambda g: (seen.append("tensor"), g * 2)[1])
    y.grad_fn.register_hook(lambda a, b: seen.append("after"))
    y.grad_fn.register_prehook(lambda a: seen.append("before"))
    return x, y


def nothing(t: Any, x: Any) -> Any:
    """`x` as what a Function gives whose backward has no gradient."""

    class Nothing(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return None

    return Nothing.apply(x)


# ***** which nodes run *****


@topic
def grad_to_a_non_leaf_stops_there(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x * x
    found = t.autograd.grad((y * 3).sum(), y)
    y.backward(t.ones(2))
    return found, x.grad


@topic
def hooks_of_what_is_asked_for(t: Any) -> Any:
    found = []
    for pick in (lambda x, y: y, lambda x, y: (x, y), lambda x, y: x):
        seen: list[Any] = []
        x, y = watched(t, seen)
        found.append((t.autograd.grad((y * 3).sum(), pick(x, y)), seen))
    return found


@topic
def hooks_of_leaves_that_are_asked_for(t: Any) -> Any:
    found = []
    for call in (lambda s, x: t.autograd.grad(s, x), lambda s, x: s.backward(inputs=[x]), lambda s, x: s.backward()):
        seen: list[Any] = []
        x = t.ones(2, requires_grad=True)
        x.register_hook(lambda g, seen=seen: (seen.append("tensor"), g * 2)[1])
        x.register_post_accumulate_grad_hook(lambda p, seen=seen: seen.append("accumulated"))
        y = x * x
        leaf = y.grad_fn.next_functions[0][0]
        leaf.register_hook(lambda a, b, seen=seen: seen.append("after"))
        leaf.register_prehook(lambda a, seen=seen: seen.append("before"))
        found.append((call((y * 3).sum(), x), x.grad, seen))
    return found


@topic
def backward_to_non_leaves(t: Any) -> Any:
    seen: list[Any] = []
    x, y = watched(t, seen)
    y.sum().backward(inputs=[y])
    z = (x * x).t() if x.ndim > 1 else x * x
    (z * 2).sum().backward(inputs=[z, x], retain_graph=True)
    (z * 2).sum().backward(inputs=[z, x], retain_graph=True)
    (z * 2).sum().backward()
    return seen, y.grad, y.retains_grad, z.grad, x.grad


@topic
def backward_to_non_leaves_makes_dense_gradients(t: Any) -> Any:
    x = t.ones(2, 3, requires_grad=True)
    y, z, w = x * 2, (x * 2).t(), x * 2
    w.retain_grad()
    y.sum().backward(inputs=[y])
    z.sum().backward(inputs=[z])
    (w.t() * t.ones(3, 2)).sum().backward()
    return y.grad, z.grad, w.grad


@topic
def what_is_asked_for_is_the_root(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y, z = x * 2, x * 2
    y.backward(t.ones(2), inputs=[y])
    found = t.autograd.grad(z, z, t.ones(2)), t.autograd.grad(x, x, t.ones(2))
    x.backward(t.ones(2), inputs=[x])
    return y.grad, found, x.grad


@topic
def roots_that_lead_nowhere(t: Any) -> Any:
    found = []
    for pick in (
        lambda y, z, w: (y, w),
        lambda y, z, w: ((y, z), w),
        lambda y, z, w: ((y, z), (y, w)),
        lambda y, z, w: (y, y),
    ):
        seen: list[Any] = []
        _, y = watched(t, seen)
        w = t.ones(2, requires_grad=True)
        roots, inputs = pick(y, w * w, w)
        seeds = [t.ones(2)] * (len(roots) if isinstance(roots, tuple) else 1)
        found.append(
            (t.autograd.grad(roots, inputs, seeds, allow_unused=True), seen, attempt(lambda y=y: y.backward(t.ones(2))))
        )
    x = t.ones(2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda p: found.append("accumulated"))
    return found, t.autograd.grad(x, w, t.ones(2), allow_unused=True), x.grad


@topic
def only_what_ran_is_freed(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    a = x.exp()
    b = a.sin()
    c = b * b
    s = c.sum()
    t.autograd.grad(s, b)
    return [attempt(lambda p=p: p.backward(t.ones_like(p), retain_graph=True)) for p in (s, c, b, a)], x.grad


@topic
def asked_for_twice_and_among_several(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x * 2
    first = t.autograd.grad((y * 3).sum(), (y, y, x, x))
    seen: list[Any] = []
    a, b = (t.arange(5.0, requires_grad=True) * 1).split([2, 3])
    a.register_hook(lambda g: seen.append(("a", g)))
    b.register_hook(lambda g: (seen.append(("b", g)), g * 2)[1])
    return (
        first,
        t.autograd.grad((b * 2).sum(), (b, a), allow_unused=True, retain_graph=True),
        t.autograd.grad(a.sum() + b.sum(), (a, b)),
        seen,
    )


@topic
def leaves_that_were_not_reached(t: Any) -> Any:
    x, w = t.ones(2, requires_grad=True), t.ones(2, requires_grad=True)
    y = x * 2
    y.sum().backward(inputs=[w], retain_graph=True)
    before = x.grad, w.grad
    y.sum().backward(inputs=[w, x])
    return before, x.grad, w.grad


@topic
def nodes_beside_an_in_place_change(t: Any) -> Any:
    class Fails(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            raise RuntimeError("runs")

    def alone(x: Any, y: Any) -> Any:
        out = x.clone().view(-1)
        out += y
        return out

    def beside(x: Any, y: Any) -> Any:
        out = x.clone().view(-1)
        b = out * 2
        out += y
        return out + b

    x, y = t.ones(2, requires_grad=True), t.ones(2, requires_grad=True)
    fails = Fails.apply(y)
    found = []
    for f in (alone, beside):
        found.append(attempt(lambda f=f: f(x, fails).sum().backward()))
        found.append(attempt(lambda f=f: t.autograd.grad(f(x, fails).sum(), y)))
        found.append(t.autograd.grad(f(x, fails).sum(), x))
        found.append(t.autograd.grad(f(x, fails).sum(), (x, fails)))
    return found


@topic
def edges_as_inputs(t: Any) -> Any:
    edge_of = t.autograd.graph.get_gradient_edge
    x = t.ones(2, requires_grad=True)
    y = x * 2
    e, z = edge_of(y), (y * 3).sum()
    found: list[Any] = [t.autograd.grad(z, e, retain_graph=True)]
    z.backward(inputs=[e], retain_graph=True)
    found.append((x.grad, y.retains_grad))
    z.backward(inputs=[edge_of(x)], retain_graph=True)
    found.append(t.autograd.grad((e, z), (x, e), (t.ones(2), None), retain_graph=True))
    t.autograd.backward(e, t.ones(2))
    return found, x.grad


@topic
def edges_and_zeros(t: Any) -> Any:
    x, y = t.ones(2, requires_grad=True).clone(), t.ones(2, requires_grad=True).clone()
    edge = t.autograd.graph.get_gradient_edge
    ask = lambda *inputs: attempt(
        lambda: t.autograd.grad(x.clone().sum(), inputs, allow_unused=True, materialize_grads=True)
    )
    return ask(x, edge(y)), ask(edge(x), y), ask(x, y)


@topic
def what_nodes_expect(t: Any) -> Any:
    x = t.ones(2, 3, requires_grad=True)
    nodes = (x * 2).grad_fn, t.var_mean(x, dim=0)[0].grad_fn, x.view_as(x).grad_fn.next_functions[0][0]
    found = [
        [(list(m.shape), str(m.dtype), str(m.device), m.is_nested_tensor) for m in node._input_metadata]
        for node in nodes
    ]
    call = nodes[0]
    return (
        found,
        attempt(lambda: call(x, x)),
        attempt(lambda: call()),
        attempt(lambda: call(5)),
        call(None),
        call(t.ones(2, 3)),
    )


@topic
def other_memory_has_no_part_in_old_graphs(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    edge, out = t.autograd.graph.get_gradient_edge(x), x * 2
    with t.no_grad():
        x.set_(t.zeros(2))
    return attempt(lambda: t.autograd.grad(out.sum(), x)), t.autograd.grad(out.sum(), edge)


@topic
def nodes_that_will_run(t: Any) -> Any:
    x, seen = t.ones(2, requires_grad=True), []
    y = x * 2
    z = y * 3
    ask = t._C._will_engine_execute_node
    leaf = y.grad_fn.next_functions[0][0]
    handle = z.register_hook(lambda g: seen.append([ask(n) for n in (z.grad_fn, y.grad_fn, leaf)]))
    z.sum().backward(retain_graph=True)
    z.sum().backward(inputs=[y], retain_graph=True)
    t.autograd.grad(z.sum(), y, retain_graph=True)
    handle.remove()
    z.register_hook(lambda g: ask(leaf))
    return seen, attempt(lambda: t.autograd.grad(z.sum(), x)), attempt(lambda: ask(leaf)), attempt(lambda: ask(x))


@topic
def whole_numbers_as_batches_of_gradients(t: Any) -> Any:
    x = t.ones(2, 2, requires_grad=True)
    rows = t.arange(3).expand(2, 2, 3).transpose(0, 2)
    found = (
        t.autograd.grad(x * 1, x, rows, is_grads_batched=True),
        t.autograd.grad(x.sum(), x, t.arange(3), is_grads_batched=True),
    )
    return [(g[0].tolist(), str(g[0].dtype)) for g in found]


@topic
def several_results_beside_a_view_in_place(t: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        x.mul_(2)
        return x, x * 2

    F: Any = type(
        "F",
        (t.autograd.Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(lambda ctx, g, h: g * 2 + h * 4)},
    )
    whole = F.apply(t.ones(2, requires_grad=True) * 1)
    return whole, attempt(lambda: F.apply((t.ones(2, requires_grad=True) * 1)[0])), F.apply(t.ones(2)[0])


@topic
def hooks_for_saved_tensors_reach_the_node(t: Any) -> Any:
    seen, x = [], t.full((2,), 3.0, requires_grad=True)

    def unpack(held: Any) -> Any:
        node = t._C._current_autograd_node()
        seen.append(node.name())
        node.register_hook(lambda a, b: tuple(None if g is None else g / 2 for g in a))
        return held

    with t.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
        y = x.sin().sum()
    y.backward()
    return seen, x.grad


@topic
def contexts_left_during_backward(t: Any) -> Any:
    def unpack(held: Any) -> Any:
        first.__exit__()
        return held

    first = t.autograd.graph.saved_tensors_hooks(lambda x: x, unpack)
    second = t.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)
    for _ in range(3):
        with second:
            first.__enter__()
            t.ones(2, requires_grad=True).sin().sum().backward()
    for _ in range(3):
        first.__exit__()
    y = t.ones(2, requires_grad=True).exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda x: x, lambda x: x)
    return y


# ***** hooks and gradients that are not defined *****


@topic
def hooks_see_none(t: Any) -> Any:
    seen: list[Any] = []
    x = t.ones(2, requires_grad=True)
    x.register_hook(lambda g: seen.append(g))
    x.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
    y = x * 2
    y.register_hook(lambda g: seen.append(("tensor", g)))
    y.grad_fn.register_hook(lambda a, b: seen.append(("after", a, b)))
    y.grad_fn.register_prehook(lambda a: seen.append(("before", a)))
    y.retain_grad()
    nothing(t, y).sum().backward()
    return seen, x.grad, y.grad


@topic
def hooks_replace_none(t: Any) -> Any:
    found = []
    for put in (
        lambda y: y.register_hook(lambda g: t.ones(2)),
        lambda y: y.grad_fn.register_prehook(lambda g: (t.ones(2),)),
    ):
        y = t.ones(2, requires_grad=True) * 2
        put(y)
        found.append(attempt(lambda y=y: nothing(t, y).sum().backward()))
    return found


@topic
def what_pre_hooks_may_return(t: Any) -> Any:
    found = []
    for made in (
        t.ones(2),
        (t.ones(3),),
        (t.ones(2), t.ones(2)),
        (None,),
        (5,),
        [t.ones(2)],
        (t.ones(2).double(),),
        (t.ones(2) * 7,),
    ):
        x = t.ones(2, requires_grad=True)
        y = x * 2
        y.grad_fn.register_prehook(lambda g, made=made: made)
        found.append((attempt(lambda y=y: y.sum().backward()), x.grad))
    return found


@topic
def what_post_hooks_may_return(t: Any) -> Any:
    one, two = t.ones(2), t.ones(3)
    found = []
    for made in (
        one,
        (two,),
        (one, one),
        (None,),
        (5,),
        [one],
        5,
        (one, None),
        (one * 7, None),
        (None, None),
        (two, None),
        (one.double(), None),
    ):
        x = t.ones(2, requires_grad=True)
        y = x * 2
        y.grad_fn.register_hook(lambda a, b, made=made: made)
        found.append((attempt(lambda y=y: y.sum().backward()), x.grad))
    return found


@topic
def what_tensor_hooks_may_return(t: Any) -> Any:
    found = []
    for made in (t.ones(3), 5, "a", t.ones(2).double(), (t.ones(2),), t.ones(2).to_sparse(), t.ones(2, device="meta")):
        for on_leaf in (False, True):
            x = t.ones(2, requires_grad=True)
            y = x * 2
            (x if on_leaf else y).register_hook(lambda g, made=made: made)
            found.append(attempt(lambda y=y: y.sum().backward()))
    return found


@topic
def hooks_of_several_results(t: Any) -> Any:
    seen: list[Any] = []
    a, b, c = (t.ones(3, 2, requires_grad=True) * 1).unbind(0)
    for name, part in (("a", a), ("b", b), ("c", c)):
        part.register_hook(lambda g, name=name: seen.append((name, g is None)))
    (a.sum() + b.sum()).backward(retain_graph=True)
    a.sum().backward(retain_graph=True)
    (b * c).sum().backward()
    return seen


@topic
def hooks_before_and_after_a_change(t: Any) -> Any:
    seen: list[Any] = []
    x = t.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: (seen.append("old"), g * 5)[1])
    y.mul_(3)
    y.register_hook(lambda g: (seen.append("new"), g * 7)[1])
    z = x * 2
    v = z.view(-1)
    v.register_hook(lambda g: seen.append("view"))
    z.mul_(2)
    (y.sum() + v.sum()).backward()
    return seen, x.grad


# ***** retained gradients *****


@topic
def retained_by_views_of_what_changed(t: Any) -> Any:
    found = []
    for first in (True, False):
        base = t.ones(4, requires_grad=True).clone()
        v, w = base[:2], base[1:3]
        if first:
            w.retain_grad()
        v.mul_(2)
        if not first:
            w.retain_grad()
        (w * 3).sum().backward()
        found.append(w.grad)
    return found


@topic
def retained_by_bases_and_views(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x * 2
    v, w = y.view(-1), y[:1]
    for each in (y, v, w):
        each.retain_grad()
    w.mul_(3)
    y.mul_(2)
    kept = v.retains_grad, w.retains_grad, y.retains_grad
    (y * v).sum().backward(retain_graph=True)
    first = y.grad.clone(), v.grad.clone(), w.grad
    w.sum().backward()
    return kept, first, y.grad, v.grad, w.grad


@topic
def retained_where_grad_asks(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    y = x * x
    y.retain_grad()
    return t.autograd.grad((y * 3).sum(), y), y.grad


@topic
def zeros_that_are_materialized(t: Any) -> Any:
    found = []
    for create_graph in (True, False):
        x, z = t.ones(2, requires_grad=True), t.ones(2, requires_grad=True)
        found.append(t.autograd.grad((x * x).sum(), (x, z), create_graph=create_graph, materialize_grads=True))
    return found


# ***** callbacks, calls within calls, packed tensors *****


@topic
def callbacks(t: Any) -> Any:
    seen: list[Any] = []
    queue = t.autograd.Variable._execution_engine.queue_callback

    def more() -> None:
        seen.append(t.is_grad_enabled())
        queue(lambda: seen.append("last"))

    x = t.ones(2, requires_grad=True)
    x.register_hook(lambda g: queue(more))
    (x * 2).sum().backward()
    (x * 2).sum().backward(create_graph=True)
    return seen, attempt(lambda: queue(more)), attempt(lambda: (x * 2).sum().backward())


@topic
def callbacks_of_calls_within_calls(t: Any) -> Any:
    seen: list[Any] = []
    queue = t.autograd.Variable._execution_engine.queue_callback

    class Within(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            with t.enable_grad():
                y = g.detach().requires_grad_()
                y.register_hook(lambda g: queue(lambda: seen.append("inner")))
                (y * 2).sum().backward()
            seen.append("between")
            return g

    x = t.ones(2, requires_grad=True)
    x.register_hook(lambda g: queue(lambda: seen.append("outer")))
    Within.apply(x).sum().backward()
    return seen


@topic
def deep_calls_within_calls(t: Any) -> Any:
    class Deep(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, depth: int) -> Any:
            ctx.depth = depth
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            if not ctx.depth:
                return g * 2, None
            with t.enable_grad():
                x = t.ones(1, requires_grad=True)
                out = Deep.apply(x, ctx.depth - 1)
                out.sum().backward()
            return g * x.grad, None

    x = t.ones(1, requires_grad=True)
    Deep.apply(x, 300).sum().backward()
    return x.grad, t.is_grad_enabled()


@topic
def errors_deep_within(t: Any) -> Any:
    class Fails(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, depth: int) -> Any:
            ctx.depth = depth
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            if not ctx.depth:
                raise ValueError("deep")
            with t.enable_grad():
                Fails.apply(t.ones(1, requires_grad=True), ctx.depth - 1).sum().backward()
            return g, None

    x = t.ones(1, requires_grad=True)
    found = attempt(lambda: Fails.apply(x, 100).sum().backward())
    (x * 2).sum().backward()
    return found, x.grad, t.is_grad_enabled()


@topic
def packed_in_other_layouts(t: Any) -> Any:
    pairs = [
        (lambda x: x, lambda x: x),
        (lambda x: x.clone(), lambda x: x.clone()),
        (lambda x: x.tolist(), lambda x: t.tensor(x)),
        (lambda x: x.t().contiguous().t() if x.ndim > 1 else x, lambda x: x),
    ]
    found = []
    x = t.linspace(0.1, 0.6, 6).view(2, 3).requires_grad_()
    for pack, unpack in (*pairs, *reversed(pairs)):
        with t.autograd.graph.saved_tensors_hooks(pack, unpack):
            (first,) = t.autograd.grad((x * x * x).exp().sum(), x, create_graph=True)
            found.append(t.autograd.grad((first * t.ones(3).expand(2, 3)).sum(), x))
    return found


# ***** views that may not change *****


@topic
def parts_that_may_change(t: Any) -> Any:
    found = []
    for make in (
        lambda x: t.unsafe_split(x, 2),
        lambda x: t.unsafe_chunk(x, 2),
        lambda x: t.unsafe_split_with_sizes(x, [1, 3]),
    ):
        leaf = t.arange(8.0).view(4, 2).requires_grad_()
        x = leaf * 1
        parts = make(x)
        shared = parts[0]._is_view(), parts[0].data_ptr() == x.data_ptr()
        parts[0].mul_(3)
        (parts[0] * parts[0]).sum().backward()
        found.append((parts, shared, parts[0]._version, x._version, x, leaf.grad))
    return found


@topic
def several_views_in_place(t: Any) -> Any:
    found = []
    for make in (
        lambda x: x.unbind(0), lambda x: x.split(2), lambda x: x.chunk(2), lambda x: x.tensor_split(2), lambda x: x.split([1, 3]),
        lambda x: x.hsplit(2), lambda x: x.vsplit(2), list, lambda x: [x.unbind(0)[1][:1]], lambda x: [x.split(2)[1].view(-1)],
    ):  # fmt: skip
        part = make(t.ones(4, 2, requires_grad=True).clone())[0]
        found.append(attempt(lambda part=part: part.mul_(2)))
    return found


@topic
def histories_that_cannot_follow(t: Any) -> Any:
    F = t.autograd.Function
    two = type(
        "Two",
        (F,),
        {
            "forward": staticmethod(lambda ctx, x: (x[0], x[1])),
            "backward": staticmethod(lambda ctx, a, b: t.stack([a, b])),
        },
    )
    same = type("Same", (F,), {"forward": staticmethod(lambda ctx, x: x), "backward": staticmethod(lambda ctx, g: g)})
    flat = type(
        "Flat",
        (F,),
        {"forward": staticmethod(lambda ctx, x: x.view(-1)), "backward": staticmethod(lambda ctx, g: g.view(2, 2))},
    )
    found = []
    for make in (lambda x: x.unbind(0)[1], lambda x: two.apply(x)[1], same.apply, flat.apply):  # type: ignore[attr-defined]
        x = t.ones(2, 2, requires_grad=True) * 1
        view = make(x)
        x.mul_(2)
        found.append((attempt(lambda view=view: view.grad_fn), attempt(lambda view=view: view.sum().backward())))
        found.append((attempt(lambda view=view: view.mul_(2)), attempt(lambda view=view: repr(view).count("Invalid"))))
    return found


@topic
def changed_views_that_are_saved(t: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        x.mul_(2)
        ctx.save_for_backward(x)
        return x

    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * x

    F: Any = type("F", (t.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})

    def scope() -> tuple[Any, Any]:
        leaf = t.full((2,), 3.0, requires_grad=True)
        x = leaf.clone().view(-1)
        y = F.apply(x)
        (first,) = t.autograd.grad(y.sum(), leaf, create_graph=True)
        return (first.detach(), t.autograd.grad(first.sum(), leaf, allow_unused=True)), weakref.ref(x)

    gc.collect()
    gc.disable()
    try:
        found, reference = scope()
        return found, reference() is None
    finally:
        gc.enable()


@topic
def views_of_intermediates_marked_dirty(t: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        made = x.clone().view_as(x)
        ctx.mark_dirty(made)
        return made

    F: Any = type(
        "F", (t.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(lambda ctx, g: g)}
    )
    return attempt(lambda: F.apply(t.ones(2, requires_grad=True).clone()))


# ***** tangents of Functions *****


def moved(t: Any, forward: Any, jvp: Any, *args: Any, which: tuple[int, ...] = (0,)) -> Any:
    """Values and tangents of a Function whose arguments in `which` have a tangent, and whether they are arguments."""
    function: Any = type("F", (t.autograd.Function,), {"forward": staticmethod(forward), "jvp": staticmethod(jvp)})
    ahead = t.autograd.forward_ad
    with ahead.dual_level():
        given = [ahead.make_dual(x, t.full_like(x, 2.0)) if i in which else x for i, x in enumerate(args)]
        made = function.apply(*given)
        pairs = [
            (ahead.unpack_dual(o), o) if isinstance(o, t.Tensor) else o
            for o in (made if isinstance(made, tuple) else (made,))
        ]
        return [
            (p[0].primal, p[0].tangent, any(p[1] is g for g in given)) if isinstance(p, tuple) else p for p in pairs
        ]


def doubled(ctx: Any, x: Any) -> Any:
    """A forward in place."""
    ctx.mark_dirty(x)
    x.mul_(2)
    return x


@topic
def tangents_in_place(t: Any) -> Any:
    def changed(ctx: Any, g: Any) -> Any:
        g.mul_(2)
        return g * 1

    found = [
        attempt(lambda j=j: moved(t, doubled, j, t.ones(2)))
        for j in (lambda ctx, g: g.mul_(2), lambda ctx, g: g * 2, changed)
    ]

    def times(ctx: Any, x: Any, y: Any) -> Any:
        ctx.mark_dirty(x)
        x.mul_(y)
        return x

    for which in ((0,), (1,), (0, 1)):
        found.append(moved(t, times, lambda ctx, a, b: a.add_(b), t.ones(2), t.full((2,), 3.0), which=which))
    return found


@topic
def tangents_of_views(t: Any) -> Any:
    rules = (lambda ctx, g: g.view(-1), lambda ctx, g: g.view(-1) * 2, lambda ctx, g: t.ones(2, 2).view(-1))
    found = [attempt(lambda j=j: moved(t, lambda ctx, x: x.view(-1), j, t.ones(2, 2))) for j in rules]
    as_it_is = (lambda ctx, g: g, lambda ctx, g: g.view_as(g), lambda ctx, g: g * 1)
    return found, [attempt(lambda j=j: moved(t, lambda ctx, x: x, j, t.ones(2, 2))) for j in as_it_is]


@topic
def tangents_that_are_zeros(t: Any) -> Any:
    seen = []

    def product(ctx: Any, a: Any, k: Any, b: Any, i: Any) -> Any:
        ctx.k = k
        return a * b * k, "text", None

    def rule(ctx: Any, *given: Any) -> Any:
        seen.append([None if g is None else g.clone() for g in given])
        return given[0] * ctx.k, None, None

    def undefined(ctx: Any, a: Any, b: Any) -> Any:
        ctx.set_materialize_grads(False)
        return a * b

    def quiet(ctx: Any, a: Any, b: Any) -> Any:
        seen.append(b)
        return a * 1

    first = moved(t, product, rule, t.ones(2), 3, t.ones(2), t.ones(2, dtype=t.long))
    return first, moved(t, undefined, quiet, t.ones(2), t.ones(2)), seen


@topic
def tangents_that_do_not_fit(t: Any) -> Any:
    pair = lambda ctx, x: (x * 1, x * 2)
    found = [
        attempt(lambda j=j: moved(t, pair, j, t.ones(2)))
        for j in (lambda ctx, g: g, lambda ctx, g: (g, g, g), lambda ctx, g: (g, g * 3))
    ]

    def marked(ctx: Any, x: Any) -> Any:
        z = x * 1
        ctx.mark_non_differentiable(z)
        return x * 1, x > 0, z

    for rule in (lambda ctx, g: (g, None, None), lambda ctx, g: (g, g, None), lambda ctx, g: (g, None, g)):
        found.append(attempt(lambda rule=rule: moved(t, marked, rule, t.ones(2))))
    for rule in (
        lambda ctx, g: 5,
        lambda ctx, g: t.ones(3),
        lambda ctx, g: [g],
        lambda ctx, g: t.ones(2, dtype=t.long),
    ):
        found.append(attempt(lambda rule=rule: moved(t, lambda ctx, x: x * 1, rule, t.ones(2))))
    return found


@topic
def forward_runs_once_under_tangents(t: Any) -> Any:
    runs = []

    def forward(ctx: Any, x: Any, y: Any) -> Any:
        runs.append(1)
        ctx.save_for_forward(x, y)
        ctx.save_for_backward(x)
        return x * y

    def rule(ctx: Any, a: Any, b: Any) -> Any:
        x, y = ctx.saved_tensors
        return a * y + b * x

    return moved(t, forward, rule, t.full((2,), 3.0), t.full((2,), 4.0)), runs
