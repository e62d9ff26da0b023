"""Rows of the kernel families: products, convolutions, attention, recurrent layers, Fourier transforms, choosing, ordering, random numbers,
optimizers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from registry import Call, row

# ***** matrix products *****


def _product(name: str, a: tuple[int, ...], b: tuple[int, ...], dtype: str = "float32", turned: bool = False) -> None:
    batch = a[0] if len(a) == 3 else 1
    m, k, n = a[-2], a[-1], b[-1]
    size = {"bfloat16": 2, "complex64": 8, "float64": 8}.get(dtype, 4)
    each, real = (8.0, "float32") if dtype == "complex64" else (2.0, dtype)

    @row(f"products/{name}", flops=each * batch * m * n * k, moved=size * batch * (m * k + k * n + m * n), dtype=real)
    def make(t: Any) -> Call:
        x = t.randn(*a).to(getattr(t, dtype))
        y = (t.randn(*b[:-2], b[-1], b[-2]).mT if turned else t.randn(*b)).to(getattr(t, dtype))
        return lambda: x @ y


def _followed(
    name: str, m: int, k: int, n: int, dtype: str, apply: Callable[[Any, Any, Any, Any], Any], residual: bool = False
) -> None:
    size = 2 if dtype == "bfloat16" else 4

    @row(
        f"products/{name}",
        flops=2.0 * m * n * k,
        moved=size * (m * k + k * n + m * n * (2 if residual else 1)),
        dtype=dtype,
    )
    def make(t: Any) -> Call:
        x, w, third = (t.randn(*s).to(getattr(t, dtype)) for s in ((m, k), (n, k), (m, n) if residual else (n,)))
        return lambda: apply(t, x, w, third)


for _size in (64, 256, 1024):
    _product(f"float32_{_size}", (_size, _size), (_size, _size))
_product("float32_weights_turned_128x768x3072", (128, 768), (768, 3072), turned=True)
_product("float32_batch_64x128", (64, 128, 128), (64, 128, 128))
_product("float32_vector_1x768x50257", (1, 768), (768, 50257))
for _size in (256, 1024):
    _product(f"bfloat16_{_size}", (_size, _size), (_size, _size), "bfloat16")
_product("float64_512", (512, 512), (512, 512), "float64")
_product("float32_outer_2048x1x2048", (2048, 1), (1, 2048))
_product("complex64_256", (256, 256), (256, 256), "complex64")
_product("float32_long_sums_16x50000", (16, 50000), (50000, 16))
_product("float32_tall_10000x16x16", (10000, 16), (16, 16))
_product("float32_batch_2000x4", (2000, 4, 4), (2000, 4, 4))
_product("bfloat16_batch_512x16", (512, 16, 16), (512, 16, 16), "bfloat16")
for _dtype in ("float32", "bfloat16"):
    _followed(f"{_dtype}_linear_bias_256", 256, 256, 256, _dtype, lambda t, x, w, b: t.nn.functional.linear(x, w, b))
    _followed(
        f"{_dtype}_residual_512x64x512",
        512,
        64,
        512,
        _dtype,
        lambda t, x, w, c: t.addmm(c, x, w.t(), beta=0.5, alpha=2.0),
        True,
    )


# ***** convolutions, pooling, resizing *****


def _convolution(
    name: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    backward: bool = False,
    dtype: str = "float32",
    last: bool = False,
    **options: int,
) -> None:
    stride, padding, dilation = options.get("stride", 1), options.get("padding", 0), options.get("dilation", 1)
    places = [(s + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for s, k in zip(x[2:], w[2:], strict=True)]
    out = x[0] * w[0]
    for size in places:
        out *= size
    taps, images = w[1], 1
    for size in w[2:]:
        taps *= size
    for size in x:
        images *= size
    passes, size = 3 if backward else 1, 2 if dtype == "bfloat16" else 4

    @row(
        f"convolutions/{name}",
        flops=2.0 * passes * out * taps,
        moved=size * (images + out) * (2 if backward else 1),
        dtype=dtype,
    )
    def make(t: Any) -> Call:
        image = t.randn(*x).to(getattr(t, dtype)).requires_grad_(backward)
        weight = t.randn(*w).to(getattr(t, dtype)).requires_grad_(backward)
        if last:
            image, weight = (v.to(memory_format=t.channels_last) for v in (image, weight))
        function = getattr(t.nn.functional, f"conv{len(x) - 2}d")
        if not backward:
            return lambda: function(image, weight, **options)
        seed = t.ones_like(function(image, weight, **options).detach())

        def step() -> None:
            image.grad = weight.grad = None
            function(image, weight, **options).backward(seed)

        return step


_convolution("3x3_8x64x56x56", (8, 64, 56, 56), (64, 64, 3, 3), padding=1)
_convolution("3x3_backward_8x64x56x56", (8, 64, 56, 56), (64, 64, 3, 3), True, padding=1)
_convolution("3x3_bfloat16_8x64x56x56", (8, 64, 56, 56), (64, 64, 3, 3), dtype="bfloat16", padding=1)
_convolution("3x3_8x128x28x28", (8, 128, 28, 28), (128, 128, 3, 3), padding=1)
_convolution("3x3_1x64x224x224", (1, 64, 224, 224), (64, 64, 3, 3), padding=1)
_convolution("1x1_8x64x56x56_256", (8, 64, 56, 56), (256, 64, 1, 1))
_convolution("7x7_stride_2_8x3x224x224", (8, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3)
_convolution("3x3_1x512x7x7", (1, 512, 7, 7), (512, 512, 3, 3), padding=1)
_convolution("grouped_3x3_8x128x28x28", (8, 128, 28, 28), (128, 4, 3, 3), padding=1, groups=32)
_convolution("depthwise_3x3_8x32x112x112", (8, 32, 112, 112), (32, 1, 3, 3), padding=1, groups=32)
_convolution("depthwise_3x3_backward_8x32x112x112", (8, 32, 112, 112), (32, 1, 3, 3), True, padding=1, groups=32)
_convolution("3x3_bfloat16_8x256x14x14", (8, 256, 14, 14), (256, 256, 3, 3), dtype="bfloat16", padding=1)
_convolution("16x16_stride_16_8x3x224x224", (8, 3, 224, 224), (384, 3, 16, 16), stride=16)
_convolution("1d_k5_16x64x1024", (16, 64, 1024), (64, 64, 5), padding=2)
_convolution("3x3_channels_last_8x64x56x56", (8, 64, 56, 56), (64, 64, 3, 3), last=True, padding=1)
_convolution("3x3_dilated_8x64x56x56", (8, 64, 56, 56), (64, 64, 3, 3), padding=2, dilation=2)
_convolution("3d_3x3x3_2x32x16x28x28", (2, 32, 16, 28, 28), (32, 32, 3, 3, 3), padding=1)


@row(
    "convolutions/transposed_4x4_stride_2_8x64x28x28",
    flops=2.0 * 8 * 64 * 28 * 28 * 32 * 16,
    moved=4.0 * 8 * 28 * 28 * (64 + 4 * 32),
)
def _transposed(t: Any) -> Call:
    x, w = t.randn(8, 64, 28, 28), t.randn(64, 32, 4, 4)
    return lambda: t.nn.functional.conv_transpose2d(x, w, stride=2, padding=1)


_PIXELS = 8 * 64 * 112 * 112


def _resampling(name: str, out: int, apply: Callable[[Any, Any], Any]) -> None:
    @row(f"resampling/{name}", moved=4.0 * (_PIXELS + out))
    def forward(t: Any) -> Call:
        x = t.randn(8, 64, 112, 112)
        return lambda: apply(t.nn.functional, x)

    @row(f"resampling/{name}_backward", moved=8.0 * (_PIXELS + out))
    def backward(t: Any) -> Call:
        x = t.randn(8, 64, 112, 112, requires_grad=True)
        seed = t.ones_like(apply(t.nn.functional, x).detach())

        def step() -> None:
            x.grad = None
            apply(t.nn.functional, x).backward(seed)

        return step


_resampling("max_pool_3x3_stride_2", _PIXELS // 4, lambda f, x: f.max_pool2d(x, 3, 2, 1))
_resampling("avg_pool_2x2", _PIXELS // 4, lambda f, x: f.avg_pool2d(x, 2))
_resampling("bilinear_to_half", _PIXELS // 4, lambda f, x: f.interpolate(x, scale_factor=0.5, mode="bilinear"))
_resampling("bicubic_to_half", _PIXELS // 4, lambda f, x: f.interpolate(x, scale_factor=0.5, mode="bicubic"))
_resampling("adaptive_avg_pool_7x7", 8 * 64 * 49, lambda f, x: f.adaptive_avg_pool2d(x, 7))
_resampling("nearest_to_double", 4 * _PIXELS, lambda f, x: f.interpolate(x, scale_factor=2))


# ***** attention and recurrent layers *****


def _attention(name: str, dtype: str, backward: bool) -> None:
    flops = 2.0 * 2 * 12 * 1024 * 1024 * 64 / 2 * (3.5 if backward else 1)  # causal: half of the square

    @row(f"attention/{name}", flops=flops, moved=(32.0 if backward else 16.0) * 12 * 1024 * 64, dtype=dtype)
    def make(t: Any) -> Call:
        attend = t.nn.functional.scaled_dot_product_attention
        q, k, v = (t.randn(1, 12, 1024, 64).to(getattr(t, dtype)).requires_grad_(backward) for _ in range(3))
        if not backward:
            return lambda: attend(q, k, v, is_causal=True)
        seed = t.ones_like(q.detach())

        def step() -> None:
            q.grad = k.grad = v.grad = None
            attend(q, k, v, is_causal=True).backward(seed)

        return step


_attention("causal_12x1024x64", "float32", False)
_attention("causal_backward_12x1024x64", "float32", True)
_attention("causal_bfloat16_12x1024x64", "bfloat16", False)
_attention("causal_bfloat16_backward_12x1024x64", "bfloat16", True)


def _attended(name: str, flops: float, make: Callable[[Any, Any], Call]) -> None:
    row(f"attention/{name}", flops=flops, moved=16.0 * 12 * 1024 * 64)(
        lambda t: make(t, t.nn.functional.scaled_dot_product_attention)
    )


def _grouped(t: Any, attend: Any) -> Call:
    """Each head of keys and values serves four heads of queries."""
    q, k, v = (t.randn(1, heads, 1024, 64) for heads in (12, 3, 3))
    return lambda: attend(q, k, v, is_causal=True, enable_gqa=True)


def _dropped(t: Any, attend: Any) -> Call:
    q, k, v = (t.randn(1, 12, 1024, 64) for _ in range(3))
    return lambda: attend(q, k, v, dropout_p=0.1)


def _biased(t: Any, attend: Any) -> Call:
    """Numbers added to the scores, and a gradient back to queries, keys and values."""
    q, k, v = (t.randn(1, 12, 1024, 64, requires_grad=True) for _ in range(3))
    bias, seed = t.randn(12, 1024, 1024), t.randn(1, 12, 1024, 64)

    def step() -> None:
        q.grad = k.grad = v.grad = None
        attend(q, k, v, attn_mask=bias).backward(seed)

    return step


_SCORES = 2.0 * 2 * 12 * 1024 * 1024 * 64
_attended("grouped_causal_12x3x1024x64", _SCORES / 2, _grouped)
_attended("dropout_12x1024x64", _SCORES, _dropped)
_attended("bias_backward_12x1024x64", 3.5 * _SCORES, _biased)


@row("attention/masked_2x8x512x64", flops=2.0 * 2 * 16 * 512 * 512 * 64 / 2, moved=16.0 * 16 * 512 * 64)
def _masked(t: Any) -> Call:
    """A mask that leaves out half of the keys, as lengths of sequences do: whole blocks of scores need not be computed."""
    attend = t.nn.functional.scaled_dot_product_attention
    q, k, v = (t.randn(2, 8, 512, 64) for _ in range(3))
    mask = (t.arange(512) < 256).expand(2, 1, 1, 512)
    return lambda: attend(q, k, v, attn_mask=mask)


def _recurrent(kind: str, gates: int, batch: int = 16) -> None:
    @row(f"recurrent/{kind.lower()}_64x{batch}x256", flops=2.0 * 64 * batch * 512 * 256 * gates)
    def forward(t: Any) -> Call:
        layer, x = getattr(t.nn, kind)(256, 256), t.randn(64, batch, 256)

        def run() -> None:
            with t.no_grad():
                layer(x)

        return run

    @row(f"recurrent/{kind.lower()}_backward_64x{batch}x256", flops=6.0 * 64 * batch * 512 * 256 * gates)
    def backward(t: Any) -> Call:
        layer, x = getattr(t.nn, kind)(256, 256), t.randn(64, batch, 256, requires_grad=True)
        seed = t.ones(64, batch, 256)

        def step() -> None:
            x.grad = None
            layer.zero_grad()
            layer(x)[0].backward(seed)

        return step


_recurrent("LSTM", 4)
_recurrent("LSTM", 4, batch=1)
_recurrent("GRU", 3)
_recurrent("RNN", 1)


@row("recurrent/lstm_packed_64x16x256", flops=2.0 * 16 * 34 * 512 * 256 * 4)
def _packed(t: Any) -> Call:
    """Sequences of 4, 8, 12, ... 64 steps: half of the steps of a padded batch."""
    layer, lengths = t.nn.LSTM(256, 256), [4 * (16 - k) for k in range(16)]
    packed = t.nn.utils.rnn.pack_padded_sequence(t.randn(64, 16, 256), lengths)

    def run() -> None:
        with t.no_grad():
            layer(packed)

    return run


@row("recurrent/lstm_twice_backward_64x4x64")
def _twice(t: Any) -> Call:
    """The gradient of a function of gradients: step by step on the way back, in any framework."""
    layer, x = t.nn.LSTM(32, 64), t.randn(64, 4, 32, requires_grad=True)

    def step() -> None:
        (slope,) = t.autograd.grad(layer(x)[0].sum(), x, create_graph=True)
        t.autograd.grad((slope * slope).sum(), list(layer.parameters())[:2])

    return step


# ***** Fourier transforms: 5 n log n operations, half of them for real numbers, is what they are counted by (FFTW's convention) *****


def _fourier(transform: str, *shape: int, dims: tuple[int, ...] = (-1,), dtype: str = "complex64") -> None:
    count, real = math.prod(shape), dtype.startswith("f")
    flops = 5.0 * count * math.log2(math.prod(shape[d] for d in dims)) / (2 if real else 1)
    size = {"complex64": 8, "complex128": 16, "float32": 4}[dtype]
    where = f"_dim_{dims[0]}" if dims in ((0,), (1,)) else ""
    name = f"{transform}_{dtype}_{'x'.join(str(n) for n in shape)}{where}"

    @row(f"fourier/{name}", flops=flops, moved=2.0 * size * count, dtype="float64" if size == 16 else "float32")
    def make(t: Any) -> Call:
        x, f = t.randn(*shape, dtype=getattr(t, dtype)), getattr(t.fft, transform)
        if len(dims) > 1:
            return lambda: f(x, dim=dims)
        return lambda: f(x, dim=dims[0])


for _n in (16, 256, 1000, 1009, 1024, 1155, 1 << 14, 1 << 20):
    _fourier("fft", _n)
for _rows, _n in ((4096, 16), (4096, 64), (1024, 256), (256, 1000), (64, 1009), (64, 4096)):
    _fourier("fft", _rows, _n)
_fourier("fft", 256, 1024, dtype="complex128")
_fourier("fft", 1000, 512, dims=(0,))
for _rows, _n in ((16, 64), (4, 256), (1, 1024)):
    _fourier("fft2", _rows, _n, _n, dims=(-2, -1))
_fourier("fftn", 64, 64, 64, dims=(0, 1, 2))
_fourier("rfftn", 64, 64, 64, dims=(0, 1, 2), dtype="float32")
for _shape in ((1024,), (1 << 20,), (1024, 256), (256, 1000)):
    _fourier("rfft", *_shape, dtype="float32")


@row("fourier/irfft_1024x256", flops=2.5 * 1024 * 256 * 8, moved=8.0 * 1024 * 256)
def _back(t: Any) -> Call:
    x = t.fft.rfft(t.randn(1024, 256))
    return lambda: t.fft.irfft(x)


@row("fourier/stft_32x16000_512", flops=2.5 * 32 * 126 * 512 * 9, moved=4.0 * 32 * (16000 + 126 * 514))
def _frames(t: Any) -> Call:
    x, window = t.randn(32, 16000), t.hann_window(512)
    return lambda: t.stft(x, 512, hop_length=128, window=window, return_complex=True)


# ***** choosing, moving, ordering, drawing *****


def _moving(name: str, moved: float, make: Callable[[Any], Call]) -> None:
    row(f"moving/{name}", moved=moved)(make)


def _gather(t: Any) -> Call:
    x, i = t.randn(4096, 4096), t.randint(0, 4096, (4096, 1024))
    return lambda: x.gather(1, i)


def _scatter_add(t: Any) -> Call:
    x, i, v = t.zeros(1024, 1024), t.randint(0, 1024, (1024, 1024)), t.randn(1024, 1024)
    return lambda: x.scatter_add_(1, i, v)


def _embedding(t: Any) -> Call:
    w, i = t.randn(50257, 768), t.randint(0, 50257, (8, 1024))
    return lambda: t.nn.functional.embedding(i, w)


def _embedding_backward(t: Any) -> Call:
    w, i = t.randn(50257, 768, requires_grad=True), t.randint(0, 50257, (8, 1024))
    seed = t.randn(8, 1024, 768)

    def step() -> None:
        w.grad = None
        t.nn.functional.embedding(i, w).backward(seed)

    return step


def _bag(t: Any) -> Call:
    w, i, starts = t.randn(50257, 256), t.randint(0, 50257, (8192,)), t.arange(0, 8192, 16)
    return lambda: t.nn.functional.embedding_bag(i, w, starts, mode="mean")


def _bag_backward(t: Any) -> Call:
    w, i, starts = t.randn(50257, 256, requires_grad=True), t.randint(0, 50257, (8192,)), t.arange(0, 8192, 16)
    seed = t.randn(512, 256)

    def step() -> None:
        w.grad = None
        t.nn.functional.embedding_bag(i, w, starts, mode="mean").backward(seed)

    return step


def _sort_long(t: Any) -> Call:
    x = t.randn(1 << 20)
    return lambda: x.sort()


def _unique(t: Any) -> Call:
    x = t.randint(0, 10_000, (1 << 20,))
    return lambda: x.unique(return_counts=True)


def _of_square(apply: Callable[[Any], Any]) -> Callable[[Any], Call]:
    def make(t: Any) -> Call:
        x = t.randn(4096, 1024)
        return lambda: apply(x)

    return make


_SQUARE = 4.0 * 4096 * 1024
_moving("transpose_4096x1024", 2 * _SQUARE, _of_square(lambda x: x.t().contiguous()))
_moving("masked_select_4M", 1.5 * _SQUARE, _of_square(lambda x: x[x > 0]))
_moving("cumsum_4096x1024", 2 * _SQUARE, _of_square(lambda x: x.cumsum(-1)))
_moving("sort_4096x1024", 4 * _SQUARE, _of_square(lambda x: x.sort(-1)))
_moving("sort_1M", 4 * 4.0 * (1 << 20), _sort_long)
_moving("unique_counted_1M", 8.0 * (1 << 20), _unique)
_moving("topk_20_4096x1024", _SQUARE, _of_square(lambda x: x.topk(20)))
_moving("gather_4096x1024", 4.0 * _SQUARE, _gather)
_moving("scatter_add_1024x1024", 20.0 * 1024 * 1024, _scatter_add)
_moving("embedding_8x1024x768", 8.0 * 8192 * 768, _embedding)
_moving("embedding_backward_8x1024x768", 4.0 * (50257 + 4 * 8192) * 768, _embedding_backward)
_moving("embedding_bag_512x16x256", 4.0 * (8192 + 512) * 256, _bag)
_moving("embedding_bag_backward_512x16x256", 4.0 * (50257 + 3 * 8192) * 256, _bag_backward)


def _drawing(name: str, moved: float, draw: Callable[[Any], Any]) -> None:
    row(f"drawing/{name}", moved=moved)(lambda t: lambda: draw(t))


_drawing("rand_1M", 4.0 * (1 << 20), lambda t: t.rand(1 << 20))
_drawing("randint_1M", 8.0 * (1 << 20), lambda t: t.randint(0, 1000, (1 << 20,)))
_drawing("randperm_1M", 8.0 * (1 << 20), lambda t: t.randperm(1 << 20))


@row("drawing/bernoulli_1M", moved=8.0 * (1 << 20))
def bernoulli(t: Any) -> Call:
    x = t.rand(1 << 20)
    return lambda: t.bernoulli(x)


@row("drawing/multinomial_64x1000_of_32000", moved=4.0 * 64 * 32000)
def multinomial(t: Any) -> Call:
    weights = t.rand(64, 32000)
    return lambda: t.multinomial(weights, 1000)


@row("drawing/randn_1M", moved=4.0 * (1 << 20))
def randn(t: Any) -> Call:
    return lambda: t.randn(1 << 20)


@row("drawing/dropout_1M", moved=8.0 * (1 << 20))
def dropout(t: Any) -> Call:
    x = t.randn(1 << 20)
    return lambda: t.nn.functional.dropout(x, 0.1, training=True)


# ***** optimizers *****


def _optimizer(name: str, kind: str, count: int, size: int, words: int, **options: Any) -> None:
    @row(f"optimizers/{name}", moved=4.0 * words * count * size)
    def make(t: Any) -> Call:
        params = [t.randn(size, requires_grad=True) for _ in range(count)]
        for p in params:
            p.grad = t.randn(size)
        step: Call = getattr(t.optim, kind)(params, lr=1e-4, **options).step
        return step


_optimizer("adamw_100x10k", "AdamW", 100, 10_000, 7)
_optimizer("adamw_fused_100x10k", "AdamW", 100, 10_000, 7, fused=True)
_optimizer("adamw_1x10M", "AdamW", 1, 10_000_000, 7)
_optimizer("adam_amsgrad_100x10k", "Adam", 100, 10_000, 9, amsgrad=True)
_optimizer("rmsprop_100x10k", "RMSprop", 100, 10_000, 5)
_optimizer("adagrad_100x10k", "Adagrad", 100, 10_000, 5)
_optimizer("adadelta_100x10k", "Adadelta", 100, 10_000, 7)
_optimizer("adafactor_100x10k", "Adafactor", 100, 10_000, 3)
_optimizer("sgd_nesterov_100x10k", "SGD", 100, 10_000, 5, momentum=0.9, nesterov=True)
_optimizer("sgd_momentum_1x10M", "SGD", 1, 10_000_000, 5, momentum=0.9)


@row("optimizers/clip_grad_norm_100x10k", moved=12.0 * 1_000_000)
def clip(t: Any) -> Call:
    params = [t.randn(10_000, requires_grad=True) for _ in range(100)]
    for p in params:
        p.grad = t.randn(10_000)
    return lambda: t.nn.utils.clip_grad_norm_(params, 1e9)
