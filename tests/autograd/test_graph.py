"""What users see of the graph: nodes and their inputs, edges, saved tensors and hooks on them, settings of backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight.autograd.graph import (
    GradientEdge,
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    get_gradient_edge,
    region_activation_memory_budget,
    register_multi_grad_hook,
    saved_tensors_hooks,
)

F = torch.nn.functional
X = torch.ones(3, requires_grad=True)
Y = torch.full((3,), 2.0)
MASK, INDEX = torch.tensor([True, False, True]), torch.tensor([0, 1])

# (call, name of its node, its inputs: x has a gradient, . has none), as PyTorch 2.13 has them.
SHOWN: list[tuple[Any, str, str]] = [
    (lambda: X * 2, "MulBackward0", "x."),
    (lambda: X + Y, "AddBackward0", "x."),
    (lambda: Y * X, "MulBackward0", ".x"),
    (lambda: 2 - X, "RsubBackward1", "x"),
    (lambda: X**2, "PowBackward0", "x"),
    (lambda: Y**X, "PowBackward1", ".x"),
    (lambda: torch.div(X, Y, rounding_mode="floor"), "DivBackward2", "x."),
    (lambda: torch.where(MASK, 0.0, X), "WhereBackward0", ".x"),
    (lambda: X.masked_fill(MASK, torch.tensor(1.0)), "MaskedFillBackward1", "x."),
    (lambda: X.masked_fill(MASK, 1.0), "MaskedFillBackward0", "x"),
    (lambda: X[INDEX], "IndexBackward0", "x"),
    (lambda: Y.index_add(0, INDEX, X[:2]), "IndexAddBackward0", ".x"),
    (lambda: torch.stack([Y, X, Y]), "StackBackward0", ".x."),
    (lambda: X.clamp(Y, None), "ClampBackward0", "x.."),
    (lambda: X.clamp(0, 1), "ClampBackward1", "x"),
    (lambda: torch.clamp_max(X, Y), "ClampMaxBackward1", "x."),
    (lambda: F.linear(Y[None], X[None], Y[:1]), "AddmmBackward0", "..x"),
    (lambda: F.conv1d(Y[None, None], X[None, None]), "ConvolutionBackward0", ".x."),
    (lambda: F.layer_norm(X, (3,)), "NativeLayerNormBackward0", "x.."),
    (lambda: F.mse_loss(X, Y), "MseLossBackward0", "x."),
    (lambda: F.cross_entropy(X[None], INDEX[:1]), "NllLossBackward0", "x"),
    (lambda: Y.clone().mul_(X), "MulBackward0", ".x"),
    (lambda: X.log1p(), "Log1PBackward0", "x"),
    (lambda: X.mul(0.5).acosh_(), "AcoshBackward1", "x"),
    (lambda: torch.round(X, decimals=1), "RoundBackward1", "x"),
    (lambda: F.pad(X[None, None], (1, 1), "reflect"), "ReflectionPad1DBackward0", "x"),
]


@pytest.mark.parametrize(("call", "name", "inputs"), SHOWN, ids=[f"{i}-{s[1]}" for i, s in enumerate(SHOWN)])
def test_nodes_show_their_inputs(call: Any, name: str, inputs: str) -> None:
    node = call().grad_fn
    assert node.name() == name
    assert "".join("." if after is None else "x" for after, _ in node.next_functions) == inputs


def test_hooks_of_nodes_see_the_inputs_without_gradients() -> None:
    seen: list[Any] = []
    product = X * Y
    product.grad_fn.register_hook(lambda grads, outs: seen.append([g is None for g in grads]) or (grads[0] * 10, None))
    assert torch.autograd.grad(product.sum(), X)[0].tolist() == [20.0] * 3
    assert seen == [[False, True]]
    assert (X * Y).grad_fn(torch.ones(3))[1] is None


def test_custom_functions_show_their_tensors() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any, number: int, c: Any) -> Any:
            return a * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2, None, None, None

    assert [n is None for n, _ in Double.apply(X, Y, 3, INDEX).grad_fn.next_functions] == [False, True, True]


def test_saved_values_have_names() -> None:
    node = (X * Y).grad_fn
    assert node._saved_other.tolist() == [2.0] * 3 and node._saved_self is None and "_saved_other" in dir(node)
    assert X.exp().grad_fn._saved_result.tolist() == pytest.approx([np.e] * 3)
    node._raw_saved_other.register_hooks(lambda t: t * 2, lambda t: t)
    assert node._saved_other.tolist() == [4.0] * 3
    with pytest.raises(AttributeError, match="_saved_nothing"):
        node._saved_nothing


def test_gradients_flow_through_packed_tensors() -> None:
    x = torch.tensor([0.5, 2.0], requires_grad=True)
    with saved_tensors_hooks(lambda t: t.numpy(), torch.from_numpy):
        y = (x * x).exp() * x
    first = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), x)[0]
    v = np.array([0.5, 2.0])
    np.testing.assert_allclose(first.detach().numpy(), np.exp(v**2) * (1 + 2 * v**2), rtol=1e-5)
    np.testing.assert_allclose(second.numpy(), np.exp(v**2) * (6 * v + 4 * v**3), rtol=1e-5)


def test_hooks_on_saved_tensors_are_checked() -> None:
    def run(pack: Any, unpack: Any) -> None:
        with saved_tensors_hooks(pack, unpack):
            y = X * X
        torch.autograd.grad(y.sum(), X)

    with pytest.raises(RuntimeError, match="in place"):
        run(lambda t: t.add_(0), lambda t: t)
    with pytest.raises(TypeError, match="unpack_hook expected"):
        run(lambda t: t, lambda t: 3)
    with pytest.raises(RuntimeError, match=r"shape \[2\]"):
        run(lambda t: t, lambda t: t[:2])
    run(lambda t: t.detach().bfloat16(), lambda t: t)
    run(lambda t: t, lambda t: torch.stack([t, t], 1)[:, 0])
    with disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"):
        run(lambda t: t, lambda t: t)
    with saved_tensors_hooks(lambda t: t, lambda t: t), pytest.raises(RuntimeError, match="nor here"):
        with disable_saved_tensors_hooks("nor here"):
            pass


def test_saved_tensors_may_change_where_that_is_allowed() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    with allow_mutation_on_saved_tensors():
        a = x.clone()
        b = a**2
        a.mul_(5)
        c = a**2
        a.zero_()
        (b.sum() + c.sum()).backward()
        with pytest.raises(RuntimeError, match="nested"), allow_mutation_on_saved_tensors():
            pass
        d = x.clone() ** 2
    assert x.grad.tolist() == [[52.0] * 3] * 2
    with pytest.raises(AssertionError, match="outside"):
        d.sum().backward()
    with pytest.raises(RuntimeError, match="compile"):
        region_activation_memory_budget(0.5)


def test_edges_stand_for_tensors() -> None:
    y = X * X
    z = y.exp()
    edge = get_gradient_edge(y)
    assert isinstance(edge, GradientEdge) and edge._fields == ("node", "output_nr", "ownership_token")
    found = torch.autograd.grad(z.sum(), [edge, X, get_gradient_edge(X)], retain_graph=True)
    for got, wanted in zip(found, (np.e, 2 * np.e, 2 * np.e), strict=True):
        assert got.tolist() == pytest.approx([wanted] * 3)
    assert torch.autograd.grad(edge, X, torch.ones(3), retain_graph=True)[0].tolist() == [2.0] * 3
    assert torch.autograd.grad(get_gradient_edge(z.sum()), X, retain_graph=True)[0].tolist() == pytest.approx(
        [2 * np.e] * 3
    )
    with pytest.raises(RuntimeError, match="scalar outputs"):
        torch.autograd.grad(edge, X)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        torch.autograd.grad(edge, X, torch.ones(4))
    with pytest.raises(RuntimeError, match="materialize_grads cannot be used when the given input is a GradientEdge"):
        torch.autograd.grad(z.sum(), get_gradient_edge(torch.ones(2, requires_grad=True)), materialize_grads=True)


def test_flags_of_grad() -> None:
    other = torch.ones(2, requires_grad=True)
    y = X * X
    with pytest.raises(RuntimeError, match="at index 1"):
        torch.autograd.grad(y.sum(), [X, other])
    with pytest.raises(RuntimeError, match="cannot be empty"):
        torch.autograd.grad(y.sum(), [])
    with pytest.raises(RuntimeError, match="first dimension of each grad_output"):
        torch.autograd.grad(y, X, torch.eye(4), is_grads_batched=True)
    with pytest.warns(FutureWarning, match="only_inputs"):
        torch.autograd.grad((X * X).sum(), X, only_inputs=False)
    x = torch.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="reference cycle"):
        (x * x).sum().backward(create_graph=True)
    with pytest.warns(FutureWarning, match="grad_variables"):
        torch.autograd.backward((x * x).sum(), grad_variables=torch.ones(()))


def test_the_layout_of_gradients_is_a_setting() -> None:
    for mode, strides in ((True, (1, 3)), (False, (2, 1))):
        x = torch.ones(2, 3).t().requires_grad_()
        with torch.autograd.enforce_grad_layout_policy(mode):
            (x * torch.arange(6.0).reshape(3, 2)).sum().backward()
        assert x.grad.stride() == strides
    assert torch.autograd.is_multithreading_enabled()
    with torch.autograd.set_multithreading_enabled(False):
        (X * 2).sum().backward()
        assert not torch.autograd.is_multithreading_enabled()
    assert torch.autograd.is_multithreading_enabled()


def test_a_function_asks_for_its_running_node() -> None:
    seen: list[Any] = []

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.append((torch._C._current_autograd_node(), ctx))
            if len(seen) == 1:
                with torch.enable_grad():
                    Doubled.apply(torch.ones(2, requires_grad=True)).sum().backward()
            assert torch._C._current_autograd_node() is ctx
            return 2 * grad

    assert torch._C._current_autograd_node() is None
    Doubled.apply(X).sum().backward()
    assert len(seen) == 2 and all(node is ctx for node, ctx in seen) and seen[0][1] is not seen[1][1]
    assert torch._C._current_autograd_node() is None


def test_settings_decorate_functions() -> None:
    def strides() -> tuple[int, ...]:
        x = torch.ones(2, 3).t().requires_grad_()
        (x * torch.arange(6.0).reshape(3, 2)).sum().backward()
        return x.grad.stride()

    relaxed = torch.autograd.enforce_grad_layout_policy(enable=False)(strides)
    assert strides() == (1, 3)  # the calls alone are changed
    assert relaxed() == (2, 1) and strides() == (1, 3)
    assert torch.autograd.set_multithreading_enabled(False)(strides)() == (1, 3)


def test_hooks_over_several_gradients() -> None:
    a, b, c = (torch.rand(2, requires_grad=True) for _ in range(3))
    seen: list[Any] = []
    with register_multi_grad_hook((a, b, c), lambda grads: seen.append([g is None for g in grads])):
        (a * b).sum().backward()
        (a * b + c).sum().backward(inputs=[a, c])
    (a * b).sum().backward()
    assert seen == [[False, False, True], [False, True, False]]
    with pytest.raises(AssertionError, match="gradient function"):
        register_multi_grad_hook((torch.ones(2),), print)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.relu_(),
        lambda x: F.relu(x, inplace=True),
        lambda x: x.tanh_(),
        lambda x: x.mul_(Y),
        lambda x: x.pow_(2),
    ],
)
def test_what_in_place_operators_save_is_packed(change: Any) -> None:
    packed: list[Any] = []

    def pack(tensor: Any) -> Any:
        packed.append(tensor)
        return tensor.clone()

    x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    with saved_tensors_hooks(pack, lambda kept: kept):
        change(x * 1).sum().backward()
    assert packed
    found, x.grad = x.grad, None
    change(x * 1).sum().backward()
    assert found.tolist() == x.grad.tolist()


def test_the_old_name_of_tensors() -> None:
    data = torch.tensor([1.0, 2.0])
    old = torch.autograd.Variable(data, requires_grad=True)
    assert type(old) is torch.Tensor and old is not data and old.data_ptr() == data.data_ptr()
    assert old.requires_grad and old.is_leaf and not data.requires_grad
    assert isinstance(data, torch.autograd.Variable) and not isinstance(3, torch.autograd.Variable)
    assert not torch.autograd.Variable(old * 2).requires_grad and torch.autograd.Variable().tolist() == []
    with pytest.raises(TypeError, match="has to be a tensor, but got int"):
        torch.autograd.Variable(3)
    with pytest.warns(UserWarning, match="volatile"):
        torch.autograd.Variable(data, volatile=True)


def test_what_hooks_return_is_checked() -> None:
    def leaf() -> Any:
        return torch.ones(3, requires_grad=True)

    for made, error, message in (
        (3, TypeError, "expected Variable, but hook returned 'int'"),
        (Y, RuntimeError, "should return None"),
    ):
        x = leaf()
        x.register_post_accumulate_grad_hook(lambda p, made=made: made)
        with pytest.raises(error, match=message):
            (x * 2).sum().backward()
    x = leaf()
    y = x * 2
    y.grad_fn.register_prehook(lambda grads: grads[0])
    with pytest.raises(TypeError, match="expected tuple, but hook returned 'Tensor'"):
        y.sum().backward()


def test_gradients_by_name() -> None:
    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    found = torch.autograd.grad((x * 2 + y * y * 3).sum(), {"x": x, "y": y})
    assert list(found) == ["x", "y"] and found["x"].tolist() == [2.0] * 3 and found["y"].tolist() == [6.0] * 3


NAMED = """x.t_() | x.transpose_(0, 1) | x.swapaxes_(0, 1) | x.unsqueeze_(0) | x.unsqueeze_(0).squeeze_() | x.unsqueeze_(0).squeeze_(0) | x.unsqueeze_(0).squeeze_((0, 1)) | x.t_().t()
t.repeat_interleave(x, 2, 0) | t.repeat_interleave(x, 2) | t.repeat_interleave(x, t.tensor([1, 2]), 0)"""


@pytest.mark.oracle
@pytest.mark.parametrize("text", [line.strip() for line in NAMED.replace("\n", "|").split("|")])
def test_names_of_nodes_as_in_pytorch(text: str) -> None:
    def found(library: Any) -> tuple[str, list[float]]:
        leaf = library.arange(4.0).reshape(2, 2).requires_grad_()
        out = eval(text, {"t": library, "x": leaf * 2})  # noqa: S307
        (out * out).sum().backward()
        return out.grad_fn.name(), leaf.grad.flatten().tolist()

    assert found(torch) == found(pytest.importorskip("torch"))


def test_nodes_know_the_call_that_they_belong_to() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    total = x.sum(-1, keepdim=True).grad_fn
    assert (total._saved_self_sym_sizes, total._saved_keepdim) == ((2, 3), True)
    assert x.sum((0, -1)).grad_fn._saved_dim == (0, 2**64 - 1)  # PyTorch shows whole numbers without their sign
    assert (x**2.5).grad_fn._saved_exponent == 2.5
    assert (x**2).grad_fn._saved_exponent == 2
    assert torch.add(x, x, alpha=3).grad_fn._saved_alpha == 3
    assert x.mean().grad_fn._saved_self_sym_numel == 6
    product = torch.mm(x, torch.ones(3, 4, requires_grad=True)).grad_fn
    assert (product._saved_self_sym_sizes, product._saved_mat2_sym_sizes) == ((2, 3), (3, 4))
    assert torch.nn.functional.nll_loss(x, torch.tensor([0, 1]), reduction="sum").grad_fn._saved_reduction == 2
    for name in ("_saved_dim", "_saved_nothing", "_saved_self_nothing", "_saved_", "_raw_saved_keepdim"):
        with pytest.raises(AttributeError, match=name):
            getattr(x.exp().grad_fn, name)


@pytest.mark.parametrize(
    "settings",
    [{}, {"create_graph": True}, {"allow_unused": True}, {"materialize_grads": True}, {"is_grads_batched": True}],
    ids=str,
)
@pytest.mark.parametrize(
    "given", [iter, list, lambda tensors: (t for t in tensors), lambda tensors: dict(enumerate(tensors)).values()]
)
def test_tensors_may_come_from_a_generator(given: Any, settings: dict[str, bool]) -> None:
    """As `Module.parameters()` gives them: whatever looks at them first leaves them for the others."""
    layer, x = torch.nn.Linear(2, 3), torch.tensor([[1.0, 2.0]])
    seeds = torch.ones(*([4] if "is_grads_batched" in settings else []), 1, 3)
    outs = (layer(x), layer(x))
    weight, bias = torch.autograd.grad(given(outs), given(list(layer.parameters())), given([seeds, seeds]), **settings)
    assert torch.equal(weight, (2 * x).expand_as(weight)) and torch.equal(bias, torch.full_like(bias, 2.0))
    (weight, bias) = torch.autograd.grad(layer(x).sum(), layer.parameters())
    assert torch.equal(weight, x.expand_as(weight)) and bias.tolist() == [1.0] * 3
    torch.autograd.backward(given([layer(x)]), given([torch.ones(1, 3)]), inputs=layer.parameters())
    assert torch.equal(layer.weight.grad, x.expand_as(weight))
