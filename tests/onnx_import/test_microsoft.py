"""Operators of `com.microsoft` beside onnxruntime, and models that its quantiser writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402

import rushlight as torch  # noqa: E402

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def bytes_(*shape: int) -> np.ndarray:
    return RNG.integers(0, 255, shape).astype(np.uint8)


F32, U8 = np.float32, np.uint8
SCALED = (F32(0.02), U8(120))
CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "QLinearAdd": ([bytes_(2, 3), *SCALED, bytes_(2, 3), F32(0.03), U8(7), F32(0.05), U8(100)], {}),
    "QLinearMul": ([bytes_(2, 3), *SCALED, bytes_(3), F32(0.03), U8(7), F32(0.05), U8(100)], {}),
    "QLinearSigmoid": ([bytes_(2, 3), *SCALED, F32(1 / 256), U8(0)], {}),
    "QLinearLeakyRelu": ([bytes_(2, 3), *SCALED, F32(0.01), U8(30)], {"alpha": 0.2}),
    "QLinearSoftmax": ([bytes_(2, 5), *SCALED, F32(1 / 256), U8(0)], {"axis": 1, "opset": 13}),
    "QLinearGlobalAveragePool": ([bytes_(2, 3, 4, 4), *SCALED, F32(0.01), U8(110)], {"channels_last": 0}),
    "QLinearAveragePool": ([bytes_(1, 2, 5, 5), *SCALED, F32(0.02), U8(110)], {"kernel_shape": [3, 3], "strides": [2, 2]}),
    "QLinearConcat": ([F32(0.04), U8(90), bytes_(2, 3), *SCALED, bytes_(2, 2), F32(0.01), U8(5)], {"axis": 1}),
    "QGemm": ([bytes_(3, 4), *SCALED, bytes_(4, 5), F32(0.01), U8(128), RNG.integers(-99, 99, 5).astype(np.int32), F32(0.05), U8(128)], {}),
    "MatMulIntegerToFloat": ([bytes_(3, 4), bytes_(4, 5), F32(0.02), F32(0.01), U8(120), U8(128), normal(5)], {}),
    "DynamicQuantizeMatMul": ([normal(3, 4), bytes_(4, 5), F32(0.01), U8(128), normal(5)], {}),
    "MatMulNBits": ([normal(2, 32), bytes_(6, 2, 8), np.abs(normal(12)), bytes_(6)], {"K": 32, "N": 6, "bits": 4, "block_size": 16}),
    "FusedMatMul": ([normal(2, 3, 4), normal(2, 5, 4)], {"alpha": 0.5, "transB": 1}),
    "BiasGelu": ([normal(2, 8), normal(8)], {}),
    "FastGelu": ([normal(2, 8), normal(8)], {}),
    "QuickGelu": ([normal(2, 8)], {"alpha": 1.7}),
    "SkipLayerNormalization": ([normal(1, 2, 8), normal(1, 2, 8), normal(8), normal(8), normal(8)], {"epsilon": 1e-5}),
    "SkipSimplifiedLayerNormalization": ([normal(1, 2, 8), normal(1, 2, 8), normal(8)], {"epsilon": 1e-5}),
}  # fmt: skip


@pytest.mark.parametrize("op", CASES)
def test_like_onnxruntime(op: str) -> None:
    inputs, attributes = CASES[op]
    names = [f"x{i}" for i in range(len(inputs))]
    # Scales and zero points are constants, as in models: onnxruntime asks for that.
    given = {name: np.asarray(x) for name, x in zip(names, inputs)}
    fed = {name: x for name, x in given.items() if x.ndim > 1}
    node = helper.make_node(op, names, ["y"], domain="com.microsoft", **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in fed.items()
    ]
    constants = [numpy_helper.from_array(x, name) for name, x in given.items() if name not in fed]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, fed)
    (found,) = torch.onnx.backend.run_model(model, fed)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if found.dtype == np.uint8:  # onnxruntime's tables and orders of operations move halves
        assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_models_of_the_quantiser(tmp_path: Path, form: str) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    weights = {"w": normal(6, 3, 3, 3) / 4, "b": normal(6), "w2": normal(6, 6, 1, 1), "f": normal(5, 6)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["c"]),
        helper.make_node("Add", ["r", "c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["p"]),
        helper.make_node("Flatten", ["p"], ["q"]),
        helper.make_node("Gemm", ["q", "f"], ["y"], transB=1),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", 1, [1, 3, 8, 8])], [info("y", 1, [1, 5])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    plain, path = tmp_path / "plain.onnx", tmp_path / "quantised.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(plain))
    samples = [{"x": normal(1, 3, 8, 8)} for _ in range(4)]

    class Samples(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter(samples)

        def get_next(self) -> Any:
            return next(self.rest, None)

    kind = getattr(quantization.QuantFormat, form)
    quantization.quantize_static(str(plain), str(path), Samples(), quant_format=kind, per_channel=True)
    expected = onnxruntime.InferenceSession(str(plain)).run(None, samples[0])[0]
    theirs = onnxruntime.InferenceSession(str(path)).run(None, samples[0])[0]
    for trainable in (True, False):
        found = torch.onnx.load(path, trainable=trainable)(samples[0]["x"]).detach().numpy()
        assert np.abs(found - expected).max() <= max(2 * np.abs(theirs - expected).max(), 0.02 * np.abs(expected).max())
