"""What kernels and launchers of other packages ask of the language beside its functions."""

from __future__ import annotations

import inspect

import pytest

import rushlight as torch
from rushlight import triton
from rushlight.triton import language as tl


@triton.jit
def least(dtype):
    found = dtype.value  # a type is a constexpr where a function takes it
    if found.is_floating():
        least_of: tl.constexpr = float("-inf")
    else:
        least_of: tl.constexpr = -(2 ** (found.int_bitwidth - 1))
    return least_of


@triton.jit
def largest(x: tl.const, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=least(x.type.element_ty))
    tl.store(out, v.reduce(0, maximum_of))


@triton.jit
def maximum_of(a, b):
    return tl.maximum(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
def test_types_as_arguments(dtype: object) -> None:
    x, out = torch.tensor([-5, -3, -9], dtype=dtype), torch.zeros(1, dtype=dtype)
    largest[(1,)](x, out, 3, BLOCK=4)
    assert out.item() == -3


def test_a_compiled_kernel_takes_all_arguments_or_those_of_run_time() -> None:
    x, out = torch.tensor([1.0, 4.0, 2.0, 8.0]), torch.zeros(1)
    made = largest[(1,)](x, out, 3, BLOCK=4)
    for arguments in ((x, out, 4, 4), (x, out, 4)):
        out.zero_()
        made[(1, 1, 1)](*arguments)
        assert out.item() == 8
    with pytest.raises(TypeError, match="takes 4 arguments, of which 3 are passed at run time, and got 6"):
        made[(1, 1, 1)](x, out, 4, 4, 4, 4)


def test_parameters_and_globals() -> None:
    assert largest.__globals__ is globals()
    assert all(p.default is inspect.Parameter.empty for p in largest.params)


@triton.jit
def through_descriptor(x, out, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [8, BLOCK], [BLOCK, 1], [8, BLOCK])
    target = tl.make_tensor_descriptor(out, [8, BLOCK], [BLOCK, 1], [8, BLOCK])
    target.store([0, 0], (source.load([0, 0]) * 2).to(target.dtype))
    tl.static_assert(source.block_type.shape[0] == 8)


def test_the_type_of_a_descriptors_elements() -> None:
    x, out = torch.randn(8, 16), torch.zeros(8, 16, dtype=torch.float16)
    through_descriptor[(1,)](x, out, BLOCK=16)
    assert torch.equal(out, (x * 2).half())


def test_a_tuner_is_asked_as_tritons() -> None:
    tuned = triton.autotune([triton.Config({"BLOCK": 4})], key=["n"], do_bench=lambda f, quantiles: f() or [1.0])(
        largest
    )
    tuned.nargs = {}
    x, out = torch.tensor([1.0, 4.0, 2.0, 8.0]), torch.zeros(1)
    assert tuned._bench(x, out, 4, config=tuned.configs[0], grid=(1,)) == [1.0]
    assert out.item() == 8


@triton.jit
def scaled(x, out, n, BLOCK: tl.constexpr):
    last: tl.constexpr = n - 1
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * last, mask=i <= last)


def test_a_value_of_the_running_kernel_declared_constexpr() -> None:
    x, out = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.zeros(4)
    scaled[(1,)](x, out, 3, BLOCK=4)
    assert out.tolist() == [2, 4, 6, 0]


@pytest.mark.cuda
def test_what_a_card_does_at_most() -> None:
    from rushlight.triton import testing

    found = torch.cuda.get_device_properties()
    assert testing.get_dram_gbps() == pytest.approx(found.memory_clock_rate * found.memory_bus_width / 4e6)
    tensor_cores = testing.get_max_tensorcore_tflops(torch.bfloat16, 1_000_000)
    assert tensor_cores == pytest.approx(found.multi_processor_count * 4 * 512 * 1e-3)
    assert testing.get_max_simd_tflops(torch.float32, 1_000_000) == pytest.approx(tensor_cores / 16)
    with pytest.raises(RuntimeError, match="not supported"):
        testing.get_max_simd_tflops(torch.float64, 1)
