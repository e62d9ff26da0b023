"""Random kernels of the block IR, whose results are exact: floats hold small whole numbers, so every emitter must give the
bits of the reference interpreter, in whatever order it sums.

case = draw(seed)
expected = case.reference()
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rushlight._codegen.blocks import BlockBuilder, BlockMemory, Kernel, Pointer, Tile, Value, interpret
from rushlight._prims.numbers import holder
from rushlight._types.dtype import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT8, INT16, INT32, INT64, UINT8, DType

FLOATS = (FLOAT32, FLOAT32, FLOAT64, BFLOAT16, FLOAT16)
INTEGERS = (INT32, INT32, INT64, INT16, INT8, UINT8)
BOUND = 8  # numbers are cut to -BOUND ... BOUND after each product and sum, so that all dtypes hold them


class Case(NamedTuple):
    """A kernel, its grid, and its arguments: arrays (memory) and numbers, in the order of the parameters."""

    kernel: Kernel
    grid: tuple[int, ...]
    arguments: list[Any]

    def fresh(self) -> list[Any]:
        """The arguments with arrays of their own."""
        return [a.copy() if isinstance(a, np.ndarray) else a for a in self.arguments]

    def reference(self, undefined: int = 0) -> list[Any]:
        """The arguments after the interpreter has run."""
        given, memory = self.fresh(), BlockMemory()
        words = [memory.add(a) if isinstance(a, np.ndarray) else a for a in given]
        interpret(self.kernel, self.grid, words, memory, undefined=undefined, printed=lambda text: None)
        return given


def memory_of(dtype: DType, numbers: Any) -> Any:
    """Numbers as they lie in memory; bfloat16 as its bits."""
    if dtype is BFLOAT16:
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return numbers.astype(holder(dtype))


class _Draw:
    def __init__(self, seed: int, features: frozenset[str]) -> None:
        self.random, self.features = random.Random(seed), features
        self.numbers = np.random.default_rng(seed)
        self.inputs = [self.random.choice((*FLOATS, *INTEGERS, BOOL)) for _ in range(self.random.randint(1, 3))]
        self.programs = self.random.choice((1, 2, 3))
        self.n = self.random.randint(1, 700)
        self.outputs: list[DType] = []
        self.values: list[Value] = []
        self.pointers: list[Value] = []  # tiles of distinct places that loads and stores share
        self.depth = 0

    # ***** tiles *****

    def shape(self) -> tuple[int, ...]:
        return self.random.choice(((16,), (64,), (4, 8), (16, 16), (8, 32), (2, 64), (1, 32), (2, 4, 8), (256,)))

    def cut(self, x: Value) -> Value:
        """Numbers between -BOUND and BOUND."""
        b = self.b
        if x.dtype is BOOL:
            return x
        low = 0 if x.dtype.kind == "u" else -BOUND
        lowest, highest = (b.constant(v, x.dtype, x.shape) for v in (low, BOUND))
        return b.pointwise("minimum", b.pointwise("maximum", x, lowest), highest)

    def wide(self, x: Value) -> Value:
        return self.b.convert(x, x.dtype.wide)

    def tile(self, dtype: DType | None = None, shape: tuple[int, ...] | None = None) -> Value:
        """A value that is known, or a new one, as asked for."""
        known = [v for v in self.values if (dtype is None or v.dtype is dtype) and (shape is None or v.shape == shape)]
        if known and self.random.random() < 0.8:
            return self.random.choice(known)
        shape = self.shape() if shape is None else shape
        found = self.load(shape) if shape else self.scalar()
        return found if dtype is None else self.cut_to(found, dtype)

    def cut_to(self, x: Value, dtype: DType) -> Value:
        if dtype.kind == "u" and x.dtype is not BOOL:
            x = self.b.pointwise("abs", self.wide(x))
        return self.b.convert(x, dtype)

    def scalar(self) -> Value:
        b = self.b
        return self.random.choice((b.program_id(0), b.constant(self.random.randint(-5, 5), INT32)))

    def index(self, shape: tuple[int, ...]) -> Value:
        """The row-major number of each element, in one of the ways in which kernels say it."""
        b, total = self.b, int(np.prod(shape))
        if len(shape) == 1 or self.random.random() < 0.3:
            return b.reshape(b.arange(0, total), shape)
        result, step = None, total
        for axis, size in enumerate(shape):
            step //= size
            part = b.arange(0, size)
            for other in range(len(shape)):
                if other != axis:
                    part = b.expand_dims(part, other)
            part = b.broadcast(part, shape)
            part = part if step == 1 else b.pointwise("mul", part, b.constant(step, INT32, shape))
            result = part if result is None else b.pointwise("add", result, part)
        assert result is not None
        return result

    def place(self, shape: tuple[int, ...]) -> Value:
        b, total = self.b, int(np.prod(shape))
        start = b.pointwise("mul", b.program_id(0), b.constant(total, INT32))
        return b.pointwise("add", self.index(shape), b.splat(start, shape))

    def load(self, shape: tuple[int, ...]) -> Value:
        b, k = self.b, self.random.randrange(len(self.inputs))
        dtype, at, how = self.inputs[k], self.place(shape), self.random.random()
        if how < 0.2:
            at = b.pointwise("mul", at, b.constant(self.random.choice((2, 3)), INT32, shape))
        elif how < 0.35:
            at = b.pointwise("bitwise_xor", at, b.constant(self.random.choice((1, 5)), INT32, shape))
        elif how < 0.45:
            at = b.splat(b.constant(self.random.randint(0, 9), INT32), shape)
        pointer = b.offset(b.splat(b.params[k], shape), at)
        if self.random.random() < 0.5:
            return b.load(pointer)
        mask = b.pointwise("lt", at, b.splat(self.size, shape))
        return b.load(pointer, mask, b.constant(self.random.choice((0, 1)), dtype, shape))

    def store(self, x: Value) -> None:
        """To an output of its own, which `finish` allocates."""
        b = self.b
        shape = x.shape or (1,)
        x = x if x.shape else b.splat(x, (1,))
        pointer = b.offset(b.splat(self.output(x.dtype), shape), self.place(shape))
        mask = None
        if self.random.random() < 0.4:
            mask = b.pointwise("lt", self.place(shape), b.splat(self.size, shape))
        b.store(pointer, x, mask)

    def output(self, dtype: DType) -> Value:
        self.outputs.append(dtype)
        place = 1 + len(self.inputs) + len(self.outputs) - 1
        return self.b.value("pointer_cast", self.b.params[place], to=dtype)

    # ***** steps: each appends one value *****

    def step(self) -> None:
        kinds = ["binary"] * 4 + ["unary", "select", "convert", "load", "reduce", "shape", "join", "broadcast"]
        kinds += [k for k in ("scan", "gather", "dot", "histogram") if k in self.features]
        kinds += ["read"] * 4 + ["write"] * 4 if "memory" in self.features else []
        if self.depth < 2:
            kinds += [k for k in ("for_", "if_", "while_") if k in self.features]
        made = getattr(self, f"step_{self.random.choice(kinds)}")()
        self.values.append(made)

    def step_load(self) -> Value:
        return self.load(self.shape())

    def step_binary(self) -> Value:
        x = self.wide(self.tile())
        y = self.cut_to(self.tile(shape=x.shape), x.dtype)
        if x.dtype is BOOL:
            return self.b.pointwise(self.random.choice(("bitwise_and", "bitwise_or", "bitwise_xor", "eq")), x, y)
        prims = ["add", "sub", "mul", "maximum", "minimum", "lt", "eq", "le", "ne"]
        prims += ["bitwise_and", "bitwise_xor", "div_trunc"] if x.dtype.is_integer else []
        prim = self.random.choice(prims)
        if prim == "div_trunc":
            y = self.b.pointwise("bitwise_or", y, self.b.constant(1, y.dtype, y.shape))
        return self.cut(self.b.pointwise(prim, x, y))

    def step_unary(self) -> Value:
        x = self.wide(self.tile())
        if x.dtype is BOOL:
            return self.b.convert(x, FLOAT32)
        return self.cut(self.b.pointwise(self.random.choice(("neg", "abs", "sign")), x))

    def step_select(self) -> Value:
        x = self.tile()
        y, mask = self.cut_to(self.tile(shape=x.shape), x.dtype), self.b.convert(self.tile(shape=x.shape), BOOL)
        return self.b.pointwise("select", mask, x, y)

    def step_convert(self) -> Value:
        return self.cut_to(self.tile(), self.random.choice((*FLOATS, *INTEGERS)))

    def combine(self) -> Callable[..., Any]:
        prim = self.random.choice(("add", "maximum", "minimum"))
        return lambda b, left, right: [b.pointwise(prim, left[0], right[0])]

    def number(self) -> Value:
        """A tile with dims, of numbers."""
        x = self.wide(self.tile())
        x = self.wide(self.load(self.shape())) if not x.shape else x
        return self.b.convert(x, INT32) if x.dtype is BOOL else x

    def step_reduce(self) -> Value:
        x = self.number()
        x = self.b.convert(x, FLOAT32 if x.dtype.kind == "f" else INT32)
        axis = self.random.randrange(len(x.shape))
        if self.random.random() < 0.3:  # the place of the smallest, the first of equals: as argmin
            index = self.index(x.shape)

            def smaller(b: BlockBuilder, left: Any, right: Any) -> list[Value]:
                equal, less = b.pointwise("eq", left[0], right[0]), b.pointwise("lt", left[0], right[0])
                first = b.pointwise("bitwise_and", equal, b.pointwise("lt", left[1], right[1]))
                chosen = b.pointwise("bitwise_or", less, first)
                return [b.pointwise("select", chosen, p, q) for p, q in zip(left, right, strict=True)]

            return self.cut(self.b.reduce([x, index], axis, smaller)[1])
        return self.cut(self.b.reduce([x], axis, self.combine())[0])

    def step_scan(self) -> Value:
        x = self.number()
        x = self.b.convert(x, FLOAT32 if x.dtype.kind == "f" else INT32)
        axis, reverse = self.random.randrange(len(x.shape)), self.random.random() < 0.3
        return self.cut(self.b.scan([x], axis, self.combine(), reverse)[0])

    def step_shape(self) -> Value:
        x = self.tile()
        if not x.shape:
            return self.b.splat(x, self.shape())
        if len(x.shape) > 1 and self.random.random() < 0.5:
            return self.b.permute(x, self.random.sample(range(len(x.shape)), len(x.shape)))
        total = int(np.prod(x.shape))
        rows = self.random.choice([k for k in (1, 2, 4, 8) if total % k == 0])
        return self.b.reshape(x, (rows, total // rows))

    def step_join(self) -> Value:
        x = self.tile()
        if not x.shape or int(np.prod(x.shape)) > 512:
            return x
        y = self.cut_to(self.tile(shape=x.shape), x.dtype)
        joined = self.b.value("join", x, y)
        if self.random.random() < 0.4:
            return self.random.choice(
                self.b.emit("split", self.b.pointwise("select", self.b.convert(joined, BOOL), joined, joined)).results
            )
        return self.b.value("cat", x, y) if self.random.random() < 0.3 else joined

    def step_broadcast(self) -> Value:
        x = self.tile()
        if len(x.shape) != 1 or x.shape[0] > 256:
            return x
        axis, size = self.random.choice((0, 1)), self.random.choice((2, 8, 16))
        shape = (size, x.shape[0]) if axis == 0 else (x.shape[0], size)
        return self.b.broadcast(self.b.expand_dims(x, axis), shape)

    def step_gather(self) -> Value:
        x = self.number()
        axis = self.random.randrange(len(x.shape))
        index = self.b.pointwise("rem_trunc", self.index(x.shape), self.b.constant(x.shape[axis], INT32, x.shape))
        return self.b.value("gather", x, index, axis=axis)

    def step_histogram(self) -> Value:
        x = self.b.convert(self.cut_to(self.load((64,)), INT32), INT32)
        return self.b.value("histogram", x, bins=16)

    def step_dot(self) -> Value:
        b, (m, n, k) = self.b, (self.random.choice((4, 16, 32)) for _ in range(3))
        kind = self.random.choice((FLOAT32, BFLOAT16, FLOAT16, INT8))
        x, y = (b.convert(self.cut(self.wide(self.cut_to(self.load(s), kind))), kind) for s in ((m, k), (k, n)))
        if self.random.random() < 0.5:
            y = b.permute(b.convert(self.cut(self.wide(self.cut_to(self.load((n, k)), kind))), kind), (1, 0))
        return self.cut(b.dot(x, y, b.constant(0, INT32 if kind is INT8 else FLOAT32, (m, n))))

    # ***** memory that is read and written *****

    def shared(self, shape: tuple[int, ...] | None = None) -> Value:
        """Pointers to distinct places: a tile that is known, or a new one."""
        known = [p for p in self.pointers if shape is None or p.shape == shape]
        if known and self.random.random() < 0.6:
            return self.random.choice(known)
        b, how = self.b, self.random.random()
        shape = self.shape() if shape is None else shape
        at = self.index(shape)
        if how < 0.5:
            number = b.constant(self.random.choice((1, 3, 16)), INT32, shape)
            at = b.pointwise("bitwise_xor" if how < 0.25 else "add", at, number)
        start = b.pointwise("mul", b.program_id(0), b.constant(2048, INT32))
        memory = b.offset(b.params[self.random.choice((-2, -1))], start)
        self.pointers.append(b.offset(b.splat(memory, shape), at))
        return self.pointers[-1]

    def step_read(self) -> Value:
        pointer = self.shared()
        mask = None if self.random.random() < 0.6 else self.b.convert(self.tile(shape=pointer.shape), BOOL)
        return (
            self.b.load(pointer, mask)
            if mask is None
            else self.b.load(pointer, mask, self.b.constant(1, INT32, mask.shape))
        )

    def step_write(self) -> Value:
        b, x = self.b, self.tile(INT32)
        x = x if x.shape else b.splat(x, self.shape())
        pointer = self.shared(x.shape)
        mask = [] if self.random.random() < 0.7 else [b.convert(self.tile(shape=x.shape), BOOL)]
        if self.random.random() < 0.15:
            before = b.value("atomic", pointer, x, *mask, combine="max")
            return self.cut(b.pointwise("select", mask[0], before, x) if mask else before)
        b.store(pointer, x, *mask)
        return x

    # ***** control flow: values made within are seen there alone *****

    def inside(self, wanted: list[Value]) -> list[Value]:
        """Some steps within a region; values of the types of `wanted`."""
        known, pointers, self.depth = list(self.values), list(self.pointers), self.depth + 1
        for _ in range(self.random.randint(1, 3)):
            self.step()
        given = [self.tile(v.dtype, v.shape) for v in wanted]
        self.values, self.pointers, self.depth = known, pointers, self.depth - 1
        return given

    def step_for_(self) -> Value:
        b, carried = self.b, [self.tile() for _ in range(self.random.randint(1, 2))]

        def body(index: Value, *values: Value) -> list[Value]:
            before = list(self.values)
            self.values += [index, *values]
            given = self.inside(carried)
            self.values = before
            return given

        bounds = [b.constant(v, INT32) for v in (0, self.random.randint(0, 4), self.random.choice((1, 2)))]
        return self.random.choice(b.for_(*bounds, carried, body))

    def step_if_(self) -> Value:
        b, wanted = self.b, [self.tile()]
        condition = b.pointwise("lt", b.program_id(0), b.constant(self.random.randint(0, 2), INT32))
        return b.if_(condition, lambda: self.inside(wanted), lambda: self.inside(wanted))[0]

    def step_while_(self) -> Value:
        b, x = self.b, self.tile()
        count, limit = b.constant(0, INT32), self.random.randint(0, 3)
        types = [count.type, x.type]
        with b.region(types) as before:
            more = b.pointwise("lt", before.params[0], b.constant(limit, INT32))
            b.emit("yield", more, *before.params)
        with b.region(types) as after:
            self.values.append(after.params[1])
            given = self.inside([x])
            self.values.pop()
            b.emit("yield", b.pointwise("add", after.params[0], b.constant(1, INT32)), *given)
        return b.emit("while", count, x, regions=[before, after]).results[1]

    # ***** the whole *****

    def case(self, steps: int) -> Case:
        places = 8  # outputs at most
        types = [*(Tile(Pointer(d)) for d in self.inputs), Tile(INT32), *[Tile(Pointer(UINT8))] * places]
        shared = [Tile(Pointer(INT32))] * (2 if "memory" in self.features else 0)
        types += shared
        self.b = BlockBuilder(f"random{self.random.randrange(1 << 30)}", types)
        self.size = self.b.params[len(self.inputs)]
        for _ in range(steps):
            self.step()
        for value in self.random.sample(self.values, min(places, len(self.values))):
            self.store(value)
        arguments: list[Any] = [memory_of(d, self.contents(d)) for d in self.inputs]
        arguments += [self.n, *(np.zeros(1 << 17, np.uint8) for _ in range(places))]
        arguments += [memory_of(INT32, self.contents(INT32)) for _ in shared]
        return Case(self.b.finish(), (self.programs,), arguments)

    def contents(self, dtype: DType) -> Any:
        low, high = (0, 2) if dtype is BOOL else (0, 9) if dtype.kind == "u" else (-8, 9)
        return self.numbers.integers(low, high, 1 << 15)


FEATURES = frozenset({"scan", "gather", "dot", "histogram", "for_", "if_", "while_"})


def draw(seed: int, steps: int = 8, features: frozenset[str] = FEATURES) -> Case:
    """The kernel of a seed; `features` are the kinds of operations that may occur beside the plain ones."""
    return _Draw(seed, features).case(steps)
