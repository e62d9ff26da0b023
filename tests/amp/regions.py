"""What happens to dtypes in regions of automatic casts: small programs, each giving something that prints, run here and by PyTorch.

`python tests/amp/regions.py` asks PyTorch anew and writes `regions.json`.
"""

from __future__ import annotations

import json
import pathlib
import threading
import warnings
from collections.abc import Callable
from typing import Any

FILE = pathlib.Path(__file__).with_name("regions.json")

Program = Callable[[Any], Any]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def short(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def dtypes(t: Any, calls: list[Callable[[], Any]], **region: Any) -> list[str]:
    """The dtypes of the results inside of a region, or the class of the error."""
    found = []
    with t.autocast("cpu", **region):
        for call in calls:
            try:
                made = call()
            except RuntimeError as error:
                found.append(type(error).__name__)
                continue
            made = made if isinstance(made, (tuple, list)) else [made]
            found.append(" ".join(short(x.dtype) for x in made))
    return found


def kinds(t: Any) -> list[Any]:
    """The dtypes of arguments."""
    return [t.float32, t.bfloat16, t.float16, t.float64]


@program
def products(t: Any) -> Any:
    found, linear = [], t.nn.functional.linear
    for kind in kinds(t):
        a, v, b = t.ones(2, 2, dtype=kind), t.ones(2, dtype=kind), t.ones(3, 2, 2, dtype=kind)
        found.append(dtypes(t, [
            lambda a=a: a @ a, lambda a=a: t.mm(a, a), lambda b=b: t.bmm(b, b), lambda a=a: t.addmm(a, a, a), lambda b=b: t.baddbmm(b, b, b),
            lambda a=a, b=b: t.addbmm(a, b, b), lambda a=a: linear(a, a), lambda a=a, v=v: linear(a, a, v), lambda v=v: v @ v, lambda a=a, v=v: a @ v,
            lambda v=v: t.dot(v, v), lambda a=a, v=v: t.mv(a, v), lambda v=v: t.outer(v, v), lambda a=a: t.linalg.multi_dot([a, a, a]),
            lambda a=a: t.tensordot(a, a, 1), lambda a=a: t.tensordot(a, a, 2), lambda a=a: t.inner(a, a), lambda v=v: t.inner(v, v),
            lambda a=a: t.matrix_power(a, 3), lambda a=a: t.nn.functional.prelu(a, a[0]), lambda a=a: t.linalg.vecdot(a, a), lambda a=a: t.kron(a, a),
        ]))  # fmt: skip
    return found


@program
def layers_over_narrow_inputs(t: Any) -> Any:
    """What a convolution in the region gave is taken by recurrent layers of float32."""
    nn = t.nn
    return [
        dtypes(
            t,
            [lambda layer=layer, x=x: layer(x)[0] for layer in (nn.RNN(6, 3), nn.GRU(6, 3), nn.LSTM(6, 3))],
            dtype=t.bfloat16,
        )
        for x in (t.ones(4, 2, 6), t.ones(4, 2, 6).bfloat16())
    ]


@program
def grids(t: Any) -> Any:
    grid = t.nn.functional.affine_grid
    return [dtypes(t, [lambda kind=kind: grid(t.ones(1, 2, 3, dtype=kind), (1, 1, 2, 2), False)]) for kind in kinds(t)]


@program
def einsums(t: Any) -> Any:
    a, v = t.ones(2, 2), t.ones(2)
    return dtypes(t, [
        lambda: t.einsum("ij,jk->ik", a, a), lambda: t.einsum("i,j->ij", v, v), lambda: t.einsum("ij->ji", a), lambda: t.einsum("ij,ij->ij", a, a),
        lambda: t.einsum("ij,ij->", a, a), lambda: t.einsum("i,ij,j->", v, a, v), lambda: t.einsum("i,ij,k->jk", v, a, v),
        lambda: t.einsum("ij,k->ij", a, v), lambda: t.einsum("...i,...i->...", a, a),
    ])  # fmt: skip


@program
def losses(t: Any) -> Any:
    functional, labels, found = t.nn.functional, t.tensor([0, 2]), []
    for kind in kinds(t)[:2]:
        x, y = t.full((2, 3), 0.5, dtype=kind), t.full((2, 3), 0.25, dtype=kind)
        found.append(dtypes(t, [
            lambda x=x, y=y: functional.mse_loss(x, y), lambda x=x, y=y: functional.l1_loss(x, y), lambda x=x: functional.cross_entropy(x, labels),
            lambda x=x: functional.nll_loss(x, labels), lambda x=x, y=y: functional.binary_cross_entropy(x, y), lambda x=x, y=y: functional.kl_div(x, y),
            lambda x=x, y=y: functional.binary_cross_entropy_with_logits(x, y), lambda x=x, y=y: functional.huber_loss(x, y),
            lambda x=x, y=y: functional.smooth_l1_loss(x, y), lambda x=x, y=y: functional.cosine_similarity(x, y),
            lambda x=x, y=y: functional.gaussian_nll_loss(x, y, x), lambda x=x, y=y: functional.poisson_nll_loss(x, y),
            lambda x=x: functional.multi_margin_loss(x, labels), lambda x=x, y=y: functional.triplet_margin_loss(x, y, x),
        ]))  # fmt: skip
    return found


@program
def arithmetic(t: Any) -> Any:
    """What takes what it gets."""
    functional, x, y = t.nn.functional, t.ones(2, 2), t.ones(2, 2, dtype=t.bfloat16)
    return dtypes(t, [
        lambda: x + y, lambda: y + y, lambda: y * 2, lambda: y.sum(), lambda: y.mean(0), lambda: functional.softmax(y, -1), lambda: functional.gelu(y),
        lambda: t.where(x > 0, x, y), lambda: y.exp(), lambda: functional.layer_norm(y, (2,), x[0], x[0]), lambda: functional.dropout(y),
        lambda: functional.embedding(t.tensor([0]), x), lambda: y.var(), lambda: y.prod(), lambda: y.trace(), lambda: t.cdist(y, y),
        lambda: t.fft.fft(y), lambda: t.linalg.svd(y), lambda: t.linalg.inv(t.eye(2, dtype=t.bfloat16)), lambda: t.quantile(y, 0.5),
        lambda: t.linalg.det(x), lambda: t.linalg.pinv(x), lambda: t.linalg.matrix_exp(x), lambda: t.linalg.norm(y), lambda: t.view_as_complex(y),
    ])  # fmt: skip


@program
def joins(t: Any) -> Any:
    return [
        dtypes(
            t,
            [
                lambda a=a, b=b: t.cat([t.ones(1, dtype=a), t.ones(1, dtype=b)])
                for a in kinds(t)
                for b in (*kinds(t), t.int64)
            ],
            dtype=kind,
        )
        for kind in (t.bfloat16, t.float16)
    ] + [
        dtypes(
            t, [lambda: t.stack([t.ones(1), t.ones(1).bfloat16()]), lambda: t.hstack([t.ones(1), t.ones(1).bfloat16()])]
        )
    ]


@program
def layers(t: Any) -> Any:
    nn, x = t.nn, t.ones(2, 4, 6)
    wide = nn.MultiheadAttention(6, 2)
    return dtypes(t, [
        lambda: nn.Conv1d(4, 2, 3)(x), lambda: nn.ConvTranspose2d(4, 2, 3)(x[None].transpose(1, 2)), lambda: nn.BatchNorm1d(4)(x.bfloat16()),
        lambda: nn.LayerNorm(6)(x.bfloat16()), lambda: nn.GroupNorm(2, 4)(x.bfloat16()), lambda: nn.LSTM(6, 3)(x)[0], lambda: nn.LSTM(6, 3, proj_size=2)(x)[0],
        lambda: nn.GRU(6, 3)(x)[0], lambda: nn.RNN(6, 3)(x)[0], lambda: nn.LSTMCell(6, 3)(x[0]), lambda: nn.GRUCell(6, 3)(x[0]), lambda: wide(x, x, x),
        lambda: wide(x, x, x, attn_mask=t.zeros(2, 2)), lambda: wide(x, x, x, need_weights=False)[:1], lambda: nn.TransformerEncoderLayer(6, 2, 8)(x),
        lambda: nn.functional.scaled_dot_product_attention(x, x, x), lambda: nn.Bilinear(6, 6, 2)(x, x),
    ])  # fmt: skip


@program
def windows(t: Any) -> Any:
    functional, x, y, z = t.nn.functional, t.ones(1, 2, 4), t.ones(1, 2, 4, 4), t.ones(1, 2, 4, 4, 4)
    half = [v.bfloat16() for v in (x, y, z)]
    calls: list[Any] = [
        lambda v=v, n=n, m=m: functional.pad(v, (1, 1) * n, mode=m)
        for n, v in enumerate(half, 1)
        for m in ("reflect", "replicate", "circular", "constant")
    ]
    calls += [
        lambda v=v, n=n, k=k: getattr(functional, f"{k}_pool{n}d")(v, 2)
        for n, v in enumerate(half, 1)
        for k in ("avg", "max", "adaptive_avg")
    ]
    calls += [
        lambda v=v, n=n: getattr(functional, f"max_unpool{n}d")(
            *getattr(functional, f"max_pool{n}d")(v, 2, return_indices=True), 2
        )
        for n, v in enumerate(half, 1)
    ]
    return dtypes(
        t,
        [
            *calls,
            lambda: functional.interpolate(half[1], scale_factor=2),
            lambda: functional.max_pool3d(half[2], 2, return_indices=True)[:1],
        ],
    )


@program
def other_forms(t: Any) -> Any:
    """In-place forms and `out=` take what they get."""
    x, b = t.ones(2, 2), t.ones(1, 2, 2)
    return dtypes(t, [
        lambda: t.ones(2, 2).addmm_(x, x), lambda: t.ones(1, 2, 2).baddbmm_(b, b), lambda: t.mm(x, x, out=t.empty(2, 2)), lambda: x.matmul(x),
        lambda: t.Tensor.mm(x, x), lambda: t.ones(2, 2, device="meta") @ t.ones(2, 2, device="meta"),
    ])  # fmt: skip


@program
def nesting(t: Any) -> Any:
    x, found = t.ones(2, 2), []

    def note() -> None:
        found.append((short((x @ x).dtype), t.is_autocast_enabled("cpu"), short(t.get_autocast_dtype("cpu"))))

    with t.autocast("cpu"):
        note()
        with t.autocast("cpu", enabled=False):
            note()
            with t.autocast("cpu"):
                note()
        with t.autocast("cpu", dtype=t.float16):
            note()
        note()
    note()
    decorated = t.autocast("cpu", dtype=t.float16)(note)
    decorated()
    try:
        with t.autocast("cpu"):
            raise KeyError
    except KeyError:
        note()
    t.set_autocast_dtype("cpu", t.float16)
    t.set_autocast_enabled("cpu", True)
    note()
    t.set_autocast_enabled("cpu", False)
    t.set_autocast_dtype("cpu", t.bfloat16)
    note()
    return found


@program
def threads(t: Any) -> Any:
    found: list[Any] = []
    with t.autocast("cpu"):
        thread = threading.Thread(
            target=lambda: found.append((t.is_autocast_enabled("cpu"), short((t.ones(1, 1) @ t.ones(1, 1)).dtype)))
        )
        thread.start()
        thread.join()
    return found


@program
def kept_casts(t: Any) -> Any:
    """The cast of a weight is made once, and does not follow the weight."""
    x, w = t.ones(2, 2), t.ones(2, 2, requires_grad=True)
    found: list[Any] = []
    for keeps in (True, False):
        with t.autocast("cpu", cache_enabled=keeps):
            a, b = x @ w, x @ w
            found.append(
                (a.grad_fn.next_functions[-1][0] is b.grad_fn.next_functions[-1][0], t.is_autocast_cache_enabled())
            )
            with t.no_grad():
                w.add_(1)
            found.append((x @ w)[0, 0].item())
            t.clear_autocast_cache()
            found.append((x @ w)[0, 0].item())
    with t.autocast("cpu"):
        with t.no_grad():
            found.append((x @ w).requires_grad)
        found.append((x @ w).requires_grad)
    return found


@program
def gradients(t: Any) -> Any:
    w = t.full((2, 2), 0.5, requires_grad=True)
    x = t.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    with t.autocast("cpu"):
        y = (x @ w).relu() @ w
        loss = t.nn.functional.mse_loss(y, t.zeros(2, 2))
    (first,) = t.autograd.grad(loss, x, create_graph=True)
    loss.backward(retain_graph=True)
    found = [short(y.dtype), short(loss.dtype), w.grad.tolist(), x.grad.tolist(), short(first.dtype)]
    x.grad = None
    first.pow(2).sum().backward()
    return [*found, short(x.grad.dtype), x.grad.tolist()]


@program
def accumulation(t: Any) -> Any:
    layer = t.nn.Linear(2, 1)
    optimizer = t.optim.SGD(layer.parameters(), lr=0.1)
    with t.no_grad():
        for p in layer.parameters():
            p.fill_(0.5)
    for i in range(4):
        with t.autocast("cpu"):
            loss = layer(t.ones(2, 2) * i).pow(2).mean() / 2
        loss.backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach().reshape(-1).tolist() for p in layer.parameters()]


