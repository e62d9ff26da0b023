"""`torch.compile` at work: decorators, breaks, stances, marks, explanations, and backends as third parties write them."""

from __future__ import annotations

import collections
import copy
import functools
import operator
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rushlight as torch
import rushlight._dynamo as dynamo
from rushlight._dynamo.testing import CompileCounter, CompileCounterWithBackend, EagerAndRecordGraphs
from rushlight._dynamo.utils import counters
from rushlight.compiler.stances import current_stance

X = torch.arange(3.0)


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    """Every test begins with nothing compiled, and leaves the default stance."""
    dynamo.reset()
    yield
    torch.compiler.set_stance("default")


def breaks(x: Any) -> Any:
    y = x + 1
    dynamo.graph_break()
    return y * 2


# ***** ways to compile *****


def test_functions_methods_and_callables() -> None:
    counter = CompileCounter()

    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = 3.0

        @torch.compile(backend=counter)
        def forward(self, x: Any) -> Any:
            return x * self.factor

        def __len__(self) -> int:
            return 7

    module = Scale()
    assert module(X).tolist() == [0, 3, 6] and module(X).tolist() == [0, 3, 6] and counter.frame_count == 1
    module.factor = 2.0
    assert module(X).tolist() == [0, 2, 4] and counter.frame_count == 2

    class Doubler:
        def __call__(self, x: Any) -> Any:
            return x * 2

    assert torch.compile(Doubler(), backend="eager")(X).tolist() == [0, 2, 4]
    inner = torch.compile(lambda x: x + 1)
    assert torch.compile(lambda x: inner(x) * 2)(X).tolist() == [2, 4, 6]
    assert torch.compile(torch.compiler.disable(lambda x: x + 1))(X).tolist() == [1, 2, 3]


def test_training_through_a_compiled_module() -> None:
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    for backend in ("inductor", "eager"):
        compiled = torch.compile(copy.deepcopy(plain), backend=backend)
        reference = copy.deepcopy(plain)
        results = []
        for model in (compiled, reference):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(3):
                loss = model(torch.full((5, 3), 0.5 + step) * torch.arange(5.0)[:, None]).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            results.append([*[p.tolist() for p in model.parameters()], *[b.tolist() for b in model.buffers()]])
        assert results[0] == results[1]


def test_compiling_is_seen_from_inside_and_not_from_outside() -> None:
    def f(x: Any) -> Any:
        return x + 1 if torch.compiler.is_compiling() and torch.compiler.is_dynamo_compiling() else x - 1

    assert torch.compile(f)(X).tolist() == [1, 2, 3] and f(X).tolist() == [-1, 0, 1]


# ***** breaks *****


def test_graph_breaks_and_their_reasons() -> None:
    counter = CompileCounterWithBackend("eager")
    assert torch.compile(breaks, backend=counter)(X).tolist() == [2, 4, 6]
    assert (
        counter.frame_count == 2 and counter.op_count == 2 and [len(gm.graph.nodes) for gm in counter.graphs] == [3, 3]
    )
    [reason] = counters["graph_break"]
    assert reason.startswith("Call to `torch._dynamo.graph_break()`")
    with pytest.raises(
        dynamo.exc.Unsupported, match=r"Call to `torch._dynamo.graph_break\(\)`[\s\S]*test_compile.py:\d+"
    ):
        torch.compile(breaks, fullgraph=True)(X)
    with dynamo.error_on_graph_break(True), pytest.raises(dynamo.exc.Unsupported):
        torch.compile(breaks, backend="eager")(X)
    with dynamo.error_on_graph_break(False):
        assert torch.compile(breaks, fullgraph=True)(X).tolist() == [2, 4, 6]


def test_an_explanation_has_graphs_and_reasons() -> None:
    found = dynamo.explain(breaks)(X)
    assert (found.graph_count, found.graph_break_count, found.op_count) == (2, 1, 2)
    assert found.ops_per_graph == [[operator.add], [operator.mul]]
    assert "graph_break" in found.break_reasons[0].reason and found.break_reasons[0].user_stack[0].filename == __file__
    assert str(found).startswith(
        "Graph Count: 2\nGraph Break Count: 1\nOp Count: 2\nBreak Reasons:\n  Break Reason 1:\n    Reason: Call to"
    )
    with pytest.warns(FutureWarning, match=r"explain\(f, \*args, \*\*kwargs\) is deprecated"):
        assert dynamo.explain(breaks, X).graph_count == 2


