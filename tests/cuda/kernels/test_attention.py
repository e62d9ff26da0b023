"""Attention of the CUDA backend, by the reference interpreter, against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.cuda.emulated import outcomes_of
from tests.cuda.running import Device, close, operand, primitive

from rushlight._backends.cuda.attention.attention import attention_steps, gradient_steps
from rushlight._backends.cuda.attention.scores import AttentionForm, Dropout
from rushlight._backends.cuda.program.steps import Memory
from rushlight._prims import PRIMITIVES
from rushlight._prims.samples import any_dtype, floats, integers
from rushlight._types.dtype import BY_NAME, FLOAT64


@pytest.mark.parametrize(
    "name", ["attention", "attention_grad", "ragged_attention", "ragged_attention_grad", "paged_attention"]
)
def test_samples(name: str) -> None:
    for arrays, params in PRIMITIVES[name].samples():
        for found, expected in zip(
            primitive(name, arrays, params), PRIMITIVES[name].reference(*arrays, **params), strict=True
        ):
            close(found, expected)


def test_tokens_of_no_sequence() -> None:
    """Behind the last sequence, and keys that are not used: results and gradients are 0, the logarithm is inf."""
    q, k, v = (any_dtype(s, "float64", i) for i, s in enumerate(((70, 2, 3), (40, 1, 3), (40, 1, 2))))
    starts, used = (np.array([0, 3, 5], np.int32), np.array([0, 6, 9], np.int32)), np.array([4, 0], np.int32)
    params = {"scale": 0.5, "left": -1, "right": -1, "max_q": 3, "max_k": 6}
    inputs = [q, k, v, *starts, used]
    expected = PRIMITIVES["ragged_attention"].reference(*inputs, **params)
    for found, right in zip(primitive("ragged_attention", inputs, params), expected, strict=True):
        close(found, right)
    out, norm = expected
    assert (out[3:] == 0).all() and np.isinf(norm[:, 3:]).all()
    ct = any_dtype(out.shape, "float64", 9)
    more = [ct, q, k, v, norm, (ct * out).sum(-1).T, *starts, used]
    gradients = PRIMITIVES["ragged_attention_grad"].reference(*more, **params)
    for found, right in zip(primitive("ragged_attention_grad", more, params), gradients, strict=True):
        close(found, right)


def operands(dtype: str, rows: int, keys: int, width: int, depth: int) -> list[Any]:
    lead = (2, 3)
    return [
        any_dtype((*lead, n, w), dtype, i) for i, (n, w) in enumerate(((rows, width), (keys, width), (keys, depth)))
    ]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize(("rows", "keys", "causal"), [(70, 90, False), (70, 70, True), (128, 64, True), (5, 130, True)])
def test_several_tiles(dtype: str, rows: int, keys: int, causal: bool) -> None:
    """Forward and backward over more than one tile of queries and of keys, with heads that lie between the positions."""
    q, k, v = operands(dtype, rows, keys, 24, 16)
    params = {"causal": causal, "scale": 0.3}
    between = dict.fromkeys(range(3), (0, 2, 1, 3))
    expected = PRIMITIVES["attention"].reference(q, k, v, **params)
    for found, right in zip(primitive("attention", [q, k, v], params, orders=between), expected, strict=True):
        close(found, right, "float16" if dtype == "float16" else None)
    out, norm = expected
    ct = any_dtype(out.shape, dtype, 9)
    delta = (ct.astype(np.float64) * out).sum(-1).astype(norm.dtype)
    inputs = [ct, q, k, v, norm, delta]
    gradients = PRIMITIVES["attention_grad"].reference(*inputs, **params)
    for found, right in zip(primitive("attention_grad", inputs, params), gradients, strict=True):
        close(found, right)


@pytest.mark.parametrize("kind", ["bool", "float32"])
def test_masks_that_are_broadcast(kind: str) -> None:
    """One mask for all heads, with a row that has no keys."""
    q, k, v = operands("float32", 40, 50, 16, 16)
    mask = integers((1, 1, 40, 50), 5, dtype="bool") if kind == "bool" else floats((1, 1, 40, 50), 5, dtype="float32")
    if kind == "bool":
        mask[0, 0, 3] = False
    params, whole = {"causal": False, "scale": 0.25}, (2, 3, 40, 50)
    found = primitive("attention", [q, k, v, mask], params, spreads={3: whole})
    for mine, right in zip(
        found, PRIMITIVES["attention"].reference(q, k, v, np.broadcast_to(mask, whole), **params), strict=True
    ):
        close(mine, right)


def placed(device: Device, arrays: Sequence[Any], dtype: Any = FLOAT64) -> list[Any]:
    return [operand(device, x, BY_NAME[x.dtype.name], None, f"x{i}") for i, x in enumerate(arrays)]


def shown(device: Device, x: Any) -> Any:
    return device.data[x.memory].view(x.dtype.name).reshape(x.shape)


def run(form: AttentionForm, inputs: Sequence[Any], shapes: Sequence[Any], build: Any) -> list[Any]:
    device = Device()
    given = placed(device, inputs)
    outs = placed(device, shapes)
    if form.dropout is not None:
        device.place(form.dropout.state, np.array([7, 12], np.uint64).view(np.uint8))
    device.run(build(form, given, outs))
    return [shown(device, out) for out in outs]


@pytest.mark.parametrize("window", [(8, 8), (20, None), (None, 5), (0, 0), (70, 3)])
@pytest.mark.parametrize("causal", [False, True])
def test_windows(window: tuple[int | None, int | None], causal: bool) -> None:
    """Sliding windows are masks, forward and backward."""
    q, k, v = operands("float64", 70, 60, 16, 16)
    form = AttentionForm(0.5, causal, window)
    i, j = np.arange(70)[:, None], np.arange(60)
    left, right = window
    mask = np.ones((70, 60), bool) if left is None else j >= i - left
    mask &= True if right is None else j <= i + right
    mask &= (j <= i) | (not causal)
    mask = np.broadcast_to(mask, (2, 3, 70, 60))
    params = {"causal": False, "scale": 0.5}
    expected = PRIMITIVES["attention"].reference(q, k, v, mask, **params)
    found = run(form, [q, k, v], [np.zeros_like(q), np.zeros(q.shape[:-1])], attention_steps)
    for mine, theirs in zip(found, expected, strict=True):
        close(mine, theirs)
    out, norm = expected
    ct = any_dtype(out.shape, "float64", 9)
    inputs = [ct, q, k, v, norm, (ct * out).sum(-1)]
    gradients = run(form, inputs, [np.zeros_like(x) for x in (q, k, v)], gradient_steps)
    for mine, theirs in zip(gradients, PRIMITIVES["attention_grad"].reference(*inputs, mask, **params), strict=True):
        close(mine, theirs)


def test_scores_that_are_changed() -> None:
    """A softcap and a bias by distance, traced into the kernel."""
    q, k, v = operands("float64", 40, 40, 16, 16)

    def score(b: Any, scores: Any, at: Any, rows: Any, columns: Any) -> Any:
        return b.apply("tanh", scores * 0.5) * 2.0 + (columns - rows).to(FLOAT64) * 0.01

    form = AttentionForm(0.5, score=score)
    raw = q @ np.swapaxes(k, -1, -2) * 0.5
    scores = np.tanh(raw * 0.5) * 2 + 0.01 * (np.arange(40) - np.arange(40)[:, None])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    found, _ = run(form, [q, k, v], [np.zeros_like(q), np.zeros(q.shape[:-1])], attention_steps)
    close(found, expected)


def test_dropout() -> None:
    """Weights are left out at the rate, the same ones in the derivative, which finite differences confirm."""
    q, k, v = operands("float64", 33, 40, 16, 16)
    form = AttentionForm(0.5, dropout=Dropout(0.4, Memory(16, "state")))
    shapes = [np.zeros_like(q), np.zeros(q.shape[:-1])]
    ones = np.zeros_like(v)
    ones[..., 0] = 1
    shares, _ = run(form, [q * 0, k, ones], shapes, attention_steps)
    assert abs(shares[..., 0].mean() - 1) < 0.05 and shares[..., 0].std() > 0.05
    out, norm = run(form, [q, k, v], shapes, attention_steps)
    ct = any_dtype(out.shape, "float64", 9)
    inputs = [ct, q, k, v, norm, (ct * out).sum(-1)]
    gradients = run(form, inputs, [np.zeros_like(x) for x in (q, k, v)], gradient_steps)
    for which in range(3):
        direction = any_dtype(inputs[1 + which].shape, "float64", 20 + which)
        moved = [x + 1e-6 * direction if i == which else x for i, x in enumerate((q, k, v))]
        back = [x - 1e-6 * direction if i == which else x for i, x in enumerate((q, k, v))]
        above, below = (run(form, xs, shapes, attention_steps)[0] for xs in (moved, back))
        slope = ((above - below) / 2e-6 * ct).sum()
        np.testing.assert_allclose((gradients[which] * direction).sum(), slope, rtol=1e-6)


VARLEN = {
    "on a device, captured": """