@program
def custom_functions(t: Any) -> Any:
    def product(cast_inputs: Any) -> Any:
        class Product(t.autograd.Function):
            @staticmethod
            @t.amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs)
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                ctx.save_for_backward(a, b)
                return a.mm(b)

            @staticmethod
            @t.amp.custom_bwd(device_type="cpu")
            def backward(ctx: Any, grad: Any) -> Any:
                a, b = ctx.saved_tensors
                inside.append(t.is_autocast_enabled("cpu"))
                return grad.mm(b.t()), a.t().mm(grad)

        return Product

    inside: list[bool] = []
    found = []
    for cast in (None, t.float32):
        for kind in (t.float32, t.bfloat16):
            a = t.ones(2, 2, dtype=kind, requires_grad=True)
            with t.autocast("cpu"):
                y = product(cast).apply(a, a)
            y.float().sum().backward()
            found.append((short(y.dtype), short(a.grad.dtype), short(product(cast).apply(a, a).dtype)))
    return [found, inside]


@program
def checkpoints(t: Any) -> Any:
    """What is computed again is computed as it was."""
    found = []
    for reentrant in (False, True):
        w, x = t.ones(2, 2, requires_grad=True), t.ones(2, 2, requires_grad=True)
        seen: list[str] = []

        def part(x: Any, w: Any = w, seen: list[str] = seen) -> Any:
            seen.append(short((x @ w).dtype))
            return (x @ w).exp()

        with t.autocast("cpu"):
            y = t.utils.checkpoint.checkpoint(part, x, use_reentrant=reentrant)
        y.float().sum().backward()
        found.append((seen, short(w.grad.dtype)))
    return found


