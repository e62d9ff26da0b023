"""The same operators defined in PyTorch and here: results, gradients, schemas, printed forms and errors agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, List, Optional, Tuple  # noqa: UP035

import numpy as np
import pytest

import rushlight

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore::UserWarning")]


class Operators:
    """Operators of one library, made by the same code."""

    def __init__(self, t: Any) -> None:
        self.t, library = t, t.library
        tensor = t.Tensor

        def sine(x: tensor) -> tensor:  # type: ignore[valid-type]
            return t.from_numpy(np.sin(x.detach().numpy()))

        def scale(x: tensor, n: int = 2, *, s: float = 1.5, name: str = "a", flag: bool = True) -> None:  # type: ignore[valid-type]
            x.mul_(n * s)

        def many(xs: List[tensor], y: Optional[tensor] = None, k: float = 1.0) -> Tuple[tensor, List[tensor]]:  # type: ignore[valid-type]  # noqa: UP006, UP045
            return xs[0] * k, [x + 1 for x in xs]

        def same(x: tensor) -> tensor:  # type: ignore[valid-type]
            return x

        for function in (sine, scale, many, same):  # real types in place of names of local ones
            function.__annotations__ = {k: _resolved(v, tensor) for k, v in function.__annotations__.items()}
        self.sine = library.custom_op("compared::sine", sine, mutates_args=())
        self.scale = library.custom_op("compared::scale", scale, mutates_args={"x"})
        self.many = library.custom_op("compared::many", many, mutates_args=())
        self.same = library.custom_op("compared::same", same, mutates_args=())
        self.bare = library.custom_op("compared::bare", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
        self.sine.register_fake(lambda x: t.empty_like(x))
        self.sine.register_autograd(
            lambda ctx, g: g * ctx.saved_tensors[0].cos(),
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
        )
        self.low = library.Library("compared_low", "DEF")
        self.low.define("foo(Tensor x, int n=2, *, float[]? s=None, Scalar c=1.5, ScalarType? d=None) -> Tensor")
        self.low.define("foo.two(Tensor x, Tensor(a!) y) -> (Tensor(a!), Tensor[])")
        self.low.impl("foo", lambda x, n=2, *, s=None, c=1.5, d=None: x.detach() * n * c, "CPU")
        self.x = t.tensor([0.5, 1.0])
        self.leaf = t.tensor([0.5, 1.0], requires_grad=True)
        self.ops = t.ops


def _resolved(annotation: Any, tensor: Any) -> Any:
    if annotation == "tensor":
        return tensor
    if annotation == "None":
        return None
    named = {"int": int, "float": float, "str": str, "bool": bool, "List[tensor]": List[tensor], "Optional[tensor]": Optional[tensor],  # type: ignore[valid-type]  # noqa: UP006, UP045
             "Tuple[tensor, List[tensor]]": Tuple[tensor, List[tensor]]}  # type: ignore[valid-type]  # noqa: UP006 # fmt: skip
    return named[annotation]


def _changed(o: Operators) -> Any:
    y = o.t.ones(2)
    return o.scale(y, 3, s=2.0), y, y._version


CASES: dict[str, Callable[[Operators], Any]] = {
    "call": lambda o: o.sine(o.x), "by name": lambda o: o.sine(x=o.x), "ops": lambda o: o.ops.compared.sine(o.x),
    "overload": lambda o: o.ops.compared.sine.default(o.x), "prints": lambda o: (o.sine, o.ops.compared.sine, o.ops.compared.sine.default),
    "texts": lambda o: (str(o.ops.compared.sine), str(o.ops.compared.sine.default), o.ops.compared.sine.default.name(), o.ops.compared.sine.overloads()),
    "schemas": lambda o: [str(getattr(o.ops.compared, name).default._schema) for name in ("sine", "scale", "many", "same")],
    "low schemas": lambda o: [str(o.ops.compared_low.foo.default._schema), str(o.ops.compared_low.foo.two._schema)],
    "grad": lambda o: o.t.autograd.grad(o.sine(o.leaf).sum(), o.leaf), "node": lambda o: type(o.sine(o.leaf).grad_fn).__name__,
    "meta": lambda o: o.sine(o.t.empty(3, device="meta")), "vmap": lambda o: o.t.vmap(o.sine)(o.t.arange(6.0).reshape(3, 2)),
    "no formula": lambda o: o.bare(o.leaf).sum().backward(), "no fake": lambda o: o.bare(o.t.empty(2, device="meta")),
    "changed": _changed, "changed leaf": lambda o: o.scale(o.leaf * 1), "many": lambda o: o.many([o.x, o.x], None, 2.5), "same": lambda o: o.same(o.x),
    "number": lambda o: o.sine(3), "nothing": lambda o: o.sine(), "too many": lambda o: o.sine(o.x, o.x), "list": lambda o: o.many(o.x),
    "low": lambda o: (o.ops.compared_low.foo(o.x), o.ops.compared_low.foo(o.x, 3, c=2)), "low meta": lambda o: o.ops.compared_low.foo(o.t.empty(2, device="meta")),
    "no overload": lambda o: o.ops.compared_low.foo.zork, "no operator": lambda o: o.ops.compared_low.zork, "no kernel": lambda o: o.ops.compared_low.foo.two(o.x, o.x),
    "again": lambda o: o.low.define("foo(Tensor x) -> Tensor"), "key": lambda o: o.low.impl("foo", lambda x: x, "Zork"), "kind": lambda o: o.t.library.Library("a", "B"),
    "taken": lambda o: o.t.library.Library("compared_low", "DEF"), "mutable": lambda o: o.scale.register_autograd(lambda ctx, g: g) or o.scale(o.leaf),
    "name": lambda o: o.t.library.define("nospace", "(Tensor x) -> Tensor"), "text": lambda o: o.t.library.define("a::b", "Tensor x -> Tensor"),
    "opcheck": lambda o: o.t.library.opcheck(o.sine, (o.leaf,), test_utils=("test_schema", "test_autograd_registration", "test_faketensor")),
    "aten": lambda o: (o.ops.aten.add.Tensor(o.x, o.x), o.ops.aten.mm, o.ops.aten.sin.default, str(o.ops.aten.sin.default._schema)),
    "ctx": lambda o: o.t.library.get_ctx(), "fallthrough": lambda o: o.t.library.fallthrough_kernel(), "load": lambda o: o.ops.load_library("/none.so"),
}  # fmt: skip


def outcome(case: Callable[[Operators], Any], o: Operators) -> str:
    try:
        return repr(case(o)).replace("rushlight.", "torch.")
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:28]}"


@pytest.fixture(scope="module")
def both() -> tuple[Operators, Operators]:
    torch = pytest.importorskip("torch")
    return Operators(rushlight), Operators(torch)


@pytest.mark.parametrize("name", CASES)
def test_beside_pytorch(name: str, both: tuple[Operators, Operators]) -> None:
    ours, theirs = both
    assert outcome(CASES[name], ours) == outcome(CASES[name], theirs)
