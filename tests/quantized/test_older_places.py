"""Packages and names that programs import from their older places."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

import rushlight as torch
from rushlight.utils import _pytree as trees

SAME = """
import rushlight._base.alias as alias
alias.install()
import importlib, torch
for older, present in {
    "torch.nn.quantized": "torch.ao.nn.quantized", "torch.nn.quantized.dynamic": "torch.ao.nn.quantized.dynamic",
    "torch.nn.quantized.modules.linear": "torch.ao.nn.quantized", "torch.nn.quantized._reference": "torch.ao.nn.quantized.reference",
    "torch.nn.intrinsic": "torch.ao.nn.intrinsic", "torch.nn.intrinsic.qat": "torch.ao.nn.intrinsic.qat",
    "torch.nn.intrinsic.quantized.dynamic": "torch.ao.nn.intrinsic.quantized.dynamic", "torch.nn.qat.dynamic": "torch.ao.nn.qat.dynamic",
    "torch.nn.quantizable.modules": "torch.ao.nn.quantizable.modules", "torch.quantization.observer": "torch.ao.quantization.observer",
    "torch.quantization.fx": "torch.ao.quantization.fx", "torch.ao.nn.intrinsic.modules.fused": "torch.ao.nn.intrinsic",
}.items():
    assert importlib.import_module(older) is importlib.import_module(present), older
from functorch.experimental import chunk_vmap, control_flow
assert control_flow.cond is torch.cond
from functorch.compile import aot_function, compiled_function, default_partition, make_boxed_func, nop
from functorch.einops import rearrange
assert compiled_function is aot_function is torch._functorch.aot_autograd.aot_function and rearrange is torch.func.rearrange
print(chunk_vmap(torch.sum, chunks=3)(torch.arange(8.0).view(4, 2)))
"""


def test_pages_are_those_of_the_present_places() -> None:
    told = subprocess.run([sys.executable, "-c", SAME], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip() == "tensor([ 1.,  5.,  9., 13.])"


def test_attributes_of_nn_are_the_packages_of_ao() -> None:
    assert torch.nn.quantized is torch.ao.nn.quantized
    assert torch.nn.intrinsic.quantized.dynamic.LinearReLU(4, 2)(-torch.ones(1, 4)).shape == (1, 2)
    assert str(torch.nn.intrinsic.quantized.dynamic.LinearReLU(2, 3)).startswith(
        "DynamicQuantizedLinearReLU(in_features=2"
    )


def test_shapes_as_tensors() -> None:
    from rushlight.onnx.operators import reshape_from_tensor_shape, shape_as_tensor

    x = torch.arange(6)
    assert reshape_from_tensor_shape(x, torch.tensor([3, 2])).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert shape_as_tensor(x.view(2, 3)).tolist() == [2, 3]
    with pytest.raises(RuntimeError):
        reshape_from_tensor_shape(x, torch.tensor([4, 2]))


def test_dataclasses_as_trees() -> None:
    kept = dataclasses.make_dataclass("kept", [("x", int), ("y", int, 3)])
    with pytest.raises(ValueError, match=r"Missing fields in `field_names`: \{'y'\}"):
        trees.register_dataclass(kept, field_names=["x"])
    with pytest.raises(ValueError, match=r"Unexpected fields in `field_names`: \{'q'\}"):
        trees.register_dataclass(kept, field_names=["x", "y", "q"])
    with pytest.raises(ValueError, match="field_names must be specified"):
        trees.register_dataclass(int)
    trees.register_dataclass(kept, field_names=["x"], drop_field_names=["y"])
    leaves, spec = trees.tree_flatten(kept(1, 2))
    assert (leaves, trees.tree_unflatten([5], spec)) == ([1], kept(5, 3))


def test_operators_of_python_have_aten_names() -> None:
    aten = torch.ops.aten
    a, b = torch.tensor([12, 10]), torch.tensor([10, 12])
    assert aten.__and__.Tensor(a, b).tolist() == [8, 8]
    assert aten.__or__.Scalar(a, 1).tolist() == [13, 11]
    assert aten.__xor__(a, b).tolist() == [6, 6]
    assert aten.__lshift__.Scalar(a, 1).tolist() == [24, 20]
