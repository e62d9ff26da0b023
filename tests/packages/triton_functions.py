"""Functions of Liger-Kernel and flash-linear-attention, whose kernels are in the Triton language, beside their formulas.

`python -m rushlight -m tests.packages.triton_functions [WORD]` prints a table of them: differences of results and of
gradients relative to the largest element, and seconds.  Kernels that choose among configurations take the first.
"""

import importlib
import sys
import time

import torch
import torch.nn.functional as F

TABLE = {}  # name -> (function of the package, formula, inputs, tolerance)


def entry(name, function, formula, *inputs, tolerance=2e-4):
    TABLE[name] = (function, formula, inputs, tolerance)


def of(module, name):
    """A function that is imported when it is called."""

    def called(*args, **kwargs):
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found(*args, **kwargs)

    return called


def normal(*shape):
    return lambda: torch.randn(shape).requires_grad_()


def positive(*shape):
    return lambda: (torch.rand(*shape) * 0.9 + 0.05).requires_grad_()


def decays(*shape):
    return lambda: F.logsigmoid(torch.randn(*shape) + 2).requires_grad_()


def unit(*shape):
    return lambda: F.normalize(torch.randn(*shape), dim=-1).requires_grad_()


def fixed(make):
    return lambda: make()


def first(function):
    """The first result of a function with several."""
    return lambda *args, **kwargs: function(*args, **kwargs)[0]


def heads_first(function):
    """A formula on (batch, heads, time, dim) for arguments (batch, time, heads, ...)."""
    return lambda *xs: function(*(x.transpose(1, 2) for x in xs)).transpose(1, 2)


# ***** Liger-Kernel *****


def liger(module, name):
    return of(f"liger_kernel.ops.{module}", f"{name}.apply")


def rms(x, w, eps=1e-6):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w


def jsd(x, target):
    p, q = target.exp(), x.exp()
    log_m = torch.log(0.5 * (p + q))
    return (0.5 * (p * (target - log_m) + q * (x - log_m))).sum() / x.shape[0]


def poly_norm(x, w, b):
    def norm(u):
        return u * torch.rsqrt((u * u).mean(-1, keepdim=True) + 1e-6)

    return w[0] * norm(x**3) + w[1] * norm(x**2) + w[2] * norm(x) + b


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat([-b, a], -1) * sin[:, None]


def angles(length=12, dim=32):
    inverse = 1 / 10000 ** (torch.arange(0, dim, 2).float() / dim)
    outer = torch.outer(torch.arange(length).float(), inverse)
    return torch.cat([outer, outer], -1)[None]


def sparsemax(x):
    z, _ = torch.sort(x, -1, descending=True)
    k = torch.arange(1, x.shape[-1] + 1)
    cumulative = z.cumsum(-1)
    count = (1 + k * z > cumulative).sum(-1, keepdim=True)
    threshold = (cumulative.gather(-1, count - 1) - 1) / count
    return torch.clamp(x - threshold, min=0)


def log_probabilities(*shape):
    return lambda: F.log_softmax(torch.randn(*shape), -1).requires_grad_()


def probabilities(*shape):
    return lambda: F.softmax(torch.randn(*shape), -1).requires_grad_()


