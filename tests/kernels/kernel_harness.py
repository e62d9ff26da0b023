"""Runs graphs on generated kernels with NumPy arrays, beside the reference backend."""

from __future__ import annotations

import numpy as np

from rushlight._backends.cpu.compile import build
from rushlight._backends.cpu.kernels import host
from rushlight._backends.cpu.program.assemble import compile_graph
from rushlight._backends.reference import run as run_reference
from rushlight._graph.core import trace
from rushlight._types.dtype import BFLOAT16, BY_NAME


def to_memory(array, dtype):
    """An array as kernels see it: bfloat16 as its bits, everything else as it is; strides kept."""
    if dtype is not BFLOAT16:
        return array
    return (np.asarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_memory(storage, dtype, shape, strides=None):
    count = int(np.prod(shape)) if shape else 1
    if count == 0:
        return np.zeros(shape, np.float32 if dtype is BFLOAT16 else dtype.numpy_name)
    raw = np.frombuffer(storage, dtype=np.uint16 if dtype is BFLOAT16 else dtype.numpy_name)
    if strides is None:
        view = raw[:count].reshape(shape)
    else:
        view = np.lib.stride_tricks.as_strided(raw, shape, [s * raw.itemsize for s in strides])
    view = view.copy()
    return (view.astype(np.uint32) << 16).view(np.float32) if dtype is BFLOAT16 else view


def strides_of(array):
    return tuple(s // array.itemsize for s in array.strides)


class Ran:
    """What a graph gave: `results` by kernels, `program`."""

    def __init__(self, graph, arrays, **options):
        held = [to_memory(a, v.dtype) if not v.weak else a for a, v in zip(arrays, graph.inputs, strict=True)]
        layouts = [None if v.weak else strides_of(a) for a, v in zip(held, graph.inputs, strict=True)]
        self.program = compile_graph(graph, layouts, **{"target": host(), **options})
        self.executable = build(self.program)
        words = [a.ctypes.data for a, v in zip(held, graph.inputs, strict=True) if not v.weak]
        words += [a for a, v in zip(held, graph.inputs, strict=True) if v.weak]
        found = self.executable(*words)
        storages = found if isinstance(found, tuple) else () if found is None else (found,)
        aliases = options.get("aliases", {})
        fresh = [i for i in range(len(graph.outputs)) if i not in aliases]
        strides = options.get("out_strides") or [None] * len(graph.outputs)
        self.results = [
            from_memory(s, graph.outputs[i].dtype, graph.outputs[i].shape, strides[i])
            for s, i in zip(storages, fresh, strict=True)
        ]


def trace_arrays(function, arrays, dtypes=None):
    """The graph of `function` for arrays like these; Python floats are scalar inputs of float32."""
    avals = []
    for k, a in enumerate(arrays):
        if isinstance(a, np.ndarray | np.generic):
            avals.append((a.shape, dtypes[k] if dtypes else BY_NAME[a.dtype.name]))
        else:
            avals.append(((), BY_NAME["float32" if isinstance(a, float) else "int64"], True))
    return trace(function, avals)


def check(function, *arrays, rtol=1e-5, atol=1e-6, dtypes=None, **options):
    """Run on kernels and on the reference, compare, and return the `Ran`."""
    graph = trace_arrays(function, arrays, dtypes)
    expected = run_reference(graph, arrays)
    ran = Ran(graph, arrays, **options)
    aliases = options.get("aliases", {})
    wanted = [e for i, e in enumerate(expected) if i not in aliases]
    for got, want in zip(ran.results, wanted, strict=True):
        compare(got, want, rtol, atol)
    return ran


def compare(got, want, rtol=1e-5, atol=1e-6):
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, got.dtype, want.shape, want.dtype)
    if got.dtype.kind in "fc":
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    else:
        np.testing.assert_array_equal(got, want)
