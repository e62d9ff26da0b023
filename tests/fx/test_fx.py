"""torch.fx: traced programs, the code made from graphs, and programs that change graphs.  The texts are what PyTorch prints for the same programs."""

from __future__ import annotations

import copy
import math
import operator
import pickle
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import fx, nn


def code(module: fx.GraphModule) -> str:
    return module.code.strip()


def text(written: str) -> str:
    return textwrap.dedent(written).strip()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.p = nn.Parameter(torch.full((4,), 2.0))
        self.register_buffer("b", torch.full((4,), 3.0))
        self.c = torch.arange(4.0)

    def forward(self, x, y=None, *, k: int = 3):
        a = self.lin(x).relu()
        z = torch.cat([a, self.seq(x)], dim=1)[:, :4]
        w = z * self.p + self.b - self.c
        w += 1
        u = w.view(w.shape[0], -1).transpose(0, 1)
        q, r = u.split(2)
        return {"o": F.relu(u), "l": [q, r], "d": u.to(torch.float64)}


NET = """
def forward(self, x, y = None, k : int = 3):
    lin = self.lin(x)
    relu = lin.relu();  lin = None
    seq_0 = getattr(self.seq, "0")(x);  x = None
    seq_1 = getattr(self.seq, "1")(seq_0);  seq_0 = None
    cat = torch.cat([relu, seq_1], dim = 1);  relu = seq_1 = None
    getitem = cat[(slice(None, None, None), slice(None, 4, None))];  cat = None
    p = self.p
    mul = getitem * p;  getitem = p = None
    b = self.b
    add = mul + b;  mul = b = None
    c = self.c
    sub = add - c;  add = c = None
    add_1 = sub + 1;  sub = None
    getattr_1 = add_1.shape
    getitem_1 = getattr_1[0];  getattr_1 = None
    view = add_1.view(getitem_1, -1);  add_1 = getitem_1 = None
    transpose = view.transpose(0, 1);  view = None
    split = transpose.split(2)
    getitem_2 = split[0]
    getitem_3 = split[1];  split = None
    relu_1 = torch.nn.functional.relu(transpose, inplace = False)
    to = transpose.to(torch.float64);  transpose = None
    return {'o': relu_1, 'l': [getitem_2, getitem_3], 'd': to}
"""


def test_code_of_a_module_and_its_values() -> None:
    net = Net()
    traced = fx.symbolic_trace(net)
    assert code(traced) == NET.strip()
    assert type(traced).__name__ == "Net" and isinstance(traced, fx.GraphModule) and traced.lin is net.lin
    x = torch.randn(3, 4)
    for key, value in net(x).items():
        assert all(torch.equal(a, b) for a, b in zip(value, traced(x)[key], strict=True))
    traced(x)["o"].sum().backward()
    assert net.lin.weight.grad is not None and set(traced.state_dict()) == set(net.state_dict()) | {"c"}
    for made in (pickle.loads(pickle.dumps(traced)), copy.deepcopy(traced)):
        assert code(made) == NET.strip() and torch.equal(made(x)["o"], net(x)["o"]) and made.lin is not net.lin
    assert str(traced).endswith(
        "# To see more debug info, please use `graph_module.print_readable()`"
    ) and NET.strip() in str(traced)


def test_arguments_in_code() -> None:
    def program(x, *a):
        return (
            x,
            (x,),
            [x],
            math.sqrt(x),
            x.foo,
            -x,
            ~x,
            3 - x,
            x[..., None],
            x.a(math.nan),
            abs(x),
            x == 1,
            2**x,
            x.to(torch.device("cpu")),
            {"k": x},
        )

    assert text(fx.symbolic_trace(program).code) == text("""
        torch.fx._symbolic_trace.wrap("math_sqrt")

        def forward(self, x, *a):
            _a = a
            sqrt = math_sqrt(x)
            neg = -x
            invert = ~x
            sub = 3 - x
            getitem = x[(Ellipsis, None)]
            a = x.a(nan)
            abs_1 = _operator_abs(x)
            eq = x == 1
            pow_1 = 2 ** x
            to = x.to(device(type='cpu'))
            getattr_1 = x.foo
            return (x, (x,), [x], sqrt, getattr_1, neg, invert, sub, getitem, a, abs_1, eq, pow_1, to, {'k': x})
        """)