def test_disabled_functions_break_and_run_eagerly() -> None:
    seen = []

    @torch.compiler.disable(reason="it prints")
    def slow(x: Any) -> Any:
        seen.append(torch.compiler.is_compiling())
        return x + 1

    counter = CompileCounter()
    assert torch.compile(lambda x: slow(x * 2) * 3, backend=counter)(X).tolist() == [3, 9, 15]
    assert seen == [False] and counter.frame_count == 2 and counters["graph_break"]["it prints"] == 1


@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_functions_of_functions_take_keywords_and_refuse_others(backend: str) -> None:
    """What a call of the function as it is says of its arguments, a compiled one says, without a word of the trace."""
    x, sin, ops = X.clone(), torch.sin, torch._higher_order_ops
    calls: list[Callable[[], Any]] = [
        lambda: ops.map(sin, xs=x), lambda: ops.map(xs=x, f=sin), lambda: ops.map(sin, x=x), lambda: ops.map(sin), lambda: ops.map(sin, x, xs=x),
        lambda: torch.cond(pred=x.sum() > 0, false_fn=sin, true_fn=torch.cos, operands=(x,)), lambda: torch.cond(x.sum() > 0, sin, sin, (x,), 3),
        lambda: ops.scan(combine_fn=lambda c, v: (c + v, c * v), init=x[0] * 1, xs=x), lambda: ops.scan(sin, x, x, wrong=1),
        lambda: ops.associative_scan(torch.add, dim=0, xs=x, combine_mode="generic"), lambda: ops.associative_scan(sin, xs=x),
        lambda: ops.while_loop(body_fn=lambda v: (v + 1,), cond_fn=lambda v: v.sum() < 9, carried_inputs=(x,)),
        lambda: torch._check(x.shape[0] == 3, wrong=3),
    ]  # fmt: skip
    for call in calls:
        found = []
        for function in (call, torch.compile(call, backend=backend)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    found.append(str(function()))
                except TypeError as error:
                    found.append(f"TypeError: {error}")
        assert found[0] == found[1]


_RESULTS: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: None, "int": lambda x: 3, "bool": lambda x: True, "str": lambda x: "a", "dtype": lambda x: x.dtype,
    "tensor": lambda x: x * 2, "mixed": lambda x: (x, 3), "tuple": lambda x: (2, 3), "shape": lambda x: x.shape,
}  # fmt: skip


@pytest.mark.parametrize("backend", ["inductor", "eager"])
@pytest.mark.parametrize("name", _RESULTS)
def test_a_function_in_the_graph_runs_as_often_as_in_pytorch(backend: str, name: str) -> None:
    """PyTorch 2.13: our backend's program has no nodes left that compute nothing, and scalars break the graph."""
    ran: list[bool] = []

    @torch.compiler.allow_in_graph
    def opaque(*args: Any) -> Any:
        ran.append(torch.is_grad_enabled())
        return _RESULTS[name](*(args or (X,)))

    def program(x: Any) -> Any:
        found = opaque() if name in ("none", "int", "bool", "str", "tuple") else opaque(x)
        with torch.no_grad():
            return found, x + 1

    compiled, counts = torch.compile(program, backend=backend), []
    for _ in range(3):
        before = len(ran)
        assert str(compiled(X)) == str((_RESULTS[name](X), X + 1))
        counts.append(len(ran) - before)
    each_time = backend == "eager" or name in ("int", "bool", "str", "dtype")
    assert counts[1:] == ([1, 1] if each_time else [0, 0]) and counts[0] <= 2
    assert all(ran)


def test_marks_are_followed() -> None:
    calls = []

    @torch.compiler.assume_constant_result
    def setting() -> float:
        calls.append(1)
        return 2.0

    compiled = torch.compile(lambda x: x * setting())
    assert compiled(X).tolist() == compiled(X).tolist() == [0, 2, 4] and calls == [1]

    kept = EagerAndRecordGraphs()

    @torch.compiler.allow_in_graph
    def opaque(x: Any) -> Any:
        return x.sin() + x.cos()

    torch.compile(lambda x: opaque(x) * 2, backend=kept)(X)
    assert [node.target for node in kept.graphs[0].graph.nodes if node.op == "call_function"] == [opaque, operator.mul]

    dynamo.disallow_in_graph(torch.tan)
    try:
        counter = CompileCounter()
        torch.compile(lambda x: torch.tan(x + 1) * 2, backend=counter)(X)
        assert counter.frame_count == 2
    finally:
        torch.compiler.allow_in_graph(torch.tan)

    @torch.compiler.substitute_in_graph(operator.countOf, skip_signature_check=True)
    def count_of(a: Any, b: Any) -> Any:
        return 5

    assert torch.compile(lambda x: x + operator.countOf([1, 1], 1))(X).tolist() == [5, 6, 7]


