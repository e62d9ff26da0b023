"""Convolutions with few channels a group, computed directly: every geometry against the primitive's definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.cpu.conv.direct import Direct, takes_direct
from rushlight._backends.cpu.conv.direct_tile import Block, DirectTile, Reads, RowMover, VectorKind, WeightTile, Window
from rushlight._backends.cpu.kernels import host
from rushlight._backends.cpu.program.assemble import compile_graph
from rushlight._backends.cpu.program.steps import ExternStep, Operand
from rushlight._graph.core import trace
from rushlight._native import jit
from rushlight._native.target import host_target
from rushlight._prims import PRIMITIVES, prim
from rushlight._types.dtype import BY_NAME

RNG = np.random.default_rng(5)
TOLERANCE = {"float32": 2e-6, "float64": 1e-14, "bfloat16": 4e-3, "float16": 5e-4}


def as_float(x: Any) -> Any:
    return np.array(x.detach().to(torch.float64).tolist())


def convolved(x: Any, w: Any, bias: Any = None, *, transposed: bool = False, **p: Any) -> Any:
    """The definition in float64."""
    n = x.ndim - 2
    groups = p.get("groups", 1)
    stride, dilation, padding = (
        (v,) * n if isinstance(v, int) else v for v in (p.get("stride", 1), p.get("dilation", 1), p.get("padding", 0))
    )
    if transposed:
        extra = p.get("output_padding", 0)
        w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
        w = np.flip(np.swapaxes(w, 1, 2), tuple(range(3, n + 3))).reshape(-1, w.shape[1], *w.shape[3:])
        wide = np.zeros((*x.shape[:2], *((s - 1) * t + 1 for s, t in zip(x.shape[2:], stride, strict=True))))
        wide[(slice(None), slice(None), *(slice(None, None, t) for t in stride))] = x
        reach = [d * (k - 1) - q for d, k, q in zip(dilation, w.shape[2:], padding, strict=True)]
        x, stride, padding = np.pad(wide, [(0, 0), (0, 0), *((r, r + extra) for r in reach)]), (1,) * n, (0,) * n
    found = PRIMITIVES["conv"].reference(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return found if bias is None else found + bias.reshape(-1, *(1,) * n)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """The same values; the channels of a place lie side by side."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