q, k, v = (torch.randn(9, 2, 8).requires_grad_() for _ in range(3))
ends = torch.tensor([0, 2, 2, 9], dtype=torch.int32)
want = varlen_attn(q, k, v, ends, ends, 7, 7, window_size=(-1, 0))
want.square().sum().backward()
far = [x.detach().cuda().requires_grad_() for x in (q, k, v)]
found = varlen_attn(*far, ends.cuda(), ends.cuda(), 7, 7, window_size=(-1, 0))
found.square().sum().backward()
torch.testing.assert_close(found.cpu(), want)
for mine, theirs in zip(far, (q, k, v)):
    torch.testing.assert_close(mine.grad.cpu(), theirs.grad)
given, graph = ends.cuda(), torch.cuda.CUDAGraph()
torch.cuda.synchronize()
with torch.no_grad(), torch.cuda.graph(graph):
    out = varlen_attn(*far, given, given, 7, 7)
given.copy_(torch.tensor([0, 4, 6, 9]))
graph.replay()
torch.testing.assert_close(out.cpu(), varlen_attn(q, k, v, given.cpu(), given.cpu(), 7, 7))
""",
    "nested": """
items = [torch.randn(n, 2, 8) for n in (3, 5, 1)]
x = torch.nested.nested_tensor([i.cuda() for i in items], layout=torch.jagged).transpose(1, 2)
found = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
for part, i in zip(found.unbind(), items):
    one = i.transpose(0, 1)
    torch.testing.assert_close(part.cpu(), torch.nn.functional.scaled_dot_product_attention(one, one, one, is_causal=True))
