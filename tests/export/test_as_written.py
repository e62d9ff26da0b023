"""What exported programs ask of their inputs and how their operators are written, beside what PyTorch 2.13 gave."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch
from rushlight.export import Dim, export


def program(function: Any, *args: Any, shapes: Any = None) -> Any:
    class Model(torch.nn.Module):
        def forward(self, x: Any, y: Any = None) -> Any:
            return function(x) if y is None else function(x, y)

    return export(Model(), args, dynamic_shapes=shapes)


def written(made: Any, name: str) -> list[str]:
    """The calls of an operator, as the code shows them."""
    lines = [line.split(";")[0].strip() for line in made.graph_module.code.splitlines()]
    return [line.partition(" = ")[2].removeprefix("torch.ops.aten.") for line in lines if f"aten.{name}" in line]


def test_casts_are_one_operator_behind_a_check() -> None:
    as_they_are = {
        "to.dtype(x, torch.float16)": lambda x: x.half(),
        "to.dtype(x, torch.float32)": lambda x: x.float(),
        "to.dtype(x, torch.int32)": lambda x: x.type(torch.int32),
        "to.dtype(x, torch.int64, False, True)": lambda x: x.to(torch.int64, copy=True),
        "to.device(x, device(type='cpu'), torch.float32)": lambda x: x.to(x),
        "to.dtype_layout(x, dtype = torch.float32, layout = torch.strided, device = device(type='cpu'))": lambda x: (
            x.cpu()
        ),
    }
    for text, function in as_they_are.items():
        made = program(function, torch.ones(3))
        assert written(made, "to.") == [text]
        assert made.module()(torch.ones(3)).tolist() == [1, 1, 1]
        assert written(made, "_assert_tensor_metadata") == [
            "_assert_tensor_metadata.default(x, dtype = torch.float32, device = device(type='cpu'), layout = torch.strided)"
        ]
    with pytest.raises(RuntimeError, match="dtype mismatch"):
        program(lambda x: x.double(), torch.ones(3)).module()(torch.ones(3, dtype=torch.float64))


def test_checks_outlive_dead_code() -> None:
    made = program(lambda x: x.float(), torch.ones(3)).module()
    made.graph.eliminate_dead_code()
    assert any("_assert_tensor_metadata" in str(node.target) for node in made.graph.nodes)


def test_a_number_read_twice_is_one_symbol_until_something_is_written() -> None:
    twice = program(lambda x, y: (y[: x.item()], y[: x.item()]), torch.tensor(3), torch.ones(5))
    ranges = [str(each) for each in twice.range_constraints.values()]  # the number's, and that of each length
    assert ranges == ["VR[-int_oo, int_oo]", "VR[0, 5]", "VR[0, 5]"]

    def changed(x: Any) -> Any:
        before, view = x.item(), x.view(1)
        view.add_(1)
        return before + x.item()

    assert program(changed, torch.tensor(3)).module()(torch.tensor(5)) == 11


def test_slices_by_symbols_leave_out_what_they_leave_out() -> None:
    made = program(lambda x: (x[: x.shape[0] - 1], x[x.shape[0] // 2 :]), torch.ones(6), shapes=({0: Dim.DYNAMIC},))
    assert written(made, "slice") == ["slice.Tensor(x, 0, None, sub)", "slice.Tensor(x, 0, floordiv)"]
    assert [len(part) for part in made.module()(torch.ones(9))] == [8, 5]


def test_results_whose_sizes_elements_tell() -> None:
    made = program(lambda x, y: (x.bincount(y), torch.argwhere(x)), torch.tensor([1, 2, 2]), torch.ones(3)).module()
    counts, places = made(torch.tensor([0, 3, 3]), torch.tensor([1.0, 2.0, 0.5]))
    assert (counts.tolist(), places.tolist()) == ([1.0, 0.0, 0.0, 2.5], [[1], [2]])


def test_bounds_of_hints() -> None:
    both = {"x": (Dim.AUTO(min=4),), "y": (Dim.DYNAMIC(max=16),)}
    made = program(lambda x, y: x + y, torch.ones(6), torch.ones(6), shapes=both)
    assert [(int(r.lower), int(r.upper)) for r in made.range_constraints.values()] == [(4, 16)]
    for size in (3, 17):
        with pytest.raises(AssertionError, match="Guard failed"):
            made.module()(torch.ones(size), torch.ones(size))
    text = r"min/max range of \[None, 5\], conflicting with the inferred min/max range of \[8, int_oo\], for inputs\['x'\].shape\[0\]"
    with pytest.raises(ValueError, match=text):
        program(lambda x: x[6:], torch.ones(8), shapes={"x": (Dim.DYNAMIC(max=5),)})
    with pytest.raises(ValueError, match=r"\[6, 8\], conflicting with the inferred min/max range of \[4, 4\]"):
        program(lambda x: x + 1, torch.ones(4), shapes={"x": (Dim.STATIC(min=6, max=8),)})


def test_a_size_may_equal_a_product() -> None:
    free = Dim.DYNAMIC
    made = program(lambda x, y: x.flatten() + y, torch.ones(4, 5), torch.ones(20), shapes=((free, free), (free,)))
    ranges = {str(size): int(bounds.lower) for size, bounds in made.range_constraints.items()}
    assert sorted(ranges.values()) == [2, 2, 4]
    assert sum("*" in size for size in ranges) == 1


def test_constants_that_the_program_writes() -> None:
    class Writes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = torch.zeros(2)

        def forward(self, x: Any) -> Any:
            self.total.add_(1)
            return self.total + x

    made = export(Writes(), (torch.ones(2),))
    with pytest.raises(RuntimeError, match="Constant total is mutated in the forward method"):
        made.run_decompositions()


def test_names_and_results_of_sizes() -> None:
    made = program(lambda x, y: (x[0] + x.shape[0] + x.shape[1] + y, x.shape[0]), torch.ones(2, 3), torch.ones(3),
                   shapes={"x": (Dim("a"), Dim("b")), "y": (Dim("b"),)})  # fmt: skip
    value, size = made.module()(torch.ones(4, 2), torch.ones(2))
    assert (value.tolist(), size) == ([8.0, 8.0], 4)

    class Nested(torch.nn.Module):
        def forward(self, x: Any, x_foo: Any, x_foo_0: Any) -> Any:
            return x["foo"][0] + x_foo[0] + x_foo_0

    one = torch.ones(1)
    signature = export(Nested(), ({"foo": [one]}, (one,), one)).graph_signature
    assert [spec.arg.name for spec in signature.input_specs] == ["x_foo_0", "x_foo_0_1", "x_foo_0_2"]


def test_the_mode_of_gradients_is_left_as_it_was() -> None:
    def ends_without(x: Any) -> Any:
        torch._C._set_grad_enabled(False)
        return x.sum()

    program(ends_without, torch.ones(2))
    assert torch.is_grad_enabled()