CASES: list[tuple[Any, ...]] = [
    ((2, 5, 9, 20), (5, 1, 3, 3), {"padding": 1, "groups": 5}),
    ((2, 5, 9, 37), (10, 1, 3, 5), {"padding": (0, 2), "stride": (2, 1), "groups": 5}),
    ((1, 6, 19, 70), (6, 1, 5, 3), {"padding": 2, "stride": 2, "groups": 6}),
    ((2, 6, 11, 23), (6, 1, 3, 3), {"padding": 3, "stride": 3, "dilation": 2, "groups": 6}),
    ((2, 8, 7, 18), (12, 2, 3, 2), {"padding": 1, "dilation": (2, 3), "groups": 4}),
    ((1, 3, 40, 33), (3, 1, 13, 13), {"padding": 6, "groups": 3}),
    ((1, 3, 1, 1), (3, 1, 3, 3), {"padding": 1, "groups": 3}),
    ((1, 3, 3, 3), (3, 1, 3, 3), {"padding": 4, "stride": 4, "groups": 3}),
    ((2, 33, 7, 7), (33, 1, 3, 3), {"padding": 1, "groups": 33}),
    ((1, 40, 3, 2), (40, 1, 3, 3), {"padding": 1, "groups": 40}),
    ((2, 33, 13, 14), (33, 1, 5, 5), {"padding": 2, "stride": 2, "groups": 33}),
    ((2, 6, 50), (6, 1, 5), {"padding": 2, "groups": 6}),
    ((2, 6, 51), (14, 3, 4), {"stride": 3, "groups": 2}),
    ((2, 4, 4, 5, 18), (4, 1, 3, 3, 3), {"padding": 1, "groups": 4}),
    ((1, 4, 5, 4, 9), (4, 2, 2, 3, 2), {"padding": (1, 0, 1), "stride": (2, 1, 1), "groups": 2}),
    ((1, 9, 5, 601), (9, 1, 3, 3), {"padding": 1, "stride": 2, "groups": 9}),
    ((2, 6, 9, 21), (6, 1, 3, 3), {"padding": 1, "stride": 2, "output_padding": 1, "groups": 6, "transposed": True}),
    ((2, 6, 9, 21), (6, 2, 3, 4), {"padding": 2, "stride": 3, "groups": 3, "transposed": True}),
    # spread images, large enough to be convolved one rest at a time where channels lie side by side
    (
        (1, 36, 21, 24),
        (36, 1, 3, 3),
        {"padding": 1, "stride": 2, "output_padding": 1, "groups": 36, "transposed": True},
    ),
    ((2, 32, 13, 15), (32, 4, 5, 4), {"padding": (2, 1), "stride": (2, 3), "groups": 8, "transposed": True}),
    ((1, 34, 6, 9, 10), (34, 1, 2, 3, 3), {"padding": (0, 1, 1), "stride": 2, "groups": 34, "transposed": True}),
    ((1, 36, 50, 53), (36, 1, 3, 3), {"padding": 1, "stride": 2, "groups": 36}),
    # rows of several blocks, some of which reach beyond them
    ((1, 6, 9, 150), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    ((1, 4, 5, 40), (4, 1, 3, 3), {"padding": (1, 20), "groups": 4}),
    ((2, 6, 6, 131), (12, 3, 3, 5), {"padding": (0, 1), "dilation": (1, 3), "groups": 2}),
    ((1, 40, 6, 30), (40, 1, 3, 3), {"padding": 1, "groups": 40}),
    ((1, 36, 7, 41), (36, 1, 3, 5), {"padding": (1, 6), "stride": (1, 2), "dilation": (1, 2), "groups": 36}),
    ((1, 36, 3, 5, 20), (36, 1, 3, 3, 3), {"padding": 1, "groups": 36}),
    # groups of a few channels that share vectors where channels lie side by side
    ((2, 24, 9, 11), (24, 4, 3, 3), {"padding": 1, "stride": 2, "groups": 6}),
    ((1, 40, 13, 7), (40, 8, 3, 3), {"padding": 2, "dilation": 2, "groups": 5}),
    ((1, 36, 4, 17), (36, 2, 5, 3), {"padding": (2, 1), "stride": (1, 3), "groups": 18}),
    ((3, 32, 7, 7), (32, 8, 3, 3), {"padding": 1, "groups": 4}),
    ((1, 32, 5, 6, 7), (32, 4, 2, 3, 3), {"padding": 1, "groups": 8}),
    ((2, 32, 50), (32, 4, 3), {"padding": 1, "groups": 8}),
    ((1, 32, 14, 15), (32, 2, 9, 9), {"padding": 4, "groups": 16}),
    ((2, 32, 9, 7), (32, 4, 3, 3), {"padding": 1, "stride": 2, "output_padding": 1, "groups": 8, "transposed": True}),
]


NARROW = (2, 8, 10, 15)  # with others, those that narrow numbers take another way through


@pytest.mark.parametrize("number", range(len(CASES)))
def test_values_follow_the_definition(number: int) -> None:
    shape, weight, p = CASES[number]
    transposed = p.get("transposed", False)
    p = {k: v for k, v in p.items() if k != "transposed"}
    n = len(shape) - 2
    name = f"conv_transpose{n}d" if transposed else f"conv{n}d"
    outs = weight[1] * p["groups"] if transposed else weight[0]
    x, w, b = RNG.standard_normal(shape), RNG.standard_normal(weight), RNG.standard_normal(outs)
    for dtype in (
        ("float32", "float64", "bfloat16", "float16") if number % 3 == 0 or number in NARROW else ("float32", "float64")
    ):
        tx, tw, tb = (torch.tensor(a).to(getattr(torch, dtype)) for a in (x, w, b))
        wanted = convolved(as_float(tx), as_float(tw), as_float(tb), transposed=transposed, **p)
        layouts = [tx]
        if n == 2:
            layouts.append(tx.transpose(2, 3).contiguous().transpose(2, 3))
        layouts.append(channels_last(tx))
        for given in layouts:
            got = as_float(getattr(torch.nn.functional, name)(given, tw, tb, **p))
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE[dtype] * (1 + np.abs(wanted).max()))


@pytest.mark.parametrize("number", range(len(CASES)))
def test_gradients_are_the_adjoints(number: int) -> None:
    shape, weight, p = CASES[number]
    transposed = p.get("transposed", False)
    p = {k: v for k, v in p.items() if k != "transposed"}
    n = len(shape) - 2
    name = f"conv_transpose{n}d" if transposed else f"conv{n}d"
    for dtype, last in (("float32", False), ("float64", True), ("bfloat16", False), ("float16", number % 2 == 0)):
        x, w = (torch.tensor(RNG.standard_normal(s)).to(getattr(torch, dtype)) for s in (shape, weight))
        x = channels_last(x) if last else x
        x, w = x.requires_grad_(), w.requires_grad_()
        y = getattr(torch.nn.functional, name)(x, w, **p)
        g = torch.tensor(RNG.standard_normal(y.shape)).to(y.dtype)
        if number % 4 == 0:
            g = g[:1, :1].expand(y.shape)
        y.backward(channels_last(g) if last else g)
        given = as_float(x), as_float(w)
        for at, found in enumerate((x.grad, w.grad)):
            found, ct = as_float(found), as_float(g)
            for _ in range(3):
                v = RNG.standard_normal(given[at].shape)
                operands = [v if at == k else a for k, a in enumerate(given)]
                wanted = (convolved(*operands, transposed=transposed, **p) * ct).sum()
                scale = np.sqrt((found**2).sum() * v.size) + 1.0
                assert (
                    abs((found * v).sum() - wanted)
                    < {"bfloat16": 8e-3, "float16": 1e-3}.get(dtype, 4 * TOLERANCE[dtype]) * scale
                )


