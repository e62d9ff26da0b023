"""Runs programs of block kernels by the reference interpreter, beside the reference backend."""

from __future__ import annotations

import numpy as np

from rushlight._backends.cuda.program.assemble import compile_graph
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand, Word
from rushlight._backends.reference import run as run_reference
from rushlight._codegen.blocks import BlockMemory, interpret, verify
from rushlight._codegen.blocks.memory import bits_of, numbers_of
from rushlight._graph.core import trace
from rushlight._types.dtype import BY_NAME
from rushlight._types.layout import extent


class Ran:
    """What a graph gave: `results` of fresh outputs, `program`; arrays of `arguments` are changed where outputs lie.

    Calls of libraries are made, by `last` they find the memory; others are not.
    """

    last = None

    def __init__(self, graph, arrays, strides=None, out_strides=None, calls=False, **options):
        Ran.last, self.calls = self, calls
        tensors = [(v, a) for v, a in zip(graph.inputs, arrays, strict=True) if not v.weak]
        layouts = [None if v.weak else (strides or {}).get(k, dense(v.shape)) for k, v in enumerate(graph.inputs)]
        self.program = compile_graph(graph, layouts, out_strides, **options)
        self.memory, self.places, self.data = BlockMemory(), {}, {}
        tensor_layouts = [s for s in layouts if s is not None]
        for (value, array), layout, memory in zip(tensors, tensor_layouts, self.program.inputs, strict=True):
            self._put(memory, laid(array, value.dtype, layout))
        words = [None] * len(tensors)
        for v, a in zip(graph.inputs, arrays, strict=True):
            if v.weak:
                words += [complex(a).real, complex(a).imag] if v.dtype.kind == "c" else [a]
        self._run(words)
        aliases = options.get("aliases") or {}
        fresh = [i for i in range(len(graph.outputs)) if i not in aliases]
        self.results = []
        for i, memory in zip(fresh, self.program.results, strict=True):
            value = graph.outputs[i]
            at = (out_strides or {})[i] if out_strides and out_strides[i] is not None else dense(value.shape)
            self.results.append(read(self.data.get(memory), value.dtype, value.shape, at))
        self.inputs = [
            read(self.data[m], v.dtype, v.shape, s)
            for (v, _), s, m in zip(tensors, tensor_layouts, self.program.inputs, strict=True)
        ]

    def _put(self, memory, data):
        self.data[memory] = data
        self.places[memory] = self.memory.add(data) if data.size else 1 << 50

    def _run(self, words):
        for step in self.program.steps:
            if not isinstance(step, Launch) and not self.calls:
                raise NotImplementedError(f"{step.name} is no kernel that the interpreter could run")
            for argument in step.arguments:
                memory = argument.memory if isinstance(argument, Operand) else argument
                if isinstance(memory, Memory) and memory not in self.data:
                    self._put(memory, np.full(memory.nbytes, 0xA5, np.uint8))
            given = [self._argument(a, words) for a in step.arguments]
            if not isinstance(step, Launch):
                step.function(0, *given)
                continue
            verify(step.kernel)
            interpret(step.kernel, step.grid, given, self.memory, undefined=0xA5)

    def _argument(self, argument, words):
        if isinstance(argument, Word):
            return words[argument.place]
        if isinstance(argument, Operand):
            return self.places[argument.memory] + argument.offset * argument.dtype.itemsize
        return self.places[argument] if isinstance(argument, Memory) else argument


def dense(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def laid(array, dtype, layout):
    """The bytes of an array in a layout, with other bytes between its elements."""
    bits = bits_of(np.asarray(array), dtype).reshape(np.shape(array))
    data = np.full(extent(bits.shape, layout) if bits.size else 0, 0x5A, np.uint8).repeat(dtype.itemsize)
    flat = data.view(bits.dtype)
    if bits.size:
        np.lib.stride_tricks.as_strided(flat, bits.shape, [s * dtype.itemsize for s in layout])[...] = bits
    return data


def read(data, dtype, shape, layout):
    """The array that lies in some bytes."""
    holder_of_bits = bits_of(numbers_of(np.zeros(dtype.itemsize, np.uint8), dtype), dtype).dtype
    if data is None or not int(np.prod(shape)):
        return numbers_of(np.zeros(0, np.uint8), dtype).reshape(shape)
    flat = data.view(holder_of_bits)
    bits = np.lib.stride_tricks.as_strided(flat, shape, [s * dtype.itemsize for s in layout]).copy()
    return numbers_of(bits.reshape(-1).view(np.uint8), dtype).reshape(shape)


def trace_arrays(function, arrays, dtypes=None):
    """The graph of `function` for arrays like these; Python numbers are inputs by themselves."""
    avals = []
    for k, a in enumerate(arrays):
        if isinstance(a, np.ndarray | np.generic):
            avals.append((a.shape, dtypes[k] if dtypes else BY_NAME[a.dtype.name]))
        else:
            avals.append(((), BY_NAME["float32" if isinstance(a, float) else "int64"], True))
    return trace(function, avals)


def check(function, *arrays, rtol=1e-5, atol=1e-6, dtypes=None, **options):
    """Run by block kernels and by the references, compare, and return the `Ran`."""
    graph = trace_arrays(function, arrays, dtypes)
    expected = run_reference(graph, list(arrays))
    ran = Ran(graph, arrays, **options)
    aliases = options.get("aliases") or {}
    got = [ran.inputs[aliases[i]] if i in aliases else None for i in range(len(expected))]
    rest = iter(ran.results)
    for have, want in zip([next(rest) if g is None else g for g in got], expected, strict=True):
        compare(have, want, rtol, atol)
    return ran


def compare(got, want, rtol=1e-5, atol=1e-6):
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, got.dtype, want.shape, want.dtype)
    if got.dtype.kind in "fc":
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    else:
        np.testing.assert_array_equal(got, want)
