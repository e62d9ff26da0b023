"""What random programs in Python do to tensors beyond plain calls: views of views changed in place, dtypes, hooks, modules, transforms.

`python_programs` writes programs; its statements about tensors that need more than one line come from here.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PRELUDE", "STATE", "Statements"]

STATE = ("held", "named")  # what programs of tensors leave behind, beside the state of `net` and `norm`
PRELUDE = """
import contextlib
import dataclasses
import enum
import math


class Mode(enum.Enum):
    SLOW = 1
    FAST = 2


@dataclasses.dataclass
class Pair:
    left: object
    right: object = None
    more: list = dataclasses.field(default_factory=list)

    def total(self):
        return self.left + (0 if self.right is None else self.right)


Point = collections.namedtuple("Point", "a b")


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.factor + x * 0, None


class Halve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(0.5)

    @staticmethod
    def backward(ctx, grad):
        return grad * 0.5


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 5), torch.nn.Linear(5, 4)
        self.register_buffer("calls", torch.zeros(()))
        self.count = 0

    def forward(self, x, scale=1.0):
        self.count += 1
        if self.training:
            self.calls += 1
        x = torch.relu(self.one(x))
        for _ in range(self.count % 3):
            x = x * 0.5
        return self.two(x) * scale


@contextlib.contextmanager
def noted(name):
    log.append("in " + name)
    try:
        yield name
    finally:
        log.append("out " + name)


@torch.no_grad()
def without(t):
    return t * 2


def rows(t):
    for r in t:
        yield r
        log.append("row")


def hooked(grad):
    log.append("hook")
    return grad * 0.5


