"""Flagship kernels and those of primitives, interpreted from PTX: products that walk or share turns, windows of images, attention,
rows, sorts, scans, random numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bench import cuda_backend_kernels
from bench.cuda_group_kernels import tile_product
from bench.cuda_kernels import FLAGSHIPS, bf16, wide
from tests.cuda.ptx.programs import PtxDevice, check_primitive
from tests.cuda.ptx.test_ptx_units import names, run

from rushlight._backends.cuda.arguments import dense_operand
from rushlight._backends.cuda.attention.attention import attention_steps, gradient_steps
from rushlight._backends.cuda.attention.scores import AttentionForm
from rushlight._backends.cuda.gemm.warpgroups import PRODUCTS
from rushlight._backends.cuda.program.steps import Memory, Operand
from rushlight._backends.cuda.random.fill import fill_launch
from rushlight._backends.cuda.random.philox import Stream
from rushlight._codegen.threads import lower
from rushlight._prims import PRIMITIVES
from rushlight._prims.record import Primitive
from rushlight._types.dtype import BFLOAT16, FLOAT32

# ***** flagships *****

_FAST = ("add", "softmax", "layer_norm", "cross_entropy", "transpose", "matmul_tf32")
_FAST_ON_90 = ("matmul_f16", "wgmma_bf16", "wgmma_fp8", "wgmma_walking_product", "wgmma_convolution", "attention")


def marked(often: tuple[str, ...]) -> list[Any]:
    return [n if n in often else pytest.param(n, marks=pytest.mark.slow) for n in FLAGSHIPS]


@pytest.mark.parametrize("name", marked(_FAST))
def test_flagships_on_sm_80(name: str) -> None:
    run(FLAGSHIPS[name](True), "sm_80")


@pytest.mark.parametrize("name", marked(_FAST_ON_90))
def test_flagships_on_sm_90a(name: str) -> None:
    case = FLAGSHIPS[name](True)
    ran = run(case, "sm_90a")
    assert name.startswith("wgmma") == any(o.startswith("wgmma.mma_async") for o in names(ran))
    assert not ran.moved, "accumulators are copied while products write them"


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in FLAGSHIPS if n.startswith("wgmma")])
def test_flagships_whose_copies_land_at_once(name: str) -> None:
    run(FLAGSHIPS[name](True), "sm_90a", "early")


# ***** primitives *****

_OFTEN = ("exp", "sin", "pow", "rem_trunc", "convert", "sum", "argmax", "cumsum", "index_put", "diagonal", "fft")
# the smallest sample of these has thousands of steps
_LONG = ("sort", "topk", "kth", "recurrence", "recurrence_grad", "attention", "attention_grad", "ragged_attention", "ragged_attention_grad")  # fmt: skip


def check_samples(primitive: Primitive, architecture: str, count: int) -> None:
    """Samples that are far from each other, of those that kernels do: some factorisations travel to the host."""
    samples = list(primitive.samples())
    for arrays, params in samples[:: max(1, len(samples) // count)][:count]:
        try:
            check_primitive(primitive, arrays, params, architecture)
        except NotImplementedError as error:
            pytest.skip(str(error))


@pytest.mark.parametrize("name", _OFTEN)
def test_some_primitives(name: str) -> None:
    check_samples(PRIMITIVES[name], "sm_90a", 2)


@pytest.mark.ptx
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("primitive", PRIMITIVES.values(), ids=lambda p: p.name)
def test_primitives(primitive: Primitive, architecture: str) -> None:
    check_samples(primitive, architecture, 1 if primitive.name in _LONG else 6)


# ***** routines of the backend *****


@pytest.mark.parametrize("name", ["uniform", "normal"])
def test_random_numbers_are_those_of_pytorch(name: str) -> None:
    """Philox: `torch.manual_seed(0)`, then `torch.rand(10, device="cuda")` or `torch.randn`, to the digits that they print."""
    known = {
        "uniform": [0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290, 0.9096],
        "normal": [-0.9247, -0.4253, -2.6438, 0.1452, -0.1209, -0.5797, -0.6229, -0.3284, -1.0745, -0.3631],
    }
    device, out = PtxDevice("sm_80"), Memory(40, "out")
    device.run([fill_launch(name, FLOAT32, out, 10, Stream(0, 0), (0.0, 1.0)).launch])
    np.testing.assert_allclose(device.data[out].view(np.float32), known[name], atol=5e-5)


@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize(("architecture", "way"), [("sm_80", "mma"), ("sm_90a", "mma"), ("sm_90a", "wgmma")])
def test_attention_and_its_derivatives(width: int, architecture: str, way: str) -> None:
    """The kernels of `kernels.json` for heads of bfloat16, on short sequences: causal, forward and both derivatives."""
    with PRODUCTS.scoped(way):
        check_attention(width, architecture)


def check_attention(width: int, architecture: str) -> None:
    drawn, length = np.random.default_rng(0), 128
    q, k, v, ct = (bf16(drawn.standard_normal((1, 2, length, width), np.float32)) for _ in range(4))
    device = PtxDevice(architecture)

    def operand(array: Any, dtype: Any) -> Operand:
        memory = Memory(array.nbytes, "array")
        device.place(memory, array.reshape(-1).view(np.uint8))
        return dense_operand(memory, dtype, array.shape)

    made = [np.zeros_like(q) for _ in range(4)]
    norm, delta = np.zeros((1, 2, length), np.float32), np.zeros((1, 2, length), np.float32)
    inputs, outs = [operand(x, BFLOAT16) for x in (q, k, v, ct)], [operand(x, BFLOAT16) for x in made]
    norm_at, delta_at = operand(norm, FLOAT32), operand(delta, FLOAT32)
    form = AttentionForm(width**-0.5, causal=True)
    device.run(attention_steps(form, inputs[:3], [outs[0], norm_at]))
    truth = attention_by_numpy(*(wide(x).astype(np.float64) for x in (q, k, v, ct)))
    np.testing.assert_allclose(wide(made[0]), truth[0], atol=3e-2)
    delta[...] = (truth[0] * wide(ct)).sum(-1)
    device.run(gradient_steps(form, [inputs[3], *inputs[:3], norm_at, delta_at], outs[1:]))
    for have, want in zip(made[1:], truth[1:], strict=True):
        np.testing.assert_allclose(wide(have), want, atol=6e-2)


def attention_by_numpy(q: Any, k: Any, v: Any, ct: Any) -> list[Any]:
    """Causal attention, and the derivatives by queries, keys and values."""
    scale, turned = q.shape[-1] ** -0.5, lambda x: x.swapaxes(-1, -2)
    scores = q @ turned(k) * scale
    scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    back = ct @ turned(v)
    back = weights * (back - (back * weights).sum(-1, keepdims=True)) * scale
    return [weights @ v, back @ k, turned(back) @ q, turned(weights) @ ct]


# ***** rings of any number of slots *****


@pytest.mark.parametrize("landing", ["late", "early"])
@pytest.mark.parametrize("stages", [1, 2])
def test_few_slots(stages: int, landing: str) -> None:
    """With one slot it is freed in its own turn: with the turn before's, nobody could go on."""
    sizes, tile = (128, 64, 448), (128, 64, 64)
    case = tile_product("few_slots", (BFLOAT16, BFLOAT16, FLOAT32), sizes, tile, 8, stages=stages)
    assert "wgmma.fence.sync.aligned" in names(run(case, "sm_90a", landing))


@pytest.mark.parametrize("stages", [1, 2])
def test_few_slots_of_programs_that_walk(stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = cuda_backend_kernels.choose_group_tile
    fewer = lambda *args: chosen(*args)._replace(stages=stages)
    monkeypatch.setattr(cuda_backend_kernels, "choose_group_tile", fewer)
    run(FLAGSHIPS["wgmma_walking_product"](True), "sm_90a")


def test_tiles_that_move_before_roles_are_fenced_from_copies() -> None:
    """What threads wrote to bytes that bulk copies write next lies before the fence and the barrier behind it."""
    operands = [dense_operand(Memory(0), BFLOAT16, (1, 2, 128, 64)) for _ in range(7)]
    sums = [dense_operand(Memory(0), FLOAT32, (1, 2, 128)) for _ in range(2)]
    with PRODUCTS.scoped("wgmma"):
        steps = gradient_steps(AttentionForm(0.125, causal=True), [*operands[:4], *sums], operands[4:])
        kinds = [[i.kind for i in lower(step.kernel, "sm_90a").body.instructions] for step in steps]
    for k in kinds:
        assert k[k.index("proxy_fence") : k.index("roles") + 1] == ["proxy_fence", "barrier", "roles"]
