"""Products of groups of matrices on CUDA devices: all groups in one launch, which reads where they end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.cuda.running import Device, close, operand, primitive

import rushlight
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.gemm.grouped import grouped_steps
from rushlight._backends.cuda.gemm.warpgroups import PRODUCTS
from rushlight._codegen.threads import lower
from rushlight._prims import PRIMITIVES
from rushlight._prims.samples import any_dtype
from rushlight._types.dtype import BFLOAT16, BY_NAME, FLOAT32, INT32, DType

rl: Any = rushlight

E4M3 = rl.float8_e4m3fn
KINDS = {"rows": ((64, 32), (3, 32, 48)), "columns": ((3, 24, 32), (32, 64)), "inner": ((24, 64), (64, 40))}


@pytest.mark.parametrize("number", range(len(list(PRIMITIVES["grouped_dot"].samples()))))
def test_samples(number: int) -> None:
    arrays, params = list(PRIMITIVES["grouped_dot"].samples())[number]
    (found,) = primitive("grouped_dot", arrays, params)
    close(found, PRIMITIVES["grouped_dot"].reference(*arrays, **params))


@pytest.mark.parametrize("ends", [(40, 41, 90), (0, 0, 0), (90, 90, 90), (7, 7, 33)])
def test_ends(ends: tuple[int, ...]) -> None:
    """Groups of one row, none and all; tiles of many programs, edges in each group."""
    given = np.array(ends, np.int32)
    a, b = any_dtype((90, 20), "float32", 1), any_dtype((3, 20, 33), "float32", 2)
    for left, right, orders in ((a, b, {}), (b.transpose(0, 2, 1), a.T, {0: (0, 2, 1), 1: (1, 0)}), (a.T, a, {})):
        (found,) = primitive("grouped_dot", [left, right, given], {"dtype": FLOAT32}, orders=orders)
        close(found, PRIMITIVES["grouped_dot"].reference(left, right, given, FLOAT32))


@pytest.mark.parametrize("ends", [(60, 20, 70), (-5, 4, 1000)])
def test_wrong_ends_stay_in_memory(ends: tuple[int, ...]) -> None:
    """The interpreter refuses an access outside of the arrays."""
    given = np.array(ends, np.int32)
    a, b = any_dtype((70, 16), "float32", 1), any_dtype((3, 16, 24), "float32", 2)
    for left, right in ((a, b), (b.transpose(0, 2, 1), a.T), (a.T, a)):
        primitive("grouped_dot", [left, right, given], {"dtype": FLOAT32})


def _kernel(way: str, dtype: DType, left: tuple[int, ...], right: tuple[int, ...], orders: Any = (None, None)) -> Any:
    device, holder = Device(), {1: np.uint8, 2: np.uint16, 4: np.float32}[dtype.itemsize]
    x, y = (operand(device, np.zeros(s, holder), dtype, o, "x") for s, o in zip((left, right), orders, strict=True))
    ends = operand(device, np.zeros(4, np.int32), INT32, None, "ends")
    shape, wide = PRIMITIVES["grouped_dot"].spec(x, y, ends, dtype=dtype.wide)
    out = operand(device, np.zeros(shape, np.float32), wide, None, "out")
    with PRODUCTS.scoped(way):
        (step,) = grouped_steps(ExternCall("grouped_dot", [x, y, ends], [out], {}))
    return step.kernel


def test_who_multiplies_by_what() -> None:
    """Rows and columns by warpgroups where groups are large; the inner dim never, whose copies would bring the next group's."""
    kinds = lambda *given, at="sm_90a": {i.kind for i in lower(_kernel(*given), at).body.walk()}
    rows, matrices = (512, 128), (4, 128, 256)
    assert "wgmma" in kinds("wgmma", BFLOAT16, rows, matrices)
    assert "wgmma" in kinds("wgmma", BFLOAT16, (4, 256, 128), (128, 512))
    assert "wgmma" in kinds("wgmma", BY_NAME["float8_e4m3fn"], rows, matrices, (None, (0, 2, 1)))
    for made in (
        kinds("wgmma", BFLOAT16, (256, 512), (512, 256)),
        kinds("wgmma", BFLOAT16, (64, 128), matrices),
        kinds("mma", BFLOAT16, rows, matrices, at="sm_80"),
    ):
        assert {"mma", "copy_async"} <= made and "wgmma" not in made


def test_the_tile_depends_on_the_product_alone() -> None:
    """Not on where groups end: sums have one order."""
    assert _kernel("mma", BFLOAT16, (4096, 128), (4, 128, 256)).name.endswith("128x64x64")
    assert _kernel("mma", BFLOAT16, (16, 128), (4, 128, 256)).name.endswith("16x64x64")


# ***** on emulated GPUs *****


def _wide(x: Any) -> Any:
    return x.detach().cpu().float().numpy().astype(np.float64)


def _near(found: Any, expected: Any, depth: int) -> None:
    """Float32 sums in any order, then one rounding."""
    unit = {rl.float32: 2.0**-23, rl.bfloat16: 2.0**-8, rl.float16: 2.0**-11}[found.dtype]
    bound = unit * np.abs(expected) + 2.0**-23 * depth * np.abs(expected).max()
    assert (np.abs(_wide(found) - expected) <= bound).all(), float(np.abs(_wide(found) - expected).max())


def _groups(a: Any, b: Any, ends: Any) -> Any:
    return PRIMITIVES["grouped_dot"].reference(a, b, np.array(ends), BY_NAME["float64"])


