"""Functions that a trace may not run say so where they are defined (`_base/trace_marks.py`): the graph breaks at their calls."""

from __future__ import annotations

import io
import re
import types
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight._base.trace_marks import ADDRESS, ADDS_HOOK, CHANGES, reason_to_break

PACKAGE = Path(torch.__file__).parent
# Functions named like setters that programs do not call: they are parts of others, or change an object that they are given.
PARTS = {
    "_dynamo/compiled_autograd.py", "_functorch/dim/indexing.py", "ao/quantization/fuse_modules.py", "autograd/gradcheck.py",
    "distributed/checkpoint/_nested_dict.py", "distributed/checkpoint/state_dict_saver.py", "export/unflatten.py", "jit/runtime/compiler.py",
    "jit/runtime/operators.py", "jit/serialization/printer.py", "nn/modules/conversion.py", "serialization/unpickler.py",
    "utils/data/_utils/signal_handling.py",
}  # fmt: skip
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


def test_functions_that_set_something_are_marked() -> None:
    """A setter that a trace ran would set nothing when the program is called again."""
    setter = re.compile(r"((?:^@.*\n)*)^def (_?(?:set|enable|disable)_(?!rng_state)[a-z]\w*)\(", re.MULTILINE)
    lacking = []
    for page in PACKAGE.rglob("*.py"):
        path = page.relative_to(PACKAGE).as_posix()
        if path not in PARTS and (not path.startswith("_") or path.startswith(("_C/", "_surface/", "_logging/"))):
            found = setter.findall(page.read_text(encoding="utf-8"))
            lacking += [f"{path}: {name}" for marks, name in found if not re.search("later_calls|breaks_trace", marks)]
    assert not lacking