torch.manual_seed(0)
net, norm = Net(), torch.nn.BatchNorm1d(4)
held, named = [], {}
u, v = torch.arange(12.0).reshape(3, 4) / 8, torch.ones(3, 4)
"""


class Statements:
    """Statements about tensors; the writer of a program is one of these."""

    draw: Any

    def one(self, *of: Any) -> Any:
        raise NotImplementedError

    def below(self, n: int) -> int:
        raise NotImplementedError

    def fresh(self, prefix: str) -> str:
        raise NotImplementedError

    def known(self, kind: str) -> str | None:
        raise NotImplementedError

    def expression(self, kind: str, depth: int = 0) -> str:
        raise NotImplementedError

    def view(self, of: str) -> str:
        """A view of a 3 x 4 matrix, or of a view of it."""
        text = of
        for _ in range(1 + self.below(3)):
            text += str(self.one(".t()", "[1:]", "[..., ::2]", ".unsqueeze(0)", ".flatten(0, 0)", ".view(-1)", "[0]", ".transpose(0, -1)", ".detach()", ".narrow(0, 0, 1)",
                                 ".expand(-1, -1)", ".diagonal()", ".view_as(u)", ".squeeze()", ".as_strided((2, 2), (4, 1))", ".chunk(2)[0]", ".unbind(0)[-1]",
                                 ".movedim(0, -1)", ".real", ".T"))  # fmt: skip
        return text

    def view_in_place(self) -> str:
        """A view, or a view of a view, of something changed; then the base is read."""
        t = self.known("tensor") or "u"
        name = self.fresh("r")
        change = self.one(".add_(1.5)", ".mul_(2)", ".zero_()", ".fill_(0.25)", ".sigmoid_()", ".clamp_(-1, 1)", "[0] = 3.0", "[...] = 0.5", ".neg_()", ".copy_(torch.ones(1))",
                          ".masked_fill_(torch.tensor(True), 2.0)", ".add_(u.sum())", ".cumsum_(0)", ".lerp_(torch.ones(()), 0.5)", ".normal_()", ".uniform_()")  # fmt: skip
        base = self.one(f"{t} = {t} * 1\n", f"{t} = {t}.clone()\n", f"{t} = {t} + 0\n", "")
        if not base:
            t = self.one("u", "u", "u", "held[-1] if held else u")
            t = t if " " not in t else f"({t})"
        read = self.one(
            f"log.append({self.known('tensor') or 'u'}.sum())",
            f"log.append(({name}.shape, {name}.stride()))",
            f"held.append({name})",
            "log.append(u * 2)",
        )
        if self.below(4) == 0:
            return f"{base}with torch.no_grad():\n    {name} = {self.view(t)}\n    {name}{change}\n{read}"
        return f"{base}{name} = {self.view(t)}\n{name}{change}\n{read}"

    def dtypes(self) -> str:
        """Values of other dtypes, and their promotion."""
        t, name, i = self.expression("tensor", 1), self.fresh("k"), self.expression("int", 2)
        kind = self.one("torch.float64", "torch.int64", "torch.bool", "torch.bfloat16", "torch.float16", "torch.int32", "torch.complex64", "torch.uint8")  # fmt: skip
        return str(self.one(
            f"{name} = {t}.to({kind})\nlog.append({name} + {self.one('1', '0.5', 'True', i + ' % 7')})", f"log.append({t}.double() * {self.expression('tensor', 2)})",
            f"log.append(({t} > 0).sum() + {i})", f"log.append({t}.to({kind}) * torch.arange(4))", f"{name} = ({t} * 4).long()\n{name} //= 3\nlog.append({name} % 5)",
            f"log.append(torch.result_type({t}, {i}))", f"{name} = {t}.abs().bfloat16()\n{name} += {self.expression('tensor', 2)}.bfloat16()\nlog.append({name}.float().sum())",
            f"log.append(torch.complex({t}, {t}).conj().imag)", f"log.append(({t} * 3).round().int() & 3)", f"log.append(torch.full((2,), {i}).dtype)",
            f"log.append({t}.type(torch.float64).mean().item() > 0)", f"log.append(torch.tensor([{i}, 2.5]))", f"log.append(torch.arange({i} % 6) * 0.5)",
        ))  # fmt: skip

    def random_numbers(self) -> str:
        """Draws: programs and eager calls share one stream."""
        t, name = self.expression("tensor", 1), self.fresh("k")
        return str(self.one(
            f"log.append(torch.rand(3, 4) * {t})", f"log.append(torch.nn.functional.dropout({t}, 0.5))", "log.append(torch.randint(0, 9, (4,)))", "log.append(torch.randperm(5))",
            "log.append(torch.bernoulli(torch.full((3,), 0.5)))", f"{name} = torch.empty(3, 4).normal_()\nlog.append({name} + {t})", f"log.append(torch.rand_like({t}))",
            f"torch.manual_seed({self.below(5)})\nlog.append(torch.randn(2))", "with torch.random.fork_rng(devices=[]):\n    log.append(torch.rand(1))\nlog.append(torch.rand(1))",
            f"{name} = torch.Generator().manual_seed(5)\nlog.append(torch.rand(3, generator={name}))", f"log.append(torch.multinomial({t}.abs().detach() + 0.1, 2))",
        ))  # fmt: skip

    def transforms(self) -> str:
        """Gradients in the middle, functions of autograd, hooks, `torch.func`."""
        t, s, name = self.expression("tensor", 1), self.expression("scalar", 1), self.fresh("l")
        return str(self.one(
            f"log.append(Double.apply({t}, {self.one('2', '0.5', s)}))", f"{name} = {t} * 1\nlog.append(Halve.apply({name}))\nlog.append({name})",
            f"log.append(torch.func.grad(lambda k: (k * {t}.detach()).sin().sum())(u))", f"log.append(torch.func.vmap(lambda k: k * 2 + k.sum())({t}))",
            f"log.append(torch.func.jvp(torch.sin, ({t}.detach(),), (torch.ones(3, 4),)))", f"log.append(torch.func.vjp(torch.tanh, {t}.detach())[0])",
            "log.append(torch.func.vmap(torch.func.grad(lambda k: (k * k).sum()))(u))", "log.append(torch.func.hessian(lambda k: (k ** 3).sum())(torch.ones(2)))",
            f"{name} = u.detach().clone().requires_grad_()\n{name}.register_hook(hooked)\n({name} * {t}).sum().backward()\nlog.append({name}.grad)",
            f"{name} = v * 2\nif {name}.requires_grad:\n    {name}.register_hook(lambda g: log.append(g.sum()))\n    ({name} * {t}).sum().backward()\nlog.append(v.grad)",
            "log.append(torch.autograd.grad((v * v).sum(), v, create_graph=True)[0].detach() if torch.is_grad_enabled() else None)",
            f"if torch.is_grad_enabled():\n    {name} = torch.autograd.grad((v ** 3).sum(), v, create_graph=True)[0]\n    log.append(torch.autograd.grad(({name} * {t}).sum(), v)[0])",
            f"log.append(torch.utils.checkpoint.checkpoint(lambda k: (k * k).tanh(), {t}, use_reentrant=False))", f"v.grad = None\n(v * {t}).sum().backward()\nlog.append(v.grad * 1)",
            f"with torch.enable_grad():\n    {name} = (v * {t}).sum()\nlog.append(({name}.requires_grad, torch.is_grad_enabled()))", f"log.append(without({t}).requires_grad)",
            f"with torch.set_grad_enabled({self.one('True', 'False', 'n % 2 == 0')}):\n    {name} = v * {t}\nlog.append(({name}, {name}.requires_grad))",
            f"with torch.no_grad():\n    v.{self.one('add_(0.25)', 'mul_(0.5)', 'copy_(u)')}\nlog.append(v.is_leaf)",
            f"{name} = {t}.detach()\n{name} += 1\nlog.append({name})", f"log.append(({t} * 1).requires_grad_(False) if not {t}.requires_grad else {t}.detach())",
            f"with torch.inference_mode():\n    log.append(({t} * 2).is_inference())", f"with torch.autocast('cpu', dtype=torch.bfloat16):\n    log.append(({t} @ u.t()).dtype)",
            f"{name} = {t} * v\n{name}.retain_grad()\nif {name}.requires_grad:\n    {name}.exp().sum().backward()\nlog.append({name}.grad)",
        ))  # fmt: skip

    def modules(self) -> str:
        """Modules, their state, hooks and optimizers."""
        t, name = self.expression("tensor", 1), self.fresh("k")
        return str(self.one(
            f"log.append(net({t}))", f"log.append(net({t}, scale={self.one('2', '0.5', self.expression('scalar', 2))}))", f"log.append(norm({t}))",
            f"net.{self.one('train', 'eval')}()\nlog.append(net({t}).sum())", f"norm.{self.one('train', 'eval')}()", f"net.zero_grad()\nnet({t}).sum().backward()\nlog.append(net.one.weight.grad)",
            f"{name} = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)\nnet({t}).square().sum().backward()\n{name}.step()\n{name}.zero_grad()",
            f"{name} = torch.optim.AdamW(net.parameters(), lr=0.01)\nnet({t}).square().sum().backward()\n{name}.step()",
            f"{name} = net.one.register_forward_hook(lambda m, a, r: log.append('forward') or r * 2)\nlog.append(net({t}))\n{name}.remove()",
            f"{name} = net.two.register_forward_pre_hook(lambda m, a: (a[0] + 1,))\ntry:\n    log.append(net({t}))\nfinally:\n    {name}.remove()",
            f"with torch.no_grad():\n    for {name} in net.parameters():\n        {name}.mul_(0.9)", f"net.extra = {self.expression('int', 1)}\nlog.append(getattr(net, 'extra', 0))",
            f"log.append(torch.func.functional_call(net, {{k: w * 2 for k, w in net.named_parameters()}}, ({t},)))", "log.append([k for k, _ in net.named_parameters()])",
            f"net.requires_grad_({self.one('True', 'False')})", "log.append(torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0))", "log.append(net.count)",
            f"{name} = copy.deepcopy(net)\nlog.append({name}({t}))", f"log.append(torch.nn.functional.linear({t}, net.one.weight, net.one.bias))",
        ))  # fmt: skip

    def data(self) -> str:
        """Indices, orders, and results whose shape depends on data."""
        t, name, i = self.expression("tensor", 1), self.fresh("k"), self.below(3)
        return str(self.one(
            f"log.append({t}[{t} > 0])", f"log.append({t}.nonzero())", f"log.append({t}.argsort(1))", f"log.append({t}.sort(0).values)", f"log.append({t}.topk(2).values)",
            f"log.append({t}.gather(1, torch.tensor([[0, 2], [1, 1]])))", f"log.append({t}[[{i}, 0, 1]])", f"log.append({t}[torch.tensor([{i}, 1]), 1:])",
            f"{name} = {t} * 1\n{name}.index_add_(0, torch.tensor([0, {i}]), torch.ones(2, 4))\nlog.append({name})", f"log.append({t}.cumsum({self.below(2)}))",
            f"{name} = {t} * 1\n{name}[[0, {i}]] = {name}[[{i}, 1]]\nlog.append({name})", f"{name} = {t} * 1\n{name}.scatter_(1, torch.tensor([[{i}], [1], [0]]), 1.5)\nlog.append({name})",
            f"log.append(torch.einsum('ij,kj->ik', {t}, {t}))", f"log.append(torch.masked_select({t}, {t} < 0.5).numel())", f"log.append({t}.unique().shape)",
            f"log.append(({t}.max(1).indices, {t}.min(0).values, {t}.argmax()))", f"log.append(torch.nn.functional.one_hot({t}.argmax(1), 4))", f"log.append({t}.tril().count_nonzero())",
            f"log.append(torch.cat([{t}, u], {self.below(2)}).shape)", f"{name}, q1 = {t}.split(2, dim=1)\nlog.append({name} - q1)", f"log.append(torch.stack([*{t}]).equal({t}))",
            f"log.append(torch.nn.functional.cross_entropy({t}, torch.tensor([0, 3, {i}])))", f"log.append(torch.nn.functional.layer_norm({t}, (4,)))", f"log.append({t}.var_mean(1))",
            f"log.append(torch.nn.functional.pad({t}, (1, {i})))", f"log.append({t}.roll({i}, 1).logsumexp(0))", f"log.append(torch.isnan({t}).any())", f"log.append({t}.norm(dim=1))",
            f"log.append(torch.outer({t}[0], {t}[1]).trace())", f"log.append(({t} ** {self.one('2', '0.5', '3', '-1')}).nan_to_num())", f"log.append(torch.allclose({t}, u))",
        ))  # fmt: skip

    def containers(self) -> str:
        """Tensors in lists, dicts, closures, generators and objects, and errors about tensors."""
        t, s, name, i = (self.expression(*of) for of in (("tensor", 1), ("scalar", 1), ("scalar", 2), ("int", 2)))
        name = self.fresh("k")
        return str(self.one(
            f"held.append({t})\ndel held[2:]", f"named[{self.expression('str', 1)}] = {t}", "log.append([k * 2 for k in held])", "log.append(sum(k.sum() for k in named.values()))",
            f"{name} = {{'a': {t}, 'b': [{s}, u]}}\n{name}['a'] = {name}['a'] + {name}['b'][0]\nlog.append({name})", f"for {name} in rows({t}):\n    log.append({name}.sum())",
            f"{name} = Pair({t}, {s})\n{name}.more.append({name}.total())\nlog.append((dataclasses.replace({name}, right=None).total(), {name}.more))",
            f"{name} = Point({t}, b={s})\nlog.append({name}._replace(b=2).b)\nlog.append({name}.a is {name}[0])", "log.append(held[0] is u if held else u is v)",
            f"{name} = [{t}, {s}]\n{name}.sort(key=lambda k: k.dim())\nlog.append({name}[0])", f"log.append(Mode.FAST if {s} is None else Mode(1))", f"log.append({t} in held[:0])",
            f"with noted('k{self.below(9)}') as {name}:\n    log.append({t})\n    {self.one('pass', 'u = u + 1', 'n //= (n % 2)', 'raise KeyError(n)')}",
            f"try:\n    log.append({t} @ {t})\nexcept RuntimeError as error:\n    log.append(str(error)[:30])", f"try:\n    {t}.view(5)\nexcept RuntimeError as error:\n    log.append('view')",
            f"try:\n    log.append({t}[{i}])\nexcept IndexError as error:\n    log.append(str(error))\nfinally:\n    log.append('end')", f"log.append(torch.tensor({self.expression('list', 1)}))",
            f"def {name}(k=u, *, scale={self.below(4)}):\n    return k * scale\nlog.append({name}() + {name}({t}, scale=2))", f"log.append(math.sqrt(abs({i})) + {t})",
            f"{name} = functools.partial(torch.add, {t})\nlog.append({name}(1, alpha=2))", f"log.append(functools.reduce(torch.add, [{t}, u, v]))", "log.append(hash(u) == hash(u))",
            f"thing.kept = {t}\nlog.append(thing.kept + thing.value)\ndel thing.kept", f"log.append([k.shape for k in ({t}, {s}, u)])", f"log.append(len({t}) + {t}.numel())",
            "log.append(copy.copy(u) is u)\nlog.append(copy.deepcopy(u))", "u, v2 = u * 2, u\nlog.append(v2 - u)", "log.append((u.data_ptr() == u.detach().data_ptr(), u._version >= 0))",
            f"torch.add({t}, 1, out=u) if not {t}.requires_grad else None", f"{name} = torch.empty(3, 4)\ntorch.mul({t}.detach(), 2, out={name})\nlog.append({name})",
            f"log.append(str({s}.detach() * 0 + 2.0))", f"log.append(f'{{{s}.item():.3f}}')", "log.append(u.numpy().sum() > 0)", "log.append(torch.from_numpy(u.numpy()) + 1)",
        ))  # fmt: skip
