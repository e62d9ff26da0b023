"""Small programs that run with rushlight and with real PyTorch, and what is kept of their results.

A program is a function of the library.  What it returns (tensors, numbers, text, nested tuples and lists) is written down: of tensors the
values, dtype, shape, strides, `requires_grad`, `is_leaf` and the name of `grad_fn`; of an exception its class.  `recorded.json` in this folder
holds what PyTorch gives: `python -m tests.engine.recording` writes it again (PyTorch must be installed).
"""

from __future__ import annotations

import importlib
import json
import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

Program = Callable[[Any], Any]
TOPICS = (
    "views",
    "sharing",
    "inplace",
    "backward",
    "hooks",
    "engine",
    "functions",
    "modes",
    "indexing",
    "subclasses",
    "subclass_writes",
    "subclass_functions",
    "meta",
    "outs",
)
FILE = pathlib.Path(__file__).with_name("recorded.json")


class Topic:
    """The programs of one file, by name."""

    def __init__(self) -> None:
        self.programs: dict[str, Program] = {}

    def __call__(self, program: Program) -> Program:
        """Add a function under its own name."""
        assert program.__name__ not in self.programs, program.__name__
        self.programs[program.__name__] = program
        return program

    def lines(self, **programs: Program) -> None:
        """Add several short ones."""
        for name, program in programs.items():
            assert name not in self.programs, name
            self.programs[name] = program


def programs() -> Iterator[tuple[str, Program]]:
    """(topic.name, program) of all topics."""
    for topic in TOPICS:
        page = importlib.import_module(f"tests.engine.programs.{topic}")
        for name, program in page.topic.programs.items():
            yield f"{topic}.{name}", program


def attempt(program: Callable[[], Any]) -> Any:
    """The result, or the class of the exception it raised."""
    try:
        return program()
    except Exception as error:
        kinds = (
            IndexError,
            KeyError,
            TypeError,
            ValueError,
            BufferError,
            NotImplementedError,
            AttributeError,
            AssertionError,
            RuntimeError,
        )
        return "raises " + next((k.__name__ for k in kinds if isinstance(error, k)), type(error).__name__)


def warned(program: Callable[[], Any]) -> Any:
    """[result, classes of the warnings]"""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        made = program()
    return [made, sorted({w.category.__name__ for w in found})]


def facts(value: Any) -> Any:
    """A result as JSON."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, dict):
        return {str(k): facts(v) for k, v in value.items()}
    if hasattr(value, "grad_fn"):
        return tensor_facts(value)
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return {"array": facts(value.tolist()), "dtype": str(value.dtype), "strides": list(value.strides)}
    if isinstance(value, (list, tuple)):
        return [facts(v) for v in value]
    return str(value)


def tensor_facts(x: Any) -> dict[str, Any]:
    """What is kept of a tensor."""
    found: dict[str, Any] = {"dtype": str(x.dtype), "shape": list(x.shape), "stride": list(x.stride())}
    if type(x).__name__ != "Tensor":
        found["class"] = type(x).__name__
    if x.device.type != "cpu":
        found["device"] = str(x.device)
    else:
        plain = x.detach()
        found["values"] = facts((plain.float() if "bfloat16" in str(x.dtype) else plain).tolist())
    if x.requires_grad:
        found["grad"] = [x.is_leaf, type(x.grad_fn).__name__]
    return found


def differences(found: Any, wanted: Any, where: str = "result") -> Iterator[str]:
    """Where two results differ."""
    if isinstance(wanted, float) and isinstance(found, (int, float)):
        if not (
            found == wanted or found != found and wanted != wanted or abs(found - wanted) <= 1e-6 + 2e-5 * abs(wanted)
        ):
            yield f"{where}: {found} instead of {wanted}"
    elif isinstance(wanted, dict) and isinstance(found, dict):
        for key in {**wanted, **found}:
            yield from differences(found.get(key, "missing"), wanted.get(key, "missing"), f"{where}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for i, (f, w) in enumerate(zip(found, wanted, strict=True)):
            yield from differences(f, w, f"{where}[{i}]")
    elif type(found) is not type(wanted) or found != wanted:
        yield f"{where}: {found} instead of {wanted}"


def run(program: Program, library: Any) -> Any:
    """What a program gives, as JSON would keep it."""
    library.manual_seed(0)
    library.set_grad_enabled(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(json.dumps(facts(attempt(lambda: program(library)))))


def record() -> None:
    """Write what PyTorch gives."""
    library = importlib.import_module("torch")
    found = {name: run(program, library) for name, program in programs()}
    FILE.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "\n}\n")
    for name, value in found.items():
        if isinstance(value, str) and value.startswith("raises"):
            print(name, value)


if __name__ == "__main__":
    record()
