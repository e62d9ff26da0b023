"""Functions that a trace may not run say so where they are defined (`_base/trace_marks.py`): the graph breaks at their calls."""

from __future__ import annotations

import io
import types
from typing import Any

import pytest

import rushlight as torch
from rushlight._base.trace_marks import ADDRESS, ADDS_HOOK, CHANGES, reason_to_break

FILE = io.BytesIO()
CALLS: dict[str, Any] = {
    "manual_seed": lambda x: torch.manual_seed(3),
    "manual_seed_all": lambda x: torch.cuda.manual_seed_all(3),
    "use_deterministic_algorithms": lambda x: torch.use_deterministic_algorithms(False),
    "set_printoptions": lambda x: torch.set_printoptions(precision=4),
    "save": lambda x: torch.save(x, FILE),
    "share_memory_": lambda x: x.share_memory_(),
    "data_ptr": lambda x: x.data_ptr(),
    "untyped_storage": lambda x: x.untyped_storage(),
    "register_hook": lambda x: x.register_hook(lambda grad: grad),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_graph_breaks_at_a_marked_function(name: str) -> None:
    call = CALLS[name]

    def program(x: Any) -> Any:
        call(x)
        return x + 1

    with pytest.raises(RuntimeError, match=rf"{name}\(\)"):
        torch.compile(program, fullgraph=True)(torch.ones(2, requires_grad=name == "register_hook"))
    assert torch.compile(program)(torch.ones(2, requires_grad=name == "register_hook")).tolist() == [2.0, 2.0]


def test_a_function_of_the_same_name_breaks_nothing() -> None:
    """It was told by its name once, so any function `load` or `seed` of the package broke the graph."""

    def seed(x: Any) -> Any:
        return x * 2

    seed = types.FunctionType(seed.__code__, torch.manual_seed.__globals__, "seed")
    assert torch.compile(lambda x: seed(x) + 1, fullgraph=True)(torch.ones(2)).tolist() == [3.0, 3.0]


def test_marks_survive_where_functions_are_wrapped() -> None:
    assert reason_to_break(torch.cuda.initial_seed) is reason_to_break(torch.distributed.checkpoint.save) is CHANGES
    assert reason_to_break(torch.Tensor.storage) is ADDRESS
    assert reason_to_break(torch.Tensor.register_hook) is ADDS_HOOK