def test_printed_graph_and_nodes() -> None:
    class Looped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.ModuleList([nn.Linear(2, 2) for _ in range(2)])

        def forward(self, x: torch.Tensor, n: int = 2) -> torch.Tensor:
            for each in self.l:
                x = each(x)
            return self.l[0](x)

    graph = fx.Tracer().trace(Looped())
    assert str(graph) == text("""
        graph():
            %x : torch.Tensor [num_users=1] = placeholder[target=x]
            %n : int [num_users=0] = placeholder[target=n](default=2)
            %l_0 : [num_users=1] = call_module[target=l.0](args = (%x,), kwargs = {})
            %l_1 : [num_users=1] = call_module[target=l.1](args = (%l_0,), kwargs = {})
            %l_2 : [num_users=1] = call_module[target=l.0](args = (%l_1,), kwargs = {})
            return l_2
        """)
    nodes = {node.name: node for node in graph.nodes}
    assert list(nodes["l_2"].meta["nn_module_stack"]) == ["l.0@1"] and list(nodes["l_0"].users) == [nodes["l_1"]]
    assert (
        nodes["l_1"].all_input_nodes == [nodes["l_0"]]
        and nodes["l_0"] < nodes["l_1"]
        and graph.output_node().type is torch.Tensor
    )
    assert graph.find_nodes(op="call_module", target="l.0") == [nodes["l_0"], nodes["l_2"]]


def test_concrete_arguments() -> None:
    def program(x, flag, t):
        if flag:
            x = x + 1
        return x * t[0] + t[1]["a"]

    traced = fx.symbolic_trace(program, concrete_args={"flag": True})
    assert code(traced).splitlines()[:3] == [
        "def forward(self, x, flag_1, t):",
        "    eq = flag_1 == True;  flag_1 = None",
        "    _assert = torch._assert(eq, 'flag has been specialized to have value True but got another value');  eq = _assert = None",
    ]
    assert traced(1, True, (2, {"a": 3})) == 7
    with pytest.raises(AssertionError, match="flag has been specialized to have value True"):
        traced(1, False, (2, {"a": 3}))
    nested = fx.symbolic_trace(program, concrete_args={"flag": False, "t": [fx.PH, {"a": 3}]})
    assert "x, flag_1, t_1, t_2, = fx_pytree.tree_flatten_spec([x, flag, t], self._in_spec)" in nested.code
    assert "return pytree.tree_unflatten([add], self._out_spec)" in nested.code
    assert nested(1, False, [2, {"a": 3}]) == 5


