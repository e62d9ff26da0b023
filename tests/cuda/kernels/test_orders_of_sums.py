"""The bits of a sum follow from shapes, dims, layouts and dtypes: neither from an address, nor from what is fused with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn

pytestmark = pytest.mark.cuda


def randn(*shape: int, seed: int = 0, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to("cuda")


def shifted(x: Any) -> Any:
    """A copy whose address is aligned to an element alone."""
    room = torch.zeros(x.numel() + 1, dtype=x.dtype, device=x.device)[1:]
    assert room.data_ptr() % 16 == x.element_size()
    return room.view(x.shape).copy_(x)


def equal(a: Any, b: Any) -> bool:
    return torch.equal(a.cpu().reshape(-1).view(torch.uint8), b.cpu().reshape(-1).view(torch.uint8))


OF_ONE: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "sums of rows": lambda x: x.sum(-1),
    "sums of columns": lambda x: x.sum(0),
    "mean": lambda x: x.mean(-1),
    "product": lambda x: (1 + x / 64).prod(-1),
    "variance": lambda x: x.var(-1),
    "norm": lambda x: x.norm(dim=-1),
    "softmax": lambda x: x.softmax(-1),
    "logarithm of a sum": lambda x: x.logsumexp(-1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "prefixes": lambda x: x.cumsum(-1),
    "position of an extreme": lambda x: x.round().argmax(-1),
    "a product of matrices": lambda x: x @ x.mT,
}


@pytest.mark.parametrize("name", OF_ONE)
def test_an_address_does_not_change_bits(name: str) -> None:
    for shape, dtype in [((64, 64), torch.float32), ((3, 1024), torch.float16), ((2, 8192), torch.float32)]:
        x = randn(*shape, dtype=dtype)
        assert equal(OF_ONE[name](x), OF_ONE[name](shifted(x))), shape


@pytest.mark.parametrize("name", OF_ONE)
def test_an_address_does_not_change_bits_of_compiled_calls(name: str) -> None:
    function = torch.compile(lambda x: OF_ONE[name](x + 1), dynamic=False)
    x = randn(16, 512)
    found = function(x)
    assert equal(found, function(shifted(x)))
    assert equal(found, OF_ONE[name](x + 1))


# functions of tensors, and shapes of these: fused operations read other memory than a sum by itself does
FUSED: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "beside a softmax": (lambda x: ((x[1:] + 1).sum(), x[1:].softmax(0)), [(4097,)]),
    "every second element": (lambda x: (x[::2] + 1).sum(), [(8192,)]),
    "every second column, by rows": (lambda x: (x[:, ::2] + 1).sum(-1), [(8, 512)]),
    "every second column, by columns": (lambda x: (x[:, ::2] + 1).sum(0), [(200, 64)]),
    "of half precision": (lambda x: x.half().float().sum(), [(4096,)]),
    "elements that are gathered": (lambda x, at: x[at.abs().mul(30).long()].sum(), [(200,), (4096,)]),
    "a transposed matrix": (lambda x: (x.t() + 1).sum(0), [(33, 64)]),
    "of matrices that lie differently": (lambda x, y: (x.t() + y).sum(1), [(33, 64), (64, 33)]),
    "an outer product": (lambda r, c: ((r * c).sum(0), (r * c).sum(1), (r * c).sum()), [(333, 1), (40,)]),
    "an outer product of three dims": (lambda r, c: (r * c).sum((1, 2)), [(33, 4, 1), (33, 1, 70)]),
    "a variance of rows less a row": (lambda x, c: ((x[1:] - c) / 16).exp().var(0), [(200, 10), (10,)]),
    "rows of unequal lengths": (lambda x, y: (x.sum(1), y.sum(1)), [(64, 3000), (64, 5000)]),
    "rows, and columns of another matrix": (lambda x, y: (x.sum(1), y.sum(0)), [(64, 100), (100, 64)]),
    "few long rows by their norms": (lambda x: x / x.norm(dim=-1, keepdim=True), [(3, 20000)]),
    "few long rows less their means": (lambda x: (x - x.mean(-1, keepdim=True)).square().sum(-1), [(3, 20000)]),
    "few long rows, beside longer calls": (lambda x: (x.softmax(-1), x.sum(-1), x.var(-1)), [(3, 20000)]),
    "beside vectors of rows": (
        lambda x, a, b, c: (x * a[:, None] + b[:, None] * c[:, None]).sum(0),
        [(333, 10), (333,), (333,), (333,)],
    ),
    "beside vectors of columns": (lambda x, a, b, c: (x * a + b * c).sum(1), [(333, 10), (10,), (10,), (10,)]),
}


@pytest.mark.parametrize("name", FUSED)
def test_what_is_fused_does_not_change_bits(name: str) -> None:
    function, shapes = FUSED[name]
    compiled = torch.compile(function, dynamic=False)
    for seed in range(3):
        given = [randn(*shape, seed=seed + 10 * k) for k, shape in enumerate(shapes)]
        found, expected = compiled(*given), function(*given)
        pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
        assert all(equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("batch", [33, 40])
def test_gradients_of_a_batch_are_those_of_eager_calls(batch: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 10)).to("cuda")
    x, y = randn(batch, 16), (torch.arange(batch) * 7 % 10).to("cuda")

    def loss(x: Any, y: Any) -> Any:
        return F.cross_entropy(model(x), y)

    def gradients(function: Callable[[Any, Any], Any]) -> dict[str, Any]:
        model.zero_grad()
        function(x, y).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    expected, found = gradients(loss), gradients(torch.compile(loss, dynamic=False))
    assert [name for name in expected if not equal(found[name], expected[name])] == []


def filters(*shape: int, seed: int) -> Any:
    return randn(*shape, seed=seed) * 0.2


W: Any = None
V: Any = None
SCALE: Any = None
DEPTHWISE: Any = None
UP: Any = None
HEAD: Any = None


@pytest.fixture(scope="module", autouse=True)
def weights() -> None:
    """Weights on the GPU, which a process that only collects the tests does not have."""
    globals().update(
        W=filters(8, 8, 3, 3, seed=1), V=filters(8, 8, 3, 3, seed=2), SCALE=filters(8, seed=3) + 1,
        DEPTHWISE=filters(8, 1, 3, 3, seed=4), UP=filters(8, 6, 3, 3, seed=5), HEAD=filters(10, 8, seed=6),
    )  # fmt: skip


def conv(x: Any, w: Any = None, **given: Any) -> Any:
    return F.conv2d(x, W if w is None else w, None, padding=1, **given)


def norm(x: Any) -> Any:
    return F.batch_norm(x, None, None, SCALE, SCALE, True)


def block(x: Any) -> Any:
    return (norm(conv(norm(conv(x)).relu(), V)) + x).relu()


def sums(x: Any) -> tuple[Any, ...]:
    y = conv(x)
    return y.relu().sum((0, 2, 3)), y.sum(1), (y * 2).mean((2, 3))


# functions of images, whose calls lie channels last or not: convolutions add in the order of their operands' layout
IMAGES: dict[str, Callable[[Any], Any]] = {
    "a cast and a convolution": conv,
    "a norm of a result": lambda x: norm(conv(x)),
    "a residual block and a head": lambda x: F.linear(block(x).mean((2, 3)), HEAD),
    "sums over a result": sums,
    "depthwise": lambda x: conv(conv(x, DEPTHWISE, groups=8).relu()),
    "transposed": lambda x: F.conv_transpose2d(conv(x).relu(), UP, None, 2, 1),
    "a part of a result": lambda x: conv(conv(x)[:, :, 1:-1, ::2], V),
    "a padded image": lambda x: F.conv2d(F.pad(x + 1, (1, 2, 1, 2)), W),
    "images that become row-major": lambda x: conv((x * 2).contiguous()),
    "images that become channels last": lambda x: conv((x * 2).contiguous(memory_format=torch.channels_last)),
}


@pytest.mark.parametrize("name", IMAGES)
def test_compiled_convolutions_add_in_the_order_of_their_calls(name: str) -> None:
    found = []
    for run in (IMAGES[name], torch.compile(IMAGES[name], dynamic=False)):
        x = randn(2, 8, 9, 10).to(memory_format=torch.channels_last).requires_grad_()
        with torch.autocast("cuda", torch.float16):
            y = run(x)
        results = list(y) if isinstance(y, tuple) else [y]
        results += torch.autograd.grad(sum((v.float() ** 2).sum() for v in results), [x])
        found.append(results)
    assert all(equal(a, b) for a, b in zip(*found, strict=True))
