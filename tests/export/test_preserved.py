"""Submodules whose calls keep their signatures, through `unflatten`, decompositions and files."""

from __future__ import annotations

import io
from typing import Any

import pytest

import rushlight as torch

Tensor = torch.Tensor


class Sub(torch.nn.Module):
    """Takes and gives structures."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, d: dict[str, Tensor], y: Any = None, *, k: float = 1.0) -> dict[str, Any]:
        z = self.linear(d["a"]).add(y[0])
        return {"o": z, "p": (torch.nn.functional.gelu(z * k), d["a"])}


class Twice(torch.nn.Module):
    """Calls one submodule twice, with other constants where they are given."""

    def __init__(self, second: float) -> None:
        super().__init__()
        self.sub, self.second = Sub(), second

    def forward(self, x: Tensor) -> Tensor:
        r = self.sub({"a": x}, (x + 1,), k=2.0)
        q = self.sub({"a": r["o"]}, (x,), k=self.second)
        return r["p"][0] + q["o"] + q["p"][0] + q["p"][1]


def _program(second: float, **options: Any) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    net, x = Twice(second), torch.randn(2, 3)
    return net, x, torch.export.export(net, (x,), preserve_module_call_signature=("sub",), **options)


def test_entries_name_leaves() -> None:
    _, _, program = _program(1.0)
    rows = {entry.fqn: entry.signature for entry in program.module_call_graph}
    assert list(rows) == ["", "sub", "sub.linear", "sub@1"] and rows["sub.linear"] is None
    assert [each.name for each in rows["sub"].inputs] == ["x", "add", ""] and rows["sub"].inputs[2].value == 2.0
    assert [each.name for each in rows["sub"].outputs] == ["add_1", "gelu", "x"]
    assert rows["sub"].out_spec == torch.utils._pytree.tree_structure({"o": 0, "p": (0, 0)})


@pytest.mark.parametrize("second", [2.0, 1.0])
def test_a_submodule_is_called_as_in_python(second: float) -> None:
    net, x, program = _program(second)
    flat = torch.export.unflatten(program)
    assert torch.equal(flat(x), net(x)) and torch.equal(flat(x), net(x))
    is_one = type(flat.sub).__name__ == "InterpreterModule"
    assert is_one == (second == 2.0) and dict(flat.named_parameters()).keys() == dict(net.named_parameters()).keys()
    made, wanted = flat.sub({"a": x}, (x,), k=2.0), net.sub({"a": x}, (x,), k=2.0)
    assert made.keys() == wanted.keys() and torch.equal(made["p"][0], wanted["p"][0])
    with pytest.raises(TypeError, match=r"further arguments \['k'\]"):
        torch.export.unflatten(program).sub({"a": x}, (x,))


def test_another_module_takes_its_place() -> None:
    net, x, program = _program(1.0)
    flat, other = torch.export.unflatten(program), Sub()
    flat.sub = other
    net.sub = other
    assert torch.equal(flat(x), net(x))


def test_decompositions_and_files_keep_the_calls() -> None:
    net, x, program = _program(1.0)
    lower = program.run_decompositions()
    assert len(list(lower.graph.output_node().args[0])) == 1
    assert torch.allclose(torch.export.unflatten(lower)(x), net(x))
    known = {node.name for node in lower.graph.nodes}
    for entry in lower.module_call_graph[1:]:
        for each in () if entry.signature is None else (*entry.signature.inputs, *entry.signature.outputs):
            assert not each.name or each.name in known
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    assert torch.equal(torch.export.unflatten(torch.export.load(file))(x), net(x))


def test_sizes_that_vary_are_read_inside() -> None:
    class Rows(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(x.shape[0] * 3) * x.shape[0]

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = Rows()

        def forward(self, x: Tensor) -> Tensor:
            return self.rows(x + 1) + x.shape[0]

    net, x = Net(), torch.randn(4, 3)
    program = torch.export.export(
        net, (x,), dynamic_shapes=({0: torch.export.Dim("n")},), preserve_module_call_signature=("rows",)
    )
    flat = torch.export.unflatten(program)
    for count in (4, 7):
        assert torch.equal(flat(torch.ones(count, 3)), net(torch.ones(count, 3)))


def test_what_does_not_fit_is_said() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sub = Sub()

        def forward(self, x: Tensor) -> Tensor:
            return self.sub({"a": x}, (x,), k=1.0)["o"] + self.sub({"a": x}, y=(x,))["o"]

    x = torch.randn(2, 3)
    with pytest.raises(AttributeError, match="nope"):
        torch.export.export(Net(), (x,), preserve_module_call_signature=("nope",))
    with pytest.raises(AssertionError, match="in_spec mismatch for sub"):
        torch.export.export(Net(), (x,), preserve_module_call_signature=("sub",))