# ***** stances and limits *****


def test_stances() -> None:
    counter = CompileCounter()
    compiled = torch.compile(lambda x: x + 1, backend=counter)
    with torch.compiler.set_stance("force_eager"):
        compiled(X)
    assert counter.frame_count == 0
    compiled(X)
    assert counter.frame_count == 1
    with torch.compiler.set_stance("eager_on_recompile"):
        assert compiled(torch.ones(2, 2)).shape == (2, 2) and compiled(X).tolist() == [1, 2, 3]
    assert counter.frame_count == 1
    with torch.compiler.set_stance("fail_on_recompile"):
        compiled(X)
        with pytest.raises(
            RuntimeError,
            match="(?s)Detected recompile when torch.compile stance is 'fail_on_recompile'. filename: .*guard failure",
        ):
            compiled(torch.ones(2, 2))
    with (
        dynamo.config.patch(error_on_recompile=True),
        pytest.raises(dynamo.exc.RecompileError, match="Recompiling function <lambda> in"),
    ):
        compiled(torch.ones(2, 2))
    with torch.compiler.set_stance("force_eager"):
        assert compiled(X).tolist() == [1, 2, 3]
    compiled(X)
    assert counter.frame_count == 1
    late = torch.compile(lambda x: x * 2, backend=counter)
    with torch.compiler.set_stance("eager_then_compile"):
        late(X)
        assert counter.frame_count == 1
        late(X)
        assert counter.frame_count == 2
    only_run = dynamo.run(torch.compile(lambda x: x * 3, backend=counter))
    assert only_run(X).tolist() == [0, 3, 6] and counter.frame_count == 2


def test_a_stance_may_force_a_backend() -> None:
    counter, other = CompileCounter(), CompileCounter()
    compiled = torch.compile(lambda x: x + 1, backend=counter)
    compiled(X)
    with torch.compiler.set_stance("default", force_backend=other):
        assert compiled(X).tolist() == [1, 2, 3] and torch.compile(lambda x: x * 2)(X).tolist() == [0, 2, 4]
    assert (counter.frame_count, other.frame_count) == (1, 2)
    compiled(X)
    assert (counter.frame_count, other.frame_count) == (2, 2)


def test_recompilations_are_counted_and_limited() -> None:
    counter = CompileCounter()

    def f(x: Any, text: str) -> Any:
        return x + len(text)

    compiled = torch.compile(f, backend=counter, recompile_limit=2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for text in ("a", "b", "c", "d"):
            assert compiled(X, text).tolist() == [1, 2, 3]
    assert counter.frame_count == 2 and sum(counters["recompiles"].values()) >= 2
    assert any("was compiled 2 times" in str(each.message) for each in told)
    dynamo.reset()
    assert not counters["recompiles"]
    compiled = torch.compile(f, backend=counter)
    with dynamo.config.patch(recompile_limit=1), pytest.warns(RuntimeWarning, match="was compiled 1 times"):
        compiled(X, "a")
        compiled(X, "b")
    assert counter.frame_count == 3


@pytest.mark.parametrize("asked", ["fullgraph", "fail_on_recompile_limit_hit"])
def test_the_limit_is_an_error_where_one_graph_is_asked_for(asked: str) -> None:
    def f(x: Any, text: str) -> Any:
        return x + len(text)

    whole = asked == "fullgraph"
    compiled = torch.compile(f, fullgraph=whole)
    with dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=not whole):
        for text in ("a", "b"):
            compiled(X, text)
        with pytest.raises(dynamo.exc.FailOnRecompileLimitHit, match=asked):
            compiled(X, "c")
        assert compiled(X, "a").tolist() == [1, 2, 3]  # what was compiled before goes on


# ***** backends *****


