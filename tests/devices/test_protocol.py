"""The protocol's instances agree: one graph through every backend, and clear words where a backend lacks something."""

from __future__ import annotations

import ast
import inspect
import struct
from typing import Any

import pytest
from tests.devices import guarded

import rushlight as torch
from rushlight._backends.null import MACHINES, NullBackend
from rushlight._backends.protocol import Backend
from rushlight._backends.reference.backend import ReferenceBackend
from rushlight._backends.registry import backend_of, backends, host, register, unregister
from rushlight._base.errors import MissingDeviceError
from rushlight._engine.random.random import keep_states
from rushlight._graph.core import trace
from rushlight._prims import prim
from rushlight._types.device import CPU, META, Device
from rushlight._types.dtype import FLOAT32

GRAPH = trace(lambda x, y: prim.exp(x * 2.0 + y), [((2, 3), FLOAT32), ((2, 3), FLOAT32)])
NUMBERS = [0.5, -1.0, 0.25, 0.0, 2.0, -0.5]


def run(backend: Backend, aliases: dict[int, int] | None = None) -> list[float]:
    """`GRAPH` on column-major and row-major operands; the result is row-major, or where an operand was."""
    x, y = backend.zeros(24, CPU), backend.zeros(24, CPU)
    backend.window(x.ptr, 24)[:] = struct.pack("6f", *[NUMBERS[k] for k in (0, 3, 1, 4, 2, 5)])
    backend.window(y.ptr, 24)[:] = struct.pack("6f", *range(6))
    out = [(3, 1)] if aliases is None else [(1, 2)]
    made = backend.compile(GRAPH, [(1, 2), (3, 1)], out, CPU, aliases=aliases)(x.ptr, y.ptr)
    address = x.ptr if aliases else made.ptr
    return list(struct.unpack("6f", backend.window(address, 24)))


def test_backends_compute_the_same() -> None:
    wanted = torch.tensor([[2 * NUMBERS[3 * i + j] + 3 * i + j for j in range(3)] for i in range(2)]).exp()
    for backend in (host(), ReferenceBackend()):
        torch.testing.assert_close(torch.tensor(run(backend)), wanted.flatten())
        torch.testing.assert_close(torch.tensor(run(backend, aliases={0: 0})), wanted.t().flatten())


def test_the_null_backend_compiles_for_every_machine_and_runs_nothing() -> None:
    for machine in MACHINES:
        compiled = NullBackend(machine).compile(GRAPH, [(3, 1), (3, 1)], [(3, 1)], CPU)
        assert len(compiled.steps()) == 1 and compiled.code()[0][1].count("define") >= 1
        with pytest.raises(RuntimeError, match="compiles and does not run"):
            compiled(0, 0)


def test_meta_has_shapes_alone() -> None:
    backend = backend_of(META)
    assert backend.shapes_only and backend.allocate(100, META) is None
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        torch.zeros((), device="meta").item()


METHODS = [
    name
    for name, member in vars(Backend).items()
    if callable(member) and not name.startswith("_") and "self._missing(" in inspect.getsource(member)
]


@pytest.mark.parametrize("name", METHODS)
def test_what_a_backend_lacks_raises_its_name(name: str) -> None:
    class Bare(Backend):
        type = "bare"

    parameters = list(inspect.signature(getattr(Backend, name)).parameters.values())[1:]
    given = [None for p in parameters if p.default is p.empty]
    with pytest.raises(NotImplementedError, match="the backend of device type 'bare' has no "):
        getattr(Bare(), name)(*given)


def test_every_method_says_what_it_does() -> None:
    for cls in (Backend,):
        tree = ast.parse(inspect.getsource(cls))
        bare = [n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and not ast.get_docstring(n)]
        assert bare in ([], ["_missing"])


def test_types_of_device_are_open() -> None:
    class Mine(ReferenceBackend):
        type = "mine_for_the_registry"

    with pytest.raises(RuntimeError, match="device type at start of device string: mine_for_the_registry"):
        torch.device("mine_for_the_registry")
    register("mine_for_the_registry", Mine)
    try:
        _use_registered(Mine)
    finally:
        unregister("mine_for_the_registry")
    with pytest.raises(MissingDeviceError, match="mine_for_the_registry"):
        torch.zeros(2, device="mine_for_the_registry")
    with pytest.raises(ValueError, match="is built in"):
        unregister("cpu")


def _use_registered(cls: type[Backend]) -> None:
    assert "mine_for_the_registry" in backends()
    assert torch.zeros(2, device="mine_for_the_registry").device == torch.device("mine_for_the_registry:0")
    with pytest.raises(RuntimeError, match="there are 1 devices of type 'mine_for_the_registry'"):
        torch.zeros(1, device="mine_for_the_registry:1")
    with pytest.raises(ValueError, match="has a backend already"):
        register("mine_for_the_registry", cls)
    with pytest.raises(MissingDeviceError, match="was asked for device 'cuda'"):
        torch.zeros(1, device="cuda")
    assert Device("mine_for_the_registry", 0) is torch.device("mine_for_the_registry", 0)


RENAMED = """
import rushlight as torch
from tests.devices import guarded

try:
    torch.utils.generate_methods_for_privateuse1_backend()
except RuntimeError as error:
    assert "no backend is registered for device type 'privateuseone'" in str(error), error
try:
    torch.utils.rename_privateuse1_backend("cuda")
except RuntimeError as error:
    assert "in-tree device name: cuda" in str(error), error
torch.utils.rename_privateuse1_backend("guarded")
torch.utils.rename_privateuse1_backend("guarded")
try:
    torch.utils.rename_privateuse1_backend("other")
except RuntimeError as error:
    assert "has been called already, with 'guarded'" in str(error), error
guarded.register()
torch.utils.generate_methods_for_privateuse1_backend(for_storage=True, unsupported_dtype=[torch.bool])
x = torch.ones(2).guarded()
assert x.is_guarded and x.guarded() is x and x.guarded(1).device.index == 1 and not x.cpu().is_guarded
assert torch.nn.Linear(2, 2).guarded().weight.is_guarded
assert x.untyped_storage().is_guarded and x.cpu().untyped_storage().guarded().device.type == "guarded"
packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)]).guarded()
assert packed.is_guarded and packed.data.device.type == "guarded"
try:
    x.guarded("cpu")
except RuntimeError as error:
    assert "Invalid device, must be guarded device" in str(error), error
try:
    torch.utils.generate_methods_for_privateuse1_backend()
except RuntimeError as error:
    assert "has already been registered" in str(error), error

library = torch.library.Library("renamed", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "PrivateUse1")
assert torch.ops.renamed.twice(x).tolist() == [2.0, 2.0]
try:
    torch.ops.renamed.twice(x.cpu())
except NotImplementedError as error:
    assert "renamed::twice" in str(error), error

module = type(torch)("guarded_module")
torch._register_device_module("guarded", module)
assert torch.guarded is module and torch.get_device_module("guarded") is module
assert torch._C._get_privateuse1_backend_name() == "guarded" and torch.device(1) == torch.device("guarded", 1)
print("done")
"""


def test_a_renamed_device_has_its_methods(run_python: Any) -> None:
    done = run_python("-c", RENAMED, cwd=str(__import__("pathlib").Path(__file__).resolve().parents[2]))
    assert done.stdout.split() == ["done"], done.stderr


def test_a_type_that_goes_away_takes_its_random_stream_along() -> None:
    with guarded.registered():
        assert torch.rand(2, device="guarded").device.type == "guarded"
    kept = keep_states()
    torch.manual_seed(0)
    kept()
