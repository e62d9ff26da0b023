"""`autograd.Function`: what its context knows, and what is refused."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import rushlight as torch
from rushlight.autograd.function import BackwardCFunction, Function, FunctionCtx, FunctionMeta, InplaceFunction

X = torch.ones(2, requires_grad=True)


@pytest.mark.parametrize("leaf", [True, False])
def test_an_input_that_is_returned_keeps_its_own_history_where_it_is_saved(leaf: bool) -> None:
    class Kept(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad * x * x

    x = torch.tensor([3.0], requires_grad=True)
    y = Kept.apply(x if leaf else x * 1)
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    assert first.tolist() == [9.0] and second.tolist() == [6.0]  # x^2 and its slope 2 x


def test_an_output_that_a_pack_hook_refuses_is_freed_at_once() -> None:
    kept: list[Any] = []

    class Copied(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.clone()
            ctx.save_for_backward(y)
            kept.append(weakref.ref(y))
            return y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.saved_tensors[0]

    gc.disable()
    try:
        out = torch.utils.checkpoint.checkpoint(Copied.apply, X, use_reentrant=False)
        assert pulled(out) == [1.0, 1.0]
        del out
        assert [each() for each in kept] == [None, None]
    finally:
        gc.enable()


def pulled(out: Any) -> list[float]:
    return torch.autograd.grad(out.sum(), X)[0].tolist()


def test_the_context_is_the_node() -> None:
    seen: dict[str, Any] = {}

    class Product(Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            assert (
                isinstance(ctx, FunctionCtx)
                and isinstance(ctx, BackwardCFunction)
                and ctx.needs_input_grad == (True, False)
            )
            assert ctx.to_save is ctx.dirty_tensors is ctx.non_differentiable is None and ctx.saved_tensors == ()
            ctx.save_for_backward(a, None, b)
            ctx.extra, ctx.edges, ctx.places, ctx.shown = 3, "e", "p", "s"  # names that programs may use
            assert len(ctx.to_save) == 3
            return a * b

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.update(extra=ctx.extra, edges=ctx.edges, places=ctx.places, shown=ctx.shown, name=ctx.name())
            a, nothing, b = ctx.saved_tensors
            assert nothing is None
            return grad * b, grad * a

    out = Product.apply(X, torch.full((2,), 3.0))
    assert isinstance(Product, FunctionMeta) and type(out.grad_fn) is Product._backward_cls
    assert out.grad_fn._forward_cls is Product and out.grad_fn.requires_grad and out.grad_fn.extra == 3
    assert pulled(out) == [3.0, 3.0]
    assert seen == {"extra": 3, "edges": "e", "places": "p", "shown": "s", "name": "ProductBackward"}
    with pytest.raises(RuntimeError, match="second time"):
        out.grad_fn.saved_tensors
    with pytest.warns(DeprecationWarning), pytest.raises(RuntimeError, match="Legacy"):
        Product()(X)


def test_setup_context_knows_defaults_and_names() -> None:
    class Scaled(Function):
        @staticmethod
        def forward(a: Any, b: float = 2) -> Any:
            return a * b, a.long()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            _, ctx.b = inputs
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def backward(ctx: Any, grad: Any, other: Any) -> Any:
            assert other.tolist() == [0, 0] and other.dtype is torch.int64
            return grad * ctx.b, None

    assert pulled(Scaled.apply(X)[0]) == [2.0, 2.0]
    out, whole = Scaled.apply(X, b=5)
    assert pulled(out) == [5.0, 5.0] and not whole.requires_grad
    with pytest.raises(TypeError):
        Scaled.apply(X, c=5)


REFUSED = [
    (lambda g: (g, g), "expected 1, got 2"),
    (lambda g: [g], "got list"),
    (lambda g: "a", "got str"),
    (lambda g: g[:1], "invalid gradient at index 0"),
    (lambda g: torch.ones(3), "invalid gradient at index 0"),
]


@pytest.mark.parametrize(("made", "words"), REFUSED)
def test_gradients_that_do_not_fit_are_refused(made: Any, words: str) -> None:
    class Same(Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return made(grad)

    with pytest.raises(RuntimeError, match=words):
        Same.apply(X).sum().backward()


def test_what_is_marked_dirty_must_be_returned() -> None:
    class Forgotten(Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.mark_dirty(a)
            return a * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

    with pytest.raises(RuntimeError, match="marked as dirty"):
        Forgotten.apply(X * 1)


def test_saved_tensors_can_be_read_once_and_gradients_come_in_a_list() -> None:
    class Once(Function):
        clear_saved_tensors_on_access = True
        boxed_grads_call = True

        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.save_for_backward(a)
            return a * 2, a * 3

        @staticmethod
        def backward(ctx: Any, grads: Any) -> Any:
            assert isinstance(grads, list) and len(grads) == 2
            (a,) = ctx.saved_tensors
            with pytest.raises(RuntimeError, match="only be accessed once"):
                ctx.saved_tensors
            return a * grads[0]

    assert pulled(Once.apply(X)[0]) == [1.0, 1.0]


def test_what_is_not_written_says_so() -> None:
    assert not Function.generate_vmap_rule and InplaceFunction(True).inplace  # type: ignore[no-untyped-call, unused-ignore]
    for call in (Function.forward, Function.backward, Function.vjp, Function.jvp):
        with pytest.raises(NotImplementedError, match="You must implement"):
            call(None)
    with pytest.raises(NotImplementedError, match="vmap"):
        Function.vmap(None, None)
    with pytest.warns(FutureWarning, match="mark_shared_storage"):
        FunctionCtx().mark_shared_storage()


def test_functions_of_nested_tensors() -> None:
    class Nested(torch.autograd.function.NestedIOFunction):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward_extended(self, pair, rest):
            self.save_for_backward(pair, rest["z"])
            return [pair[0] * pair[1] * self.factor, (rest["z"].exp(), None)]

        def backward_extended(self, product, others):
            (x, y), z = self.saved_tensors
            return [(product * y * self.factor, product * x * self.factor), others[0] * z.exp()]

    x, y, z = (torch.tensor(v, requires_grad=True) for v in (2.0, 3.0, 0.5))
    found = Nested(4.0)((x, y), {"z": z})
    assert type(found) is list and found[1][1] is None and found[0].item() == 24.0
    (found[0] + 2 * found[1][0]).backward()
    assert x.grad.item() == 12.0 and y.grad.item() == 8.0
    torch.testing.assert_close(z.grad, 2 * z.detach().exp())
    with pytest.raises(ValueError, match="Auto nesting doesn't know how to process an input object of type int"):
        Nested(1.0)((x, 3), {"z": z})
    with pytest.raises(NotImplementedError):
        torch.autograd.function.NestedIOFunction()(x)


def test_a_node_calls_the_rules_of_its_function() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

        @staticmethod
        def jvp(ctx, tangent):
            return tangent * 2

    node = Double.apply(torch.ones(1, requires_grad=True)).grad_fn
    assert node.apply_boxed(torch.tensor(3.0)).item() == 6.0 and node.apply_jvp(torch.tensor(4.0)).item() == 8.0


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, k: Any = 2) -> Any:
        ctx.needed = ctx.needs_input_grad
        return x * k

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return (grad, grad * 7)[: len(ctx.needed)]


def test_arguments_by_name_come_last() -> None:
    x, k = torch.ones(2, requires_grad=True), torch.full((2,), 3.0, requires_grad=True)
    y = Scaled.apply(x, k=k)
    assert y.tolist() == [3, 3] and y.grad_fn.needed == (True, True)
    y.sum().backward()
    assert x.grad.tolist() == [1, 1] and k.grad.tolist() == [7, 7]
    assert Scaled.apply(x=x).grad_fn.needed == (True,)
    with pytest.raises(RuntimeError, match="different than None at position 2"):
        Scaled.apply(x, k=3.0).sum().backward()  # a number has no gradient


def test_arguments_by_name_alone_need_a_context_in_forward() -> None:
    class Separate(torch.autograd.Function):
        @staticmethod
        def forward(x: Any, *, k: Any = 2) -> Any:
            return x * k

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

    with pytest.raises(TypeError, match="keyword argument 'k'"):
        Separate.apply(torch.ones(2), k=5)


def test_contexts_warn_of_old_names_and_strange_marks() -> None:
    class Marks(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x + 1
            ctx.mark_dirty(y)
            ctx.save_for_backward(x)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            with pytest.warns(DeprecationWarning, match="use 'saved_tensors'"):
                assert len(ctx.saved_variables) == 1
            return grad

    x = torch.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="not an input"):
        y = Marks.apply(x.clone())
    y.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_jvp_sees_only_what_was_saved_for_forward() -> None:
    seen = []

    class Same(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def jvp(ctx: Any, x_t: torch.Tensor) -> torch.Tensor:
            seen.append(len(ctx.saved_tensors))
            return x_t

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            seen.append(len(ctx.saved_tensors))
            return grad

    x = torch.ones(2, requires_grad=True)
    with torch.autograd.forward_ad.dual_level():
        out = Same.apply(torch.autograd.forward_ad.make_dual(x, torch.ones(2)))
        out.sum().backward()
    assert seen == [0, 1]
