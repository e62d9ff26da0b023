"""The unit kernels of `bench/cuda_kernels.py`, interpreted from the PTX that a card would be given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bench.cuda_kernels import UNITS, Case, builder, finish, wide
from tests.cuda.ptx import BUILDERS, Ran, run_kernel

from rushlight._types.dtype import BY_NAME


def run(case: Case, architecture: str, landing: str = "late") -> Ran:
    """Interpret a case, and compare with what it expects: NumPy, or the reference interpreter of block kernels, which is NumPy, too."""
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in case.arguments]
    ran = run_kernel(case.kernel, architecture, case.grid, given, landing)
    for a, b in zip(case.expected(), given, strict=True):
        if isinstance(a, np.ndarray):
            a, b = (wide(x) if x.dtype == np.uint16 else x for x in (a, b))
            np.testing.assert_allclose(b.astype(np.float64), a.astype(np.float64), rtol=case.rtol, atol=case.atol)
    return ran


def names(ran: Ran) -> set[str]:
    return {o.removeprefix("@%p ") for o in ran.opcodes}


# those by warpgroups become gathers and `mma` on sm_80, which are long
SM80 = [n if not n.startswith("wgmma") else pytest.param(n, marks=pytest.mark.slow) for n in UNITS]
_OFTEN = (
    "wgmma_f16_kk",
    "wgmma_f16_mn",
    "wgmma_tf32",
    "wgmma_e4m3_e5m2",
    "wgmma_int8",
    "wgmma_two_groups",
    "wgmma_windows",
    "wgmma_chain",
)
SM90 = [n if not n.startswith("wgmma") or n in _OFTEN else pytest.param(n, marks=pytest.mark.slow) for n in UNITS]


@pytest.mark.parametrize("name", SM80)
def test_on_sm_80(name: str) -> None:
    run(UNITS[name][0](), "sm_80")


@pytest.mark.parametrize("name", SM90)
def test_on_sm_90a(name: str) -> None:
    """Each kernel contains what it is to prove."""
    build, instructions = UNITS[name]
    ran = run(build(), "sm_90a")
    bare = [i.removeprefix("@%p ").split(" ")[0] for i in instructions]
    assert any(o.startswith(i) for o in names(ran) for i in bare), ran.opcodes


@pytest.mark.ptx
@pytest.mark.parametrize("architecture", ["sm_75", "sm_89", "sm_100a", "sm_120a"])
@pytest.mark.parametrize("name", [n for n in UNITS if not n.startswith("wgmma")])
def test_on_other_architectures(name: str, architecture: str) -> None:
    run(UNITS[name][0](), architecture)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in UNITS if n.startswith("wgmma")])
def test_copies_that_land_at_once(name: str) -> None:
    """The other extreme of what hardware may do: copies land when they begin, by threads that are as far ahead as they can be."""
    run(UNITS[name][0](), "sm_90a", "early")


def test_two_groups_with_copies_that_land_at_once() -> None:
    run(UNITS["wgmma_two_groups"][0](), "sm_90a", "early")


def test_instructions_that_unit_kernels_name_are_interpreted() -> None:
    """Each begins like one that is known, or a known one begins like it."""
    for _, instructions in UNITS.values():
        for i in instructions:
            bare = i.removeprefix("@%p ").split(" ")[0].rstrip(".")
            assert any(bare.startswith(k) or k.startswith(bare) for k in BUILDERS), i


# ***** atomics *****

KINDS = ("int8", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64")


def combined(name: str, combine: str, order: str, scope: str) -> Any:
    """Each of 128 threads combines its number with one of 8 in memory."""
    dtype = BY_NAME[name]
    b, (x, y) = builder("combined", {"x": dtype, "y": dtype})
    at = b.index(128)
    b.emit("atomic", (y + (at & 7)).value, (x + at).load().value, combine=combine, order=order, scope=scope)
    return finish(b, 4)


@pytest.mark.parametrize("order", ["relaxed", "acquire", "release", "acq_rel"])
@pytest.mark.parametrize("scope", ["cta", "gpu", "sys"])
def test_atomics_say_their_order_and_scope(order: str, scope: str) -> None:
    """Those without are relaxed.  Where LLVM makes instructions that say neither, they lie between fences."""
    for name in KINDS[2:6] + KINDS[8:]:
        for combine in ("add", "max", "xchg", *(("xor",) if "int" in name else ())):
            ran = run_kernel(combined(name, combine, order, scope), "sm_90a", (1,), _operands(name))
            found = [o for o in names(ran) if o.startswith("atom.")]
            assert found and all(o.startswith(f"atom.{order}.{scope}.global.") for o in found), (name, combine, found)
    for name, combine in (("bfloat16", "add"), ("uint16", "xor")):
        ran = run_kernel(combined(name, combine, order, scope), "sm_90a", (1,), _operands(name))
        assert (f"fence.acq_rel.{scope}" in ran.opcodes) == (order != "relaxed")


def _operands(name: str) -> list[Any]:
    numbers = np.arange(128) * 37 % 101
    if name == "bfloat16":
        numbers = (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return [numbers, np.zeros(8, np.uint16)]
    return [numbers.astype(name), np.zeros(8, name)]


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90a"])
def test_atomics_of_all_dtypes(architecture: str) -> None:
    numbers = np.arange(128) * 37 % 101
    for name in KINDS:
        for combine, function in (("add", np.add), ("max", np.maximum), ("xor", np.bitwise_xor)):
            if combine == "xor" and "float" in name:
                continue
            given = _operands(name)
            run_kernel(combined(name, combine, "acq_rel", "gpu"), architecture, (1,), given)
            got = wide(given[1]) if name == "bfloat16" else given[1]
            want = function.reduce(numbers.reshape(16, 8).astype(np.int64), 0)
            if name == "bfloat16":  # sums above 256 are rounded in the order of the threads
                np.testing.assert_allclose(got, want, rtol=2e-2)
            else:
                np.testing.assert_array_equal(got, want.astype(name))