@program
def transforms(t: Any) -> Any:
    x = t.ones(2, 2)
    with t.autocast("cpu"):
        grad = t.func.grad(lambda a: (a @ x).float().sum())(x)
        many = t.func.vmap(lambda a: a @ x)(t.ones(3, 2, 2))
        value, tangent = t.func.jvp(lambda a: a @ x, (x,), (x,))
    return [short(v.dtype) for v in (grad, many, value, tangent)]


@program
def misuse(t: Any) -> Any:
    """Errors by their class, warnings by their class and beginning."""
    found: list[Any] = []
    calls: list[Callable[[], Any]] = [
        lambda: t.autocast("cpu", dtype=t.float32)._enabled, lambda: t.autocast("cuda")._enabled, lambda: t.autocast("meta"), lambda: t.autocast("nowhere"),
        lambda: t.autocast(t.device("cpu")), lambda: t.autocast("cpu")(3), lambda: t.get_autocast_dtype("meta"), lambda: t.is_autocast_enabled("meta"),
        lambda: t.amp.is_autocast_available("cpu"), lambda: t.amp.is_autocast_available("meta"), lambda: t.amp.custom_fwd(device_type=3),
        lambda: t.cpu.amp.autocast().fast_dtype, lambda: t.cuda.amp.autocast(enabled=False).fast_dtype, lambda: t.cuda.amp.custom_bwd(len) is len,
        lambda: [short(t.get_autocast_dtype(d)) for d in ("cpu", "cuda", "xpu", "mps", "hpu", "xla", "mtia")], lambda: t.is_autocast_enabled(),
        lambda: t.cuda.amp.amp_definitely_not_available(),
    ]  # fmt: skip
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                made = repr(call()).replace("rushlight", "torch")
            except (RuntimeError, ValueError, TypeError) as error:
                made = type(error).__name__
        found.append([made, [f"{w.category.__name__}: {str(w.message)[:40]}" for w in caught]])
    return found


def run(t: Any, name: str) -> Any:
    """A program's result as JSON has it."""
    with warnings.catch_warnings():
        if name != "misuse":
            warnings.simplefilter("ignore")
        return json.loads(json.dumps(PROGRAMS[name](t)))


if __name__ == "__main__":
    import torch

    rows = (f'"{name}": {json.dumps(run(torch, name))}' for name in PROGRAMS)
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")