TARGETS = fixed(lambda: torch.randint(0, 50, (8,)))
ROWS = normal(8, 50)
entry("liger.rms_norm", lambda x, w: liger("rms_norm", "LigerRMSNormFunction")(x, w, 1e-6), rms, ROWS, normal(50))
entry(
    "liger.rms_norm_gemma",
    lambda x, w: liger("rms_norm", "LigerRMSNormFunction")(x, w, 1e-6, 1.0, "gemma"),
    lambda x, w: rms(x, w + 1),
    ROWS,
    normal(50),
)
entry(
    "liger.fused_add_rms_norm",
    lambda x, r, w: liger("fused_add_rms_norm", "LigerFusedAddRMSNormFunction")(x, r, w, 1e-6)[0],
    lambda x, r, w: rms(x + r, w),
    ROWS,
    ROWS,
    normal(50),
)
entry(
    "liger.modulated_rms_norm",
    lambda x, w, a, b: liger("modulated_rms_norm", "LigerModulatedRMSNormFunction")(x, w, a, b, 1e-6),
    lambda x, w, a, b: (1 + a) * rms(x, w) + b,
    ROWS,
    normal(50),
    ROWS,
    ROWS,
)
entry(
    "liger.layer_norm",
    lambda x, w, b: liger("layer_norm", "LigerLayerNormFunction")(x, w, b, 1e-5),
    lambda x, w, b: F.layer_norm(x, (50,), w, b, 1e-5),
    ROWS,
    normal(50),
    normal(50),
)
entry(
    "liger.group_norm",
    lambda x, w, b: liger("group_norm", "LigerGroupNormFunction")(x, w, b, 8, 4, 1e-5),
    lambda x, w, b: F.group_norm(x, 4, w, b, 1e-5),
    normal(2, 8, 16),
    normal(8),
    normal(8),
)
entry(
    "liger.poly_norm",
    lambda x, w, b: liger("poly_norm", "LigerPolyNormFunction")(x, w, b),
    poly_norm,
    ROWS,
    normal(3),
    normal(),
)
entry("liger.swiglu", liger("swiglu", "LigerSiLUMulFunction"), lambda a, b: F.silu(a) * b, ROWS, ROWS)
entry("liger.geglu", liger("geglu", "LigerGELUMulFunction"), lambda a, b: F.gelu(a, approximate="tanh") * b, ROWS, ROWS)
entry("liger.relu_squared", liger("relu_squared", "LigerReLUSquaredFunction"), lambda x: F.relu(x) ** 2, ROWS)
entry("liger.softmax", liger("softmax", "LigerSoftmaxFunction"), lambda x: F.softmax(x, -1), ROWS)
entry("liger.sparsemax", lambda x: liger("sparsemax", "LigerSparsemaxFunction")(x, -1), sparsemax, ROWS)
entry(
    "liger.cross_entropy",
    lambda x, t: liger("cross_entropy", "LigerCrossEntropyFunction")(x.clone(), t, None)[0],
    F.cross_entropy,
    ROWS,
    TARGETS,
)
entry(
    "liger.cross_entropy_smooth",
    lambda x, t: liger("cross_entropy", "LigerCrossEntropyFunction")(x.clone(), t, None, -100, 0.0, 0.1, "sum")[0],
    lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction="sum"),
    ROWS,
    TARGETS,
)
entry(
    "liger.fused_linear_cross_entropy",
    lambda x, w, t: liger("fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction")(x, w, t)[0],
    lambda x, w, t: F.cross_entropy(x @ w.t(), t),
    normal(8, 16),
    normal(50, 16),
    TARGETS,
)
entry(
    "liger.kl_div",
    lambda x, t: liger("kl_div", "LigerKLDivLossFunction")(x, t.detach()),
    lambda x, t: F.kl_div(x, t.detach(), reduction="batchmean"),
    log_probabilities(8, 50),
    probabilities(8, 50),
)
entry(
    "liger.jsd",
    lambda x, t: liger("jsd", "LigerJSDFunction")(x, t.detach()),
    lambda x, t: jsd(x, t.detach()),
    log_probabilities(8, 50),
    log_probabilities(8, 50),
)
entry(
    "liger.tvd",
    lambda x, t: liger("tvd", "LigerTVDLossFunction")(x, t.detach()),
    lambda x, t: 0.5 * (x - t.detach()).abs().sum() / x.shape[0],
    probabilities(8, 50),
    probabilities(8, 50),
)
entry(
    "liger.rope",
    lambda q, k: torch.cat(
        [x.flatten() for x in liger("rope", "LigerRopeFunction")(q.clone(), k.clone(), angles().cos(), angles().sin())]
    ),
    lambda q, k: torch.cat([rotated(x, angles().cos(), angles().sin()).flatten() for x in (q, k)]),
    normal(1, 4, 12, 32),
    normal(1, 2, 12, 32),
)

# ***** flash-linear-attention: modules *****

entry("fla.sigmoid", of("fla.modules.activations.ops", "sigmoid"), torch.sigmoid, ROWS)
entry("fla.logsigmoid", of("fla.modules.activations.ops", "logsigmoid"), F.logsigmoid, ROWS)
entry("fla.swish", of("fla.modules.activations.ops", "swish"), F.silu, ROWS)
entry("fla.elu_p1", of("fla.modules.activations.ops", "elu_p1"), lambda x: F.elu(x) + 1, ROWS)
entry("fla.swiglu", of("fla.modules.activations.ops", "swiglu"), lambda x, y: F.silu(x) * y, ROWS, ROWS)
entry("fla.sigmoidglu", of("fla.modules.activations.ops", "sigmoidglu"), lambda x, y: torch.sigmoid(x) * y, ROWS, ROWS)
entry(
    "fla.rms_norm",
    lambda x, w: of("fla.modules.norm.layernorm", "rms_norm")(x, w, None, eps=1e-6),
    rms,
    normal(8, 64),
    normal(64),
)
entry(
    "fla.layer_norm",
    lambda x, w, b: of("fla.modules.norm.layernorm", "layer_norm")(x, w, b, eps=1e-5),
    lambda x, w, b: F.layer_norm(x, (64,), w, b, 1e-5),
    normal(8, 64),
    normal(64),
    normal(64),
)
entry(
    "fla.l2norm",
    of("fla.modules.norm.l2norm", "l2norm"),
    lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6),
    normal(8, 64),
)
entry(
    "fla.causal_conv1d",
    lambda x, w: of("fla.modules.causal_conv1d", "causal_conv1d")(x, w, activation="silu")[0],
    lambda x, w: F.silu(F.conv1d(F.pad(x.transpose(1, 2), (3, 0)), w[:, None], groups=32)).transpose(1, 2),
    normal(1, 40, 32),
    normal(32, 4),
)
entry(
    "fla.token_shift",
    of("fla.modules.token_shift", "token_shift"),
    of("fla.modules.token_shift", "token_shift_ref"),
    normal(2, 20, 32),
)
entry(
    "fla.mean_pooling",
    lambda x: of("fla.ops.utils", "mean_pooling")(x, 16),
    lambda x: x.reshape(1, 4, 16, 2, 16).mean(2),
    normal(1, 64, 2, 16),
)
entry(
    "fla.chunk_local_cumsum",
    lambda x: of("fla.ops.utils", "chunk_local_cumsum")(x.detach(), 16),
    lambda x: x.detach().reshape(1, 4, 16, 2).cumsum(2).reshape(1, 64, 2),
    normal(1, 64, 2),
)

