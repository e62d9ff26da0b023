"""Writing to tensors of subclasses, and through them: values, types, histories and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.engine.recording import Topic, attempt

topic = Topic()
Step = Callable[[Any, Any, Any], Any]


def _classes(t: Any) -> list[Any]:
    class Quiet(t.Tensor):
        pass

    class Asking(t.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return super().__torch_function__(func, types, args, kwargs or {})

    return [Quiet, Asking]


def _facts(x: Any) -> Any:
    if not hasattr(x, "grad_fn"):
        return x
    return [x, x._version, x._base is not None, type(x._base).__name__]


def _run(t: Any, step: Step, wrap: Callable[[Any], Any], first: bool, second: bool, quiet: bool) -> Any:
    p = t.arange(1.0, 7.0, dtype=t.float64).reshape(2, 3).requires_grad_()
    q = t.linspace(0.5, 1.5, 6, dtype=t.float64).reshape(2, 3).requires_grad_()
    a, b = p * 1, q * 1
    a, b = wrap(a) if first else a, wrap(b) if second else b
    made = step(t, a, b)
    shown = [*(made if isinstance(made, (tuple, list)) else [made]), a, b]
    found = [_facts(x.detach() if quiet and hasattr(x, "grad_fn") else x) for x in shown]
    total = sum(
        [(x * (2 + k)).sum() for k, x in enumerate(shown) if hasattr(x, "grad_fn") and x.requires_grad],
        t.zeros((), dtype=t.float64),
    )
    return found, attempt(lambda: t.autograd.grad(total, [p, q], allow_unused=True))


def _program(step: Step, quiet: bool = False) -> Callable[[Any], Any]:
    """The step with the first, the second and both tensors of each class; `quiet` where it changes memory outside of the graph."""

    def program(t: Any) -> Any:
        found = []
        for cls in _classes(t):
            for first, second in ((True, False), (False, True), (True, True)):
                found.append(
                    attempt(lambda c=cls, f=first, s=second: _run(t, step, lambda x: x.as_subclass(c), f, s, quiet))
                )  # type: ignore[misc]
        return found

    return program


def _set(index: Any, whole: bool = False) -> Step:
    """Write through an index, twice."""

    def step(t: Any, a: Any, b: Any) -> Any:
        at = index(t, a)
        a[at] = b[at] if whole else 3.0
        a[at] *= 2
        return a

    return step


def _iadd(t: Any, a: Any, b: Any) -> Any:
    a += b
    a *= 0.5
    return a


def _every_sign(t: Any, a: Any, b: Any) -> Any:
    a += b
    a -= 0.25
    a *= b
    a /= 1 + b
    a **= 2
    return a


def _after(t: Any, a: Any, b: Any) -> Any:
    y = a * b
    y *= 0.5
    return y


def _both_ways(t: Any, a: Any, b: Any) -> Any:
    row = a[0]
    a.mul_(2)
    row.add_(b[1])
    b[0] = row
    return row


def _chain(t: Any, a: Any, b: Any) -> Any:
    return a.mul_(2).add_(b).clamp_(1.0, 9.0)[1].neg_()


def _retained(t: Any, a: Any, b: Any) -> Any:
    y = a * 2
    y.retain_grad()
    y.mul_(b)
    y.sum().backward(retain_graph=True)
    return type(y.grad).__name__, y.grad.detach().clone()


def _hooked(t: Any, a: Any, b: Any) -> Any:
    seen: list[Any] = []
    y = a * 2
    y.register_hook(lambda g: seen.append([type(g).__name__, g.detach().clone()]))
    y.mul_(b)
    y.sum().backward(retain_graph=True)
    return [v for pair in seen for v in pair]


def _quietly(t: Any, a: Any, b: Any) -> Any:
    with t.no_grad():
        a.mul_(2)
        row = a[0]
        row.add_(1)
        b[1] = row
    return a


def _changed_saved(t: Any, a: Any, b: Any) -> Any:
    y = a.exp()
    y.mul_(b)
    return y


def _views(t: Any, a: Any, b: Any) -> Any:
    a.t().mul_(2)
    a.view(6)[1:3] = 0.0
    a.reshape(3, 2).add_(1)
    a.select(0, 0).copy_(b[0])
    a.diagonal().zero_()
    t.narrow(a, 1, 0, 2).sub_(1)
    a.unfold(1, 2, 1)[0, 0] = 4.0
    a.as_strided((2,), (4,)).mul_(3)
    return a.unsqueeze(0).squeeze(0).expand(2, 2, 3)


def _many_views(t: Any, a: Any, b: Any) -> Any:
    rows = a.unbind()
    refused = [
        attempt(lambda: rows[0].mul_(2)),
        attempt(lambda: a.split(1)[0].mul_(2)),
        attempt(lambda: a.chunk(2)[1].add_(1)),
    ]
    left, right = t.tensor_split(a, 2)
    left.mul_(2)
    right.mul_(b[:1])
    return [*[r if isinstance(r, str) else "made" for r in refused], left, right]


def _shapes(t: Any, a: Any, b: Any) -> Any:
    y = a * 2
    y.unsqueeze_(0).squeeze_(0).t_().transpose_(0, 1).swapaxes_(0, 1)
    y.mul_(2)
    return y


def _outs(t: Any, a: Any, b: Any) -> Any:
    with t.no_grad():
        made = t.add(b, 1, out=a)
        more = t.max(b, 0, out=(t.empty(3, dtype=t.float64), t.empty(3, dtype=t.int64)))
        t.mul(b, 2, out=a[:, 0:3])
    return made is a, type(made).__name__, type(more).__name__, *more


def _out_recorded(t: Any, a: Any, b: Any) -> Any:
    return attempt(lambda: t.add(b, 1, out=a))


def _indexed(t: Any, a: Any, b: Any) -> Any:
    rows = t.tensor([0, 1])
    a.index_add_(0, rows, b)
    a.index_fill_(1, t.tensor([0]), 0.5)
    a.index_copy_(1, t.tensor([2]), b[:, :1])
    a.index_put_((rows, rows), b[0, :2])
    a.masked_fill_(b > 1.2, -1.0)
    a.scatter_(1, t.tensor([[0, 1, 2], [2, 0, 1]]), b)
    a.scatter_add_(1, t.tensor([[1, 1, 0], [1, 0, 2]]), b)
    a.put_(t.tensor([5]), b[0, :1])
    a.masked_scatter_(b < 0.6, b)
    a *= 2
    return a


def _detached(t: Any, a: Any, b: Any) -> Any:
    d, e = a.detach(), b.data
    d.mul_(2)
    e.mul_(3)
    return d, e, a, b


def _detached_in_place(t: Any, a: Any, b: Any) -> Any:
    y = a * b
    refused = attempt(lambda: y.detach_())
    y.mul_(2)
    return refused if isinstance(refused, str) else "made", y


def _data_set(t: Any, a: Any, b: Any) -> Any:
    y = a * 2
    y.data = b.detach() * 5
    return y, y * 2


def _functions(t: Any, a: Any, b: Any) -> Any:
    f = t.nn.functional
    y, z = a - 3, b * 1
    f.relu_(y)
    f.elu_(z)
    return (
        f.leaky_relu(y, inplace=True),
        f.hardtanh(z, inplace=True),
        t.sigmoid_(a * 1),
        t.nn.functional.dropout(a, 0.0, inplace=True),
    )


def _foreach(t: Any, a: Any, b: Any) -> Any:
    with t.no_grad():
        t._foreach_mul_([a, b], 2.0)
        t._foreach_add_([a], [b])
    return a


def _swapped_kinds(t: Any, a: Any, b: Any) -> Any:
    z = t.view_as_complex(t.stack([a, b], -1))
    z.real.mul_(2)
    z.imag.add_(a)
    w = t.view_as_real(z)
    w[..., 0] *= 3
    return w, z.abs()


def _copied(t: Any, a: Any, b: Any) -> Any:
    y = a.clone()
    y.copy_(b)
    y[0].copy_(a[1])
    z = t.zeros(2, 3, dtype=t.float64).type_as(a)
    z.copy_(y)
    return y, z


topic.lines(
    in_place_add=_program(_iadd), every_sign=_program(_every_sign), result=_program(_after), row=_program(_set(lambda t, a: 0)),
    row_from=_program(_set(lambda t, a: 0, True)), column=_program(_set(lambda t, a: (slice(None), 1), True)), all_of_it=_program(_set(lambda t, a: ..., True)),
    masked=_program(_set(lambda t, a: a > 2)), masked_from=_program(_set(lambda t, a: a > 2, True)), listed=_program(_set(lambda t, a: [1, 0], True)),
    by_tensor=_program(_set(lambda t, a: t.tensor([1, 0]), True)), both_ways=_program(_both_ways), chained=_program(_chain), retained=_program(_retained),
    hooked=_program(_hooked), without_gradients=_program(_quietly, True), changed_what_was_saved=_program(_changed_saved), views=_program(_views),
    many_views=_program(_many_views), shapes=_program(_shapes), outs=_program(_outs, True), out_recorded=_program(_out_recorded), indexed=_program(_indexed),
    detached=_program(_detached, True), detached_in_place=_program(_detached_in_place), data_set=_program(_data_set), functions=_program(_functions),
    foreach=_program(_foreach, True), complex_parts=_program(_swapped_kinds), copied=_program(_copied),
)  # fmt: skip


@topic
def leaves(t: Any) -> Any:
    """Objects that are leaves: made by as_subclass, _make_subclass, Parameter."""
    found = []
    for cls in _classes(t):
        for made in (
            t.ones(3).as_subclass(cls).requires_grad_(),
            t.Tensor._make_subclass(cls, t.ones(3), True),
            t.nn.Parameter(t.ones(3).as_subclass(cls)),
            t.nn.Parameter(t.ones(3)),
        ):
            refused = [
                attempt(lambda x=made: x.mul_(2)),
                attempt(lambda x=made: x[0].mul_(2)),
                attempt(lambda x=made: x.__setitem__(0, 1.0)),
            ]  # type: ignore[misc]
            with t.no_grad():
                made.mul_(2)
                made[0] = 5.0
                made -= 1
            (made * made).sum().backward()
            found.append(
                [
                    [r if isinstance(r, str) else "made" for r in refused],
                    _facts(made),
                    type(made.grad).__name__,
                    made.grad,
                    made.is_leaf,
                ]
            )
    return found


@topic
def made_over_one_memory(t: Any) -> Any:
    """_make_subclass and as_subclass of one tensor, and who sees what."""
    found = []
    for cls in _classes(t):
        x = t.ones(3)
        y, z = t.Tensor._make_subclass(cls, x), x.as_subclass(cls)
        y.mul_(2)
        z.add_(1)
        x.sub_(0.5)
        found.append([_facts(v) for v in (x, y, z, y[0], z[0], y.data, z.detach())])
        p = t.ones(3, requires_grad=True)
        w = (p * 2).as_subclass(cls)
        v = w.as_subclass(t.Tensor)
        u = t.Tensor._make_subclass(cls, w)
        u.mul_(3)
        v.mul_(2)
        found.append([_facts(e) for e in (w, v, u)] + [t.autograd.grad(w.sum() + v.sum(), p)])
    return found


@topic
def a_step_of_an_optimizer(t: Any) -> Any:
    found = []
    for cls in _classes(t):
        p = t.nn.Parameter(t.ones(3).as_subclass(cls))
        for each in (t.optim.SGD([p], 0.1, momentum=0.9), t.optim.Adam([p], 0.1)):
            for _ in range(2):
                each.zero_grad()
                (p * p).sum().backward()
                each.step()
            found.append(_facts(p))
    return found
