"""The binding of cuBLASLt against a library of the test's own, which multiplies column-major matrices of the host."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from tests.cuda.grids.grid_harness import check

from rushlight._backends.cuda.arguments import dense_operand
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.gemm import choice
from rushlight._backends.cuda.gemm.choice import WHO, chosen
from rushlight._backends.cuda.gemm.dot import product_steps
from rushlight._backends.cuda.immediate import Immediate, Placed
from rushlight._backends.cuda.libraries import cublaslt, provider
from rushlight._backends.cuda.libraries.cublaslt import CublasLt, LtProduct, fits
from rushlight._backends.cuda.program.steps import Call, Memory, Operand
from rushlight._backends.registry import backend_of
from rushlight._base.errors import MissingExtraError
from rushlight._codegen.blocks.memory import numbers_of
from rushlight._prims import build, prim
from rushlight._types.device import Device
from rushlight._types.dtype import BY_NAME, FLOAT32


class Function:
    """A function with `argtypes`, which are remembered."""

    def __init__(self, run: Any) -> None:
        self.run, self.argtypes = run, ()

    def __call__(self, *arguments: Any) -> int:
        assert len(arguments) == len(self.argtypes)
        return int(self.run(*arguments) or 0)


class Library:
    """Handles are numbers, attributes are kept by them."""

    def __init__(self) -> None:
        self.objects: dict[int, dict[Any, Any]] = {}
        names = ("MatmulDesc", "MatrixLayout", "MatmulPreference")
        self.cublasLtCreate = Function(lambda to: self.new(to))
        for name in names:
            setattr(self, f"cublasLt{name}Create", Function(lambda to, *values: self.new(to, create=values)))
            setattr(self, f"cublasLt{name}SetAttribute", Function(self.set))
        self.cublasLtMatmulAlgoGetHeuristic = Function(self.heuristic)
        self.cublasLtMatmul = Function(self.matmul)

    def new(self, to: Any, **values: Any) -> None:
        to._obj.value = len(self.objects) + 1
        self.objects[len(self.objects) + 1] = dict(values)

    def set(self, handle: Any, attribute: int, value: Any, size: int) -> None:
        assert size == ctypes.sizeof(value._obj)
        self.objects[handle.value][attribute] = value._obj.value

    def heuristic(self, *arguments: Any) -> None:
        """An algorithm that counts on addresses as aligned as the preferences say, by itself on multiples of 256."""
        asked, found = self.objects[arguments[6].value], arguments[-2]._obj
        for k, attribute in enumerate((5, 6, 7, 8)):
            found.algorithm[k] = asked.get(attribute, 256)
        arguments[-1]._obj.value = 1

    def matrix(self, address: int, layout: Any, turned: bool) -> Any:
        """[batch, rows, columns] of column-major memory."""
        kept = self.objects[layout.value]
        _, rows, columns, lead = kept["create"]
        step, count = kept.get(6, 0), kept.get(5, 1)
        data = np.ctypeslib.as_array(
            (ctypes.c_float * (step * (count - 1) + lead * (columns - 1) + rows)).from_address(address)
        )
        found = np.lib.stride_tricks.as_strided(data, (count, rows, columns), (4 * step, 4, 4 * lead))
        return found.swapaxes(1, 2) if turned else found

    def matmul(self, *given: Any) -> None:
        description = self.objects[given[1].value]
        for address, alignment in zip(
            (given[3], given[5], given[8], given[10]), given[12]._obj.algorithm, strict=False
        ):
            assert address % alignment == 0
        first = self.matrix(given[3], given[4], bool(description.get(3)))
        second = self.matrix(given[5], given[6], bool(description.get(4)))
        self.matrix(given[10], given[11], False)[...] = first @ second


def operand(x: Any) -> Operand:
    return Operand(Memory(x.nbytes), FLOAT32, x.shape, tuple(s // 4 for s in x.strides))


@pytest.mark.parametrize("turned_a", [False, True])
@pytest.mark.parametrize("turned_b", [False, True])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_row_major_products(turned_a: bool, turned_b: bool, batch: tuple[int, ...]) -> None:
    """All ways in which operands lie."""
    random = np.random.default_rng(0)
    a = random.normal(size=(*batch, *((5, 4) if turned_a else (4, 5)))).astype(np.float32)
    b = random.normal(size=(*batch, *((6, 5) if turned_b else (5, 6)))).astype(np.float32)
    out = np.zeros((*batch, 4, 6), np.float32)
    x, y = (v.swapaxes(-1, -2) if turned else v for v, turned in ((a, turned_a), (b, turned_b)))
    assert fits(operand(x), operand(y), operand(out), "float32")
    product = LtProduct(CublasLt(Library()), operand(x), operand(y), operand(out), "float32")
    product(0, a.ctypes.data, b.ctypes.data, out.ctypes.data, 0)
    np.testing.assert_allclose(out, x @ y, rtol=1e-5, atol=1e-6)


def test_operands_may_begin_at_any_element() -> None:
    """Algorithms count on addresses that are aligned as they were told, by themselves on multiples of 256."""
    random, memory = np.random.default_rng(0), [np.zeros(200, np.float32) for _ in range(3)]
    for shift in range(5):
        first, second, out = (
            m[(-m.ctypes.data % 16 // 4) + shift :][:n] for m, n in zip(memory, (20, 30, 24), strict=True)
        )
        x, y, z = first.reshape(4, 5), second.reshape(5, 6), out.reshape(4, 6)
        x[...], y[...] = random.normal(size=x.shape), random.normal(size=y.shape)
        product = LtProduct(CublasLt(Library()), operand(x), operand(y), operand(z), "float32")
        product(0, x.ctypes.data, y.ctypes.data, z.ctypes.data, 0)
        np.testing.assert_allclose(z, x @ y, rtol=1e-5, atol=1e-6)


def test_each_device_has_a_handle_of_its_own() -> None:
    """The library ties what it holds to the device that is current when a handle is made."""
    devices = iter([0, 1, 0])
    one = CublasLt(Library(), lambda: next(devices))
    handles = [one.handle.value for _ in range(3)]
    assert handles[0] == handles[2] != handles[1]


def test_products_that_do_not_fit() -> None:
    x = np.zeros((8, 8), np.float32)
    spread = np.zeros((8, 16), np.float32)[:, ::2]
    assert not fits(operand(spread), operand(x), operand(x), "float32")
    assert not fits(operand(x), operand(x), operand(x.T), "float32")


def test_floats_of_eight_bits_are_dense_along_k() -> None:
    e4m3, e5m2 = (BY_NAME[f"float8_{name}"] for name in ("e4m3fn", "e5m2"))
    out = operand(np.zeros((32, 64), np.float32))

    def wanted(first: Any, second: Any, depth: int = 48, strides: Any = None) -> bool:
        x = Operand(Memory(32 * depth), first, (32, depth), (depth, 1))
        y = Operand(Memory(64 * depth), second, (depth, 64), strides or (1, depth))
        return fits(x, y, out, "float32")

    assert wanted(e4m3, e4m3) and wanted(e5m2, e4m3) and not wanted(e5m2, e5m2)
    assert not wanted(e4m3, e4m3, 40) and not wanted(e4m3, e4m3, 48, (64, 1))


def test_a_library_that_is_not_there() -> None:
    """Ours are taken; asking for the library alone says what is missing."""
    x = operand(np.zeros((512, 512), np.float32))
    call = ExternCall("dot", [x, x], [x], {})
    with cublaslt.LIBRARY.scoped("none"):
        assert chosen(call, x, x, x, "float32", []) == []
        with WHO.scoped("library"), pytest.raises(MissingExtraError, match="extra 'cuda'"):
            chosen(call, x, x, x, "float32", [])
    assert cublaslt.LIBRARY.get() == ""


class Together:
    """A library that computes products by a kernel of ours, so that programs with it run anywhere."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[int, ...]] = []
        monkeypatch.setattr(choice, "asks_library", lambda *_: True)
        monkeypatch.setattr(choice, "_library_step", self.step)
        monkeypatch.setattr(choice, "_is_faster", lambda *_: True)

    def step(self, call: ExternCall, a: Operand, b: Operand, out: Operand, sums: str) -> Any:
        self.asked.append(tuple(out.shape))
        (made,) = product_steps(call, a, b, out, splits=1)
        return made


