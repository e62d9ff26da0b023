"""Graphs from their text, the nodes that programs build, and passes over graphs under PyTorch's names."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch
from rushlight.jit.ir.parsing import parse_type


def looped(x, n: int):  # type: ignore[no-untyped-def]
    y = x
    for i in range(n):
        if i > 2:
            y = y + x * i
        else:
            y = y - 1
    return y, [n, 2], "a'b\n"


def read(text: str, **options: Any) -> Any:
    return torch._C.parse_ir(text, **options)


def test_a_printed_graph_is_read_and_runs() -> None:
    graph = read(torch.jit.script(looped).graph.str(False))
    again = read(graph.str(False))
    assert graph.str(False) == again.str(False)
    run = torch._C._create_function_from_graph("run", again)
    assert run(torch.ones(1), 5) == looped(torch.ones(1), 5)


def test_a_traced_graph_keeps_shapes() -> None:
    text = torch.jit.trace(lambda x: x.relu() * 2, torch.ones(1, 3)).graph.str(False)
    assert read(text, parse_tensor_constants=True).str(False) == text
    with pytest.raises(RuntimeError, match="parse_tensor_constants"):
        read(text)


def test_types_are_read_as_they_are_printed() -> None:
    texts = (
        "Tensor",
        "int[]",
        "Dict(str, Tensor?)",
        "(Tensor, int)",
        "Future(Tensor)",
        "Float(2, *, strides=[3, 1], requires_grad=0, device=cuda:0)",
    )
    for text in texts:
        assert parse_type(text).shown == text
    assert parse_type("Half(2, *)").varyingSizes() == [2, None] and parse_type("Half(2, *)").sizes() is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("graph(%0):\n  %1 = aten::relu(%9)\n  return (%1)", "Cannot find a variable with name '9'"),
        ("graph(", "expected a value"),
        ("foo", "expected graph"),
        ("graph(%0 : What):\n  return (%0)", "Unknown type name 'What'"),
        ("graph(%0):\n  return (%0)\nmore", "expected the end"),
    ],
)
def test_what_cannot_be_read_is_marked(text: str, said: str) -> None:
    with pytest.raises(RuntimeError, match=said) as met:
        read(text)
    assert "<--- HERE" in str(met.value)


def test_passes_change_graphs() -> None:
    graph = read("""
graph(%x : Tensor):
  %1 : int = prim::Constant[value=1]()
  %2 : int = prim::Constant[value=1]()
  %3 : Tensor = aten::add(%x, %x, %1)
  %4 : Tensor = aten::add(%x, %x, %2)
  %5 : Tensor = aten::mul(%3, %4)
  %6 : Tensor = aten::neg(%5)
  return (%5)""")
    torch._C._jit_pass_constant_pooling(graph)
    assert torch._C._jit_pass_cse(graph) and not torch._C._jit_pass_cse(graph)
    torch._C._jit_pass_dce(graph)
    torch._C._jit_pass_lint(graph)
    assert [n.kind() for n in graph.nodes()] == ["prim::Constant", "aten::add", "aten::mul"]
    wanted = "graph(%x : Tensor):\n  %1 : int = prim::Constant[value=1]()\n  %2 : Tensor = aten::add(%x, %x, %1)\n"
    assert str(torch._C._jit_pass_canonicalize(graph)).startswith(wanted)


def test_random_numbers_and_changes_are_not_joined() -> None:
    graph = read("""
graph(%x : Tensor):
  %1 : NoneType = prim::Constant()
  %2 : Tensor = aten::rand_like(%x, %1, %1, %1, %1, %1)
  %3 : Tensor = aten::rand_like(%x, %1, %1, %1, %1, %1)
  %4 : Tensor = aten::add(%2, %3)
  return (%4)""")
    assert not torch._C._jit_pass_cse(graph)
    changed = read("""
graph(%x : Tensor):
  %2 : Tensor = aten::neg(%x)
  %3 : Tensor = aten::neg_(%x)
  %4 : Tensor = aten::neg(%x)
  return (%2, %4)""")
    assert not torch._C._jit_pass_cse(changed)


def test_nodes_are_built_and_moved() -> None:
    graph = torch.jit.script(looped).graph.copy()
    node = graph.findNode("aten::mul")
    assert node.inputsAt(0).debugName().startswith("x") and node.schema().startswith("aten::mul.Scalar(Tensor self")
    with graph.insert_point_guard(node):
        said = graph.insertConstant("hello")
    assert said.uses() == [] and said.node().s("value") == "hello"
    made = graph.create("aten::neg", [node.output()], 1).insertAfter(node)
    made.i_("times", 3)
    assert made.i("times") == 3 and made.kindOf("times") == "i" and node.output().uses()[-1].user is made
    made.destroy()
    graph.permuteInputs([1, 0])
    assert [v.debugName() for v in graph.inputs()] == ["n.1", "x.1"]
    broken = torch._C.Graph()
    other = broken.create("aten::neg", [broken.create("aten::neg", [broken.addInput()]).output()])
    broken.appendNode(other)
    with pytest.raises(RuntimeError, match="before it is defined"):
        broken.lint()


def test_switches_give_the_value_before() -> None:
    before = torch._C._jit_set_profiling_executor(False)
    assert torch._C._jit_set_profiling_executor(before) is False
    assert torch._C.parse_schema("aten::f(int x) -> int").name == "aten::f"
    assert isinstance(torch.jit.script(looped), torch._C.ScriptFunction)
    with pytest.raises(AttributeError, match="_jit_nothing"):
        torch._C._jit_nothing()