""",
    "jagged, one kernel": """
lengths = (40, 3, 70)
whole = [torch.randn(sum(lengths), h, 16) for h in (4, 2, 2)]
ct = torch.randn(sum(lengths), 4, 16)
def run(device):
    given = [x.to(device).requires_grad_() for x in whole]
    offsets = torch.tensor([0, 40, 43, 113]).to(device)
    q, k, v = (torch.nested.nested_tensor_from_jagged(x, offsets).transpose(1, 2) for x in given)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    values = out.transpose(1, 2).values()
    values.backward(ct.to(device))
    return [values.detach().cpu(), *(x.grad.cpu() for x in given)]
for mine, theirs in zip(run("cuda"), run("cpu")):
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
""",
    **{
        f"{dtype}, seed {seed}": f"""
torch.manual_seed({seed})
ends_q, ends_k = (torch.tensor(x, dtype=torch.int32) for x in ([0, 70, 70, 75, 140], [0, 50, 60, 125, 205]))
whole = [torch.randn(n, h, 64).to(torch.{dtype}) for n, h in ((143, 6), (209, 2), (209, 2))]
ct = torch.randn(143, 6, 64).to(torch.{dtype})
def run(device, dtype, window):
    given = [x.to(device, dtype).requires_grad_() for x in whole]
    ends = ends_q.to(device), ends_k.to(device)
    out, lse = varlen_attn(*given, *ends, 70, 80, window_size=window, enable_gqa=True, return_aux=AuxRequest(lse=True))
    out.backward(ct.to(device, dtype))
    return [x.detach().cpu() for x in (out, lse, *(x.grad for x in given))]