def test_a_backend_that_fails_says_so() -> None:
    def broken(gm: Any, inputs: Any) -> Any:
        raise ValueError("no such machine")

    with pytest.raises(
        dynamo.exc.BackendCompilerFailed, match="backend='broken' raised:\nValueError: no such machine"
    ) as caught:
        torch.compile(lambda x: x + 1, backend=broken)(X)
    assert isinstance(caught.value.inner_exception, ValueError)
    with (
        dynamo.config.patch(suppress_errors=True),
        pytest.warns(RuntimeWarning, match="runs as it is: RuntimeError: backend="),
    ):
        assert torch.compile(lambda x: x + 1, backend=broken)(X).tolist() == [1, 2, 3]
    with pytest.raises(dynamo.exc.BackendCompilerFailed, match="compiler_fn did not return callable"):
        torch.compile(lambda x: x + 1, backend=lambda gm, inputs: 3)(X)


def test_a_backend_that_counts() -> None:
    found: collections.Counter[str] = collections.Counter()

    def counting(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        for node in gm.graph.nodes:
            if node.op.startswith("call_"):
                found[str(getattr(node.target, "__name__", node.target))] += 1
        return gm.forward

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    assert torch.equal(torch.compile(model, backend=counting)(X), model(X))
    assert found == {"linear": 2, "relu": 1}


def test_a_backend_that_rewrites() -> None:
    def faster(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        for node in list(gm.graph.nodes):
            if node.target is torch.nn.functional.gelu or node.target is torch.tanh:
                with gm.graph.inserting_after(node):
                    node.replace_all_uses_with(gm.graph.call_function(torch.relu, (node.args[0],)))
                gm.graph.erase_node(node)
        gm.graph.lint()
        gm.recompile()
        return gm.forward

    def f(x: Any) -> Any:
        return torch.tanh(x - 1) + torch.nn.functional.gelu(x)

    assert torch.equal(torch.compile(f, backend=faster)(X), torch.relu(X - 1) + torch.relu(X))


def test_a_backend_that_interprets_with_names_and_kwargs() -> None:
    kept: dict[str, Any] = {}

    def profiling(
        gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], *, mode: str | None = None, options: Any = None
    ) -> Any:
        kept.update(mode=mode, options=options)

        class Profile(torch.fx.Interpreter):
            def run_node(self, node: Any) -> Any:
                kept.setdefault("nodes", []).append(node.name)
                return super().run_node(node)

        return Profile(gm).run

    y = torch.ones(3)
    assert torch.compile(lambda x: x + y, backend=profiling, options={"level": 3})(X).tolist() == [1, 2, 3]
    assert kept == {"mode": None, "options": {"level": 3}, "nodes": ["l_x_", "l_y_", "add", "output"]}


def test_backends_of_packages(tmp_path: Path) -> None:
    (tmp_path / "burner.py").write_text(
        "def burn(gm, inputs):\n    print('burns', len(inputs))\n    return gm.forward\n"
    )
    info = tmp_path / "burner-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: burner\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torch_dynamo_backends]\nburn = burner:burn\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rushlight as torch; print(torch.compiler.list_backends());"
        "print('burner' in sys.modules); print(torch.compile(lambda x: x + 1, backend='burn')(torch.ones(2)).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['burn', 'inductor']\nFalse\nburns 1\n[2.0, 2.0]\n"


def test_control_flow_within_compiled_functions() -> None:
    def f(x: Any) -> Any:
        y = torch.cond(x.sum() > 2, lambda x: x * 2, lambda x: x - 1, (x,))
        count, z = torch.while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, z + y), (torch.tensor(0), x * 0))
        return y, count, z

    compiled = torch.compile(f)
    for x in (X, X - 1, X):
        for mine, other in zip(compiled(x), f(x), strict=True):
            assert torch.equal(mine, other)


# ***** custom operators *****


@torch.library.custom_op("compile_tests::crop", mutates_args=())
def crop(x: torch.Tensor, n: int) -> torch.Tensor:
    """The sines of the first elements, by NumPy: nobody can look into it."""
    return torch.from_numpy(np.sin(x.numpy())[:n].copy())