@pytest.mark.cuda
@pytest.mark.parametrize("way", ["mma", "wgmma"])
@pytest.mark.parametrize("kind", KINDS)
def test_grouped_products(kind: str, way: str) -> None:
    """One group is empty, rows lie behind the last end; forward and backward; one launch each."""
    rl.manual_seed(3)
    (left, right), ends = KINDS[kind], rl.tensor([16, 16, 56], dtype=rl.int32)
    a, b = (rl.randn(s, dtype=rl.bfloat16).cuda().requires_grad_() for s in (left, right))
    with PRODUCTS.scoped(way):
        found = rl._grouped_mm(a, b, offs=ends.cuda())
        expected = _groups(_wide(a), _wide(b), ends.tolist())
        _near(found, expected, 64)
        ct = rl.randn(found.shape, dtype=rl.bfloat16)
        found.backward(ct.cuda())
    swapped = lambda x: np.swapaxes(_wide(x), -1, -2)
    _near(a.grad, _groups(_wide(ct), swapped(b), ends.tolist()), 64)
    _near(b.grad, _groups(swapped(a), _wide(ct), ends.tolist()), 64)
    text = str(rl.explain(lambda *xs: rl._grouped_mm(*xs[:2], offs=xs[2]))(a.detach(), b.detach(), ends.cuda()))
    assert text.count("step ") == 1 and "in_groups" in text


@pytest.mark.cuda
def test_warpgroups_by_groups() -> None:
    """Tiles that begin anywhere, by bulk copies; the epilogue keeps to the rows of the group."""
    rl.manual_seed(5)
    a, b, ends = rl.randn(300, 96, dtype=rl.bfloat16), rl.randn(3, 96, 72, dtype=rl.bfloat16), [5, 105, 290]
    grouped = lambda x, y, o: rl.nn.functional.relu(rl._grouped_mm(x, y, offs=o)) * 2.0
    expected = np.maximum(_groups(_wide(a), _wide(b), ends), 0) * 2.0
    given = [x.cuda() for x in (a, b, rl.tensor(ends, dtype=rl.int32))]
    for way in ("mma", "wgmma"):
        with PRODUCTS.scoped(way):
            _near(rl.compile(grouped)(*given), expected, 96)


@pytest.mark.cuda
def test_grouped_products_of_nothing() -> None:
    ends = rl.tensor([0, 0], dtype=rl.int32).cuda()
    assert rl._grouped_mm(rl.ones(0, 8).cuda(), rl.ones(2, 8, 16).cuda(), offs=ends).shape == (0, 16)
    found = rl._grouped_mm(rl.ones(8, 16)[:, :0].cuda(), rl.ones(0, 16).cuda(), offs=ends)
    assert found.shape == (2, 8, 16) and not found.cpu().any()


@pytest.mark.cuda
@pytest.mark.parametrize("kind", KINDS)
def test_scaled_groups(kind: str) -> None:
    """Scales of rows and columns: [G, M] and [G, N] for operands of three dims and where groups cut the inner dim."""
    rl.manual_seed(4)
    (left, right), ends = KINDS[kind], [16, 16, 56]
    a, b = rl.randn(left).to(E4M3), rl.randn(right).to(E4M3)
    shapes = {"rows": ((64,), (3, 48)), "columns": ((3, 24), (64,)), "inner": ((72,), (120,))}[kind]
    first, second = (rl.rand(s) + 0.5 for s in shapes)
    offs = rl.tensor(ends, dtype=rl.int32)
    found = rl._scaled_grouped_mm(*(x.cuda() for x in (a, b, first, second)), offs=offs.cuda(), out_dtype=rl.bfloat16)
    if kind == "inner":
        scales = _wide(first).reshape(3, 24, 1) * _wide(second).reshape(3, 1, 40)
        expected = _groups(_wide(a), _wide(b), ends) * scales
    else:
        expected = _groups(_wide(a) * _wide(first)[..., None], _wide(b) * _wide(second)[..., None, :], ends)
    _near(found, expected, 64)
    _near(rl._scaled_grouped_mm(a, b, first, second, offs=offs, out_dtype=rl.bfloat16), expected, 64)


@pytest.mark.cuda
def test_scaled_groups_of_no_columns_are_zero() -> None:
    """Whatever their scales, which are infinite where they are 1 / the greatest number of nothing."""
    a, b = rl.ones(24, 64).to(E4M3), rl.ones(40, 64).to(E4M3).t()
    first, second = rl.ones(3, 24), rl.ones(3, 40)
    first[1] = math.inf
    offs = rl.tensor([16, 16, 56], dtype=rl.int32)
    given = (a, b, first.flatten(), second.flatten())
    expected = rl.tensor([16.0, 0.0, 40.0])[:, None, None].expand(3, 24, 40)
    for found in (
        rl._scaled_grouped_mm(*(x.cuda() for x in given), offs=offs.cuda()),
        rl._scaled_grouped_mm(*given, offs=offs),
    ):
        assert rl.equal(found.cpu().float(), expected)


@pytest.mark.cuda
def test_scaled_groups_refuse_scales_that_do_not_fit() -> None:
    a, b = rl.randn(24, 64).to(E4M3), rl.randn(40, 64).to(E4M3).t()
    ends = rl.tensor([16, 48, 64], dtype=rl.int32)
    with pytest.raises(RuntimeError, match=r"scale_a must have the shape \(72,\), got \(24,\)"):
        rl._scaled_grouped_mm(a.cuda(), b.cuda(), rl.rand(24).cuda(), rl.rand(120).cuda(), offs=ends.cuda())
