"""Launches: what is specialised, compiled kernels, autotuning, heuristics, benchmarks."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import rushlight as torch
from rushlight import triton
from rushlight.triton import language as tl
from rushlight.triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize("n", [1, 15, 64, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
def test_vectors_of_any_size(n: int, dtype) -> None:
    x, y = (torch.randint(0, 50, (n,)).to(dtype) for _ in range(2))
    out = torch.zeros(n + 16, dtype=dtype)
    add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=64)
    assert torch.equal(out[:n], x + y) and not out[n:].any()


@triton.jit
def transpose(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tile = tl.load(x + i[:, None] * N + i[None, :])
    tl.store(y + i[None, :] * N + i[:, None], tile)


def test_one_tensor_as_input_and_output() -> None:
    """What a program has loaded stays what it was, also where it stores to the same memory through another parameter."""
    x = torch.arange(256).reshape(16, 16)
    wanted, out = x.T.clone(), torch.zeros_like(x)
    for _ in range(2):
        transpose[(1,)](x, out, 16)
        assert torch.equal(out, wanted)
    transpose[(1,)](x, x, 16)
    assert torch.equal(x, wanted)


def test_what_is_specialised() -> None:
    kernel = triton.jit(add.fn)
    x = torch.zeros(100)
    first = kernel[(1,)](x, x, x, 32, BLOCK=16)
    assert first.kernel.divisible == {0: 16, 1: 16, 2: 16, 3: 16}
    assert kernel[(1,)](x, x, x, 48, BLOCK=16) is first
    assert kernel[(1,)](x[1:], x, x, 48, BLOCK=16) is not first
    assert kernel[(1,)](x, x, x, 7, BLOCK=16).kernel.divisible == {0: 16, 1: 16, 2: 16}
    assert [p.name for p in kernel[(1,)](x, x, x, 1, BLOCK=16).kernel.params] == ["x", "y", "out"]
    assert kernel[(1,)](x, x, x, 2**40, BLOCK=16).kernel.params[3].type.element.name == "int64"
    assert len(kernel.kernels) == 5


@triton.jit
def told(out, a, b, c, KIND: tl.constexpr, OTHER: tl.constexpr = 3):
    tl.store(out, a * 100 + b + OTHER)
    if KIND is True:
        tl.store(out + 1, 1)
    elif isinstance(KIND, int):
        tl.store(out + 1, KIND + 10)
    else:
        tl.store(out + 1, 20)
    if c is not None:
        tl.store(out + 2, c)


def test_repeated_launches_find_their_kernel() -> None:
    """A second launch of a kind takes a short way, to the kernel that the long way finds, with the same words."""
    kernel, long = triton.jit(told.fn), triton.jit(told.fn)
    whole = torch.zeros(64)
    calls = [
        ((a, b, c, kind), {**more})
        for a in (1, 16, 2**40)
        for b in (0.5, True)
        for c in (None, 2.5)
        for kind in (True, 1, 1.0)
        for more in ({}, {"num_warps": 8}, {"OTHER": 4})
    ]
    for at in (0, 1, 4):
        for args, options in calls * 2:
            out, other = whole[at : at + 3].zero_(), torch.zeros(68)[at : at + 3]
            found = kernel[(1,)](out, *args, **options)
            long._quick.clear()
            expected = long[(1,)](other, *args, **options)
            assert out.tolist() == other.tolist(), (args, options)
            assert found.keys == expected.keys and found.options == expected.options
    assert kernel._quick and len(kernel.kernels) == len(long.kernels)


def test_what_the_short_way_leaves_to_the_long_one() -> None:
    kernel, seen = triton.jit(told.fn), []
    out = torch.zeros(4)
    for _ in range(2):
        kernel[lambda meta: (meta["KIND"],)](out, 1, 1, None, 1)
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'KIND'"):
            kernel[(1,)](out, 1, 1, None)
        with pytest.raises(KeyError, match="stages was specified but unrecognised"):
            kernel[(1,)](out, 1, 1, None, 1, stages=2)
        with pytest.raises(TypeError, match="multiple values for argument 'a'"):
            kernel[(1,)](out, 1, 1, None, 1, a=3)
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append(args[1:]))
    kernel[(1,)](out, 1, 1, None, 1)
    assert seen == [(1, 1, None, 1)]


def test_do_not_specialize() -> None:
    kernel = triton.jit(add.fn, do_not_specialize=["n"])
    x = torch.zeros(100)
    found = {id(kernel[(1,)](x, x, x, n, BLOCK=16)) for n in (1, 16, 17)}
    assert len(found) == 1


@triton.jit
def annotated(x, n: tl.int64, f: "fp64", flag: "i1"):  # noqa: F821
    tl.static_assert(n.dtype == tl.int64)
    tl.static_assert(f.dtype == tl.float64)
    tl.store(x, n + flag)


def test_annotated_types() -> None:
    x = torch.zeros(1)
    annotated[(1,)](x, 1, 0.5, True)
    assert x.item() == 2


@triton.jit
def parts(x, pair, nothing, scale, dtype):
    if nothing is None:
        tl.store(x, (pair[0] * scale + pair[1]).to(dtype))


def test_tuples_none_and_types_as_arguments() -> None:
    x = torch.zeros(1)
    parts[(1,)](x, (7, 3), None, 0.5, tl.float32)
    assert x.item() == 6.5


@triton.jit
def copy_block(source, target):
    target.store([0, 0], source.load([2, 4]))


def test_descriptors_of_the_host() -> None:
    x, out = torch.arange(256.0).reshape(16, 16), torch.zeros(8, 8)
    copy_block[(1,)](TensorDescriptor.from_tensor(x, [8, 8]), TensorDescriptor.from_tensor(out, [8, 8]))
    assert torch.equal(out, x[2:10, 4:12])


@triton.jit
def block_pointers(x, out, rows, columns):
    p = tl.make_block_ptr(x, (rows, columns), (columns, 1), (4, 0), (8, 8), (1, 0))
    q = tl.make_block_ptr(out, shape=(8, 8), strides=(8, 1), offsets=(0, 0), block_shape=(8, 8), order=(1, 0))
    total = tl.zeros((8, 8), tl.float32)
    for _ in range(0, columns, 8):
        total += tl.load(p, boundary_check=(0, 1), padding_option="zero")
        p = tl.advance(p, (0, 8))
    tl.store(q, total.to(q.dtype.element_ty), boundary_check=(0, 1))


def test_block_pointers() -> None:
    x = torch.randn(10, 21)
    out = torch.zeros(8, 8, dtype=torch.float16)
    block_pointers[(1,)](x, out, 10, 21)
    padded = torch.zeros(12, 24)
    padded[:10, :21] = x
    wanted = padded[4:12].reshape(8, 3, 8).sum(1).half()
    torch.testing.assert_close(out, wanted)


def test_reinterpret() -> None:
    x = torch.zeros(16, dtype=torch.int8)
    bits = torch.full((16,), 56, dtype=torch.int8)
    half_of = triton.reinterpret(bits, tl.float8e4nv)
    out = torch.zeros(16)
    convert[(1,)](half_of, out)
    assert out[0].item() == 1.0 and triton.reinterpret(half_of, torch.int8) is bits and not x.any()


@triton.jit
def convert(x, out):
    i = tl.arange(0, 16)
    tl.store(out + i, tl.load(x + i).to(tl.float32))


def test_compiled_kernels() -> None:
    x = torch.ones(64)
    out = torch.zeros(64)
    compiled = add.warmup(x, x, out, 64, BLOCK=64, grid=(1,))
    assert not out.any()
    compiled[(1, 1, 1)](x, x, out, 64)
    assert torch.equal(out, x + x)
    assert "kernel add(" in compiled.asm["blocks"] and "define i32 @" in compiled.asm["llir"]
    assert compiled.metadata.num_warps == 4 and compiled.metadata.name == "add"
    with pytest.raises(KeyError, match="rushlight's stages"):
        compiled.asm["ttgir"]


def test_compile_ahead() -> None:
    source = triton.compiler.ASTSource(add, {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 32})
    compiled = triton.compile(source, options={"num_warps": 8})
    out = torch.zeros(32)
    compiled[(1,)](torch.ones(32), torch.ones(32), out, 32)
    assert out.sum().item() == 64 and compiled.metadata.num_warps == 8


# ***** autotune and heuristics *****


def tuned(**options):
    configs = [triton.Config({"BLOCK": size}, num_warps=warps) for size in (16, 64) for warps in (2, 4)]
    return triton.autotune(configs, key=["n"], warmup=1, rep=1, **options)(triton.jit(add.fn))


def test_autotune_measures_once_for_each_key() -> None:
    measured = []

    def bench(launch, quantiles):
        launch()
        measured.append(1)
        return [float(len(measured) % 2), 0.0, 0.0]

    kernel = tuned(do_bench=bench)
    x = torch.ones(100)
    out = torch.zeros(100)
    grid = lambda meta: (triton.cdiv(100, meta["BLOCK"]),)
    for _ in range(2):
        kernel[grid](x, x, out, 100)
    assert torch.equal(out, x + x)
    assert len(measured) == 2, "numbers of warps are the same kernel here"
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    kernel[grid](x, x, out, 99)
    assert len(measured) == 4 and len(kernel.cache) == 2


@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=[], reset_to_zero=["total"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def accumulate(x, total, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at) if EVEN else tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(total, tl.sum(value))


def test_reset_to_zero_and_heuristics() -> None:
    total = torch.zeros(1)
    accumulate[lambda meta: (triton.cdiv(50, meta["BLOCK"]),)](torch.ones(50), total, 50)
    assert total.item() == 50


@triton.jit
def double_in_place(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i) * 2)


def test_restore_value_and_hooks() -> None:
    seen = []
    configs = [triton.Config({"BLOCK": 16}, pre_hook=lambda args: seen.append(args["BLOCK"])) for _ in range(2)]
    kernel = triton.autotune(configs, key=[], restore_value=["x"], warmup=1, rep=1)(double_in_place)
    x = torch.ones(16)
    kernel[(1,)](x)
    assert torch.equal(x, torch.full((16,), 2.0)) and set(seen) == {16}


def test_pruning() -> None:
    kept = tuned(prune_configs_by={"early_config_prune": lambda configs, named, **kwargs: configs[-1:]})
    x = torch.ones(10)
    kept[(1,)](x, x, x, 10)
    assert kept.best_config.kwargs["BLOCK"] == 64
    modelled = tuned(prune_configs_by={"perf_model": lambda **args: args["BLOCK"], "top_k": 1})
    modelled[(1,)](x, x, x, 10)
    assert modelled.best_config.kwargs["BLOCK"] == 16


def test_choices_are_kept_on_disk(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    x = torch.ones(10)
    first = tuned(cache_results=True)
    first[(1,)](x, x, x, 10)
    (path,) = tmp_path.rglob("best.json")
    assert json.loads(path.read_text()) == str(first.best_config)

    def never(launch, quantiles):
        raise AssertionError("measured again")

    tuned(cache_results=True, do_bench=never)[(1,)](x, x, x, 10)


# ***** testing *****


def test_benchmarks(tmp_path, capsys) -> None:
    assert triton.testing.do_bench(lambda: None, warmup=1, rep=1) >= 0
    assert len(triton.testing.do_bench(lambda: None, warmup=1, rep=1, quantiles=[0.2, 0.5, 0.8])) == 3
    triton.testing.assert_close(torch.ones(3), np.ones(3))
    with pytest.raises(AssertionError):
        triton.testing.assert_close(torch.ones(3), torch.zeros(3))

    @triton.testing.perf_report(
        triton.testing.Benchmark(["n"], [1, 2], "provider", ["a", "b"], ["A", "B"], "sums", {"start": 10})
    )
    def measure(n, provider, start):
        return float(start + n + (provider == "b"))

    rows = measure.run(print_data=True, save_path=str(tmp_path))
    assert rows == [[1, 11.0, 12.0], [2, 12.0, 13.0]]
    assert "sums" in capsys.readouterr().out and (tmp_path / "sums.csv").read_text().startswith("n,A,B")


def test_plots_of_benchmarks(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    bench = triton.testing.Benchmark(
        ["n"], [1, 2, 4], "line", [1, 2], ["one", "two"], "plot", {}, ylabel="ms", x_log=True
    )
    mark = triton.testing.perf_report(bench)(lambda n, line: (n * line, n * line - 1, n * line + 1))
    figure = bench.draw(bench.measured(mark.fn))
    (axes,) = figure.axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[1, 2, 4], [2, 4, 8]] and axes.get_xscale() == "log"
    assert mark.run(save_path=str(tmp_path)) == [[1, 1, 2], [2, 2, 4], [4, 4, 8]]
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"rushlight\[triton\]"):
        mark.run(return_df=True)


def test_driver() -> None:
    active = triton.runtime.driver.active
    assert active.get_current_target().backend in ("cpu", "cuda")
    assert active.utils.get_device_properties(0)["multiprocessor_count"] >= 1


def test_host_functions() -> None:
    assert [triton.cdiv(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [triton.next_power_of_2(n) for n in (1, 2, 3, 1000)] == [1, 2, 4, 1024]


def test_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    kernel = triton.jit(add.fn)
    x = torch.ones(10)
    kernel[(1,)](x, x, x, 10, BLOCK=16)
    assert x.sum().item() == 20


def test_printing(capfd) -> None:
    x = torch.arange(16)
    show[(2,)](x)
    assert "pid" in capfd.readouterr().out


@triton.jit
def show(x):
    tl.device_print("pid", tl.program_id(0))
    print("value", tl.load(x))


@pytest.mark.parametrize(("device", "expected"), [("none", "True False"), ("emulated", "True True")])
def test_programs_that_ask_for_triton(tmp_path, device: str, expected: str) -> None:
    """`has_triton` is about a GPU, as in PyTorch; the language is there under the name `torch`."""
    program = tmp_path / "asks.py"
    program.write_text(
        "from torch.utils._triton import has_triton, has_triton_package\nprint(has_triton_package(), has_triton())\n"
    )
    environment = {**os.environ, "RUSHLIGHT_CUDA": device, "RUSHLIGHT_TRITON": "own"}
    done = subprocess.run(
        [sys.executable, "-m", "rushlight", str(program)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == expected, done.stderr
