"""Mutated files: a result or an error with a type, and never a signal (`tools/fuzz_onnx.py` runs many more)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import parser  # noqa: E402


def _fuzzer() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "tools" / "fuzz_onnx.py"
    spec = importlib.util.spec_from_file_location("fuzz_onnx", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_onnx"] = module
    spec.loader.exec_module(module)
    return module


# A few models with what files are made of: initializers, attributes of all kinds, bodies, functions.
MODELS = [
    """
    <ir_version: 10, opset_import: ["" : 22]>
    net (float[n, 2, 6, 6] x) => (float[n, m] y) <float[3, 2, 3, 3] w = {1,0,1,0,1,0,1,0,1,1,0,1,0,1,0,1,0,1,1,0,1,0,1,0,1,0,1,1,0,1,0,1,0,1,0,1,1,0,1,0,1,0,1,0,1,1,0,1,0,1,0,1,0,1}, int64[2] shape = {0, -1}>
    { a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w) b = MaxPool<kernel_shape = [2, 2]>(a) y = Reshape(b, shape) }
    """,
    """
    <ir_version: 10, opset_import: ["" : 22]>
    net (float[3, 4] x, int64 n) => (float[3, 4] y, float[m, 3, 4] all)
    {
        go = Constant<value = bool {1}>()
        y, all = Loop(n, go, x) <body = step (int64 i, bool c, float[3, 4] v) => (bool d, float[3, 4] w, float[3, 4] u) {
            d = Identity(c) s = Softmax<axis = -1>(v) w = Add(s, x) u = Transpose<perm = [0, 1]>(w) }>
    }
    """,
    """
    <ir_version: 10, opset_import: ["" : 22, "local" : 1]>
    net (float[2, 6] x) => (float[2, 3] y, int64[2, 3] i) <int64[1] k = {3}, int64[1] a = {0}, int64[1] b = {6}, int64[1] c = {1}>
    { z = local.scaled<by = 3.0>(x) s = Slice(z, a, b, c) y, i = TopK<axis = 1>(s, k) }
    <domain: "local", opset_import: ["" : 22]>
    scaled <by> (v) => (w) { t = Constant<value_float: float = @by>() w = Mul(v, t) }
    """,
    """
    <ir_version: 10, opset_import: ["" : 22]>
    net (float[1, 1, 4, 4] x) => (float[a, b, c, d] y) <float[4] scales = {1, 1, 1.5, 2}, int64[8] pads = {0, 0, 1, 0, 0, 0, 0, 1}>
    { r = Resize<mode = "linear">(x, , scales) p = Pad<mode = "reflect">(r, pads) y = LayerNormalization<axis = 3>(p, p) }
    """,
]


def test_mutated_models_give_results_or_typed_errors() -> None:
    fuzzer = _fuzzer()
    fuzzer.prepare()
    samples = [parser.parse_model(text).SerializeToString() for text in MODELS]
    found, wrong = fuzzer.fuzz(600, 7, samples)
    assert not wrong
    assert found["ran"] > 30 and found["InvalidModelError"] > 60


def test_a_pattern_that_is_none_is_refused_by_name() -> None:
    import rushlight as torch

    text = '<ir_version: 10, opset_import: ["" : 22]> net (string[n] x) => (bool[n] y) { y = RegexFullMatch<pattern = "(a">(x) }'
    with pytest.raises((ValueError, RuntimeError), match="RegexFullMatch"):
        torch.onnx.load(parser.parse_model(text))(np.array(["a"], dtype=object))