@crop.register_fake
def _(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.new_empty(n)


def _crop_backward(ctx: Any, grad: torch.Tensor) -> Any:
    return torch.nn.functional.pad(grad, (0, ctx.left)) * 2, None


crop.register_autograd(
    _crop_backward, setup_context=lambda ctx, inputs, output: setattr(ctx, "left", len(inputs[0]) - inputs[1])
)


@torch.library.custom_op("compile_tests::count_", mutates_args=("counter",))
def count_(counter: torch.Tensor, step: float) -> None:
    """Adds in place, by NumPy."""
    counter.numpy()[:] += step


@pytest.mark.parametrize("form", ["definition", "packet", "overload"])
def test_custom_operators_are_opaque(form: str) -> None:
    op = {"definition": crop, "packet": torch.ops.compile_tests.crop, "overload": torch.ops.compile_tests.crop.default}[
        form
    ]

    def f(x: Any) -> Any:
        return op(x * 2, 2) + 1

    kept = EagerAndRecordGraphs()
    for compiled in (
        torch.compile(f),
        torch.compile(f, fullgraph=True),
        torch.compile(f, backend=kept, fullgraph=True),
    ):
        x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
        found, expected = compiled(x), f(y)
        assert torch.equal(found, expected)
        found.sum().backward()
        expected.sum().backward()
        assert torch.equal(x.grad, y.grad)
    assert not counters["graph_break"]
    node = kept.graphs[0].graph.find_nodes(op="call_function")[1]
    assert node.target is (torch.ops.compile_tests.crop if form == "packet" else torch.ops.compile_tests.crop.default)
    assert node.name == ("crop" if form == "packet" else "crop_default")


aten = torch.ops.aten
NATIVE: dict[str, Any] = {  # each is asked for, for the first time, by what is compiled
    "an overload": lambda x: aten.hypot.default(x, x),
    "a packet": lambda x: aten.logaddexp(x, 1 - x),
    "one of several results": lambda x: aten.max.dim(x, 0)[0] + aten.native_layer_norm.default(x, [3], None, None, 1e-5)[0],
    "a view": lambda x: aten.t.default(x).sum(0) + aten.split.Tensor(aten.view.default(x, [6]), 3)[1].sum(),
    "in place": lambda x: aten.mul_.Tensor(x.clone(), x),
    "by its name": lambda x: getattr(aten, "s" + "inh")(x),
    "a key": lambda x: x * {aten.atan2.default: 3.0}.get(aten.atan2.default, 2.0) * len({aten.atan2.out, aten.atan2.out}),
    "what it says": lambda x: x * len(aten.fmod.Tensor.name() + str(aten.fmod)) * len(aten.fmod.overloads()),
    "what is missing": lambda x: x * (3.0 if hasattr(aten, "nothing") or hasattr(aten.fmax, "nothing") else 2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", NATIVE)
def test_native_operators_are_followed(name: str) -> None:
    function = NATIVE[name]
    compiled = torch.compile(function, fullgraph=True)
    leaves = [torch.arange(1.0, 7.0).view(2, 3).requires_grad_() for _ in range(2)]
    found, expected = compiled(leaves[0]), function(leaves[1])
    assert torch.equal(found, expected)
    found.sum().backward()
    expected.sum().backward()
    assert torch.equal(leaves[0].grad, leaves[1].grad)
    assert torch.equal(compiled(leaves[0].detach() + 1), function(leaves[0].detach() + 1))


def test_custom_operators_that_change_tensors() -> None:
    def f(counter: Any) -> Any:
        y = counter + 1
        count_(counter, 2.0)
        return y + counter

    for backend in ("inductor", "eager"):
        mine, theirs = X.clone(), X.clone()
        assert torch.equal(torch.compile(f, backend=backend)(mine), f(theirs)) and torch.equal(mine, theirs)


# ***** graphs of what is harder to write down *****


class Scaled(torch.autograd.Function):
    """x times 2, with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 3


WRITTEN_DOWN = {
    "rows": lambda x: sum(row * i for i, row in enumerate(x)),
    "unpacked": lambda x: (lambda a, b, c: a - b * c)(*x),
    "zipped": lambda x: torch.stack([a + b for a, b in zip(x, x.flip(0), strict=True)]),
    "mapped": lambda x: torch.stack(list(map(torch.sin, x))),
    "own gradient": lambda x: Scaled.apply(x) + 1,
    "partial": lambda x: functools.partial(torch.clamp, max=1.5)(x),
    "sorted by keys": lambda x: [dict(b=x + 1, a=x)[key] for key in sorted({"a": 1, "b": 2})],
    "nested results": lambda x: torch.topk(x[:, None] * x, 2)[0] + torch.aminmax(x).max,
    "no gradient": lambda x: (torch.no_grad()(lambda y: y * 2)(x) + x, torch.is_grad_enabled()),
    "dtype and device": lambda x: x.to("cpu", torch.float64).type(torch.float32) + torch.zeros((), device=x.device, dtype=x.dtype),
    "in place": lambda x: x.clone().add_(1).clamp_(max=2).sub_(x)[1:].fill_(3),
    "view of a view": lambda x: x.clone().view(3, 1).transpose(0, 1).squeeze().unfold(0, 2, 1),
    "strings and shapes": lambda x: x.reshape([int(s) for s in "3 1".split()]) + len(f"{x.dtype}{tuple(x.shape)}"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITTEN_DOWN)
def test_graphs_run_as_the_function_does(case: str) -> None:
    function, kept = WRITTEN_DOWN[case], EagerAndRecordGraphs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = torch.compile(function, backend=kept, fullgraph=True)
        for start in (X, X + 1):
            mine, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
            found, expected = compiled(mine), function(theirs)
            for one, two in zip(_flat(found), _flat(expected), strict=True):
                assert torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two
                if isinstance(one, torch.Tensor) and one.requires_grad:
                    one.sum().backward(retain_graph=True)
                    two.sum().backward(retain_graph=True)
            assert mine.grad is None or torch.equal(mine.grad, theirs.grad)
    assert len(kept.graphs) == 1


def _flat(value: Any) -> list[Any]:
    return [leaf for each in value for leaf in _flat(each)] if isinstance(value, (tuple, list)) else [value]


def test_functions_in_native_code_are_compiled() -> None:
    """They are called by a function in Python, whose graph is theirs."""
    for n in (4, 5, 6):
        a, b = torch.randn(n, 2, 3), torch.randn(n, 3, 2)
        assert torch.equal(PRODUCT(a, b), torch.bmm(a, b))
    assert PRODUCT.__name__ == "bmm"
    scaled = torch.compile(functools.partial(lambda x, k: x * k, k=3), fullgraph=True)
    assert scaled(torch.ones(2)).tolist() == [3, 3] and torch.compile(len)(torch.ones(2)) == 2


PRODUCT = torch.compile(torch.bmm, fullgraph=True)


@pytest.mark.parametrize("backend", ["inductor", "eager", "aot_eager"])
def test_constant_results_that_are_tensors(backend):
    @torch.compiler.assume_constant_result
    def filled(n, value):
        return torch.full([n], value)

    compiled = torch.compile(lambda x: filled(x.shape[0], 13.0) * x, backend=backend, fullgraph=True)
    for k in (1.0, 2.0):
        assert compiled(torch.full([3], k)).tolist() == [13.0 * k] * 3


def test_same_compares_tensors_with_numbers() -> None:
    same = torch._dynamo.testing.same
    assert same(torch.tensor([5]), 5) and same([2.5], [torch.tensor(2.5)])
    assert not same(torch.tensor([5]), 6) and not same(torch.tensor([5]), "5")


@pytest.mark.parametrize("form", ["call", "context", "decorator"])
def test_a_stance_that_a_compiled_function_sets_holds_at_each_call(form: str) -> None:
    """It is set when the program runs, and not when it is traced; what a context set is taken back."""
    seen: list[str] = []

    def note() -> None:
        seen.append(current_stance().stance)

    decorated = torch.compiler.set_stance("force_eager")(note)

    @torch.compile(backend="eager")
    def function(x: Any) -> Any:
        if form == "decorator":
            decorated()
        elif form == "context":
            with torch.compiler.set_stance("force_eager"):
                note()
        else:
            torch.compiler.set_stance("force_eager")
            note()
        note()
        return x + 1

    for _ in range(3):
        seen.clear()
        torch.compiler.set_stance("default")
        assert function(torch.ones(1)).item() == 2
        assert seen == ["force_eager", "force_eager" if form == "call" else "default"]
    torch.compiler.set_stance("default")


def test_a_compiled_function_may_reset_the_compiler() -> None:
    @torch.compile(backend="eager")
    def function(x: Any) -> Any:
        torch._dynamo.reset()
        return x + 1

    assert [function(torch.ones(1)).item() for _ in range(2)] == [2, 2]