# ***** flash-linear-attention: sequence mixers, (batch, time, heads, dim) *****

B, T, H, K, V = 1, 80, 2, 16, 32
Q, KEYS, VALUES = normal(B, T, H, K), normal(B, T, H, K), normal(B, T, H, V)
G, GK, BETA = decays(B, T, H), decays(B, T, H, K), positive(B, T, H)


def fla(path):
    return first(of("fla.ops", path))


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def gla(q, k, v, gk):
    state, out = torch.zeros(B, H, K, V), []
    for t in range(T):
        state = state * gk[:, t].exp()[..., None] + k[:, t][..., None] * v[:, t][..., None, :]
        out.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * K**-0.5, state))
    return torch.stack(out, 1)


def simple_gla(q, k, v, g):
    return gla(q, k, v, g[..., None].expand(-1, -1, -1, K))


def linear_attention(q, k, v):
    return gla(q, k, v, torch.zeros(B, T, H, K))


def retention(q, k, v):
    gamma = torch.log(1 - 2.0 ** (-5 - torch.arange(H)))
    return simple_gla(q, k, v, gamma.expand(B, T, H))


def delta_rule(q, k, v, g, beta):
    """The gated delta rule; `g` for each head, or for each channel of the keys."""
    g = g[..., None].expand(-1, -1, -1, K) if g.dim() == 3 else g
    state, out = torch.zeros(B, H, K, V), []
    for t in range(T):
        state = state * g[:, t].exp()[..., None]
        new = beta[:, t][..., None] * (v[:, t] - torch.einsum("bhk,bhkv->bhv", k[:, t], state))
        state = state + k[:, t][..., None] * new[..., None, :]
        out.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * K**-0.5, state))
    return torch.stack(out, 1)


def rwkv6(r, k, v, w, u):
    state, out = torch.zeros(B, H, K, V), []
    for t in range(T):
        kv = k[:, t][..., None] * v[:, t][..., None, :]
        out.append(torch.einsum("bhk,bhkv->bhv", r[:, t] * K**-0.5, state + u[None, ..., None] * kv))
        state = state * w[:, t].exp()[..., None] + kv
    return torch.stack(out, 1)


def hgrn(x, g):
    state, out = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        state = state * g[:, t].exp() + x[:, t]
        out.append(state)
    return torch.stack(out, 1)


def based(q, k, v):
    score = q @ k.transpose(-1, -2) * K**-0.5
    weight = (1 + score + 0.5 * score**2).tril()
    return weight @ v / (weight.sum(-1, keepdim=True) + 1e-6)


def forgetting(q, k, v, g):
    total = g.cumsum(1).transpose(1, 2)
    bias = total[..., :, None] - total[..., None, :]
    mask = torch.full((T, T), float("-inf")).triu(1)
    return heads_first(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=bias + mask))(q, k, v)


for name in ("chunk_gla", "fused_recurrent_gla"):
    keyword = {"chunk_gla": "g", "fused_recurrent_gla": "gk"}[name]
    entry(
        f"fla.{name}",
        lambda q, k, v, g, name=name, key=keyword: fla(name)(q, k, v, **{key: g}),
        gla,
        Q,
        KEYS,
        VALUES,
        GK,
    )
for name in ("chunk_simple_gla", "fused_recurrent_simple_gla", "parallel_simple_gla"):
    entry(f"fla.{name}", lambda q, k, v, g, name=name: fla(name)(q, k, v, g=g), simple_gla, Q, KEYS, VALUES, G)
