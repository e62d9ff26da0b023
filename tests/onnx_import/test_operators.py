"""Operators of ONNX on arrays, beside onnx's reference evaluator, and onnxruntime for old operator sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import rushlight as torch  # noqa: E402

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model_of(op: str, inputs: list[Any], outputs: int = 1, opset: int = 22, domain: str = "", **attributes: Any) -> Any:
    """A model of one node; inputs that are None are left out."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in zip(names, inputs)
        if name
    ]
    made = [onnx.ValueInfoProto(name=name) for name in results]
    graph = helper.make_graph([node], "g", given, made)
    opsets = {"": opset, "ai.onnx.ml": 4, **({domain: 4} if domain else {})}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in opsets.items()], ir_version=8)


# ( operator, inputs, attributes ): what the backend tests of onnx leave out.
CASES = {
    "Conv asymmetric pads": ("Conv", [normal(1, 4, 7, 9), normal(6, 2, 3, 2), normal(6)], {"pads": [1, 0, 2, 1], "group": 2, "strides": [2, 1]}),
    "Conv same lower": ("Conv", [normal(1, 2, 8), normal(3, 2, 4)], {"auto_pad": "SAME_LOWER", "strides": [3]}),
    "ConvTranspose asymmetric": ("ConvTranspose", [normal(1, 2, 5, 4), normal(2, 3, 3, 3)], {"pads": [0, 1, 2, 1], "strides": [2, 2], "output_padding": [1, 0]}),
    "MaxPool dilated ceil": ("MaxPool", [normal(1, 2, 9, 8)], {"kernel_shape": [3, 2], "dilations": [2, 1], "strides": [2, 2], "ceil_mode": 1}),
    "AveragePool counted": ("AveragePool", [normal(1, 2, 9, 8)], {"kernel_shape": [3, 3], "pads": [1, 0, 0, 1], "strides": [2, 2], "count_include_pad": 1}),
    "Gemm": ("Gemm", [normal(3, 4), normal(5, 4), normal(5)], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    "Gemm linear": ("Gemm", [normal(3, 4), normal(5, 4), normal(5)], {"transB": 1}),
    "Slice backwards": ("Slice", [normal(4, 5), np.array([3, 1]), np.array([-9, 4]), np.array([0, 1]), np.array([-2, 1])], {}),
    "Gather negative": ("Gather", [normal(4, 5), np.array([[-1, 0], [2, -4]])], {"axis": 0}),
    "Resize cubic": ("Resize", [normal(1, 1, 4, 5), None, np.array([1, 1, 1.7, 0.6], np.float32)], {"mode": "cubic"}),
    "Resize linear": ("Resize", [normal(1, 2, 4, 5), None, None, np.array([1, 2, 9, 3])], {"mode": "linear"}),
    "Resize aligned": ("Resize", [normal(1, 2, 4, 5), None, None, np.array([1, 2, 7, 3])], {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    "Pad reflect": ("Pad", [normal(4, 5), np.array([2, 1, 3, 0])], {"mode": "reflect"}),
    "ReduceSumSquare int": ("ReduceSumSquare", [RNG.integers(-9, 9, (3, 4)), np.array([1])], {"keepdims": 0}),
    "Softmax old": ("Softmax", [normal(2, 3, 4)], {"axis": 1, "opset": 11}),
    "Clip old": ("Clip", [normal(2, 3)], {"min": -0.5, "max": 0.5, "opset": 6}),
    "Squeeze old": ("Squeeze", [normal(2, 1, 3)], {"axes": [1], "opset": 11}),
    "LSTM both ways": ("LSTM", [normal(5, 2, 3), normal(2, 16, 3), normal(2, 16, 4), normal(2, 32)], {"hidden_size": 4, "direction": "bidirectional", "outputs": 3}),
    "GRU reverse": ("GRU", [normal(5, 2, 3), normal(1, 12, 3), normal(1, 12, 4), normal(1, 24)], {"hidden_size": 4, "direction": "reverse", "linear_before_reset": 1, "outputs": 2}),
    "Einsum": ("Einsum", [normal(2, 3, 4), normal(2, 4, 5)], {"equation": "bij,bjk->bik"}),
    "MatMulInteger": ("MatMulInteger", [RNG.integers(0, 255, (3, 4)).astype(np.uint8), RNG.integers(-128, 127, (4, 5)).astype(np.int8), np.array(7, np.uint8), np.array(-3, np.int8)], {}),
    "QuantizeLinear int16": ("QuantizeLinear", [normal(3, 4), np.array(1e-4, np.float32), np.array(-20, np.int16)], {}),
    "Scaler": ("Scaler", [normal(3, 2)], {"domain": "ai.onnx.ml", "offset": [0.5, 1.0], "scale": [2.0, 3.0]}),
    "LinearRegressor": ("LinearRegressor", [normal(3, 2)], {"domain": "ai.onnx.ml", "coefficients": [0.5, -1.0], "intercepts": [0.25]}),
    "SVMRegressor": ("SVMRegressor", [normal(3, 2)], {"domain": "ai.onnx.ml", "coefficients": [0.5, -1.0], "support_vectors": [1.0, 2.0, -1.0, 0.5], "n_supports": 2, "rho": [0.3], "kernel_type": "RBF", "kernel_params": [0.7, 0.0, 3.0]}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_like_the_reference(name: str) -> None:
    op, inputs, options = CASES[name]
    model = model_of(op, inputs, **options)
    given = {f"x{i}": value for i, value in enumerate(inputs) if value is not None}
    if "opset" in options:
        # The reference evaluator knows the latest versions of operators alone.
        session = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString())
        expected = session.run(None, given)
    else:
        expected = ReferenceEvaluator(model).run(None, given)
    found = torch.onnx.backend.prepare(model).run(given)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_products_of_integers_are_exact() -> None:
    """Bytes of all signs, with the zero points that there may be, against 64-bit integers."""
    for a_kind in (np.uint8, np.int8):
        for b_kind in (np.uint8, np.int8):
            low = np.iinfo(a_kind).min, np.iinfo(b_kind).min
            a = RNG.integers(low[0], low[0] + 256, (2, 3, 300)).astype(a_kind)
            b = RNG.integers(low[1], low[1] + 256, (300, 5)).astype(b_kind)
            a[0, 0], b[:, 0] = low[0], low[1]
            for a_zero in (None, np.array(low[0] + 255, a_kind), RNG.integers(low[0], low[0] + 256, 3).astype(a_kind)):
                for b_zero in (
                    None,
                    np.array(low[1] + 9, b_kind),
                    RNG.integers(low[1], low[1] + 256, 5).astype(b_kind),
                ):
                    node = helper.make_node("MatMulInteger", ["a", "b", "" if a_zero is None else "az", *([] if b_zero is None else ["bz"])], ["y"])  # fmt: skip
                    given = [one for one in (a, b, a_zero, b_zero) if one is not None]
                    (found,) = torch.onnx.backend.run_node(node, given)
                    rows = np.int64(0) if a_zero is None else a_zero.astype(np.int64)[..., None]
                    columns = np.int64(0) if b_zero is None else b_zero.astype(np.int64)
                    expected = (a.astype(np.int64) - rows) @ (b.astype(np.int64) - columns)
                    assert found.dtype == np.int32 and np.array_equal(found, expected)


def test_nodes_run_by_themselves() -> None:
    node = helper.make_node("Add", ["a", "b"], ["c"])
    (sums,) = torch.onnx.backend.run_node(node, [np.float32([1, 2]), np.float32([3, 4])])
    assert sums.tolist() == [4.0, 6.0]
    (squares,) = torch.onnx.backend.run_node(helper.make_node("Mul", ["a", "a"], ["c"]), [np.float32([3, 4])])
    assert squares.tolist() == [9.0, 16.0]
    assert torch.onnx.backend.supports_device("CPU:0") and not torch.onnx.backend.supports_device("CUDA")


def test_unknown_operators_and_attributes_are_named() -> None:
    with pytest.raises(NotImplementedError, match="ai.onnx::NoSuch"):
        torch.onnx.load(model_of("NoSuch", [normal(2)]))
    with pytest.raises(NotImplementedError, match="Relu knows no attribute slope"):
        torch.onnx.load(model_of("Relu", [normal(2)], slope=1.0))
    with pytest.raises(NotImplementedError, match="acme::Gadget"):
        torch.onnx.load(model_of("Gadget", [normal(2)], domain="acme"))
