"""The rows: what is timed, with which claim.  Every function takes the module (`torch` or `rushlight`) and returns the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rows_kernels  # noqa: F401  (they add their rows)
import rows_training  # noqa: F401
from registry import ROWS, Call, row

__all__ = ["ROWS"]


# ***** the cost of a call *****


@row("overhead/add_10", 1.0)
def add_small(t: Any) -> Call:
    a, b = t.randn(10), t.randn(10)
    return lambda: a + b


@row("overhead/add_10_recorded", 1.0)
def add_small_recorded(t: Any) -> Call:
    a, b = t.randn(10, requires_grad=True), t.randn(10)
    return lambda: a + b


@row("overhead/forward_backward_10", 1.0)
def small_backward(t: Any) -> Call:
    a, b = t.randn(10, requires_grad=True), t.randn(10, requires_grad=True)

    def step() -> None:
        a.grad = b.grad = None
        ((a * b) + b).sum().backward()

    return step


def _small(name: str, make: Callable[[Any], Call]) -> None:
    row(f"overhead/{name}", 1.0)(make)


_small("index_by_tensor", lambda t: lambda x=t.randn(4, 4), i=t.tensor([0, 2]): x[i, 1:3])
_small("index_by_0d", lambda t: lambda x=t.randn(4, 4), i=t.tensor(1): x[i])
_small("assign_by_tensor", lambda t: lambda x=t.randn(4, 4), i=t.tensor([0, 2]): x.__setitem__(i, 2.0))
_small("assign_to_int64", lambda t: lambda x=t.zeros(4, 4, dtype=t.int64): x.__setitem__((1, 1), 5))
_small("zeros_on_device", lambda t: lambda d=t.device("cpu"): t.zeros(2, 3, dtype=t.int64, device=d))
_small("full", lambda t: lambda: t.full((16,), 2.5))
_small("arange", lambda t: lambda: t.arange(16))
_small("randn_like", lambda t: lambda x=t.randn(16): t.randn_like(x))
_small("pow_of_tensors", lambda t: lambda x=t.rand(16), y=t.rand(16): x**y)
_small("nonzero", lambda t: lambda x=t.randn(4, 4) > 0: x.nonzero())
_small("nested_list", lambda t: lambda x=t.randn(4, 4): x.tolist())
_small("to_numpy", lambda t: lambda x=t.randn(16): x.numpy())


# ***** sizes that were not met before: batches of varying lengths; PyTorch makes no plans *****


def _varying(name: str, claim: float, apply: Callable[[Any, Any], Any]) -> None:
    @row(f"new_shapes/{name}", claim)
    def forward_and_backward(t: Any) -> Call:
        base = t.randn(64 * 250 * 64).requires_grad_()
        sizes = iter([(b, n) for n in range(250, 10, -1) for b in range(60, 3, -1)] * 100)  # 13680 of them

        def step() -> None:
            b, n = next(sizes)
            base.grad = None
            apply(t, base.detach()[: b * n * 4].view(b, n, 4).requires_grad_()).backward()

        return step


_varying("sum", 0.3, lambda t, x: x.sum())
_varying("softmax", 0.7, lambda t, x: t.softmax(x, 1).mean())
_varying("layer_norm_gelu", 1.5, lambda t, x: t.nn.functional.gelu(t.nn.functional.layer_norm(x, (4,))).mean())


@row("new_shapes/unbind", 0.3)
def unbind_of_a_new_length(t: Any) -> Call:
    base = t.randn(260 * 300)
    sizes = iter([(n, w) for w in range(1, 301) for n in range(200, 260)] * 10)  # 18000 of them

    def cut() -> None:
        n, w = next(sizes)
        base[: n * w].view(n, w).unbind()

    return cut


# ***** one pass over memory *****

SIZES = {"64k": (1 << 16, 1.0), "1M": (1 << 20, 1.0), "16M": (1 << 24, 2.0)}


def _pointwise(label: str, size: int, claim: float) -> None:
    @row(f"pointwise/add_{label}", claim, moved=12.0 * size)
    def add(t: Any) -> Call:
        a, b = t.randn(size), t.randn(size)
        return lambda: a + b

    @row(f"pointwise/exp_{label}", claim, moved=8.0 * size)
    def exp(t: Any) -> Call:
        a = t.randn(size)
        return lambda: t.exp(a)

    @row(f"pointwise/gelu_{label}", claim, moved=8.0 * size)
    def gelu(t: Any) -> Call:
        a = t.randn(size)
        return lambda: t.nn.functional.gelu(a)


MILLION = 1 << 20


@row("pointwise/fill_1M", 1.0, moved=4.0 * MILLION)
def fill(t: Any) -> Call:
    a = t.empty(MILLION)
    return lambda: a.fill_(1.5)


@row("pointwise/zeros_1M", 1.0, moved=4.0 * MILLION)
def zeros(t: Any) -> Call:
    return lambda: t.zeros(MILLION)


@row("pointwise/copy_1M", 1.0, moved=8.0 * MILLION)
def copy(t: Any) -> Call:
    a, b = t.randn(MILLION), t.randn(MILLION)
    return lambda: a.copy_(b)


@row("pointwise/not_1M", 1.0, moved=2.0 * MILLION)
def invert(t: Any) -> Call:
    a = t.randn(MILLION) > 0
    return lambda: ~a


for _label, (_size, _claim) in SIZES.items():
    _pointwise(_label, _size, _claim)


# ***** rows of a matrix, forward alone and with backward *****


def _rowwise(name: str, shape: tuple[int, ...], apply: Callable[[Any, Any], Any], whole: bool) -> None:
    size, out = 4.0 * shape[0] * shape[1], 4.0 * shape[0] * shape[1] * whole

    @row(f"rows/{name}", 1.0, moved=size + out)
    def forward(t: Any) -> Call:
        x = t.randn(*shape)
        return lambda: apply(t, x)

    @row(f"rows/{name}_backward", 1.0, moved=2 * (size + out) + size)
    def backward(t: Any) -> Call:
        x = t.randn(*shape, requires_grad=True)
        seed = t.ones_like(apply(t, x).detach())

        def step() -> None:
            x.grad = None
            apply(t, x).backward(seed)

        return step


_rowwise("softmax", (4096, 1024), lambda t, x: t.softmax(x, -1), True)
_rowwise("layer_norm", (4096, 1024), lambda t, x: t.nn.functional.layer_norm(x, (1024,)), True)
_rowwise("rms_norm", (4096, 1024), lambda t, x: t.nn.functional.rms_norm(x, (1024,)), True)
_rowwise("group_norm", (4096, 1024), lambda t, x: t.nn.functional.group_norm(x.view(64, 64, 32, 32), 8), True)
_rowwise(
    "batch_norm",
    (4096, 1024),
    lambda t, x: t.nn.functional.batch_norm(x.view(64, 64, 32, 32), None, None, training=True),
    True,
)
_rowwise("logsumexp", (4096, 1024), lambda t, x: x.logsumexp(-1), False)
_rowwise("amax", (4096, 1024), lambda t, x: x.amax(-1), False)
_rowwise("sum_rows", (4096, 1024), lambda t, x: x.sum(-1), False)
_rowwise("sum_columns", (4096, 1024), lambda t, x: x.sum(0), False)
_rowwise("mean", (4096, 1024), lambda t, x: x.mean(), False)
_rowwise("var", (4096, 1024), lambda t, x: x.var(-1), False)


@row("rows/cross_entropy", 1.0, moved=4.0 * 512 * 32000)
def cross_entropy(t: Any) -> Call:
    x, y = t.randn(512, 32000), t.randint(0, 32000, (512,))
    return lambda: t.nn.functional.cross_entropy(x, y)


@row("rows/cross_entropy_backward", 1.0, moved=12.0 * 512 * 32000)
def cross_entropy_backward(t: Any) -> Call:
    x, y = t.randn(512, 32000, requires_grad=True), t.randint(0, 32000, (512,))

    def step() -> None:
        x.grad = None
        t.nn.functional.cross_entropy(x, y).backward()

    return step


def _loss(name: str, apply: Callable[[Any, Any, Any], Any]) -> None:
    @row(f"rows/{name}_backward", 1.0, moved=6 * 4.0 * MILLION)
    def make(t: Any) -> Call:
        x, y = t.randn(1024, 1024, requires_grad=True), t.rand(1024, 1024)

        def step() -> None:
            x.grad = None
            apply(t.nn.functional, x, y).backward()

        return step


_loss("mse", lambda f, x, y: f.mse_loss(x, y))
_loss("smooth_l1", lambda f, x, y: f.smooth_l1_loss(x, y))
_loss("bce_with_logits", lambda f, x, y: f.binary_cross_entropy_with_logits(x, y))
_loss("kl_div", lambda f, x, y: f.kl_div(x, y, reduction="batchmean"))


@row("rows/ctc_100x16x64_backward", 1.0)
def ctc(t: Any) -> Call:
    scores = t.randn(100, 16, 64).log_softmax(-1).requires_grad_()
    targets, lengths, counts = t.randint(1, 64, (16, 20)), t.full((16,), 100), t.full((16,), 20)

    def step() -> None:
        scores.grad = None
        t.nn.functional.ctc_loss(scores, targets, lengths, counts).backward()

    return step


@row("rows/layer_norm_square_backward", 1.0, moved=5 * 4.0 * MILLION)
def layer_norm_square(t: Any) -> Call:
    """As many rows as columns: sums along both."""
    norm, x, seed = t.nn.LayerNorm(1024), t.randn(1024, 1024, requires_grad=True), t.ones(1024, 1024)

    def step() -> None:
        norm.zero_grad()
        x.grad = None
        norm(x).backward(seed)

    return step


@row("rows/cdist_1024x1024x64", 1.0, moved=4.0 * MILLION)
def cdist(t: Any) -> Call:
    x, y = t.randn(1024, 64), t.randn(1024, 64)
    return lambda: t.cdist(x, y)


# ***** data *****


class Images:
    """Samples as programs make them: cut, turned, cast and normalised, one image at a time."""

    def __init__(self, t: Any, size: int) -> None:
        self.size = size
        self.raw = (t.rand(64, 3, 72, 72) * 255).to(t.uint8)
        self.mean, self.std = (
            t.tensor(values).view(3, 1, 1) for values in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        )

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int) -> Any:
        x = self.raw[i % 64][:, i % 8 : i % 8 + 64, i % 5 : i % 5 + 64]
        if i % 2:
            x = x.flip(-1)
        return (x.float() / 255 - self.mean) / self.std, i % 10


def _loader(name: str, **options: Any) -> None:
    @row(f"data/{name}", 1.0)
    def epoch(t: Any) -> Call:
        loader = t.utils.data.DataLoader(Images(t, 256), batch_size=32, **options)

        def run() -> None:
            for _ in loader:
                pass

        return run


_loader("images_256")
_loader("images_256_2_workers", num_workers=2)
_loader("images_256_2_workers_that_stay", num_workers=2, persistent_workers=True)


@row("data/shuffled_rows_8192", 3.0)
def shuffled_rows(t: Any) -> Call:
    data = t.utils.data
    loader = data.DataLoader(data.TensorDataset(t.randn(8192, 16), t.arange(8192)), batch_size=64, shuffle=True)

    def run() -> None:
        for _ in loader:
            pass

    return run
