"""A program that returns a tensor and what it computes from it: gradients of the first go through the second, as eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.python_programs import described

import rushlight as torch
from rushlight._capture.bytecode.versions import supported

pytestmark = pytest.mark.skipif(not supported(), reason="functions are not compiled on this version of Python")


def chain(x: Any) -> Any:
    v = x * 2
    u = v.exp()
    w = (u + v).sin()
    return v, u, w


def changed(x: Any) -> Any:
    v = x * 2
    u = v.exp()
    v.mul_(3)
    return v, u, v * u


def parts(x: Any) -> Any:
    a, b = (x * 3).unbind(0)
    return a, b, a * b, b.cos()


def recomputed(x: Any) -> Any:
    """Backward computes the second output anew, though an eager program saves it."""
    return x.tanh() + 1, x.sigmoid()


def by_grad(found: Any, x: Any) -> Any:
    loss = sum((y * y.detach().cos()).sum() for y in found)
    return torch.autograd.grad(loss, [*found, x], allow_unused=True)


def by_the_first_alone(found: Any, x: Any) -> Any:
    return torch.autograd.grad(found[-1].sum(), found[0])


def by_retaining(found: Any, x: Any) -> Any:
    for y in found:
        y.retain_grad()
    sum((y * y.detach().cos()).sum() for y in found).backward()
    return [y.grad for y in found]


def by_hooks(found: Any, x: Any) -> Any:
    seen: list[Any] = []
    found[0].register_hook(lambda g: seen.append(g) or g * 2)
    found[1].register_hook(lambda g: seen.append(g) or g + 1)
    sum(y.sum() for y in found).backward()
    return seen


def twice(found: Any, x: Any) -> Any:
    (first,) = torch.autograd.grad(found[-1].sum(), found[0], create_graph=True)
    return torch.autograd.grad(first.sum(), x)


@pytest.mark.parametrize("ask", [by_grad, by_the_first_alone, by_retaining, by_hooks, twice])
@pytest.mark.parametrize("function", [chain, changed, parts])
def test_gradients_of_outputs(function: Callable[..., Any], ask: Callable[..., Any]) -> None:
    seen = []
    for f in (function, torch.compile(function)):
        x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
        try:
            seen.append((described(ask(f(x), x)), described(x.grad)))
        except RuntimeError as error:
            seen.append(str(error)[:40])
    assert seen[0] == seen[1]


def test_behind_a_break() -> None:
    """A gradient for a tensor from before a break, from what was computed of it there too."""

    def function(x: Any) -> Any:
        v = x * 2
        u = v.exp()
        torch._dynamo.graph_break()
        return torch.autograd.grad((v * u.sin()).sum(), v, retain_graph=True)[0]

    x = torch.linspace(0, 1, 4).requires_grad_()
    assert torch.equal(torch.compile(function)(x), function(x))


def test_histories_of_inputs_behind_a_break_without_gradients() -> None:
    """The rest of a function that left `no_grad` behind a break records what it does to its inputs."""

    def function(u: Any, v: Any) -> None:
        with torch.no_grad():
            torch._dynamo.graph_break()
        u += v

    for f in (function, torch.compile(function)):
        u, v = torch.ones(3), torch.ones(3, requires_grad=True)
        f(u, v)
        assert u.requires_grad and not u.is_leaf
        u.sum().backward()
        assert torch.equal(v.grad, torch.ones(3))


def test_views_from_before_a_program_follow_the_history_of_their_base() -> None:
    def function(u: Any, v: Any) -> Any:
        row = u[0]
        torch._dynamo.graph_break()
        u *= v
        return row

    for f in (function, torch.compile(function)):
        u, v = torch.ones(2, 3), torch.full((2, 3), 2.0, requires_grad=True)
        row = f(u, v)
        assert row.requires_grad
        row.sum().backward()
        assert v.grad.tolist() == [[1.0] * 3, [0.0] * 3]


def test_parts_of_a_gradient_that_its_sum_does_not_need() -> None:
    def function(u: Any, v: Any) -> Any:
        u = (torch.where(v > 0.5, v, v @ u.t() @ u) - v.exp()) * 1
        return u.fill_(0)

    seen = []
    for f in (function, torch.compile(function)):
        v = torch.linspace(0, 1, 12).reshape(3, 4).requires_grad_()
        y = f(torch.ones(3, 4), v)
        seen.append(torch.autograd.grad((y * y).sum() + (v * v).sum(), v)[0])
    assert torch.equal(*seen)


def test_sizes_that_vary() -> None:
    compiled = torch.compile(chain, dynamic=True)
    for n in (3, 5):
        seen = []
        for f in (chain, compiled):
            x = torch.linspace(-1, 1, n).requires_grad_()
            seen.append(described(by_grad(f(x), x)))
        assert seen[0] == seen[1]


def test_what_only_another_output_saved_may_change() -> None:
    def function(x: Any) -> Any:
        v = x * 2
        return v, v.sin()

    for f in (function, torch.compile(function)):
        x = torch.ones(3, requires_grad=True)
        v, _ = f(x)
        with torch.no_grad():
            v.mul_(0.5)
        v.sum().backward()
        assert torch.equal(x.grad, torch.full((3,), 2.0))


def test_what_no_eager_program_saves_may_change() -> None:
    """Backward computes cheap values again, but from nothing that may have changed in the meantime."""

    def function(x: Any, v: Any) -> Any:
        return (torch.cat([x[:1], v[1:]]) + 1).std(), (v * 2 + x).exp() * 2

    def leaves(x: Any, v: Any) -> Any:
        return (v * 2).exp() * 2, x * (v + 1).exp()

    def outputs(x: Any, v: Any) -> Any:
        y = v * 2
        return y, (y + 1).exp() * 3

    for f in (function, leaves, outputs):
        seen = []
        for g in (f, torch.compile(f)):
            x, v = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3, requires_grad=True)
            first, second = g(x, v)
            if f is leaves:
                with torch.no_grad():
                    v.add_(1)
            else:
                x.add_(1)
            if f is outputs:
                with torch.no_grad():
                    first.mul_(2)
            second.add_(1)
            (first.sum() + second.sum()).backward()
            seen.append(described(v.grad))
        assert seen[0] == seen[1]


def test_hooks_of_outputs_without_a_gradient() -> None:
    def function(x: Any) -> Any:
        return x.sin(), x.exp()

    for f in (function, torch.compile(function)):
        x, seen = torch.ones(3, requires_grad=True), list[Any]()
        first, second = f(x)
        first.register_hook(seen.append)
        second.sum().backward()
        assert not seen
        assert torch.equal(torch.autograd.grad(first.sum(), first)[0], torch.ones(3))
        assert len(seen) == 1


def test_outputs_that_save_nothing_in_common_are_freed_one_by_one() -> None:
    def function(x: Any) -> Any:
        return x.sin(), x.exp(), x.exp().cos(), x + 1

    for f in (function, torch.compile(function)):
        x = torch.ones(3, requires_grad=True)
        first, second, third, fourth = f(x)
        first.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            first.sum().backward()
        second.sum().backward()
        fourth.sum().backward()
        fourth.sum().backward()
        third.sum().backward(retain_graph=True)
        third.sum().backward()
        for y in (second, third):
            with pytest.raises(RuntimeError, match="second time"):
                y.sum().backward()


def test_outputs_whose_history_is_freed() -> None:
    """What a program has gone backward through leads to its inputs all the same: going there again is an error."""

    def function(u: Any, v: Any) -> Any:
        v = v * 1
        w = v.exp()
        (u.detach().requires_grad_() * w).sum().backward()
        return v, w

    for f in (function, torch.compile(function)):
        u, v = torch.ones(3), torch.ones(3, requires_grad=True)
        for y in f(u, v):
            with pytest.raises(RuntimeError, match="second time"):
                torch.autograd.grad(y.sum(), v, allow_unused=True)


@pytest.mark.parametrize("way", ["freed", "hooked", "changed", "grad", "inputs"])
def test_leaves_in_front_of_a_history_that_fails_have_their_gradients(way: str) -> None:
    """Backward stops at the failing node, behind the accumulations that eager programs have made by then."""

    def function(net: Any, x: Any) -> None:
        v = x * 1.5
        w = torch.where(v > 0.3, v, v * v)
        if way == "hooked":
            w.register_hook(lambda grad: None)
        for _ in range(2):
            net.zero_grad()
            loss = net(w * 2).sin().sum()
            torch._dynamo.graph_break()
            if way == "grad":
                torch.autograd.grad(loss, [x, *net.parameters()])
            else:
                loss.backward(inputs=[x, net.weight] if way == "inputs" else None, retain_graph=way == "changed")
            if way == "changed":
                v.mul_(2)

    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net, x = torch.nn.Linear(3, 3), torch.linspace(0.1, 1, 6).reshape(2, 3).requires_grad_()
        accumulated: list[Any] = []
        for p in net.parameters():
            p.register_post_accumulate_grad_hook(lambda p, held=accumulated: held.append(p.shape))
        with pytest.raises(RuntimeError, match="inplace" if way == "changed" else "second time"):
            (torch.compile(function) if compiled else function)(net, x)
        grads = [None if p.grad is None else p.grad.tolist() for p in (x, *net.parameters())]
        found.append((grads, sorted(accumulated)))
    assert found[0] == found[1]


def test_views_that_refuse_a_change_refuse_it_without_their_base() -> None:
    def function(x: Any) -> Any:
        row = (x * 1).unbind(0)[0]
        row.zero_()
        return 3

    for f in (function, torch.compile(function)):
        with pytest.raises(RuntimeError, match="multiple views"):
            f(torch.ones(2, 3, requires_grad=True))


@pytest.mark.parametrize("number", [0, 1])
def test_a_change_in_place_of_what_eager_calls_save_is_an_error(number: int) -> None:
    """Only where backward comes by."""
    for function in (recomputed, torch.compile(recomputed)):
        x = torch.linspace(-1, 1, 6, requires_grad=True)
        found = function(x)
        found[1].add_(0.5)
        losses = [found[0].sum(), found[0].sum() + found[1].sum()]
        if number:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                losses[1].backward()
        else:
            losses[0].backward()
            assert x.grad is not None


def test_what_a_later_part_changes_has_the_number_of_its_own_result() -> None:
    """Tensors that were the second result of one program, and the first of the next."""

    def program(u, v):
        a, b, c = v * 2, u * 3, u * v
        torch._dynamo.graph_break()
        c += u
        b *= v
        return c, b, a

    weights = [torch.linspace(k, k + 1, 12).reshape(3, 4) for k in range(3)]
    found = []
    for function in (program, torch.compile(program)):
        u = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        v = torch.linspace(0, 2, 12).reshape(3, 4).requires_grad_()
        results = function(u, v)
        loss = sum((w * r).sum() for w, r in zip(weights, results, strict=True))
        found.append(torch.autograd.grad(loss, (u, v)))
    for eager, compiled in zip(*found, strict=True):
        assert torch.equal(eager, compiled)


@pytest.mark.parametrize("hooked", [False, True])
def test_retained_gradients_are_those_after_a_change_in_place(hooked: bool) -> None:
    def change(x: Any, w: Any) -> Any:
        x.mul_(w)
        x.add_(1.0)
        return x * w

    found = []
    for function in (change, torch.compile(change)):
        a, w = torch.arange(4.0).requires_grad_(), torch.arange(1.0, 5.0).requires_grad_()
        x = a * 2
        x.retain_grad()
        if hooked:
            x.register_hook(lambda grad: grad * 3)
        (function(x, w).sum() + (x * x).sum()).backward()
        found.append((x.grad, a.grad, w.grad))
    for eager, compiled in zip(*found, strict=True):
        assert torch.equal(eager, compiled)


def chosen(u: Any, v: Any) -> Any:
    """The first result saves a mask, the second one the first argument."""
    w = torch.where(u > u.sum(), v, v * 2)
    return w, w @ u.t()


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("changed", [False, True])
def test_a_changed_input_is_an_error_where_eager_nodes_hold_it(wanted: tuple[int, ...], changed: bool) -> None:
    found = []
    for function in (chosen, torch.compile(chosen)):
        u, v = torch.arange(12.0).reshape(3, 4), torch.ones(3, 4, requires_grad=True)
        results = function(u, v)
        if changed:
            u.clamp_(-1, 1)
        try:
            found.append(torch.autograd.grad([results[k].sum() for k in wanted], v)[0])
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            found.append(None)
    assert (found[0] is None) is (found[1] is None) is (changed and 1 in wanted)
    if found[0] is not None:
        assert torch.equal(*found)


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


def test_what_only_nodes_without_a_gradient_saved_may_change():
    """The factor has a history, whose nodes never run: its function gives None for it."""

    def program(u, v):
        return _Scaled.apply(v * 2, (v @ u).sum())

    found = []
    for run in (program, torch.compile(program)):
        u, v = torch.arange(12.0).reshape(4, 3) / 8, torch.ones(3, 4, requires_grad=True)
        out = run(u, v)
        u.add_(1)  # the product of the factor saved it
        out.sum().backward()
        found.append(v.grad)
    assert torch.equal(*found) and found[0].tolist() == [[49.5] * 4] * 3


def _transposed(w: Any, v: Any) -> Any:
    return (w * v.t().reshape(3, 4)).sum()


def _images(w: Any, v: Any) -> Any:
    return (v.permute(0, 2, 3, 1).contiguous() * w.permute(0, 2, 3, 1)).sin()


def _a_column(w: Any, v: Any) -> Any:
    return (w @ v.mT).exp()


# The strides that PyTorch's gradients have.
LAID_OUT: list[tuple[Callable[..., Any], tuple[int, ...], list[tuple[int, ...]]]] = [
    (_transposed, (3, 4), [(4, 1), (1, 3)]),
    (_images, (2, 3, 4, 5), [(60, 1, 15, 3), (60, 1, 15, 3)]),
    (_a_column, (3, 2), [(2, 1), (2, 1)]),
]


@pytest.mark.parametrize("mode", ["eager", "compiled", "dynamic"])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("function, shape, strides", LAID_OUT)
def test_gradients_lie_in_memory_as_those_of_views(
    function: Any, shape: tuple[int, ...], strides: list[tuple[int, ...]], again: bool, mode: str
) -> None:
    """The strides of other sums follow from them; with `create_graph` they are the same."""
    run = function if mode == "eager" else torch.compile(function, dynamic=mode == "dynamic" or None)
    w = torch.ones(shape, requires_grad=True)
    v = torch.arange(0.0, torch.Size(shape).numel()).reshape(shape).requires_grad_()
    found = torch.autograd.grad(run(w, v).sum(), (w, v), create_graph=again)
    assert [g.stride() for g in found] == strides


@pytest.mark.parametrize(
    "function",
    [torch.sigmoid, lambda x: x.t(), lambda x: x.t().exp(), lambda x: (x.exp() * 2).t(), lambda x: x.t() * 1],
)
@pytest.mark.parametrize("turned", [False, True])
def test_gradients_follow_the_strides_of_what_they_come_from(function: Any, turned: bool) -> None:
    found = []
    for run in (function, torch.compile(lambda x: function(x))):
        x = torch.arange(20.0).reshape(4, 5) / 20
        x = (x.t() if turned else x).detach().requires_grad_()
        y = run(x)
        found.append([torch.autograd.grad(y, x, like)[0].stride() for like in (torch.empty_like(y).fill_(2),)])
    assert found[1] == found[0]


def test_sums_of_gradients_of_several_programs_begin_with_the_same_strides() -> None:
    def function(v: Any) -> Any:
        w = (v + 2) * 0.5
        torch._dynamo.graph_break()
        return torch.autograd.grad((w * v.t().reshape(3, 4)).sum(), v)[0]

    v = torch.arange(12.0).reshape(3, 4).requires_grad_()
    assert torch.compile(function)(v).stride() == function(v).stride() == (1, 3)


def _joined(u: Any, v: Any, w: Any) -> Any:
    return [u * w + v.exp()]


def _apart(u: Any, v: Any, w: Any) -> Any:
    return [u * w, v * 2, (u.sin() * w).sum() * v]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("wanted", ["v", "w", "vw"])
@pytest.mark.parametrize("chosen", [(0,), (1,), (0, 1), (2,), (0, 1, 2)])
@pytest.mark.parametrize("function", [_joined, _apart])
def test_what_gradients_that_nobody_asks_for_need_may_change(
    function: Any, chosen: tuple[int, ...], wanted: str, dynamic: bool | None
) -> None:
    """An eager program saved it in nodes that do not run."""
    found: list[Any] = []
    for run in (function, torch.compile(function, dynamic=dynamic)):
        u, v, w = torch.arange(12.0).reshape(3, 4), torch.ones(3, 4).requires_grad_(), torch.ones(4).requires_grad_()
        results = run(u, v, w)
        u.clamp_(-1, 1)
        results = [results[k] for k in chosen if k < len(results)]
        if not results:
            return
        try:
            grads = torch.autograd.grad(
                [r.sum() for r in results], [{"v": v, "w": w}[name] for name in wanted], allow_unused=True
            )
            found.append([None if g is None else g.tolist() for g in grads])
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            found.append("changed")
    assert found[1] == found[0]


CALLS: list[Any] = []


class CountsCalls(torch.autograd.Function):
    """Twice a number; its backward counts its calls in a tensor of the caller."""

    @staticmethod
    def forward(ctx: Any, x: Any, count: Any) -> Any:
        ctx.count = count
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        ctx.count.add_(1)
        CALLS[0].add_(2)
        return grad * 2, None


def test_a_backward_may_change_tensors_of_the_caller_in_place() -> None:
    count, inside, hooked = torch.zeros(1), torch.zeros(1), torch.zeros(1)
    CALLS[:] = [inside]

    def twice(x: Any, count: Any) -> Any:
        y = CountsCalls.apply(x * 1.0, count)
        return y.sum()

    @torch.compile
    def with_hook(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda grad: hooked.add_(1) and None)
        return y.sum()

    x = torch.ones(3, requires_grad=True)
    compiled = torch.compile(twice)
    for _ in range(3):
        compiled(x, count).backward()
    assert (count.item(), inside.item(), x.grad.tolist()) == (3.0, 6.0, [6.0] * 3)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="changes a tensor in place"):
        torch.compile(twice, fullgraph=True)(x, count)
    for _ in range(2):
        with_hook(x).backward()
    assert hooked.item() == 2.0


def _bits(function: Any, grads: list[Any], *args: Any) -> list[Any]:
    given = [a.detach().clone(memory_format=torch.preserve_format).requires_grad_() for a in args]
    made = function(*given)
    made = made if isinstance(made, tuple) else (made,)
    torch.autograd.backward(
        [m for m, g in zip(made, grads, strict=True) if g is not None], [g for g in grads if g is not None]
    )
    return [a.grad for a in given]


@pytest.mark.parametrize("both", [False, True])
def test_gradients_lie_otherwise_than_outputs(both: bool) -> None:
    """Sums over gradients follow the layout in which these come, at every size."""

    def go(x, w, b):
        y = torch.nn.functional.conv2d(x, w, b, stride=2)
        out = y + y.detach().cos() * y
        return (out, (out * b.sum()).transpose(1, 2)) if both else out

    compiled = torch.compile(go, fullgraph=True)
    w, b = torch.randn(8, 4, 2, 2), torch.randn(8)
    last = torch.channels_last
    for n in (2, 3, 4):
        x = torch.randn(n, 4, 8, 8).to(memory_format=last)
        for grad in (
            torch.randn(n, 8, 4, 4),
            torch.randn(n, 8, 4, 4).to(memory_format=last),
            torch.randn(n, 4, 8, 4).transpose(1, 2),
        ):
            for second in (None, grad.transpose(1, 2), grad.transpose(1, 2).contiguous()) if both else (None,):
                grads = [grad, second] if both else [grad]
                expected, found = _bits(go, grads, x, w, b), _bits(compiled, grads, x, w, b)
                assert all(map(torch.equal, expected, found))
