"""Fourier transforms against NumPy's in float64: every kind, length and layout, with a bound on the error that follows from the method."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.cpu.fft import fourier
from rushlight._backends.cpu.fft.fourier_native import COMPLEX
from rushlight._backends.cpu.microkernels.fourier import FourierMoves, FourierPass
from rushlight._backends.cpu.runtime import threads
from rushlight.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(17)
REAL = {"complex64": "float32", "complex128": "float64"}
# 1, each radix, prime powers, products of all radices, primes without a pass (small, large), halves that have none
LENGTHS = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 19, 26, 31, 34, 46, 49, 64, 66, 77, 100, 128, 143, 243, 254, 256, 500, 1000, 1009, 1155, 2018, 15625,
)  # fmt: skip


def numbers(shape: tuple[int, ...], dtype: str) -> Any:
    found = RNG.standard_normal(shape)
    return (found + 1j * RNG.standard_normal(shape) if dtype.startswith("c") else found).astype(dtype)


def assert_near(got: Any, wanted: Any, count: int, eps: float, what: object = "") -> None:
    """The error of a transform of `count` numbers, in the mean square, grows as eps log count (Higham, "Accuracy and Stability of Numerical
    Algorithms", 2002, section 24.1); each element's may be a few times as much.  Bluestein's transforms of up to four times the length are within it
    too."""
    got = got.resolve_conj().numpy()
    assert got.shape == wanted.shape, what
    if wanted.size:
        size = math.sqrt(float((np.abs(wanted) ** 2).mean())) or 1.0
        assert np.abs(got - wanted).max() <= 8 * eps * (1 + math.log2(count)) * size, what


def along(x: Any, n: int, dim: int, dtype: str) -> None:
    """The six transforms along a dim; x is real."""
    eps, item = np.finfo(dtype).eps, torch.from_numpy(x)
    z = (x + 1j * np.roll(x, 1, dim)).astype(dtype)
    wave = torch.from_numpy(z)
    half = np.take(z, range(n // 2 + 1), dim)
    wide, wide_z, wide_half = x.astype("float64"), z.astype("complex128"), half.astype("complex128")
    for norm in ("backward", "ortho", "forward"):
        assert_near(torch.fft.fft(wave, dim=dim, norm=norm), np.fft.fft(wide_z, axis=dim, norm=norm), n, eps, (n, norm))
        assert_near(
            torch.fft.ifft(wave, dim=dim, norm=norm), np.fft.ifft(wide_z, axis=dim, norm=norm), n, eps, (n, norm)
        )
        assert_near(torch.fft.rfft(item, dim=dim, norm=norm), np.fft.rfft(wide, axis=dim, norm=norm), n, eps, (n, norm))
        assert_near(
            torch.fft.ihfft(item, dim=dim, norm=norm), np.fft.ihfft(wide, axis=dim, norm=norm), n, eps, (n, norm)
        )
        assert_near(
            torch.fft.irfft(torch.from_numpy(half), n, dim, norm),
            np.fft.irfft(wide_half, n, dim, norm),
            n,
            eps,
            (n, norm),
        )
        assert_near(
            torch.fft.hfft(torch.from_numpy(half), n, dim, norm),
            np.fft.hfft(wide_half, n, dim, norm),
            n,
            eps,
            (n, norm),
        )


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("n", LENGTHS)
def test_every_length(n: int, dtype: str) -> None:
    real = REAL[dtype]
    lanes = 64 // np.dtype(real).itemsize
    along(numbers((n,), real), n, 0, dtype)
    if n <= 1155:
        along(numbers((lanes + 3, n), real), n, 1, dtype)  # rows: a tile of them, and some lanes of another
        along(numbers((n, lanes + 3), real), n, 0, dtype)  # columns


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("n", [1 << 17, 1 << 20, 3**10, 100003, 2 * 65537])
def test_long_sequences(n: int, dtype: str) -> None:
    x = numbers((n,), dtype)
    eps, wide = np.finfo(dtype).eps, x.astype("complex128")
    assert_near(torch.fft.fft(torch.from_numpy(x)), np.fft.fft(wide), n, eps)
    assert_near(torch.fft.ifft(torch.from_numpy(x), norm="ortho"), np.fft.ifft(wide, norm="ortho"), n, eps)
    real = numbers((n,), REAL[dtype])
    half = np.fft.rfft(real.astype("float64"))
    assert_near(torch.fft.rfft(torch.from_numpy(real)), half, n, eps)
    assert_near(
        torch.fft.irfft(torch.from_numpy(half.astype(dtype)), n),
        np.fft.irfft(half.astype(dtype).astype("complex128"), n),
        n,
        eps,
    )


@pytest.mark.parametrize("seed", range(8))
def test_any_dims_of_any_layout(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(12):
        ndim = draw.randint(1, 4)
        shape = tuple(
            draw.choice([1, 2, 3, 5, 8, 16, 17, 24, 33, 64] if ndim < 4 else [1, 2, 5, 8, 17]) for _ in range(ndim)
        )
        dtype = draw.choice(["complex64", "complex128"])
        order, dims = draw.sample(range(ndim), ndim), draw.sample(range(ndim), draw.randint(1, ndim))
        steps = tuple(slice(None, None, draw.choice([1, 1, 2])) for _ in range(ndim))
        norm = draw.choice(["backward", "ortho", "forward"])
        for name in ("fftn", "ifftn", "rfftn", "ihfftn"):
            real = name in ("rfftn", "ihfftn")
            x = numbers(shape, REAL[dtype] if real else dtype).transpose(order)[steps]
            count = math.prod(x.shape[d] for d in dims)
            got = getattr(torch.fft, name)(torch.from_numpy(x), dim=dims, norm=norm)
            if name == "ihfftn":  # NumPy has none over several dims
                wanted = np.conj(
                    np.fft.rfftn(
                        x.astype("float64"),
                        axes=dims,
                        norm={"backward": "forward", "forward": "backward"}.get(norm, norm),
                    )
                )
            else:
                wanted = getattr(np.fft, name)(x.astype("float64" if real else "complex128"), axes=dims, norm=norm)
            assert_near(got, wanted, count, np.finfo(dtype).eps, (name, shape, order, dims, norm))
        x = numbers(shape, dtype).transpose(order)[steps]
        last = draw.choice([2 * x.shape[dims[-1]] - 1, max(2 * x.shape[dims[-1]] - 2, 1)])
        sizes = [*(x.shape[d] for d in dims[:-1]), last]
        got = torch.fft.irfftn(torch.from_numpy(x), s=sizes, dim=dims, norm=norm)
        wanted = np.fft.irfftn(x.astype("complex128"), s=sizes, axes=dims, norm=norm)
        assert_near(got, wanted, math.prod(sizes), np.finfo(dtype).eps, ("irfftn", shape, order, dims))


def test_many_rows_and_many_columns() -> None:
    cases = (
        ((3, 40, 100), (1,)),
        ((700, 16), (1,)),
        ((16, 700), (0,)),
        ((9000, 20), (0,)),
        ((2, 3, 40, 5, 33), (2,)),
        ((64, 64, 64), (0, 1, 2)),
    )
    cases += (
        ((700, 4), (1,)),
        ((700, 2), (1,)),
        ((40, 128, 5), (1,)),
        ((3, 1009, 5), (1,)),
        ((8, 30, 30, 3), (1, 2)),
        ((12, 4096, 2), (1,)),
    )
    for shape, dims in cases:
        x = numbers(shape, "complex64")
        count = math.prod(shape[d] for d in dims)
        wanted = np.fft.fftn(x.astype("complex128"), axes=dims)
        assert_near(torch.fft.fftn(torch.from_numpy(x), dim=dims), wanted, count, np.finfo("float32").eps, shape)


def test_nothing_to_transform() -> None:
    assert tuple(torch.fft.fft(torch.zeros(0, 8)).shape) == (0, 8)
    assert tuple(torch.fft.rfft2(torch.zeros(2, 0, 4, 8)).shape) == (2, 0, 4, 5)
    assert tuple(torch.fft.irfft(torch.zeros(0, 5, dtype=torch.complex64)).shape) == (0, 8)
    with pytest.raises(RuntimeError, match="Invalid number of data points"):
        torch.fft.fft(torch.zeros(2, 0))


def test_single_frequencies_and_impulses_are_exact() -> None:
    """What has an exact answer gets it: an impulse's twiddles are factors of 1 or of 0."""
    for n in (8, 64, 256, 4096):
        x = torch.zeros(n, dtype=torch.complex64)
        x[0] = 1
        assert torch.fft.fft(x).eq(1).all()
        assert torch.fft.fft(torch.ones(n, dtype=torch.complex64))[1:].eq(0).all()


def test_what_is_not_finite_reaches_every_frequency_of_its_row() -> None:
    x = torch.from_numpy(numbers((20, 64), "complex64"))
    x[3, 7] = complex(float("inf"), 0)
    found = torch.fft.fft(x)
    assert not found[3].isfinite().any()
    kept = [k for k in range(20) if k != 3]
    assert found[kept].isfinite().all()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_the_same_bits_for_any_number_of_threads(dtype: str) -> None:
    shapes = (
        ((1 << 18,), (0,)),
        ((64, 1009), (1,)),
        ((300, 16), (1,)),
        ((5, 120, 70), (1,)),
        ((33, 250), (0, 1)),
        ((40, 40, 40), (0, 1, 2)),
    )
    for shape, dims in shapes:
        x, real = torch.from_numpy(numbers(shape, dtype)), torch.from_numpy(numbers(shape, REAL[dtype]))
        before, found = threads.get_num_threads(), []
        try:
            for count in (1, 2, 3, 8):
                threads.set_num_threads(count)
                half = torch.fft.rfftn(real, dim=dims)
                size = [shape[d] for d in dims]
                parts = (
                    torch.fft.fftn(x, dim=dims),
                    torch.fft.ifftn(x, dim=dims),
                    half,
                    torch.fft.irfftn(half, size, dim=dims),
                )
                found.append([part.numpy().tobytes() for part in parts])
        finally:
            threads.set_num_threads(before)
        assert found[0] == found[1] == found[2] == found[3], shape


def test_a_short_sequence_has_the_same_bits_wherever_it_lies_among_others() -> None:
    rows = numbers((21, 48), "complex64")
    together = torch.fft.fft(torch.from_numpy(rows)).numpy()
    for k in (0, 16, 20):
        assert torch.fft.fft(torch.from_numpy(rows[k].copy())).numpy().tobytes() == together[k].tobytes()


def test_derivatives() -> None:
    z = torch.from_numpy(numbers((3, 10), "complex128")).requires_grad_()
    x = torch.from_numpy(numbers((3, 10), "float64")).requires_grad_()
    for norm in ("backward", "ortho", "forward"):
        for f in (torch.fft.fft, torch.fft.ifft, torch.fft.fftn, torch.fft.irfft, torch.fft.hfft):
            assert gradcheck(lambda v, f=f, norm=norm: f(v, norm=norm), (z,)), (f, norm)
        for f in (torch.fft.rfft, torch.fft.ihfft, torch.fft.rfftn):
            assert gradcheck(lambda v, f=f, norm=norm: f(v, norm=norm), (x,)), (f, norm)
    assert gradgradcheck(lambda v: torch.fft.irfft(torch.fft.rfft(v, dim=0), 3, dim=0).sin(), (x,))


def test_new_lengths_bring_no_new_code() -> None:
    """Passes are compiled for radices: lengths made of those that are known find everything."""
    family = fourier._family("f32")
    for n in (64, 4096, 8 * 4 * 5 * 5):
        torch.fft.fft(torch.zeros(n, dtype=torch.complex64))
    known = len(family._passes)
    for n in (128, 2048, 1600):
        chosen = {radix for k in fourier.matrix_of(n, family.lanes) for radix in fourier.radices(k)[1]}
        assert chosen <= {8, 4, 5, 16}, (n, chosen)
        torch.fft.fft(torch.zeros(n, dtype=torch.complex64))
    assert len(family._passes) <= known + 8


def test_what_ran_is_said() -> None:
    def program() -> None:
        torch.fft.fft(torch.zeros(3, 4096, dtype=torch.complex64))
        torch.fft.rfft(torch.zeros(100, 24))
        torch.fft.fft(torch.zeros(2, 37, dtype=torch.complex64))

    text = str(torch.explain(program)())
    assert "3 of 4096 complex numbers, as a matrix, radices 8 x 8 and 8 x 8" in text
    assert "100 of 24 real numbers as 12 complex ones" in text and "sequences side by side" in text
    assert "2 of 37 complex numbers, by a convolution of 80 numbers" in text


@pytest.mark.parametrize(("kind", "size"), [("f32", 4), ("f64", 8)])
def test_rows_are_spread_over_narrow_lanes(kind: str, size: int) -> None:
    """With vectors of 32 bytes matrices need too many registers; few rows, and rows on wide lanes, stay matrices."""

    class Family:
        def __init__(self, nbytes: int) -> None:
            self.kind, self.lanes = kind, nbytes // size

    def way(nbytes: int, rows: int, n: int) -> str:
        item = 2 * size
        line = fourier._Line(n, (item, item), (item, item))
        others = ((rows, n * item, n * item),)
        transform = fourier._Transform(Family(nbytes), COMPLEX, line, others, False, 1.0)  # type: ignore[arg-type]
        return fourier._way(transform).__name__

    assert way(32, 1024, 256) == way(32, 64, 1024) == "_by_lanes"
    assert way(32, 8, 256) == way(32, 1024, 64) == way(32, 64, 4096) == "_by_matrix"
    assert way(64, 1024, 256) == way(64, 64, 1024) == "_by_matrix"


def test_tables_die_with_their_plans() -> None:
    """Those of long sequences: plans of short ones, which long ones are made of, are kept a while."""
    item, n, known = 8, 7 * 11 * 13 * 32, set(fourier._TABLES)
    assert n > fourier._ROWS
    call, whole = (
        fourier._Call(),
        fourier._Transform(
            fourier._family("f32"), COMPLEX, fourier._Line(n, (item, item), (item, item)), (), False, 1.0
        ),
    )
    fourier._by_matrix(call, whole, 1, 0)
    made = {key for key in set(fourier._TABLES) - known if n in key}
    assert made
    del call
    assert not made & set(fourier._TABLES)


MACHINES = (
    ("aarch64-unknown-linux-gnu", "+neon", 16, True),
    ("x86_64-unknown-linux-gnu", "+avx512f", 64, True),
    ("x86_64-unknown-linux-gnu", "+avx2,+fma", 32, True),
    ("x86_64-unknown-linux-gnu", "+sse2", 16, False),
)


@pytest.mark.parametrize(("triple", "features", "width", "fma"), MACHINES)
def test_passes_compile_for_other_machines(triple: str, features: str, width: int, fma: bool) -> None:
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(features=features, opt=2)
    for kind, size in (("f32", 4), ("f64", 8)):
        moves = FourierMoves(kind, width // size, fma)
        text = machine.emit_assembly(llvm.parse_assembly(moves.text))
        assert all(f"{symbol}:" in text for symbol in moves.symbols)
        for radix in (1, 2, 3, 5, 8, 13):
            for load, store in ("CS", "SS", "ST", "RU", "DD", "SR"):
                made = FourierPass(kind, width // size, fma, radix, load, store)
                assert f"{made.symbol}:" in machine.emit_assembly(llvm.parse_assembly(made.text))