for name in ("chunk_retention", "fused_recurrent_retention", "parallel_retention"):
    entry(f"fla.{name}", fla(name), retention, Q, KEYS, VALUES)
for name in ("chunk_linear_attn", "fused_recurrent_linear_attn", "fused_chunk_linear_attn"):
    entry(
        f"fla.{name}", lambda q, k, v, name=name: fla(name)(q, k, v, normalize=False), linear_attention, Q, KEYS, VALUES
    )
entry(
    "fla.fused_recurrent_delta_rule",
    lambda q, k, v, beta: fla("fused_recurrent_delta_rule")(q, k, v, beta),
    lambda q, k, v, beta: delta_rule(q, k, v, torch.zeros(B, T, H), beta),
    Q,
    unit(B, T, H, K),
    VALUES,
    BETA,
)
for name in ("chunk_gated_delta_rule",):
    entry(
        f"fla.{name}",
        lambda q, k, v, g, beta, name=name: fla(name)(q, k, v, g, beta),
        delta_rule,
        Q,
        unit(B, T, H, K),
        VALUES,
        G,
        BETA,
    )
entry(
    "fla.chunk_kda",
    lambda q, k, v, g, beta: fla("chunk_kda")(q, k, v, g, beta),
    delta_rule,
    Q,
    unit(B, T, H, K),
    VALUES,
    GK,
    BETA,
)
for name in ("chunk_rwkv6", "fused_recurrent_rwkv6"):
    entry(f"fla.{name}", fla(name), rwkv6, Q, KEYS, VALUES, GK, normal(H, K))
entry("fla.fused_recurrent_hgrn", fla("fused_recurrent_hgrn"), hgrn, normal(B, T, 32), decays(B, T, 32))
entry("fla.chunk_hgrn", first(of("fla.ops.hgrn", "chunk_hgrn")), hgrn, normal(B, T, 32), decays(B, T, 32))
entry("fla.parallel_attn", of("fla.ops", "parallel_attn"), heads_first(causal), Q, KEYS, VALUES)
entry("fla.parallel_forgetting_attn", of("fla.ops", "parallel_forgetting_attn"), forgetting, Q, KEYS, VALUES, G)
entry(
    "fla.parallel_based",
    lambda q, k, v: of("fla.ops", "parallel_based")(q, k, v, use_norm=True),
    heads_first(based),
    Q,
    KEYS,
    normal(B, T, H, K),
)

# ***** comparing *****


def difference(a, b):
    """The largest difference relative to the largest element."""
    size = float(b.detach().abs().max()) if b.numel() else 0.0
    return float((a.detach().float() - b.detach().float()).abs().max()) / max(size, 1e-6)


def compare(name):
    """(difference of the results, the largest of the gradients, or None without them)."""
    function, formula, inputs, _ = TABLE[name]
    torch.manual_seed(0)
    given = [make() for make in inputs]
    copies = [x.detach().clone().requires_grad_(x.requires_grad) for x in given]
    out, wanted = function(*given), formula(*copies)
    of_result = difference(out, wanted)
    if not (out.requires_grad and wanted.requires_grad):
        return of_result, None
    upstream = torch.randn_like(wanted)
    out.backward(upstream.clone())
    wanted.backward(upstream)
    pairs = [(x, y) for x, y in zip(given, copies, strict=True) if y.grad is not None]
    missing = [x for x, _ in pairs if x.grad is None]
    assert not missing, "an input has no gradient"
    return of_result, max(difference(x.grad, y.grad) for x, y in pairs)


def take_first_configurations():
    """Autotuned kernels take their first configuration: results do not depend on it, and measuring takes long."""
    from triton.runtime.autotuner import Autotuner

    Autotuner._choose = lambda self, args, kwargs: self.prune_configs(kwargs)[0]


def main(words):
    take_first_configurations()
    right = 0
    print(f"{'function':36} {'result':>10} {'gradients':>10} {'seconds':>8}")
    for name in TABLE:
        if words and not any(word in name for word in words):
            continue
        begin = time.perf_counter()
        try:
            of_result, of_gradients = compare(name)
        except Exception as error:
            print(f"{name:36} {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        good = of_result <= TABLE[name][3] and (of_gradients or 0) <= TABLE[name][3]
        right += (1 + (of_gradients is not None)) * good
        shown = "-" if of_gradients is None else f"{of_gradients:.1e}"
        print(
            f"{name:36} {of_result:10.1e} {shown:>10} {time.perf_counter() - begin:8.1f}{'' if good else '  WRONG'}",
            flush=True,
        )
    print(f"{right} forward and backward functions right")


if __name__ == "__main__":
    main(sys.argv[1:])
