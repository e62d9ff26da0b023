"""Operators of users' own: schemas, kernels, gradients, batches, tensors without data, and what is refused."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Sequence
from typing import Any, List, Optional, Tuple, Union  # noqa: UP035

import numpy as np
import pytest

import rushlight as torch
from rushlight._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from rushlight.fx.experimental.proxy_tensor import make_fx
from rushlight.fx.experimental.symbolic_shapes import ShapeEnv
from rushlight.library import infer_schema
from rushlight.utils._python_dispatch import TorchDispatchMode


@torch.library.custom_op("tests::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    """Through NumPy: nothing of rushlight sees what it does."""
    return torch.from_numpy(np.sin(x.detach().numpy()))


@sine.register_fake
def _(x: Any) -> Any:
    return torch.empty_like(x)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


sine.register_autograd(lambda ctx, grad: grad * ctx.saved_tensors[0].cos(), setup_context=_save)


@torch.library.custom_op("tests::mixed", mutates_args=())
def mixed(
    xs: List[torch.Tensor],  # noqa: UP006
    y: torch.Tensor,
    k: int = 2,
    *,
    shift: float = 0.0,
) -> Tuple[torch.Tensor, List[torch.Tensor]]:  # noqa: UP006
    """Lists of tensors in and out, a number, and one by name."""
    return y * k + shift, [x * y for x in xs]


@mixed.register_fake
def _(xs: Any, y: Any, k: int = 2, *, shift: float = 0.0) -> Any:
    return torch.empty_like(y), [torch.empty_like(x) for x in xs]


def _mixed_setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    assert set(keyword_only_inputs) == {"shift"} and len(output) == 2
    xs, y, ctx.k = inputs
    ctx.save_for_backward(*xs, y)


def _mixed_backward(ctx: Any, grad: Any, grads: Any) -> Any:
    *xs, y = ctx.saved_tensors
    assert ctx.needs_input_grad[0] == [x.requires_grad for x in xs]
    return [g * y for g in grads], grad * ctx.k + sum(g * x for g, x in zip(grads, xs, strict=True)), None


mixed.register_autograd(_mixed_backward, setup_context=_mixed_setup)
X = torch.tensor([0.5, 1.0])


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, requires_grad=True)


# ***** custom operators *****


def test_it_is_an_operator() -> None:
    op = torch.ops.tests.sine
    assert repr(sine) == "<CustomOpDef(tests::sine)>" and repr(op) == "<OpOverloadPacket(op='tests.sine')>"
    assert (
        repr(op.default) == "<OpOverload(op='tests.sine', overload='default')>"
        and str(op.default._schema) == "tests::sine(Tensor x) -> Tensor"
    )
    assert op.overloads() == ["default"] and op.default.name() == "tests::sine" and op.default.overloadpacket is op
    for call in (sine, op, op.default):
        assert torch.allclose(call(X), X.sin()) and torch.allclose(call(x=X), X.sin())
    assert pickle.loads(pickle.dumps(op.default)) is op.default and copy.deepcopy(op.default) is op.default
    assert sine(torch.empty(3, device="meta")).shape == (3,)


def test_gradients() -> None:
    x = leaf(0.5, 1.0)
    y = sine(x)
    assert type(y.grad_fn).__name__ == "GeneratedBackwardFor_tests_sine_defaultBackward"
    y.sum().backward()
    assert torch.allclose(x.grad, X.cos())
    (first,) = torch.autograd.grad(sine(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.allclose(second, -X.sin())
    with torch.no_grad():
        assert not sine(x).requires_grad
    assert torch.autograd.gradcheck(sine, (leaf(0.3, 0.7).double().detach().requires_grad_(),))


def test_lists_and_arguments_by_name() -> None:
    a, b, y = leaf(1, 2), leaf(3, 4), leaf(5, 6)
    first, rest = mixed([a, b], y, shift=1.0)
    assert first.tolist() == [11, 13] and [r.tolist() for r in rest] == [[5, 12], [15, 24]]
    (first.sum() + rest[0].sum() + 10 * rest[1].sum()).backward()
    assert a.grad.tolist() == [5, 6] and b.grad.tolist() == [50, 60] and y.grad.tolist() == [2 + 1 + 30, 2 + 2 + 40]
    meta, metas = mixed([a.detach().to("meta")], y.detach().to("meta"))
    assert meta.is_meta and len(metas) == 1
    batch = torch.vmap(lambda v: mixed([v, a], y)[1][0])(torch.ones(3, 2))
    assert batch.tolist() == [[5, 6]] * 3


def test_without_a_formula_or_a_fake() -> None:
    @torch.library.custom_op("tests::bare", mutates_args=())
    def bare(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    y = bare(leaf(1.0))
    with pytest.raises(
        RuntimeError, match="Trying to backward through tests.bare.default but no autograd formula was registered"
    ):
        y.sum().backward()
    with pytest.raises(RuntimeError, match=r"no fake impl registered for <CustomOpDef\(tests::bare\)>"):
        bare(torch.empty(1, device="meta"))


def test_transforms() -> None:
    batch = torch.arange(6.0).reshape(3, 2)
    assert torch.allclose(torch.vmap(sine)(batch), batch.sin())
    assert torch.allclose(torch.func.grad(lambda v: sine(v).sum())(X), X.cos())
    assert torch.allclose(torch.func.jacrev(sine)(X), torch.diag(X.cos()))
    assert torch.allclose(torch.vmap(torch.func.grad(lambda v: sine(v).sum()))(batch), batch.cos())


def test_a_rule_for_batches() -> None:
    seen: list[Any] = []

    @torch.library.custom_op("tests::batched", mutates_args=())
    def batched(x: torch.Tensor, y: torch.Tensor, k: int = 1) -> torch.Tensor:
        return torch.from_numpy(x.detach().numpy() + y.detach().numpy() * k)

    @batched.register_vmap
    def _(info: Any, in_dims: Any, x: Any, y: Any, k: int = 1) -> Any:
        seen.append((info.batch_size, in_dims))
        return batched(x.movedim(in_dims[0], 0), y, k), 0

    batched.register_autograd(lambda ctx, g: (g, g, None))
    rows = torch.arange(6.0).reshape(3, 2)
    assert torch.vmap(batched, in_dims=(0, None))(rows, X).tolist() == (rows + X).tolist() and seen == [(3, (0, None))]
    assert (
        torch.vmap(lambda v: batched(v, X, 2), in_dims=1)(rows.T).tolist() == (rows + 2 * X).tolist()
        and seen[-1][0] == 3
        and len(seen[-1][1]) == 3
    )


def test_arguments_that_change() -> None:
    @torch.library.custom_op("tests::scale_", mutates_args={"x"})
    def scale_(x: torch.Tensor, n: int = 2, *, s: float = 1.5, name: str = "a", b: bool = True) -> None:
        np.multiply(x.detach().numpy(), n * s, out=x.detach().numpy())

    assert (
        str(torch.ops.tests.scale_.default._schema)
        == 'tests::scale_(Tensor(a0!) x, SymInt n=2, *, float s=1.5, str name="a", bool b=True) -> ()'
    )
    x = torch.ones(2)
    before = x._version
    assert scale_(x) is None and x.tolist() == [3, 3] and x._version > before
    saved = leaf(1.0, 2.0) * 1
    product = saved * saved
    scale_(saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    with pytest.raises(RuntimeError, match="Cannot register autograd formula for non-functional operator"):
        scale_.register_autograd(lambda ctx, g: g)


def test_results_must_be_new() -> None:
    @torch.library.custom_op("tests::same", mutates_args=())
    def same(x: torch.Tensor, how: int = 0) -> torch.Tensor:
        return x if how == 0 else x.view(-1)

    for how in (0, 1):
        with pytest.raises(RuntimeError, match=r"\(1\) must not also be an input to this custom operator"):
            same(X, how)


def test_kernels_for_devices() -> None:
    @torch.library.custom_op("tests::placed", mutates_args=(), device_types="cuda")
    def placed(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    with pytest.raises(
        NotImplementedError, match="Could not run 'tests::placed' with arguments from the 'CPU' backend"
    ):
        placed(X)
    placed.register_kernel("cpu", lambda x: x + 2)
    assert placed(X).tolist() == [2.5, 3.0]
    with placed.set_kernel_enabled("cpu", False):
        assert placed(X).tolist() == [1.5, 2.0]
    with pytest.raises(ValueError, match="Functions without tensor inputs"):
        torch.library.custom_op("tests::none", mutates_args=(), device_types="cpu")(_numbers)


def _numbers(n: int) -> torch.Tensor:
    return torch.ones(n)


def test_automatic_casts() -> None:
    @torch.library.custom_op("tests::cast", mutates_args=())
    def cast(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    cast.register_autocast("cpu", torch.bfloat16)
    assert cast(X).dtype is torch.float32
    with torch.autocast("cpu"):
        assert cast(X).dtype is torch.bfloat16 and cast(X.double()).dtype is torch.float64


def test_subclasses_are_asked() -> None:
    class Asked(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return "asked", str(func)

    assert sine(X.as_subclass(Asked)) == ("asked", "tests.sine.default")


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((3,), {}, "Expected a value of type 'Tensor' for argument 'x' but instead found type 'int'"), ((), {}, "is missing value for argument 'x'"),
        ((X, X), {}, r"expected at most 1 argument\(s\) but received 2"), ((X,), {"x": X}, "multiple values"), ((X,), {"z": X}, "Unknown keyword argument 'z'"),
        ((None,), {}, "found type 'NoneType'"),
    ],
)  # fmt: skip
def test_wrong_arguments(args: Any, kwargs: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        sine(*args, **kwargs)


def test_defining_again_replaces() -> None:
    for k in (1, 2):
        op = torch.library.custom_op(
            "tests::again", lambda x, k=k: x * k, mutates_args=(), schema="(Tensor x) -> Tensor"
        )
    assert op(X).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match='of the form "namespace::name"'):
        torch.library.custom_op("nospace", lambda x: x, mutates_args=(), schema="(Tensor x) -> Tensor")
    with pytest.raises(ValueError, match="consistent"):
        torch.library.custom_op("tests::unlike", lambda x: x, mutates_args=(), schema="(Tensor(a!) x) -> ()")


def test_operators_that_would_launch_triton_kernels_run_their_python() -> None:
    @torch.library.triton_op("tests::triton", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        if x.is_cuda:
            return torch.library.wrap_triton(None)(x)
        return x * 2

    assert torch.equal(double(X), 2 * X) and torch.equal(torch.ops.tests.triton(X), 2 * X)
    with pytest.raises(RuntimeError, match=r"triton\.jit"):
        torch.library.wrap_triton(lambda: None)


def test_opcheck() -> None:
    names = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    assert torch.library.opcheck(sine, (leaf(0.5, 1.0),)) == dict.fromkeys(names, "SUCCESS")
    assert torch.library.opcheck(torch.ops.tests.mixed, ([X], X), {"shift": 2.0}) == dict.fromkeys(names, "SUCCESS")

    @torch.library.custom_op("tests::wrong", mutates_args=())
    def wrong(x: torch.Tensor, how: int) -> torch.Tensor:
        if how == 0:
            x.add_(1)
        return torch.ones(3) if how == 1 else torch.rand(2)

    wrong.register_fake(lambda x, how: torch.empty(2, device="meta"))
    for how, name, text in (
        (0, "test_schema", "was mutated"),
        (1, "test_faketensor", "shape"),
        (2, "test_aot_dispatch_dynamic", "other numbers"),
    ):
        with pytest.raises(torch.library.OpCheckError, match=text):
            torch.library.opcheck(wrong, (torch.ones(2), how), test_utils=name)
    assert isinstance(
        torch.library.opcheck(wrong, (torch.ones(2), 1), raise_exception=False)["test_faketensor"],
        torch.library.OpCheckError,
    )


# ***** schemas *****


def test_inferred_schemas() -> None:
    def many(
        x: torch.Tensor, y: Optional[int], z: float = 3.0, w: Optional[List[float]] = None, d: Optional[torch.dtype] = None, *,  # noqa: UP006, UP045
        dv: torch.device = torch.device("cpu"), sc: Union[int, float, bool] = 1, ts: Sequence[torch.Tensor] = None, o: list[torch.Tensor | None] = None,  # noqa: RUF013
        st: str | None = None,
    ) -> tuple[torch.Tensor, int, float, bool, list[torch.Tensor]]:  # fmt: skip
        ...

    rest = (
        'SymInt? y, float z=3.0, float[]? w=None, ScalarType? d=None, *, Device dv="cpu", Scalar sc=1, Tensor[] ts=None, Tensor?[] o=None, '
        "str? st=None) -> (Tensor, SymInt, float, bool, Tensor[])"
    )
    assert infer_schema(many, mutates_args=()) == f"(Tensor x, {rest}"
    assert infer_schema(many, mutates_args={"x"}, op_name="many") == f"many(Tensor(a0!) x, {rest}"
    assert infer_schema(many, mutates_args="unknown").startswith(
        "(Tensor(a0!) x, "
    ) and "Tensor(a7!)[] ts" in infer_schema(many, mutates_args="unknown")
    for bad in ({"q"}, {"z"}, "x"):
        with pytest.raises(ValueError, match="mutates_args|mutable_args"):
            infer_schema(many, mutates_args=bad)


def test_numbers_in_schemas() -> None:
    from rushlight.library.schema import parse

    text = 'ns::op.form(Tensor(a!)[] x, float a=1., float b=0.10000000000000001, int[2] d=[1, 2], str e="a,b", *, bool f=True) -> Tensor(a!)[]'
    assert str(parse(text)) == text and parse(text).overload_name == "form" and parse(text).arguments[0].written
    for bad in (
        "op(Tensor x)",
        "op Tensor x -> Tensor",
        "op(Zensor x) -> Tensor",
        "op(Tensor) -> Tensor",
        "op(Tensor x -> Tensor",
        "op(Tensor x) -> ",
    ):
        with pytest.raises(RuntimeError):
            parse(bad)


def test_what_a_schema_cannot_say() -> None:
    def no_annotation(x): ...

    def no_result(x: torch.Tensor): ...

    def a_dict(x: dict) -> torch.Tensor: ...

    def a_tuple(x: tuple[int, int]) -> torch.Tensor: ...

    def stars(*x: torch.Tensor) -> torch.Tensor: ...

    def text(x: torch.Tensor) -> str: ...

    def default(x: torch.Tensor, y: list[int] = [1]) -> torch.Tensor: ...  # noqa: B006

    for function, message in (
        (no_annotation, "must have a type annotation"), (no_result, "No return type"), (a_dict, "unsupported type"), (a_tuple, "try to use List"),
        (stars, "varargs"), (text, "Return has unsupported type"), (default, "unsupported default value"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            infer_schema(function, mutates_args=())


# ***** libraries *****


def test_a_library() -> None:
    library = torch.library.Library("tests_low", "DEF")
    assert repr(library) == "Library(kind=DEF, ns=tests_low, dispatch_key=)>"
    assert library.define("foo(Tensor x, int n=2, *, float[]? s=None) -> Tensor") == "foo"
    with pytest.raises(NotImplementedError, match="Could not run 'tests_low::foo'"):
        torch.ops.tests_low.foo(X)
    library.impl("foo", lambda x, n=2, *, s=None: x * n, "CPU")
    assert torch.ops.tests_low.foo(X).tolist() == [1, 2] and torch.ops.tests_low.foo(X, 3, s=[1.0]).tolist() == [1.5, 3]
    with pytest.raises(NotImplementedError, match="attempted to run this operator with Meta tensors"):
        torch.ops.tests_low.foo(torch.empty(2, device="meta"))
    library.define("foo.two(Tensor x, Tensor y) -> Tensor")
    library.impl("foo.two", torch.add, "CompositeImplicitAutograd")
    assert torch.ops.tests_low.foo(X, X).tolist() == [1, 2] and torch.ops.tests_low.foo.overloads() == [
        "default",
        "two",
    ]
    y = leaf(1.0, 2.0)
    torch.ops.tests_low.foo.two(y, y).sum().backward()
    assert y.grad.tolist() == [2, 2]
    with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
        torch.ops.tests_low.foo(y).sum().backward()
    for bad, error, text in (
        (lambda: library.define("foo(Tensor x) -> Tensor"), RuntimeError, "multiple times"),
        (lambda: library.define("bar(Zensor x) -> Tensor"), RuntimeError, "unknown type"),
        (lambda: library.impl("foo", lambda x: x, "Zork"), RuntimeError, "could not parse dispatch key"),
        (lambda: torch.library.Library("tests_low", "DEF"), RuntimeError, "Only a single TORCH_LIBRARY"),
        (lambda: torch.library.Library("aten", "DEF"), RuntimeError, "Only a single"), (lambda: torch.library.Library("x", "Y"), ValueError, "Unsupported kind"),
        (lambda: torch.ops.tests_low.foo.zork, AttributeError, "no overload name 'zork'"),
        (lambda: torch.ops.tests_low.zork, AttributeError, "'_OpNamespace' 'tests_low' object has no attribute 'zork'"),
        (lambda: torch.ops.tests_low.foo("a"), RuntimeError, "Could not find any overload"),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            bad()  # type: ignore[no-untyped-call]
    library._destroy()
    with pytest.raises(AttributeError, match="no attribute 'foo'"):
        torch.ops.tests_low.foo
    again = torch.library.Library("tests_low", "DEF")
    again.define("foo(Tensor x) -> Tensor")
    del again
    gc.collect()
    assert not hasattr(torch.ops.tests_low, "foo")


def test_functions_that_register() -> None:
    torch.library.define("tests_low2::minus", "(Tensor x) -> Tensor")

    @torch.library.impl("tests_low2::minus", "cpu")
    def _(x: Any) -> Any:
        return torch.from_numpy(x.detach().numpy() - 1)

    op = torch.ops.tests_low2.minus
    assert op(X).tolist() == [-0.5, 0]
    torch.library.register_fake("tests_low2::minus", lambda x: torch.empty_like(x))
    assert op(torch.empty(3, device="meta")).shape == (3,)
    torch.library.register_autograd("tests_low2::minus", lambda ctx, g: g * 7)
    x = leaf(1.0)
    op(x).backward()
    assert x.grad.tolist() == [7]
    assert torch.vmap(op)(torch.ones(2, 2)).tolist() == [[0, 0], [0, 0]]
    kernel = torch.library.get_kernel("tests_low2::minus", "CPU")
    assert kernel.call_boxed(None, X).tolist() == [-0.5, 0]
    with pytest.raises(ValueError, match="namespace::name"):
        torch.library.define("tests_low2", "(Tensor x) -> Tensor")
    with pytest.raises(ValueError, match="expected schema to look like"):
        torch.library.define("tests_low2::a", "Tensor x -> Tensor")
    with pytest.raises(AttributeError, match="no attribute 'zzz'"):
        torch.library.register_autograd("tests_low2::zzz", lambda ctx, g: g)
    assert torch.library.get_ctx() is None
    torch.library.register_fake("tests_low2::minus", lambda x: torch.library.get_ctx().new_dynamic_size())
    with pytest.raises(RuntimeError, match="data-dependent shape"):
        op(torch.empty(3, device="meta"))
    with pytest.raises(NotImplementedError, match="never be called"):
        torch.library.fallthrough_kernel()


def test_a_kernel_for_autograd() -> None:
    library = torch.library.Library("tests_low3", "DEF")
    library.define("cube(Tensor x) -> Tensor")
    library.impl("cube", lambda x: torch.from_numpy(x.detach().numpy() ** 3), "CPU")
    from rushlight.library.operators import below_autograd

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            with below_autograd():
                return torch.ops.tests_low3.cube(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 3 * ctx.saved_tensors[0] ** 2

    library.impl("cube", Cube.apply, "Autograd")
    x = leaf(1.0, 2.0)
    torch.ops.tests_low3.cube(x).sum().backward()
    assert x.grad.tolist() == [3, 12]


def test_the_packages_own_operators() -> None:
    aten = torch.ops.aten
    assert aten.add.Tensor(X, X).tolist() == [1, 2] and aten.mm(torch.eye(2), torch.eye(2)).tolist() == [[1, 0], [0, 1]]
    assert aten.sin.default is aten.sin.default and str(aten.sin.default) == "aten.sin.default"
    assert (
        str(aten.sin.default._schema) == "aten::sin(Tensor self) -> Tensor"
        and aten.sin(self=X).tolist() == X.sin().tolist()
    )
    assert aten.linalg_vector_norm(X, 2).item() == pytest.approx(1.25**0.5) and aten.relu_(X.clone()).tolist() == [
        0.5,
        1,
    ]
    with pytest.raises(AttributeError, match="'aten' object has no attribute 'zork'"):
        aten.zork
    with pytest.raises(OSError, match="Could not load this library"):
        torch.ops.load_library("/none.so")
    with pytest.raises(NotImplementedError, match="loads no libraries of compiled operators"):
        torch.ops.load_library(__file__)
    with pytest.raises(NotImplementedError, match="own operators"):
        torch.library.register_fake("aten::sin", lambda x: x)


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("word", ["none", "mean", "sum"])
def test_reductions_of_losses_are_numbers(word: str) -> None:
    number = ("none", "mean", "sum").index(word)
    x, p = torch.randn(3, 5), torch.rand(3, 5) * 0.9 + 0.05
    t, many = torch.tensor([2, 0, 1]), torch.tensor([[1, 0, -1, 2, 3]] * 3)
    aten, F = torch.ops.aten, torch.nn.functional
    for name, given in (
        ("kl_div", (x, p)), ("mse_loss", (x, p)), ("l1_loss", (x, p)), ("huber_loss", (x, p)), ("smooth_l1_loss", (x, p)), ("soft_margin_loss", (x, p)),
        ("binary_cross_entropy", (p, p)), ("binary_cross_entropy_with_logits", (x, p)), ("hinge_embedding_loss", (x, p)), ("margin_ranking_loss", (x, p, p)),
        ("cosine_embedding_loss", (x, p, t * 0 + 1)), ("triplet_margin_loss", (x, p, p * 2)), ("multi_margin_loss", (x, t)), ("multilabel_margin_loss", (x, many)),
        ("nll_loss", (x, t)), ("nll_loss_nd", (x, t)), ("cross_entropy_loss", (x, t)),
    ):  # fmt: skip
        place = [a.name for a in getattr(aten, name).default._schema.arguments].index("reduction")
        defaults = [a.default for a in getattr(aten, name).default._schema.arguments[len(given) : place]]
        found = getattr(aten, name)(*given, *defaults, number)
        wanted = getattr(F, name.removesuffix("_nd").replace("entropy_loss", "entropy"))(*given, reduction=word)
        torch.testing.assert_close(found, wanted)
    wanted = F.poisson_nll_loss(x, p, reduction=word)
    torch.testing.assert_close(aten.poisson_nll_loss(x, p, True, False, 1e-8, number), wanted)


def test_operators_take_and_give_what_their_schemas_say() -> None:
    """Where the function of the name takes other arguments, or gives fewer results."""
    aten, x = torch.ops.aten, torch.tensor([[1, 1, 2], [3, 3, 3]])
    runs = aten.unique_consecutive(x, True)
    assert [r.tolist() for r in runs] == [[1, 2, 3], [[0, 0, 1], [2, 2, 2]], []]
    assert [r.tolist() for r in aten._unique2.default(x, True, False, True)] == [[1, 2, 3], [], [2, 1, 3]]
    y = torch.arange(16.0).reshape(4, 4)
    assert aten.tensordot.default(y, y, [1], [0]).tolist() == (y @ y).tolist()
    assert aten.cdist.default(y, y, 2.0, 1)[0, 1] == 8.0 and aten.cdist(y, y, 2.0, None)[0, 1] == 8.0
    assert aten.nuclear_norm(y, True).shape == (1, 1)
    assert aten.stft(y, 4, return_complex=True).shape == (4, 3, 1)
    assert aten.stft.center(y, 4, None, None, None, True, "reflect", return_complex=True).shape == (4, 3, 5)
    assert aten._lu_with_info(y + torch.eye(4))[2] == 0


def test_results_in_a_tuple_of_one() -> None:
    @torch.library.custom_op("library_tests::alone", mutates_args=())
    def alone(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x.clone(),)

    alone.register_autograd(lambda ctx, grad: grad * 3)
    x = torch.ones(2, requires_grad=True)
    (made,) = alone(x)
    made.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3.0, 3.0]
    assert str(alone._opoverload._schema) == "library_tests::alone(Tensor x) -> ((Tensor))"


def test_rules_for_modes_and_classes_with_a_dispatch() -> None:
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    class Inside(torch.Tensor):
        inner: torch.Tensor

        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> Any:
            made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            made.inner = inner
            return made

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError("the rule is asked in its place")

    with torch.library._scoped_library("library_tests", "FRAGMENT") as library:
        library.define("ruled(Tensor x, int[] sizes) -> Tensor")
        library.impl("ruled", lambda x, sizes: x * 2, "CPU")
        op, seen = torch.ops.library_tests.ruled.default, list[Any]()

        def under(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            seen.append((type(mode), func, args[1]))
            return func(*args, **kwargs)

        torch.library.register_torch_dispatch(op, Mode, under)
        library._register_torch_dispatch_rule("ruled", Inside, lambda cls, func, types, args, kwargs: (cls, types))
        with Mode():
            assert op(torch.ones(1), (1, 2)).tolist() == [2.0]
        assert seen == [(Mode, op, [1, 2])]  # sizes are lists, as in PyTorch
        assert op(Inside(torch.ones(1)), [1]) == (Inside, (Inside,))
    with pytest.raises(AttributeError):
        _ = torch.ops.library_tests.ruled


def test_sizes_that_depend_on_data_in_fake_implementations() -> None:
    @torch.library.custom_op("library_tests::places", mutates_args=())
    def places(x: torch.Tensor) -> torch.Tensor:
        return x.nonzero()

    @places.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty([torch.library.get_ctx().new_dynamic_size(), x.dim()], dtype=torch.int64)

    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        made = places(mode.from_tensor(torch.ones(3)))
        assert str(made.shape[0]) == "u0" and made.shape[1] == 1
    with FakeTensorMode() as mode, pytest.raises(DynamicOutputShapeException):
        places(mode.from_tensor(torch.ones(3)))
    with pytest.raises(RuntimeError, match="meta Tensors"):
        places(torch.ones(3, device="meta"))
    graph = make_fx(lambda x: places(x) + 1, tracing_mode="symbolic")(torch.ones(3))
    assert graph(torch.tensor([0.0, 2.0])).tolist() == [[2]]
    for captured in (True, False):
        torch._dynamo.reset()
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=captured):
            compiled = torch.compile(lambda x: places(x.clone()).clone(), backend="eager", fullgraph=captured)
            assert compiled(torch.tensor([1.0, 0.0, 2.0])).tolist() == [[0], [2]]


def test_private_operators_are_functions_of_the_package_too() -> None:
    assert torch._unique2 is torch.ops.aten._unique2
    assert torch._is_all_true(torch.tensor([True, False])).item() is False
    low, high = torch._aminmax(torch.tensor([3.0, -1.0], requires_grad=True))
    assert (low.item(), high.item()) == (-1.0, 3.0) and low.requires_grad
    with pytest.raises(AttributeError, match="rushlight has no '_such_operator'"):
        torch._such_operator
