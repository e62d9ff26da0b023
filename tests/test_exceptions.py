"""Exceptions that `except` clauses name: each is a class, with the bases that it has in PyTorch."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

import pytest

# Of PyTorch 2.13: pages, names, and bases from the class up, without Exception. `python -m pytest -m oracle` asks PyTorch itself.
EXPECTED = """
torch: FatalError | OutOfMemoryError RuntimeError | AcceleratorError RuntimeError | JITException
torch.autograd.gradcheck: GradcheckError RuntimeError
torch.cuda: OutOfMemoryError RuntimeError | AcceleratorError RuntimeError | CudaError RuntimeError | DeferredCudaCallError
torch.distributed: DistError RuntimeError | DistBackendError DistError RuntimeError | DistNetworkError DistError RuntimeError
torch.distributed: DistStoreError DistError RuntimeError | QueueEmptyError DistStoreError DistError RuntimeError
torch.fx.experimental.symbolic_shapes: GuardOnDataDependentSymNode RuntimeError | PendingUnbackedSymbolNotFound RuntimeError
torch.fx.experimental.symbolic_shapes: ConstraintViolationError RuntimeError | ValueRangeError RuntimeError
torch.fx.proxy: TraceError ValueError
torch.hub: HTTPError URLError OSError | URLError OSError
torch.jit: Error | ScriptWarning Warning | TracerWarning Warning | TracingCheckError
torch.linalg: LinAlgError RuntimeError
torch.multiprocessing: AuthenticationError ProcessError | BufferTooShort ProcessError | ProcessError | TimeoutError ProcessError
torch.multiprocessing: ProcessExitedException ProcessException | ProcessRaisedException ProcessException
torch.multiprocessing.spawn: ProcessException | ProcessExitedException ProcessException | ProcessRaisedException ProcessException
torch.onnx: OnnxExporterError RuntimeError
torch.onnx.errors: OnnxExporterError RuntimeError | OnnxExporterWarning UserWarning Warning
torch.onnx.errors: SymbolicValueError OnnxExporterError RuntimeError | UnsupportedOperatorError OnnxExporterError RuntimeError
torch.serialization: SourceChangeWarning Warning
torch.torch_version: InvalidVersion ValueError
torch.utils.checkpoint: CheckpointError RuntimeError
"""


def bases(kind: type) -> list[str]:
    """Names of the exceptions that a class is, up to Exception."""
    return [base.__name__ for base in kind.__mro__[1:] if issubclass(base, Exception) and base is not Exception]


def expected() -> list[tuple[str, str, list[str]]]:
    found = []
    for line in EXPECTED.strip().splitlines():
        page, _, rest = line.partition(": ")
        for entry in rest.split(" | "):
            name, *above = entry.split()
            found.append((page, name, above))
    return found


@pytest.mark.parametrize(
    ("page", "name", "above"), expected(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_clause_can_name_it(page: str, name: str, above: list[str]) -> None:
    kind = getattr(importlib.import_module(page.replace("torch", "rushlight", 1)), name)
    assert isinstance(kind, type) and issubclass(kind, Exception) and bases(kind) == above
    with pytest.raises(kind):
        raise kind.__new__(kind)


def public_pages(package: ModuleType) -> list[str]:
    """The public modules of rushlight, by their names in PyTorch."""
    found = ["torch"]
    for info in pkgutil.walk_packages(package.__path__, "rushlight.", onerror=lambda name: None):
        parts = info.name.split(".")[1:]
        if (
            not any(part.startswith("_") for part in parts)
            and parts[0] not in ("testing", "array_api")
            and "tensorboard" not in parts
        ):
            found.append(".".join(["torch", *parts]))
    return found


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_every_exception_of_a_page_is_there() -> None:
    """Over all pages that both have."""
    pytest.importorskip("torch")
    wrong: list[Any] = []
    for page in public_pages(importlib.import_module("rushlight")):
        try:
            theirs = importlib.import_module(page)
        except ImportError:
            continue
        ours = importlib.import_module(page.replace("torch", "rushlight", 1))
        for name, kind in list(vars(theirs).items()):
            if (
                isinstance(kind, type)
                and issubclass(kind, Exception)
                and kind.__module__.startswith("torch")
                and not name.startswith("_")
            ):
                found = getattr(ours, name, None)
                if not isinstance(found, type) or bases(found) != bases(kind):
                    wrong.append((page, name, bases(kind), found))
    assert not wrong
