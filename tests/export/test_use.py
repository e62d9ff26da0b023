"""What programs do with exported programs: `unflatten`, dataclasses, errors of sizes, drafts, rules of one's own."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import pytest

import rushlight as torch
from rushlight.export import Dim, ShapesCollection
from rushlight.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Any, k: Any = None) -> Any:
        self.count.add_(1)
        return {"o": self.linear(x).relu() + self.count, "p": (x * 2,)}


class Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = Inner()
        self.b = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())

    def forward(self, x: Any) -> Any:
        y = self.a(x, k=x + 1)["o"]
        return self.b(y) + self.b(x) + self.a(y)["p"][0]


def test_unflatten_gives_modules_like_the_original_ones() -> None:
    net, x = Outer(), torch.rand(2, 3)
    module = torch.export.unflatten(torch.export.export(net, (x,)))
    names = [name for name, _ in module.named_modules()]  # as PyTorch 2.13 gives them
    assert names == ["", "a", "a.linear", "b", "b.0", "b.1", "a@1"]
    assert [name for name, _ in module.named_parameters()] == [
        "a.linear.weight",
        "a.linear.bias",
        "b.0.weight",
        "b.0.bias",
    ]
    calls = [str(n.target) for n in module.graph.nodes if n.op == "call_module"]
    assert calls == ["a", "b", "b", "a@1"]
    assert torch.equal(module(x), net(x)) and torch.equal(module(x), net(x))
    with pytest.raises(AssertionError, match="Guard failed"):
        module(torch.rand(2, 4))
    with pytest.raises(TypeError, match="flat args adapter"):
        module(x, x)


def test_unflatten_takes_other_structures_by_an_adapter() -> None:
    class Pairs(torch.export.FlatArgsAdapter):
        def adapt(
            self, target_spec: Any, input_spec: Any, input_args: Any, metadata: Any = None, obj: Any = None
        ) -> Any:
            return input_args[:1]

    x = torch.rand(2, 3)
    module = torch.export.unflatten(torch.export.export(torch.nn.ReLU(), (x,)), Pairs())
    assert torch.equal(module((x, x)), x.relu())


@dataclasses.dataclass
class Pair:
    x: Any
    y: Any = None


torch.export.register_dataclass(Pair, serialized_type_name="tests.export.Pair")


def test_dataclasses_are_inputs_and_results() -> None:
    class Swap(torch.nn.Module):
        def forward(self, pair: Any) -> Any:
            return Pair(pair.y + 1, pair.x)

    one, two = torch.ones(2), torch.zeros(2)
    program = torch.export.export(Swap(), (Pair(one, two),))
    assert [s.arg.name for s in program.graph_signature.input_specs] == ["pair_x", "pair_y"]
    found = program.module()(Pair(two, one))
    assert isinstance(found, Pair) and torch.equal(found.x, one + 1) and torch.equal(found.y, two)


# ***** sizes *****


def module(forward: Any) -> Any:
    return type("M", (torch.nn.Module,), {"forward": forward})()


BATCH = Dim("batch")
VIOLATED = [  # what PyTorch 2.13 suggests
    (lambda self, x: x * 2 if x.shape[0] > 3 else x, {0: BATCH}, "batch = Dim('batch', min=4)"),
    (lambda self, x: x * 2 if x.shape[0] <= 9 else x, {0: Dim("batch", max=20)}, "batch = Dim('batch', max=9)"),
    (lambda self, x: x + torch.ones(8, 3), {0: BATCH}, "batch = 8"),
]


@pytest.mark.parametrize(("forward", "dims", "fix"), VIOLATED)
def test_a_broken_promise_names_its_mend(forward: Any, dims: Any, fix: str) -> None:
    x = torch.ones(8, 3)
    with pytest.raises(torch._dynamo.exc.UserError, match="Constraints violated") as caught:
        torch.export.export(module(forward), (x,), dynamic_shapes={"x": dims})
    text = str(caught.value)
    assert text.split("Suggested fixes:\n")[1].split("\n")[0].strip() == fix
    mended = refine_dynamic_shapes_from_suggested_fixes(text, {"x": dims})
    torch.export.export(module(forward), (x,), dynamic_shapes=mended)


def test_two_dims_that_must_be_equal_are_named() -> None:
    x = torch.ones(4, 3)
    add = module(lambda self, x, y: x + y)
    with pytest.raises(torch._dynamo.exc.UserError, match="must always be equal") as caught:
        torch.export.export(add, (x, x.clone()), dynamic_shapes=({0: Dim("a")}, {0: Dim("b")}))
    assert "b = a" in str(caught.value)
    program = torch.export.export(add, (x, x.clone()), dynamic_shapes=({0: Dim.AUTO}, {0: Dim.AUTO}))
    run = program.module()
    assert run(torch.ones(7, 3), torch.ones(7, 3)).shape == (7, 3)
    with pytest.raises(AssertionError, match="Guard failed"):
        run(torch.ones(7, 3), torch.ones(1, 3))


def test_specs_that_fit_no_argument_are_refused() -> None:
    net, x = module(lambda self, x, y: x), torch.ones(4, 3)
    for shapes, match in (
        ({"x": None}, "top-level keys"),
        ({"x": {0: BATCH}, "z": None}, "top-level keys"),
        (((BATCH, None, None), None), "same length"),
        (({4: BATCH}, None), "Unexpected key 4"),
        (({0: "batch"}, None), "Unexpected dimension"),
        (({0: BATCH}, {0: BATCH}), "non-tensor"),
        (({0: Dim("batch", max=3)}, None), "not in range"),
        (({0: 5}, None), "Static shape constraint of 5"),
    ):
        with pytest.raises((torch._dynamo.exc.UserError, RuntimeError), match=match):
            torch.export.export(net, (x, "text"), dynamic_shapes=shapes)


def test_shapes_by_tensor_and_by_examples() -> None:
    net, x = module(lambda self, d: d["a"][0] * 2), torch.ones(4, 3)
    shapes = ShapesCollection()
    shapes[x] = {0: Dim.DYNAMIC}
    run = torch.export.export(net, ({"a": [x]},), dynamic_shapes=shapes).module()
    assert run({"a": [torch.ones(9, 3)]}).shape == (9, 3)
    inputs = torch.export.AdditionalInputs()
    inputs.add(({"a": [torch.ones(6, 3)]},))
    program = torch.export.export(net, ({"a": [x]},), dynamic_shapes=inputs)
    inputs.verify(program)
    with pytest.raises(AssertionError):
        program.module()({"a": [torch.ones(4, 4)]})


def test_a_draft_drops_promises_and_says_so() -> None:
    net, x = module(lambda self, x: x + torch.ones(8, 3)), torch.ones(8, 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = torch.export.draft_export(net, (x,), dynamic_shapes={"x": {0: BATCH}})
    assert not program._report.successful() and "specialized" in str(caught[-1].message)
    assert torch.equal(program.module()(x), x + 1)
    assert torch.export.draft_export(net, (x,))._report.successful()


def test_rules_of_ones_own() -> None:
    program = torch.export.export(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Hardswish()), (torch.ones(2, 3),))

    def names(table: Any = None) -> list[str]:
        graph = program.run_decompositions(table).graph
        return [n.target._opname for n in graph.nodes if n.op == "call_function"]

    assert names() == ["permute", "addmm", "add", "clamp", "clamp", "mul", "div"]
    assert names({}) == ["linear", "hardswish"]
    table = torch.export.default_decompositions()
    table.pop(torch.ops.aten.linear.default)
    assert names(table) == ["linear", "add", "clamp", "clamp", "mul", "div"]
    aten = torch.ops.aten
    assert names({aten.hardswish.default: lambda x: aten.relu.default(x)}) == ["linear", "relu"]


def test_graphs_that_are_none_are_refused() -> None:
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    with pytest.raises(RuntimeError, match="Unable to call"):
        program(torch.ones(2))
    output = program.graph.output_node()
    output.args = ((*output.args[0], output.args[0][0]),)
    with pytest.raises(torch._export.verifier.SpecViolationError):
        program.validate()


class Named(torch.nn.Module):
    def forward(self, a: Any, b: Any, first: Any, second: Any) -> Any:
        return a.sum() + b.sum() + first.sum() - second.sum()


def test_a_list_of_sizes_follows_the_parameters_whatever_the_order_of_names() -> None:
    x, y, first, second = (torch.ones(4, 2) for _ in range(4))
    sizes = (None, None, {0: Dim("n")}, None)
    program = torch.export.export(Named(), (x, y), {"second": second, "first": first}, dynamic_shapes=sizes)
    assert program.module()(x, x, second=x, first=torch.ones(9, 2)).item() == 8 + 8 + 18 - 8
    with pytest.raises(AssertionError, match="second"):
        program.module()(x, x, second=torch.ones(9, 2), first=x)


class Checked(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        torch.ops.aten._assert_async.msg((x > 0).all(), "not positive")
        return x + 1


def test_assertions_of_elements_are_part_of_the_program() -> None:
    program = torch.export.export(Checked(), (torch.ones(2),))
    assert "torch.ops.aten._assert_async.msg" in program.graph_module.code
    for each in (program, program.run_decompositions()):
        assert each.module()(torch.ones(2)).tolist() == [2.0, 2.0]
        with pytest.raises(RuntimeError, match="not positive"):
            each.module()(torch.zeros(2))


def test_fake_arguments_and_parameters_are_taken() -> None:
    from rushlight._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        layer, x = torch.nn.Linear(3, 2), torch.empty(5, 3)
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: Dim("n")},))
    assert [n.target for n in program.graph.nodes if n.op == "call_function"] == [torch.ops.aten.linear.default]
    value = torch.ones(2, 3)
    program = torch.export.export(torch.nn.ReLU(), (x,), dynamic_shapes=({0: Dim("n")},))
    assert torch.equal(program.module()(value), value)


def test_a_script_is_refused_and_a_constant_predicate_warned_of() -> None:
    with pytest.raises(ValueError, match="ScriptModule is not supported"):
        torch.export.export(torch.jit.script(torch.nn.ReLU()), (torch.ones(2),))

    class Branch(torch.nn.Module):
        def forward(self, p: bool, x: Any) -> Any:
            return torch.cond(p, lambda x: x.sin(), lambda x: x.cos(), (x,))

    with pytest.warns(UserWarning, match="Pred is a Python constant"):
        program = torch.export.export(Branch(), (True, torch.ones(2)))
    assert "sin" in program.graph_module.code and "cos" not in program.graph_module.code


class Sound(torch.nn.Module):
    def forward(self, spectrum: Any) -> Any:
        return torch.istft(spectrum, 16, 4, window=torch.hann_window(16))


def test_the_check_of_a_window_waits_for_its_elements() -> None:
    x = torch.randn(1, 9, 8, dtype=torch.complex64)
    program = torch.export.export(Sound(), (x,))
    assert torch.equal(program.module()(x), Sound()(x))


@pytest.mark.parametrize("nested", [False, True])
def test_lengths_of_encoders_may_vary(nested):
    """Looking for a causal mask, an encoder must not read the length as a number."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()
    program = torch.export.export(encoder, (torch.randn(2, 5, 8),), dynamic_shapes=({1: Dim("length", min=2, max=64)},))
    for length in (2, 9):
        x = torch.randn(2, length, 8)
        assert torch.equal(program.module()(x), encoder(x))