@pytest.mark.parametrize("batch", [(), (3,)])
def test_an_epilogue_behind_the_librarys_product(batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the library's sums, in the layout that the result is asked for."""
    together, random = Together(monkeypatch), np.random.default_rng(0)
    a, b = (random.normal(size=(*batch, *shape)).astype(np.float32) for shape in ((20, 24), (24, 40)))
    bias, residual = (random.normal(size=(*batch, 20, 40)).astype(np.float32) for _ in range(2))
    strides = (1, 20) if not batch else (800, 1, 20)

    def layer(a: Any, b: Any, bias: Any, residual: Any) -> Any:
        return prim.tanh(build.dot(a, b) + bias) + residual

    ran = check(layer, a, b, bias, residual, out_strides=[strides])
    assert together.asked == [(*batch, 20, 40)] and len(ran.program.steps) == 2


def test_numbers_of_eight_bits_that_both_formats_have() -> None:
    """The bytes that trials of float8 multiply are finite numbers, neither large nor small."""
    for name in ("float8_e4m3fn", "float8_e5m2"):
        numbers = numbers_of(np.arange(0x30, 0x48, dtype=np.uint8), BY_NAME[name])
        assert numbers.min() >= 0.125 and numbers.max() <= 7


class Kept(dict[Any, bytes]):
    """A cache in memory, as strict on keys as that on disk."""

    puts = 0

    def key(self, *parts: Any) -> Any:
        assert all(isinstance(part, str | bytes) for part in parts)
        return parts

    def put(self, key: Any, data: bytes) -> None:
        self[key], self.puts = data, self.puts + 1


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("answer", ["right", "nothing"])
def test_a_trial_of_both_ways(kind: str, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that writes nothing, or other numbers, is not taken however fast it is."""
    device = Device("cuda", 0)
    backend: Any = backend_of(device)
    backend.initialize(device)
    dtype = BY_NAME[kind]
    a, b, out = (dense_operand(Memory(64 * 64 * t.itemsize), t, (64, 64)) for t in (dtype, dtype, FLOAT32))
    ours = product_steps(ExternCall("dot", [a, b], [out], {}), a, b, out)

    def library(stream: int, *addresses: int) -> None:
        if answer == "right":
            operands = [
                dense_operand(Placed(to, x.memory.nbytes), x.dtype, x.shape)
                for x, to in zip((a, b, out), addresses, strict=False)
            ]
            Immediate(backend, device).run(product_steps(ExternCall("dot", operands[:2], operands[2:], {}), *operands))

    kept = Kept()
    monkeypatch.setattr(provider, "default_cache", lambda: kept)
    for _ in range(2):
        found = choice._is_faster(a, b, out, "float32", ours, [Call("library", library, [])])
        assert not found or answer == "right"
    assert kept.puts == 1