@pytest.mark.parametrize(
    ("program", "kind", "said"),
    [
        (lambda x: 1 if x > 0 else 2, fx.proxy.TraceError, "symbolically traced variables cannot be used as inputs to control flow"),
        (lambda x: list(x), fx.proxy.TraceError, "Proxy object cannot be iterated"), (lambda x: len(x), RuntimeError, "'len' is not supported"),
        (lambda x: range(x), TypeError, "'Proxy' object cannot be interpreted as an integer"), (lambda x: int(x), TypeError, "not 'Proxy'"),
        (lambda x: x.foo(object()), NotImplementedError, "argument of type: <class 'object'>"), (lambda **k: {**k}, fx.proxy.TraceError, "cannot be iterated"),
        (lambda x: {"a": {x: 1}}, RuntimeError, "Keys for dictionaries used as an argument cannot contain a Node"),
    ],
)  # fmt: skip
def test_what_cannot_be_traced(program: Callable[..., Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        fx.symbolic_trace(program)
    assert not fx._symbolic_trace.is_fx_tracing() and nn.Linear(1, 1)(torch.ones(1, 1)).shape == (
        1,
        1,
    )  # all that was changed meanwhile is as it was


def test_a_graph_by_hand_and_its_changes() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.add, (x, 1))
    z = graph.call_method("relu", (y,))
    a = graph.create_node("call_function", operator.add, (z, x), name="class")
    graph.output((a, z))
    graph.lint()
    assert graph.python_code("self").src.strip() == text("""
        def forward(self, x):
            add = torch.add(x, 1)
            relu = add.relu();  add = None
            class_1 = relu + x;  x = None
            return (class_1, relu)
        """)
    module = fx.GraphModule({}, graph)
    assert [value.tolist() for value in module(torch.ones(2))] == [[3.0, 3.0], [2.0, 2.0]]
    with graph.inserting_after(y):
        negative = graph.call_function(operator.neg, (y,))
    z.replace_input_with(y, negative)
    with pytest.raises(RuntimeError, match=r"Tried to erase Node add but it still had 1 users"):
        graph.erase_node(y)
    assert not graph.eliminate_dead_code()
    module.recompile()
    assert [value.tolist() for value in module(torch.ones(2))] == [[1.0, 1.0], [0.0, 0.0]]
    z.replace_all_uses_with(x)
    assert graph.eliminate_dead_code() and len(graph.nodes) == 3 and str(a.args) == "(x, x)"
    with pytest.raises(TypeError, match="does not support mutation"):
        graph.output_node().args[0].append(x) if isinstance(
            graph.output_node().args[0], list
        ) else fx.immutable_collections.immutable_list().append(x)
    with pytest.raises(RuntimeError, match="was used before it has been defined"):
        x.append(a)
        a.append(x)
        graph.lint()


def test_patterns() -> None:
    traced = fx.symbolic_trace(lambda x, y: torch.add(x, y) + torch.add(torch.add(x, y), x))
    found = fx.replace_pattern(traced, lambda a, b: torch.add(a, b), lambda a, b: torch.mul(a, b).neg())
    assert len(found) == 3 and sum(node.target is torch.mul for node in traced.graph.nodes) == 3
    x, y = torch.tensor([2.0]), torch.tensor([3.0])
    assert traced(x, y).item() == -(2 * 3) - (-(2 * 3) * 2)

    class Other(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(torch.sub if target is torch.mul else target, args, kwargs)

    assert Other(traced).transform()(x, y).item() == -(2 - 3) - (-(2 - 3) - 2)
    assert fx.Interpreter(traced).run(x, y).item() == traced(x, y).item()
    kept = fx.symbolic_trace(lambda x: (torch.relu(x).neg(), torch.relu(x)))
    assert not fx.subgraph_rewriter.replace_pattern_with_filters(
        kept, lambda a: torch.relu(a).neg(), lambda a: a, [lambda match, graph, pattern: False]
    )
    shared = fx.symbolic_trace(lambda x: (lambda r: r.neg() + r)(torch.relu(x)))
    assert not fx.replace_pattern(
        shared, lambda a: torch.relu(a).neg(), lambda a: a
    )  # what is inside of the pattern is used outside


def test_tracers_of_ones_own() -> None:
    class Whole(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return isinstance(m, nn.Sequential)

    net = Net()
    tracer = Whole()
    graph = tracer.trace(net)
    assert [node.target for node in graph.nodes if node.op == "call_module"] == ["seq"]
    assert [node.target for node in graph.nodes if node.op == "get_attr"][:2] == ["lin.weight", "lin.bias"]
    made = fx.GraphModule(tracer.root, graph)
    assert torch.equal(made(torch.ones(1, 4))["o"], net(torch.ones(1, 4))["o"])
    made.delete_all_unused_submodules()
    assert sorted(name for name, _ in made.named_children()) == ["lin", "seq"]


def test_shapes() -> None:
    traced = fx.symbolic_trace(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()))
    from rushlight.fx.passes.shape_prop import ShapeProp

    ShapeProp(traced).propagate(torch.ones(2, 1, 5, 5).to(memory_format=torch.channels_last))
    meta = traced.graph.output_node().meta["tensor_meta"]
    assert meta.shape == (2, 2, 3, 3) and meta.dtype is torch.float32 and meta.requires_grad


def test_folders(tmp_path, monkeypatch) -> None:
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    traced.to_folder(tmp_path / "made", "Made")
    written = (tmp_path / "made" / "module.py").read_text()
    assert "class Made(torch.nn.Module):" in written and 'getattr(self, "0")' in written
    space: dict[str, Any] = {}
    ours = written.replace("import torch", "import rushlight as torch", 1).replace("from torch.nn", "from rushlight.nn")
    exec(compile(ours, "module.py", "exec"), space)  # noqa: S102 - what was written is run
    assert torch.equal(space["Made"]()(torch.ones(1, 2)), traced(torch.ones(1, 2)))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.inner = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4))
        self.w = nn.Parameter(torch.ones(4))

    def forward(self, x):
        y = self.a(x).relu()
        z = self.inner(y) + self.w
        return z * torch.sigmoid(y)