class Colliding(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.param = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("alpha", torch.full((2,), 2.0))
        self.gamma = torch.full((2,), 3.0)

    def forward(self, p: Any, b_alpha: Any, c_gamma: Any) -> Any:
        return p["param"] + self.param, self.alpha - b_alpha, self.gamma * c_gamma


def test_arguments_keep_names_that_parameters_and_constants_would_have():
    given = {"param": torch.ones(2)}, torch.ones(2), torch.full((2,), 5.0)
    program = torch.export.export(Colliding(), given)
    names = [spec.arg.name for spec in program.graph_signature.input_specs]
    assert names == ["p_param_1", "b_alpha_1", "c_gamma_1", "p_param", "b_alpha", "c_gamma"]  # as PyTorch 2.13
    for form in (program, program.run_decompositions()):
        assert [x.tolist() for x in form.module()(*given)] == [[2.0, 2.0], [1.0, 1.0], [15.0, 15.0]]


class Fraction(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.item()


def test_a_number_with_a_fraction_may_be_the_result():
    assert torch.export.export(Fraction(), (torch.tensor([3.5]),)).module()(torch.tensor([2.5])) == 2.5


class Related(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        a, b = x.tolist()
        torch._check(a >= 0)
        torch._check(b >= 0)
        torch._check(a + b == y.size(0))
        torch._check(a % 2 == 0)
        torch._check(b != 3)
        return y.sum() + a * b


def test_what_relates_elements_and_sizes_is_checked_when_the_program_runs(tmp_path):
    shapes = {"x": None, "y": {0: Dim("length", min=2)}}
    program = torch.export.export(Related(), (torch.tensor([4, 6]), torch.ones(10)), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "checked.pt2")
    for form in (program, program.run_decompositions(), torch.export.load(tmp_path / "checked.pt2")):
        run = form.module()
        assert run(torch.tensor([4, 6]), torch.ones(10)) == 34 and run(torch.tensor([2, 5]), torch.ones(7)) == 17
        for elements, length in (([4, 6], 11), ([3, 6], 9), ([4, 3], 7)):
            with pytest.raises(RuntimeError, match="Runtime assertion failed"):
                run(torch.tensor(elements), torch.ones(length))