def test_bits_do_not_depend_on_threads() -> None:
    x, w = torch.randn(3, 20, 37, 45).requires_grad_(), torch.randn(20, 1, 3, 3).requires_grad_()
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            x.grad = w.grad = None
            y = torch.nn.functional.conv2d(x, w, padding=1, groups=20)
            y.backward(torch.cos(y.detach()))
            found.append(torch.cat([v.detach().flatten() for v in (y, x.grad, w.grad)]))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], f) for f in found)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pieces_of_all_channels(dtype: str) -> None:
    """Large images whose channels lie side by side are cut into bands of rows: right numbers, and the same bits for any number of threads."""
    before = torch.get_num_threads()
    for shape, size, stride in (((4, 70, 37, 50), 3, 1), ((3, 40, 61, 44), 5, 2), ((8, 33, 9, 100), 7, 1)):
        x, w, p = (
            RNG.standard_normal(shape),
            RNG.standard_normal((shape[1], 1, size, size)),
            {"padding": size // 2, "stride": stride, "groups": shape[1]},
        )
        tx = torch.tensor(x).to(getattr(torch, dtype)).contiguous(memory_format=torch.channels_last)
        tw, seen = torch.tensor(w).to(tx.dtype), []
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            seen.append(as_float(torch.nn.functional.conv2d(tx, tw, **p)))
        torch.set_num_threads(before)
        want = convolved(as_float(tx), as_float(tw), **p)
        np.testing.assert_allclose(
            seen[0] / np.abs(want).max(), want / np.abs(want).max(), rtol=0, atol=TOLERANCE[dtype]
        )
        assert all((one == seen[0]).all() for one in seen)


def test_special_values_stay_where_they_belong() -> None:
    x = torch.zeros(1, 4, 9, 33)
    x[0, 1, 4, 16], x[0, 2, 8, 32] = float("nan"), float("inf")
    y = torch.nn.functional.conv2d(x, torch.ones(4, 1, 3, 3), padding=1, groups=4)
    assert y[0, 1, 3:6, 15:18].isnan().all() and int(y.isnan().sum()) == 9
    assert y[0, 2, 7:, 31:].isinf().all() and int(y.isinf().sum()) == 4


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("few", [1, 4])
def test_what_lies_around_an_image_is_not_read(last: bool, few: int) -> None:
    """Rows are read where they lie: images that are parts of larger ones."""
    for width, p in (
        (50, {"padding": 1}),
        (50, {}),
        (20, {"padding": (1, 2), "dilation": 2}),
        (50, {"padding": 1, "stride": (2, 1)}),
    ):
        whole = torch.full((2, 40, 13, width + 9), float("nan"))
        whole = whole.contiguous(memory_format=torch.channels_last) if last else whole
        x = whole[:, 4:36, 2:11, 3 : width + 3]
        given, w = RNG.standard_normal(tuple(x.shape)), RNG.standard_normal((32, few, 3, 3))
        x.copy_(torch.tensor(given).float())
        got = as_float(torch.nn.functional.conv2d(x, torch.tensor(w).float(), groups=32 // few, **p))
        np.testing.assert_allclose(
            got, convolved(as_float(x), w.astype(np.float32).astype(float), groups=32 // few, **p), rtol=0, atol=2e-5
        )


def test_places_beyond_the_result_do_not_count() -> None:
    x, w = torch.randn(1, 3, 6, 22), torch.randn(3, 1, 3, 3).requires_grad_()
    x[:, :, 5], x[:, :, :, 21] = float("nan"), float("inf")  # what the strides leave over
    y = torch.nn.functional.conv2d(x, w, stride=(2, 6), groups=3)
    y.sum().backward()
    assert w.grad.isfinite().all()


def step_of(shape: tuple[int, ...], weight: tuple[int, ...], **p: Any) -> ExternStep:
    n = len(shape) - 2
    given = {"stride": (1,) * n, "padding": (0,) * n, "dilation": (1,) * n, "groups": 1, **p}
    graph = trace(lambda x, w: prim.conv(x, w, **given), [(shape, BY_NAME["float32"]), (weight, BY_NAME["float32"])])
    strides = [[int(np.prod(s[k + 1 :])) for k in range(len(s))] for s in (shape, weight)]
    return next(s for s in compile_graph(graph, strides, target=host()).steps if isinstance(s, ExternStep))


@pytest.mark.parametrize(("channels", "high", "stride"), [(33, 9, 1), (48, 20, 2), (16, 7, 1)])
def test_pointwise_work_on_channels_last_results_joins_the_call(channels: int, high: int, stride: int) -> None:
    rng = np.random.default_rng(channels)
    a, k, b = rng.normal(size=(2, channels, high, high + 1)), rng.normal(size=(channels, 1, 3, 3)), rng.normal(size=channels)  # fmt: skip
    x, w, bias = (torch.from_numpy(v.astype(np.float32)) for v in (a, k, b))
    x = channels_last(x)

    def layer(x: Any, w: Any, bias: Any) -> Any:
        y = torch.nn.functional.conv2d(x, w, bias, stride=stride, padding=1, groups=channels)
        return torch.nn.functional.relu6(y) + 1

    compiled = torch.compile(layer, fullgraph=True)
    found, eager = compiled(x, w, bias), layer(x, w, bias)
    assert torch.equal(found, eager) and found.stride() == eager.stride()
    expected = np.clip(convolved(a, k, b, stride=stride, padding=1, groups=channels), 0, 6) + 1
    np.testing.assert_allclose(as_float(found), expected, atol=2e-5)
    assert "stay apart" not in str(torch.explain(compiled)(x, w, bias))


def test_groups_of_a_few_channels_share_vectors() -> None:
    dtype = BY_NAME["float32"]
    params = {"size": (9, 20), "stride": (1, 1), "dilation": (1, 1), "lo": (1, 1), "spread": (1, 1), "flip": False}
    last = lambda c: (
        180 * 16 * c,
        c,
        1,
        20 * 16 * c,
        16 * c,
    )  # strides of images of 16 groups of c channels, [N, G, C, H, W]
    first = lambda c: (180 * 16 * c, 180 * c, 180, 20, 1)
    for few, mixed in ((1, 1), (2, 2), (3, 1), (4, 4), (6, 1), (8, 8 if host_target().vector_bytes >= 32 else 1)):
        for strides, mix in ((last(few), mixed), (first(few), 1)):
            x, y = (Operand(place, dtype, (2, 16, few, 9, 20), strides) for place in (1, 0))
            w = Operand(2, dtype, (16, few, few, 3, 3), (9 * few * few, 9 * few, 9, 3, 1))
            assert Direct(x, w, y, None, params).desc["mix"] == mix


def test_who_is_computed_directly() -> None:
    assert takes_direct(step_of((1, 32, 20, 20), (32, 1, 3, 3), groups=32))
    assert takes_direct(step_of((1, 32, 20, 20), (32, 4, 3, 3), groups=8))
    assert not takes_direct(step_of((1, 32, 20, 20), (32, 32, 3, 3)))


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_kernels_are_made_for_other_vectors(kind: str, lanes: int) -> None:
    for together, mix in ((False, 1), (True, 1), (True, 2), (True, 4)):
        for edge in (False, True):
            window = Window(3, 3, 2, 1, ((0, 0), (1, 0), (0, lanes if together else 1)))
            block, reads = Block(1 if together else 2, 2, 2), Reads(lanes == 16, edge=edge)
            tile = DirectTile(VectorKind(kind, lanes, lanes > 4), block, window, reads, mix if together else 0)
            assert tile.symbol in jit.compile_assembly(tile.text, "quick")
        window = Window(3, 3, 1, 1, ((0, 1), (0, 2), (0, 3)))
        sums = WeightTile(VectorKind(kind, lanes, lanes > 4), 2, window, lanes == 16, mix)
        assert sums.symbol in jit.compile_assembly(sums.text, "quick")
    mover = RowMover(kind, lanes)
    assert mover.copy in jit.compile_assembly(mover.text, "quick")


def test_large_results_bypass_the_caches() -> None:
    target, before = host_target(), host_target().l3_bytes
    try:
        target.l3_bytes = 256
        for shape, last in (
            ((2, 16, 8, 32), False),
            ((2, 16, 8, 32), True),
            ((3, 32, 9, 64), False),
            ((1, 20, 5, 33), True),
        ):
            x, w = torch.randn(shape), torch.randn(shape[1], 1, 3, 3)
            x = x.to(memory_format=torch.channels_last) if last else x
            wanted = convolved(as_float(x), as_float(w), padding=1, groups=shape[1])
            got = torch.nn.functional.conv2d(x, w, padding=1, groups=shape[1])
            np.testing.assert_allclose(as_float(got), wanted, rtol=0, atol=2e-5)
    finally:
        target.l3_bytes = before
