"""Programs that are exported here and by PyTorch: `PROGRAMS[name](torch)` gives (module, args, kwargs, dynamic_shapes)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PROGRAMS: dict[str, Callable[[Any], tuple[Any, ...]]] = {}


def program(make: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], tuple[Any, ...]]:
    PROGRAMS[make.__name__] = make
    return make


def module(torch: Any, forward: Callable[..., Any], **held: Any) -> Any:
    """A module with this forward; what it holds are attributes, modules, buffers (names that end in `_b`)."""

    class M(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, value in held.items():
                if name.endswith("_b"):
                    self.register_buffer(name, value)
                else:
                    setattr(self, name, value)

    M.forward = forward
    return M()


@program
def linear(torch):
    return torch.nn.Linear(3, 2), (torch.ones(4, 3),)


@program
def mlp_dynamic(torch):
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(5, 2))
    return net, (torch.ones(4, 3),), None, {"input": {0: torch.export.Dim("batch")}}


@program
def buffers(torch):
    def forward(self, x):
        self.count_b.add_(1)
        self.total_b = self.total_b + x.sum()
        return x * self.count_b + self.scale, self.total_b

    return module(torch, forward, count_b=torch.zeros(1), total_b=torch.zeros(()), scale=torch.ones(3)), (
        torch.ones(3),
    )


@program
def batch_norm(torch):
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True)), (torch.ones(2, 3, 8, 8),)  # fmt: skip


@program
def batch_norm_eval(torch):
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, stride=2, bias=False), torch.nn.BatchNorm2d(4), torch.nn.MaxPool2d(2)
    )
    return net.eval(), (torch.ones(2, 3, 9, 9),), None, {"input": {0: torch.export.Dim.AUTO}}


@program
def nested(torch):
    def forward(self, X, pair, *rest, flag=None, **named):
        y = X + pair[0]["a"] * pair[1]
        return {"y": y, "rest": [r * 2 for r in rest], "n": named["z"], "same": X, "none": None, "k": 3, "t": "text"}

    args = (torch.ones(3), ({"a": torch.ones(3)}, 2.5), torch.ones(1), torch.ones(2))
    return module(torch, forward), args, {"flag": None, "z": torch.ones(1)}


@program
def views(torch):
    def forward(self, x):
        y = x.view(-1, 2).t().contiguous()
        z = x.reshape(3, 4).transpose(0, 1)[1:, ::2]
        return (
            y.flatten(),
            z.permute(1, 0).unsqueeze(0).squeeze(0),
            x.expand(2, *x.shape),
            x.chunk(2, 1),
            x.split([1, 3], 1)[1],
        )

    return module(torch, forward), (torch.ones(3, 4),)


@program
def sizes(torch):
    def forward(self, x, y):
        n = x.shape[0]
        flat = x.view(n * x.shape[1])
        return flat + n, x.sum() / n, torch.cat([x, y]), x.new_zeros(n, 2), torch.arange(n)

    auto = torch.export.Dim.AUTO
    return module(torch, forward), (torch.ones(4, 6), torch.ones(3, 6)), None, {"x": (auto, auto), "y": (auto, auto)}


@program
def derived(torch):
    batch = torch.export.Dim("batch", max=100)
    return module(torch, lambda self, x, y: x[1:] + y), (torch.ones(5, 3), torch.ones(4, 3)), None, ({0: batch + 1}, {0: batch})  # fmt: skip


@program
def same_dims(torch):
    batch = torch.export.Dim("batch", min=3)
    return module(torch, lambda self, x, y: (x + 1, y * 2)), (torch.ones(4, 3), torch.ones(4)), None, ({0: batch}, {0: batch})  # fmt: skip


@program
def conditions(torch):
    def forward(self, x):
        return x * 2 if x.shape[0] > 3 and x.shape[0] <= 40 else x

    return module(torch, forward), (torch.ones(8, 3),), None, ({0: torch.export.Dim.DYNAMIC},)


@program
def integer_input(torch):
    return module(torch, lambda self, x, n: x.new_ones(n, 2) * x + n), (torch.ones(2), 5), None, (None, torch.export.Dim.DYNAMIC)  # fmt: skip


@program
def attention(torch):
    def forward(self, x):
        return self.attend(x, x, x, need_weights=False)[0]

    return module(torch, forward, attend=torch.nn.MultiheadAttention(8, 2, batch_first=True)), (torch.ones(2, 5, 8),)


@program
def transformer_layer(torch):
    return torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (torch.ones(2, 5, 8),)


@program
def norms(torch):
    net = torch.nn.Sequential(
        torch.nn.LayerNorm(6), torch.nn.GroupNorm(2, 4), torch.nn.InstanceNorm1d(4), torch.nn.RMSNorm(6)
    )
    return net, (torch.ones(2, 4, 6),)


@program
def embeddings(torch):
    def forward(self, i):
        return self.embed(i).mean(1), torch.nn.functional.one_hot(i, 10), self.bag(i)

    held = {"embed": torch.nn.Embedding(10, 4, padding_idx=0), "bag": torch.nn.EmbeddingBag(10, 3)}
    return module(torch, forward, **held), (torch.ones(2, 3, dtype=torch.int64),)


@program
def recurrent(torch):
    def forward(self, x):
        return self.lstm(x)[0], self.gru(x)[1], self.cell(x[0])

    held = {"lstm": torch.nn.LSTM(4, 3, 2), "gru": torch.nn.GRU(4, 3), "cell": torch.nn.LSTMCell(4, 3)}
    return module(torch, forward, **held), (torch.ones(5, 2, 4),)


@program
def pools(torch):
    F = torch.nn.functional

    def forward(self, x):
        return (
            F.max_pool2d(x, 2),
            F.avg_pool2d(x, 2),
            F.adaptive_avg_pool2d(x, 1),
            F.interpolate(x, scale_factor=2),
            F.pad(x, (1, 1)),
        )

    return module(torch, forward), (torch.ones(1, 2, 6, 6),)


@program
def activations(torch):
    F = torch.nn.functional

    def forward(self, x):
        return F.gelu(x), F.silu(x), F.hardswish(x), F.leaky_relu(x), F.softmax(x, -1), F.log_softmax(x, -1), F.elu(x), F.softplus(x), F.relu6(x), F.mish(x), F.glu(x), F.sigmoid(x), x.tanh()  # fmt: skip

    return module(torch, forward), (torch.ones(2, 4),)


@program
def losses(torch):
    F = torch.nn.functional

    def forward(self, x, y, c):
        return F.cross_entropy(x, c), F.mse_loss(x, y), F.l1_loss(x, y), F.binary_cross_entropy_with_logits(x, y), F.nll_loss(x, c), F.smooth_l1_loss(x, y), F.kl_div(x, y)  # fmt: skip

    return module(torch, forward), (torch.ones(2, 4), torch.ones(2, 4), torch.ones(2, dtype=torch.int64))


@program
def in_place(torch):
    def forward(self, x, y):
        z = x.clone()
        z[0] = 5
        z[:, 1].mul_(2)
        z += y
        z.relu_()
        x.add_(1)
        return z, y.masked_fill(y > 0, 1.0)

    return module(torch, forward), (torch.ones(3, 4), torch.ones(3, 4))


@program
def literals(torch):
    def forward(self, x):
        return x + torch.tensor(2.0) + torch.tensor([1.0, 2.0]), torch.ones(2), torch.zeros_like(x), torch.full((2,), 3), torch.scalar_tensor(1.0)  # fmt: skip

    return module(torch, forward), (torch.ones(2),)


@program
def shared_weights(torch):
    def forward(self, x):
        return self.b(self.a(self.a(x))) + self.tied

    inner = torch.nn.Linear(3, 3)
    return module(torch, forward, a=inner, b=inner, tied=inner.weight), (torch.ones(3, 3),)


@program
def reductions(torch):
    def forward(self, x):
        return x.sum(0), x.mean(), x.max(1), x.argmax(1), x.std(), x.var(1), x.norm(), x.logsumexp(1), x.prod(), x.cumsum(0), x.sort(1), x.topk(2)  # fmt: skip

    return module(torch, forward), (torch.ones(3, 4),)


@program
def products(torch):
    def forward(self, x, y):
        return x @ y, torch.bmm(x, y), torch.einsum("bij,bjk->bik", x, y), x[0] @ y[0], x[0, 0] @ y[0], torch.matmul(x[0], y[0, :, 0]), torch.nn.functional.scaled_dot_product_attention(x, x, x)  # fmt: skip

    return module(torch, forward), (torch.ones(2, 3, 4), torch.ones(2, 4, 3))


@program
def indexing(torch):
    def forward(self, x, i):
        return x[i], x[:, i, None], x[..., -1], x[0, 1], x.gather(0, i[None]), x.index_select(0, i), x.scatter(0, i[None], 1.0), torch.where(x > 0, x, -x)  # fmt: skip

    return module(torch, forward), (torch.ones(3, 4), torch.tensor([0, 1]))


@program
def no_grad_part(torch):
    def forward(self, x):
        with torch.no_grad():
            y = x.sin() + 1
        return y * x

    return module(torch, forward), (torch.ones(3),)


@program
def data_dependent(torch):
    def forward(self, x):
        rows = x.nonzero()
        n = x.sum().to(torch.int64).item()
        torch._check(n >= 2)
        return rows, torch.zeros(n)

    return module(torch, forward), (torch.ones(3),)


@program
def gpt_block(torch):
    F = torch.nn.functional

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).split(c, dim=2)
        q, k, v = (each.view(b, t, 2, c // 2).transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).contiguous().view(b, t, c))

    held = {"qkv": torch.nn.Linear(8, 24), "norm": torch.nn.LayerNorm(8), "out": torch.nn.Linear(8, 8)}
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("time", max=64)}
    return module(torch, forward, **held), (torch.ones(2, 5, 8),), None, {"x": dims}


@program
def control_flow(torch):
    from importlib import import_module

    loops = import_module(f"{torch.__name__}._higher_order_ops")

    def forward(self, i, x, rows):
        y = torch.cond(x.sum() > 0, lambda x: self.linear(x) + rows[0], lambda x: x.cos(), (x,))
        n, z = loops.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (i, x))
        last, every = loops.scan(lambda c, r: (c + r, c * r), x, rows)
        return y, n, z, last, every, loops.map(lambda r: r.sin() + x, rows)

    return module(torch, forward, linear=torch.nn.Linear(3, 3)), (torch.tensor(0), torch.ones(3), torch.ones(4, 3))
