"""Translations of operators: results by onnxruntime against eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
F = nn.functional


class Many(nn.Module):
    """Several calls at once: one export for all of them."""

    def __init__(self, calls: list[Callable[..., Any]]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, *tensors: Any) -> Any:
        return [call(*tensors) for call in self.calls]


def compared(calls: list[Callable[..., Any]], *tensors: Any, tolerance: float = 1e-5, opset: int = 20) -> None:
    model = Many(calls)
    program = torch.onnx.export(model, tensors, opset_version=opset)
    onnx.checker.check_model(program.model_proto, full_check=True)
    found = iter(program(*tensors))
    for place, result in enumerate(model(*tensors)):
        for want in torch.utils._pytree.tree_flatten(result)[0]:
            have = next(found)
            assert have.shape == want.shape and have.dtype == want.dtype, place
            a, b = have.double(), want.double()
            assert torch.equal(a.isnan(), b.isnan()), place
            a, b = a.nan_to_num(0, 9, -9), b.nan_to_num(0, 9, -9)
            if b.numel():
                assert float((a - b).abs().max()) <= tolerance * max(float(b.abs().max()), 1e-30), (place, have, want)


UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp exp2 expm1 floor frac log log10 log1p log2 neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt"
    " square tan tanh trunc sinc isnan isinf isfinite isposinf isneginf logical_not signbit deg2rad rad2deg"
).split()
ACTIVATIONS = (
    "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softplus softshrink softsign tanhshrink"
).split()


def test_elementwise() -> None:
    torch.manual_seed(0)
    x = torch.cat([torch.randn(20), torch.tensor([0.0, 1.0, -1.0, 0.5, float("inf"), float("nan")])])
    compared([getattr(torch, name) for name in UNARY], x[:25])
    compared([torch.isnan, torch.isfinite, torch.relu, torch.abs, torch.exp, torch.nan_to_num], x)
    compared([getattr(F, name) for name in ACTIVATIONS], x[:25])
    compared([lambda x: F.gelu(x, approximate="tanh"), F.silu, F.mish], x[:20], opset=17)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integers(dtype: Any) -> None:
    a = torch.tensor([-7, 7, 5, -5, 0, 9]).to(dtype)
    b = torch.tensor([3, 2, 4, 3, 2, 5]).to(dtype)
    calls = [
        torch.add, torch.mul, torch.div, torch.remainder, lambda a, b: a // b, lambda a, b: a.sum(), lambda a, b: a > b, lambda a, b: a & b,
        lambda a, b: a.float() * 0.5 + b, lambda a, b: a + 2.5, lambda a, b: a.clamp(1, 4), torch.maximum, lambda a, b: ~a, lambda a, b: a.argmax(),
        lambda a, b: torch.div(a, b, rounding_mode="trunc"), lambda a, b: a.cumsum(0), lambda a, b: (a << 1) + (b >> 1), lambda a, b: a.sort(),
    ]  # fmt: skip
    compared(calls, a, b)


@pytest.mark.slow
def test_two_operands_and_numbers() -> None:
    torch.manual_seed(1)
    x, y = torch.randn(3, 4), torch.randn(4).abs() + 0.5
    calls = [
        torch.add, torch.sub, torch.mul, torch.div, torch.fmod, torch.remainder, torch.atan2, torch.maximum, torch.fmin, torch.hypot, torch.logaddexp,
        torch.copysign, lambda x, y: torch.pow(x.abs(), y), lambda x, y: x**2 - x.abs() ** 0.5, lambda x, y: torch.floor_divide(x, y),
        lambda x, y: torch.add(x, y, alpha=3), lambda x, y: 2 - x / 3, lambda x, y: torch.where(x > 0, x, y), lambda x, y: torch.lerp(x, y, 0.3),
        lambda x, y: torch.addcmul(x, y, y, value=0.5), lambda x, y: x.masked_fill(x > 0, -1.0), lambda x, y: x.clamp(-0.5, 0.5),
        lambda x, y: torch.clamp(x, min=y * 0.1), lambda x, y: (x > 0) & (y > 1), lambda x, y: x.ge(y) | x.lt(-y), torch.isclose,
        lambda x, y: torch.xlogy(x, y), lambda x, y: x.float() + torch.tensor(1, dtype=torch.float64),
    ]  # fmt: skip
    compared(calls, x, y)


def test_reductions() -> None:
    torch.manual_seed(2)
    x = torch.randn(3, 4, 5)
    calls = [
        torch.sum, lambda x: x.sum((0, 2)), lambda x: x.mean(-1, True), lambda x: x.prod(1), lambda x: x.amax((0, 1)), lambda x: x.max(1),
        lambda x: x.min(2, True), lambda x: x.argmin(0), torch.argmax, lambda x: x.std(1), lambda x: x.var(dim=(0, 2), correction=0), torch.var_mean,
        lambda x: x.logsumexp(1), lambda x: torch.linalg.vector_norm(x, 3, 1), lambda x: x.norm(dim=2), lambda x: (x > 0).any(1), lambda x: (x > 0).all(),
        lambda x: x.cumsum(1), lambda x: x.cumprod(2), lambda x: x.logcumsumexp(0), lambda x: torch.cummax(x, 1), lambda x: torch.count_nonzero(x > 0, 1),
        lambda x: torch.aminmax(x, dim=1), lambda x: x.median(1), lambda x: x.diff(dim=1), lambda x: F.normalize(x, dim=1), lambda x: x.renorm(2, 0, 1.5),
    ]  # fmt: skip
    compared(calls, x)
    compared([lambda x: x.amax((0, 1)), lambda x: x.std(1), lambda x: x.prod(1)], x, opset=17)


@pytest.mark.slow
def test_shapes_and_indices() -> None:
    torch.manual_seed(3)
    x, i = torch.randn(4, 3, 6), torch.tensor([2, 0, 3, -1])
    mask = x > 0
    calls: list[Callable[..., Any]] = [
        lambda x, i, m: x.view(2, -1), lambda x, i, m: x.permute(2, 0, 1), lambda x, i, m: x[1:3, :, ::2], lambda x, i, m: x[..., -1], lambda x, i, m: x[:, None],
        lambda x, i, m: x.split(2, 2), lambda x, i, m: x.chunk(3, 1), lambda x, i, m: x.unbind(1), lambda x, i, m: x.flip(0, 2), lambda x, i, m: x.roll((1, -2), (0, 2)),
        lambda x, i, m: x.repeat(2, 1, 1), lambda x, i, m: x.repeat_interleave(2, 1), lambda x, i, m: x.unfold(2, 3, 2), lambda x, i, m: x.diagonal(1, 1, 2),
        lambda x, i, m: x[:, 0].expand(2, 4, 6), lambda x, i, m: torch.stack([x, x], 1), lambda x, i, m: torch.cat([x, x * 2], -1), lambda x, i, m: x.rot90(1, (0, 2)),
        lambda x, i, m: x[i], lambda x, i, m: x[i, :, i], lambda x, i, m: x[:, [0, 2], [1, 1]], lambda x, i, m: x.index_select(0, i % 4), lambda x, i, m: x.tril(1),
        lambda x, i, m: x.gather(0, (m * 1).long()), lambda x, i, m: x.scatter_add(0, (m * 1).long(), x), lambda x, i, m: x.index_put((i,), x[0]),
        lambda x, i, m: x.index_add(0, i % 4, x), lambda x, i, m: x.index_copy(2, torch.tensor([1, 4]), x[:, :, :2]), lambda x, i, m: x.scatter(1, (m * 1).long(), 5.0),
        lambda x, i, m: x.scatter_reduce(0, (m * 1).long(), x, "amax"), lambda x, i, m: x.scatter_reduce(0, (m * 1).long(), x, "mean", include_self=False),
        lambda x, i, m: x.masked_scatter(m, x.abs()), lambda x, i, m: x.slice_scatter(x[:, :1] * 3, 1, 1, 2), lambda x, i, m: x.select_scatter(x[:, 0], 1, 2),
        lambda x, i, m: torch.diag_embed(x[0]), lambda x, i, m: torch.meshgrid(i, i, indexing="ij"),
        lambda x, i, m: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), lambda x, i, m: x.topk(2, 2), lambda x, i, m: x.sort(1, descending=True),
        lambda x, i, m: torch.block_diag(x[0], x[1]), lambda x, i, m: F.pixel_shuffle(x.reshape(4, 3, 6)[:, :2], 2), lambda x, i, m: x.as_strided((2, 3), (1, 2), 4),
        lambda x, i, m: torch.arange(5) + torch.linspace(0, 1, 5), lambda x, i, m: torch.eye(3) * torch.ones_like(x[0, :, :3]), lambda x, i, m: torch.full((2,), 3),
        lambda x, i, m: F.embedding(i % 4, x[:, 0]), lambda x, i, m: torch.vstack([x[0], x[1]]), lambda x, i, m: torch.einsum("abc,dbc->ad", x, x),
    ]  # fmt: skip
    compared(calls, x, i, mask)


@pytest.mark.slow
def test_images() -> None:
    torch.manual_seed(4)
    x, grid, w = torch.randn(2, 4, 7, 9), torch.rand(2, 5, 6, 2) * 2.4 - 1.2, torch.randn(6, 4, 3, 3)
    calls: list[Callable[..., Any]] = [
        lambda x, g, w: F.conv2d(x, w, stride=2, padding=1), lambda x, g, w: F.conv2d(x, w, padding="same", dilation=2), lambda x, g, w: F.conv2d(x[0], w),
        lambda x, g, w: F.conv_transpose2d(x, w.transpose(0, 1), stride=2, output_padding=1), lambda x, g, w: F.conv1d(x[:, :, 0], w[:, :, 0], groups=1),
        lambda x, g, w: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), lambda x, g, w: F.max_pool2d(x, 2, return_indices=True), lambda x, g, w: F.avg_pool2d(x, 3, 2, 1),
        lambda x, g, w: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), lambda x, g, w: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False, divisor_override=None),
        lambda x, g, w: F.avg_pool2d(x, 2, divisor_override=3), lambda x, g, w: F.adaptive_avg_pool2d(x, (3, 4)), lambda x, g, w: F.adaptive_max_pool2d(x, 1),
        lambda x, g, w: F.interpolate(x, scale_factor=2), lambda x, g, w: F.interpolate(x, size=(5, 13), mode="bilinear"), lambda x, g, w: F.interpolate(x, scale_factor=1.7, mode="bicubic"),
        lambda x, g, w: F.interpolate(x, size=(14, 4), mode="bilinear", align_corners=True), lambda x, g, w: F.interpolate(x, size=(11, 5), mode="nearest-exact"),
        lambda x, g, w: F.pad(x, (1, 2, 0, 1)), lambda x, g, w: F.pad(x, (1, 2, 3, 0), mode="reflect"), lambda x, g, w: F.pad(x, (1, 2, 0, 1), mode="replicate"),
        lambda x, g, w: F.pad(x, (1, 2, 1, 1), mode="circular"), lambda x, g, w: F.pad(x, (-1, 2)), lambda x, g, w: F.grid_sample(x, g, align_corners=False),
        lambda x, g, w: F.grid_sample(x, g, mode="nearest", padding_mode="border", align_corners=True), lambda x, g, w: F.unfold(x, 3, padding=1), lambda x, g, w: F.instance_norm(x),
        lambda x, g, w: F.group_norm(x, 2), lambda x, g, w: F.layer_norm(x, (9,)), lambda x, g, w: F.rms_norm(x, (9,)), lambda x, g, w: F.local_response_norm(x, 3),
        lambda x, g, w: F.batch_norm(x, None, None, training=True), lambda x, g, w: F.softmax(x, 1), lambda x, g, w: F.log_softmax(x, -1), lambda x, g, w: F.glu(x, 1), lambda x, g, w: F.fold(F.unfold(x, 2), (7, 9), 2),
    ]  # fmt: skip
    compared(calls, x, grid, w)


@pytest.mark.slow
def test_products_attention_and_losses() -> None:
    torch.manual_seed(5)
    x, t = torch.randn(2, 4, 5, 8), torch.tensor([1, 3])
    calls: list[Callable[..., Any]] = [
        lambda x, t: x @ x.mT, lambda x, t: torch.addmm(x[0, 0, :, 0], x[0, 0], x[0, 1].t(), beta=0.5, alpha=2), lambda x, t: torch.baddbmm(x[0, :, :, :5], x[0], x[1].mT),
        lambda x, t: F.scaled_dot_product_attention(x, x, x), lambda x, t: F.scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.3),
        lambda x, t: F.scaled_dot_product_attention(x, x, x, attn_mask=x[..., :5] > -1), lambda x, t: F.scaled_dot_product_attention(x, x[:, :2], x[:, :2], enable_gqa=True),
        lambda x, t: torch.outer(x[0, 0, 0], x[0, 0, 1]), lambda x, t: torch.linalg.cross(x[..., :3], x[..., 3:6]), lambda x, t: torch.cdist(x[0], x[1]),
        lambda x, t: F.cosine_similarity(x, x.flip(0), 1), lambda x, t: torch.kron(x[0, 0], x[0, 1]), lambda x, t: torch.tensordot(x, x, dims=([1], [1])),
        lambda x, t: F.bilinear(x[0, 0], x[0, 1], x[:, 0, :, :1].expand(2, 5, 8)[:, :1].expand(2, 8, 8)), lambda x, t: torch.linalg.multi_dot([x[0, 0], x[0, 1].t(), x[0, 2]]),
        lambda x, t: F.cross_entropy(x[:, :, 0, 0], t), lambda x, t: F.nll_loss(x[:, :, 0, 0], t, reduction="sum"), lambda x, t: F.mse_loss(x, x * 2), lambda x, t: F.smooth_l1_loss(x, x * 2),
        lambda x, t: F.binary_cross_entropy_with_logits(x, (x > 0).float()), lambda x, t: F.kl_div(x, x.softmax(1), reduction="sum"), lambda x, t: F.l1_loss(x, -x, reduction="none"),
        lambda x, t: F.pairwise_distance(x[0, 0], x[0, 1]), lambda x, t: F.triplet_margin_loss(x[0, 0], x[0, 1], x[0, 2]), lambda x, t: F.embedding_bag(t, x[0, 0], torch.tensor([0, 1])),
    ]  # fmt: skip
    compared(calls, x, t)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_other_floats(dtype: Any) -> None:
    torch.manual_seed(6)
    x = torch.randn(3, 4).to(dtype)
    compared(
        [
            torch.exp,
            lambda x: x @ x.t(),
            lambda x: x.sum(1),
            lambda x: F.softmax(x, 1),
            lambda x: x + 1.5,
            lambda x: x.float(),
        ],
        x,
        tolerance=2e-3,
    )


def test_bfloat16_is_written_with_its_bits() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor([1.5, -2.25], dtype=torch.bfloat16))

        def forward(self, x: Any) -> Any:
            return x * self.w

    proto = torch.onnx.export(Scale(), (torch.ones(2, dtype=torch.bfloat16),)).model_proto
    onnx.checker.check_model(proto, full_check=True)
    (weight,) = proto.graph.initializer
    assert weight.data_type == onnx.TensorProto.BFLOAT16 and weight.raw_data == b"\xc0\x3f\x10\xc0"


def test_every_translation_takes_the_positional_arguments_of_its_schema() -> None:
    import inspect

    from rushlight.onnx.exporting.table import translations

    wrong = []
    for name, function in translations().items():
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if space != "aten":
            continue
        op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if op is None or op.form is None:
            continue
        count = sum(not a.kwarg_only for a in op._schema.arguments)
        kinds = [p.kind for p in inspect.signature(function).parameters.values()]
        places = sum(k is inspect.Parameter.POSITIONAL_OR_KEYWORD for k in kinds) - 1
        if inspect.Parameter.VAR_POSITIONAL not in kinds and places < count:
            wrong.append(f"{name}: {places} of {count}")
    assert not wrong, wrong
