"""Results have the same bits for 1, 2, 3 and 8 threads: every family of kernels, forward and backward, in several pieces of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    made = [x.sum(), x.sum(0), x.sum(1), x.mean(), x.var(0), x.var(1), x.norm(), x.logsumexp(1), x.prod(1), x.cumsum(0), x.cumsum(1)]
    return [*made, *with_gradients(F.gelu(x) * x.sigmoid() + x.exp(), x), *with_gradients(x.softmax(1), x), *with_gradients(x.softmax(0), x)]


@program
def reductions_in_double_and_half() -> Any:
    return [drawn(200_003, dtype=d).sum() for d in (torch.float64, torch.bfloat16, torch.float16, torch.complex64)]


@program
def norms() -> Any:
    x, w, b = drawn(16, 32, 24, 24, grad=True), drawn(32, grad=True, seed=1), drawn(32, grad=True, seed=2)
    rows, found = x.reshape(-1, 768), []
    for image in (x, x.detach().to(memory_format=torch.channels_last).requires_grad_()):
        made = [F.batch_norm(image, None, None, w, b, training=True), F.group_norm(image, 8, w, b), F.instance_norm(image)]
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
        found += with_gradients(a @ b, a, b) + with_gradients(batch @ batch.mT, batch) + with_gradients(a @ b[:, 0], a, b)
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
    return [*x.sort(-1), *x.sort(0, stable=True), *x.flatten().sort(), *x.topk(20), *x.unique(return_counts=True), x.nonzero(), x[x > 3]]


@program
def random_numbers() -> Any:
    torch.manual_seed(5)
    x = drawn(100_003)
    return [torch.randn(100_003), torch.rand(100_003), F.dropout(x, 0.3), torch.randperm(70_001), x.exp().multinomial(50), torch.bernoulli(x.sigmoid())]


@program
def optimizers() -> Any:
    found = []
    for kind, options in ((torch.optim.AdamW, {}), (torch.optim.SGD, {"momentum": 0.9}), (torch.optim.RMSprop, {}), (torch.optim.Adagrad, {})):
        params = [torch.nn.Parameter(drawn(n, seed=n)) for n in (70_001, 3, 1000)]
        optimizer = kind(params, lr=0.01, **options)
        for step in range(2):
            for p in params:
                p.grad = drawn(*p.shape, seed=step)
            found.append(torch.nn.utils.clip_grad_norm_(params, 1.0))
            optimizer.step()
        found += params
    return found


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def bits(tensors: list[Any]) -> list[bytes]:
    return [t.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() for t in tensors]


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