for window in ((-1, -1), (20, 0)):
    found, again = (run("cuda", torch.{dtype}, window) for _ in range(2))
    want = run("cpu", torch.float64, window)
    assert all(torch.equal(a, b) for a, b in zip(found, again))
    for mine, theirs in zip(found, want):
        torch.testing.assert_close(mine[:140].double(), theirs[:140].double(), rtol=2e-2, atol=2e-2)
        assert (mine[140:] == theirs[140:]).all() or mine.shape[0] != 143
"""
        for dtype, seed in (("bfloat16", 1), ("float16", 2))
    },
    "pages": """
torch.manual_seed(3)
q = torch.randn(7, 8, 32).half()
keys, values = (torch.randn(12, 16, 2, 32).half() for _ in range(2))
ends, used = torch.tensor([0, 1, 2, 7], dtype=torch.int32), torch.tensor([33, 64, 5], dtype=torch.int32)
table = torch.tensor([[3, 7, 1, -1], [0, 2, 4, 6], [11, 99, 99, 99]], dtype=torch.int32)
def run(device, dtype):
    x = [t.to(device, dtype) for t in (q, keys, values)]
    more = {"seqused_k": used.to(device), "block_table": table.to(device), "enable_gqa": True, "window_size": (-1, 0)}
    return varlen_attn(*x, ends.to(device), None, 5, 64, **more).cpu()
found = run("cuda", torch.float16)
assert torch.equal(found, run("cuda", torch.float16))
torch.testing.assert_close(found.double(), run("cpu", torch.float64), rtol=1e-2, atol=1e-2)
""",
}


@pytest.mark.cuda
def test_sequences_of_different_lengths() -> None:
    prelude = "import rushlight as torch\nfrom rushlight.nn.attention.varlen import AuxRequest, varlen_attn\n"
    outcomes = outcomes_of(prelude, VARLEN)
    assert not any(outcomes.values()), outcomes


WARPGROUPS = """
f = torch.nn.functional
heads = [torch.randn(1, n, 128, 64).bfloat16() for n in (2, 1, 1)]
run = lambda xs: f.scaled_dot_product_attention(*xs, is_causal=True, enable_gqa=True)
far, near = ([x.to(device, kind).requires_grad_() for x in heads] for device, kind in (("cuda", torch.bfloat16), ("cpu", torch.float32)))
out, expected = run(far), run(near)
torch.testing.assert_close(out.cpu().float(), expected, rtol=2e-2, atol=2e-2)
upstream = torch.randn_like(expected).bfloat16()
out.backward(upstream.cuda())
expected.backward(upstream.float())
for x, y in zip(far, near):
    torch.testing.assert_close(x.grad.cpu().float(), y.grad, rtol=3e-2, atol=3e-2)
from rushlight.cuda.access import gpus
assert sum(bool(k.maps) for k in gpus().kernels(out.device).known.values()) == 3, "a kernel takes no tensor maps"
"""


@pytest.mark.cuda
def test_attention_by_warpgroups() -> None:
    """Forward and backward on a device, with one head of keys for two of queries."""
    found = outcomes_of("import rushlight as torch", {"attention": WARPGROUPS}, RUSHLIGHT_CUDA_PRODUCTS="wgmma")
    assert found == {"attention": ""}
