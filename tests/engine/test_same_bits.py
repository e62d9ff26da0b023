"""Results have the same bits for 1, 2, 3 and 8 threads: every family of kernels, forward and backward, in several pieces of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight.nn import functional as F

COUNTS = (1, 2, 3, 8)
Made = Callable[[], Any]
PROGRAMS: dict[str, Made] = {}


def program(make: Made) -> Made:
    PROGRAMS[make.__name__] = make
    return make


def drawn(*shape: int, dtype: Any = torch.float32, grad: bool = False, seed: int = 0) -> Any:
    found = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return found.requires_grad_() if grad else found


def with_gradients(out: Any, *leaves: Any) -> list[Any]:
    """The result, and the gradients of its sum weighted by numbers that are no round ones."""
    weights = drawn(*out.shape, dtype=out.dtype, seed=9)
    return [out, *torch.autograd.grad(out, leaves, weights)]


@program
def pointwise_and_reductions() -> Any:
    x = drawn(300, 1025, grad=True)
    made = [
        x.sum(),
        x.sum(0),
        x.sum(1),
        x.mean(),
        x.var(0),
        x.var(1),
        x.norm(),
        x.logsumexp(1),
        x.prod(1),
        x.cumsum(0),
        x.cumsum(1),
    ]
    return [
        *made,
        *with_gradients(F.gelu(x) * x.sigmoid() + x.exp(), x),
        *with_gradients(x.softmax(1), x),
        *with_gradients(x.softmax(0), x),
    ]


@program
def reductions_in_double_and_half() -> Any:
    return [drawn(200_003, dtype=d).sum() for d in (torch.float64, torch.bfloat16, torch.float16, torch.complex64)]


@program
def norms() -> Any:
    x, w, b = drawn(16, 32, 24, 24, grad=True), drawn(32, grad=True, seed=1), drawn(32, grad=True, seed=2)
    rows, found = x.reshape(-1, 768), []
    for image in (x, x.detach().to(memory_format=torch.channels_last).requires_grad_()):
        made = [
            F.batch_norm(image, None, None, w, b, training=True),
            F.group_norm(image, 8, w, b),
            F.instance_norm(image),
        ]
        for out, leaves in zip(made, ((image, w, b), (image, w, b), (image,)), strict=True):
            found += with_gradients(out, *leaves)
    return [*found, *with_gradients(F.layer_norm(rows, (768,)), x), *with_gradients(F.rms_norm(rows, (768,)), x)]


@program
def losses() -> Any:
    x, y = drawn(700, 1000, grad=True), torch.arange(700) % 1000
    return [*with_gradients(F.cross_entropy(x, y), x), *with_gradients(F.mse_loss(x, x.detach() * 2), x)]


@program
def products() -> Any:
    found = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        a, b = drawn(300, 257, dtype=dtype, grad=True), drawn(257, 310, dtype=dtype, grad=True, seed=1)
        batch = drawn(6, 120, 65, dtype=dtype, grad=True, seed=2)
        found += (
            with_gradients(a @ b, a, b) + with_gradients(batch @ batch.mT, batch) + with_gradients(a @ b[:, 0], a, b)
        )
    return found


@program
def convolutions() -> Any:
    found = []
    for images, taps, options in (
        ((4, 16, 33, 31), (24, 16, 3, 3), {"padding": 1}),
        ((2, 3, 65, 64), (16, 3, 7, 7), {"stride": 2, "padding": 3}),
        ((3, 32, 40, 41), (32, 1, 3, 3), {"padding": 1, "groups": 32}),
        ((2, 32, 28, 28), (64, 4, 3, 3), {"padding": 2, "dilation": 2, "groups": 8}),
        ((2, 64, 7, 7), (128, 64, 1, 1), {}),
    ):
        x, w, b = drawn(*images, grad=True), drawn(*taps, grad=True, seed=1), drawn(taps[0], grad=True, seed=2)
        found += with_gradients(F.conv2d(x, w, b, **options), x, w, b)
    x, w = drawn(4, 16, 14, 15, grad=True), drawn(16, 8, 4, 4, grad=True, seed=1)
    return found + with_gradients(F.conv_transpose2d(x, w, stride=2, padding=1), x, w)


@program
def pooling_and_resizing() -> Any:
    found = []
    for form in (torch.contiguous_format, torch.channels_last):
        x = drawn(8, 16, 45, 44).to(memory_format=form).requires_grad_()
        made = [F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2), F.avg_pool2d(x, 3, 2), F.adaptive_avg_pool2d(x, 7)]
        made += [F.interpolate(x, scale_factor=2, mode=m) for m in ("nearest", "bilinear", "bicubic")]
        found += [g for out in made for g in with_gradients(out, x)]
    x, grid = drawn(2, 7, 40, 40, grad=True), drawn(2, 60, 60, 2, grad=True, seed=1)
    for mode in ("bilinear", "bicubic"):
        found += with_gradients(F.grid_sample(x, grid, mode=mode, align_corners=False), x, grid)
    return found


@program
def attention() -> Any:
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        q, k, v = (drawn(2, 3, 200, 40, dtype=dtype, grad=True, seed=s) for s in range(3))
        for options in ({"is_causal": True}, {"attn_mask": torch.ones(200, 200).tril(3) > 0}, {}):
            found += with_gradients(F.scaled_dot_product_attention(q, k, v, **options), q, k, v)
    return found


@program
def recurrent() -> Any:
    found = []
    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        torch.manual_seed(3)
        layer, x = kind(40, 72, num_layers=2, bidirectional=True), drawn(9, 37, 40, grad=True)
        found += with_gradients(layer(x)[0], x, *layer.parameters())
    return found


@program
def choosing_and_moving() -> Any:
    x, i = drawn(4000, 60, grad=True), torch.arange(9000) * 7 % 4000
    made = [x[i], F.embedding(i, x), x.gather(0, (i.reshape(-1, 60)) % 4000), x.index_select(0, i), x.t().contiguous()]
    zeros = torch.zeros(4000, 60)
    added = zeros.index_add(0, i, drawn(9000, 60)), zeros.scatter_add(0, i.reshape(-1, 60), drawn(150, 60))
    put = zeros.index_put((i,), drawn(9000, 60), accumulate=True)
    return [*(g for out in made for g in with_gradients(out, x)), *added, put]


@program
def ordering() -> Any:
    x = (drawn(300, 400) * 50).round()
    long = [
        *drawn(70_001).sort(),
        *drawn(2, 70_001).double().sort(),
        drawn(70_001).median(),
        *drawn(2, 70_001).kthvalue(50_000),
    ]
    return [
        *long,
        *x.sort(-1),
        *x.sort(0, stable=True),
        *x.flatten().sort(),
        *x.topk(20),
        *x.unique(return_counts=True),
        x.nonzero(),
        x[x > 3],
    ]


@program
def random_numbers() -> Any:
    torch.manual_seed(5)
    x = drawn(100_003)
    return [
        torch.randn(100_003),
        torch.rand(100_003),
        F.dropout(x, 0.3),
        torch.randperm(70_001),
        x.exp().multinomial(50),
        torch.bernoulli(x.sigmoid()),
    ]


@program
def optimizers() -> Any:
    found = []
    for kind, options in (
        (torch.optim.AdamW, {}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.RMSprop, {}),
        (torch.optim.Adagrad, {}),
    ):
        params = [torch.nn.Parameter(drawn(n, seed=n)) for n in (70_001, 3, 1000)]
        optimizer = kind(params, lr=0.01, **options)
        for step in range(2):
            for p in params:
                p.grad = drawn(*p.shape, seed=step)
            found.append(torch.nn.utils.clip_grad_norm_(params, 1.0))
            optimizer.step()
        found += params
    return found


@program
def winograd_and_direct_convolutions() -> Any:
    found = []
    for images, taps, options in (
        ((2, 64, 40, 41), (64, 64, 3, 3), {"padding": 1}),
        ((2, 64, 33, 31), (64, 1, 5, 5), {"padding": 2, "groups": 64}),
    ):
        for dtype in (torch.float32, torch.bfloat16):
            x, w = drawn(*images, dtype=dtype, grad=True), drawn(*taps, dtype=dtype, grad=True, seed=1)
            found += with_gradients(F.conv2d(x, w, **options), x, w)
    x, w = drawn(3, 24, 900, grad=True), drawn(32, 24, 9, grad=True, seed=1)
    cube, taps = drawn(2, 6, 12, 13, 14, grad=True), drawn(8, 6, 3, 3, 3, grad=True, seed=1)
    return found + with_gradients(F.conv1d(x, w, padding=4), x, w) + with_gradients(F.conv3d(cube, taps), cube, taps)


@program
def scans() -> Any:
    x = drawn(70, 3001, grad=True)
    made = [x.cumsum(1), x.cumprod(0), x.logcumsumexp(1), x.cummax(1)[0], x.cummin(0)[0], x.flatten().cumsum(0)]
    return [g for out in made for g in with_gradients(out, x)]


@program
def whole_and_complex_products() -> Any:
    a, b = (drawn(200, 210, seed=s).mul(40).to(torch.int8) for s in (1, 2))
    z = torch.complex(drawn(150, 130), drawn(150, 130, seed=1)).requires_grad_()
    return [torch._int_mm(a, b.t().contiguous()), a.int() @ b.int().t(), *with_gradients(z @ z.mH, z)]


@program
def bags_and_alignments() -> Any:
    table, places = drawn(900, 70, grad=True), torch.arange(40_000) * 37 % 900
    found = []
    for mode in ("sum", "mean", "max"):
        found += with_gradients(F.embedding_bag(places, table, torch.arange(0, 40_000, 8), mode=mode), table)
    found += with_gradients(F.embedding(places, table, padding_idx=3, scale_grad_by_freq=True), table)
    scores, targets = drawn(60, 40, 30, grad=True), torch.arange(40 * 20).reshape(40, 20) % 29 + 1
    lengths = torch.full((40,), 60), torch.arange(40) % 15 + 5
    return found + with_gradients(F.ctc_loss(scores.log_softmax(2), targets, *lengths, reduction="none"), scores)


@program
def transforms_and_factors() -> Any:
    x, m = drawn(90, 1000, grad=True), drawn(60, 40, 40, dtype=torch.float64, grad=True)
    s = (m @ m.mT + torch.eye(40, dtype=torch.float64)).detach().requires_grad_()
    long = drawn(1 << 16, grad=True)
    found = with_gradients(torch.view_as_real(torch.fft.rfft(x)), x) + with_gradients(
        torch.view_as_real(torch.fft.fft(long)), long
    )
    found += with_gradients(torch.linalg.cholesky(s), s) + with_gradients(torch.linalg.solve(s, m), s, m)
    return found + [*torch.linalg.qr(m), *torch.linalg.eigh(s), torch.linalg.svdvals(m)]


@program
def shared_units_of_recurrent_layers() -> Any:
    """So few sequences that threads share the units of each step."""
    found = []
    for kind in (torch.nn.LSTM, torch.nn.GRU):
        torch.manual_seed(4)
        layer, x = kind(300, 512), drawn(5, 1, 300, grad=True)
        found += with_gradients(layer(x)[0], x, *layer.parameters())
    return found


@program
def counting_and_places() -> Any:
    x, edges = drawn(200_003), torch.linspace(-2, 2, 300)
    places = (x * 100).long().clamp(-300, 299) + 300
    return [
        torch.bincount(places), torch.histc(x, 64), torch.searchsorted(edges, x), torch.bucketize(x, edges), x.kthvalue(777)[0], x.median(),
        torch.zeros(600).scatter_reduce(0, places, x, "amax"), torch.zeros(600).scatter_reduce(0, places, x, "prod"), x.reshape(-1, 1).mode(0)[0],
        F.grid_sample(drawn(2, 5, 40, 40), drawn(2, 70, 70, 2), align_corners=False), F.unfold(drawn(4, 6, 40, 40), 3),
        F.fold(drawn(4, 54, 38 * 38), (40, 40), 3), torch.cdist(drawn(300, 20), drawn(310, 20, seed=1)), x.roll(12345), x.flip(0),
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def bits(tensors: list[Any]) -> list[bytes]:
    return [t.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() for t in tensors]


@pytest.mark.slow
def test_every_operator_has_the_same_bits_in_pieces(run_python: Any) -> None:
    done = run_python("-m", "tests.engine.same_pieces", cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    cut, *faults = done.stdout.split("\n")[:-1]
    assert not faults
    assert int(cut) > 400  # samples ran in several pieces; others are smaller than two vectors


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_same_bits_for_any_number_of_threads(name: str) -> None:
    found = {}
    for count in COUNTS:
        torch.set_num_threads(count)
        found[count] = bits(PROGRAMS[name]())
    assert all(len(part) for part in found[1])
    for count in COUNTS[1:]:
        differ = [k for k, (a, b) in enumerate(zip(found[1], found[count], strict=True)) if a != b]
        assert not differ, f"{count} threads give other bits than one in results {differ}"