def test_split_modules() -> None:
    from rushlight.fx.passes.split_module import split_module

    model = Branches()
    traced, first = fx.symbolic_trace(model), ("a", "relu", "inner_0")
    names: dict[str, str] = {}
    made = split_module(traced, model, lambda node: int(node.name not in first), names)
    assert code(made) == text("""
        def forward(self, x):
            w = self.w
            submod_0 = self.submod_0(x);  x = None
            getitem = submod_0[0]
            getitem_1 = submod_0[1];  submod_0 = None
            submod_1 = self.submod_1(getitem, w, getitem_1);  getitem = w = getitem_1 = None
            return submod_1
    """)
    assert code(made.submod_1) == text("""
        def forward(self, inner_0, w, relu):
            add = inner_0 + w;  inner_0 = w = None
            sigmoid = torch.sigmoid(relu);  relu = None
            mul = add * sigmoid;  add = sigmoid = None
            return mul
    """)
    x = torch.randn(2, 4)
    torch.testing.assert_close(made(x), model(x))
    assert (
        names == {"submod_0.a": "a", "submod_0.inner_0": "inner.0"} and made.submod_0.a is model.a and made.w is model.w
    )
    alone = split_module(traced, model, lambda node: 0, tuple_return=True)
    assert "return (mul,)" in alone.submod_0.code and torch.equal(alone(x), model(x))
    with pytest.raises(RuntimeError, match="cycle exists"):
        split_module(traced, model, lambda node: int(node.name == "relu"))


def test_batch_normalisation_is_folded_into_convolutions() -> None:
    from rushlight.fx.experimental.optimization import fuse, remove_dropout

    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 1),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.Dropout(0.9),
    )
    layers[1].running_mean.normal_(), layers[1].running_var.uniform_(0.5, 2)
    model, x = nn.Sequential(layers, nn.Linear(4, 2)).eval(), torch.randn(1, 3, 6, 6)
    made = fuse(model)
    assert [node.target for node in made.graph.nodes if node.op == "call_module"] == [
        "0.0",
        "0.2",
        "0.3",
        "0.4",
        "0.5",
        "1",
    ]
    torch.testing.assert_close(made(x), model(x), rtol=1e-4, atol=1e-5)
    assert isinstance(model[0][1], nn.BatchNorm2d) and made.get_submodule("0.0") is not model[0][0]
    kept = remove_dropout(model.train())
    assert not any(isinstance(module, nn.Dropout) for module in kept.modules())


@pytest.mark.parametrize(
    ("program", "shape", "value"),
    [
        (lambda x: sum(x), [fx.PH, fx.PH, fx.PH], [1.0, 2.0, 4.0]),
        (lambda x: x["a"][0] - x["b"], {"a": (fx.PH,), "b": fx.PH}, {"a": (5.0,), "b": 2.0}),
        (lambda x: [x["a"] * 3], {"a": fx.PH}, {"a": 2.0}),
    ],
)
def test_pickled_graphs_take_nested_values_as_before(program: Any, shape: Any, value: Any) -> None:
    traced = fx.symbolic_trace(program, concrete_args={"x": shape})
    again = pickle.loads(pickle.dumps(traced))
    assert again.code == traced.code
    assert again(value) == traced(value) == program(value)


class Rectified(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + 1


@pytest.mark.parametrize("compiled", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(2))])
def test_compiled_modules_are_called_by_graphs(compiled: Callable[[nn.Module], Any]) -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part, self.parts = compiled(Rectified()), nn.ModuleList([compiled(Rectified())])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.parts[0](self.part(x) * 2)

    model, x = Holder(), torch.tensor([-1.0, 3.0])
    traced = fx.symbolic_trace(model)
    assert [n.op for n in traced.graph.nodes if n.target == "forward"] == ["call_method"] * 2
    assert traced(x).tolist() == model(x).tolist() == [3.0, 9.0]
