"""What is changed is PyTorch's: functions, modules, tensors, modes, random numbers."""

from __future__ import annotations

import math
import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.capture.changed.worlds import Change, Plain, item, put, world

import rushlight as torch
from rushlight import nn
from rushlight.nn import functional as F
from rushlight.nn.utils import parametrize

# ***** PyTorch's functions *****


@world
def patched_functions():
    sin, relu, double, sqrt = torch.sin, F.relu, torch.Tensor.double, math.sqrt
    return (
        lambda x: (torch.sin(x), F.relu(x), x.double(), math.sqrt(4)),
        put(torch, sin=torch.cos),
        put(torch, sin=lambda x: x * 2),
        put(torch, sin=sin),
        put(F, relu=lambda x: x),
        put(F, relu=relu),
        put(torch.Tensor, double=lambda self: self),
        put(torch.Tensor, double=double),
        put(math, sqrt=lambda v: 5),
        put(math, sqrt=sqrt),
    )


@world
def patched_layers():
    layer, forward = nn.Linear(3, 2), nn.Linear.forward
    return (
        layer,
        put(nn.Linear, forward=lambda self, x: x),
        put(nn.Linear, forward=forward),
        put(layer, forward=lambda x: x * 2),
        lambda: vars(layer).pop("forward", 0),
        put(layer, bias=None),
        put(layer, weight=nn.Parameter(torch.ones(1, 3))),
        lambda: layer.weight.data.mul_(2),
        lambda: setattr(layer.weight, "data", torch.ones(4, 3)),
        lambda: vars(layer).update(extra_repr=1),
    )


# ***** modules *****


class Net(nn.Module):
    """A net with all that modules hold."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm, self.drop = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)
        self.register_buffer("scale", torch.ones(3))
        self.register_buffer("loose", torch.zeros(3), persistent=False)
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.named = nn.ModuleDict({"a": nn.Tanh()})
        self.own = nn.ParameterList([nn.Parameter(torch.ones(3))])
        self.alpha: Any = 1.0

    def forward(self, x: Any) -> Any:
        x = self.drop(self.norm(self.lin(x))) * self.scale + self.loose
        for block in self.blocks:
            x = block(x)
        for name, part in self.named.items():
            x = part(x) + len(name)
        for p in self.own:
            x = x * p
        return x * self.alpha


@world
def training_and_buffers():
    net = Net()
    return (
        net,
        net.eval,
        net.train,
        lambda: net.norm.eval(),
        lambda: net.drop.train(),
        put(net, alpha=2.0),
        put(net, alpha=torch.tensor(3.0)),
        lambda: net.scale.mul_(2),
        put(net, scale=torch.full((3,), 4.0)),
        put(net, scale=None),
        put(net, scale=torch.ones(3, dtype=torch.float64)),
        put(net.norm, momentum=None),
        put(net.norm, eps=0.1),
        put(net.drop, p=0.0),
        lambda: net.register_buffer("loose", torch.ones(2, 3)),
        put(net.norm, track_running_stats=False),
        lambda: net.norm.reset_running_stats(),
    )


@world
def parts_of_modules():
    net = Net().eval()
    return (
        net,
        lambda: net.blocks.append(nn.Sigmoid()),
        lambda: len(net.blocks) > 1 and net.blocks.pop(-1),
        item(net.blocks, 0, nn.Identity()),
        item(net.named, "a", nn.ReLU()),
        item(net.named, "bb", nn.ReLU()),
        lambda: net.named.clear(),
        put(net, lin=nn.Identity()),
        put(net, lin=lambda x: x * 2) if False else put(net, alpha=2),
        lambda: net.own.append(nn.Parameter(torch.full((3,), 2.0))),
        lambda: net.requires_grad_(False),
        lambda: net.requires_grad_(True),
        lambda: net.double(),
        lambda: net.float(),
        lambda: net.lin.requires_grad_(False) if isinstance(net.lin, nn.Module) else 0,
        lambda: net.load_state_dict(net.state_dict()),
        lambda: net._modules.move_to_end("lin") if hasattr(net._modules, "move_to_end") else 0,
        put(net, __class__=type("Sub", (Net,), {"forward": lambda self, x: x})),
        put(net, __class__=Net),
    )


@world
def hooks():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    handles: list[Any] = []

    def add(kind: str, hook: Callable[..., Any], **options: Any) -> Change:
        return lambda: handles.append(getattr(net[0], kind)(hook, **options))

    def everywhere() -> None:
        handles.append(nn.modules.module.register_module_forward_hook(lambda m, a, out: out + 0.5))

    def remove() -> None:
        if handles:
            handles.pop().remove()

    box: Any = Plain(v=1.0)

    def f(x):
        y = net(x)
        if y.requires_grad:
            (g,) = torch.autograd.grad(y.sum(), [net[0].weight], allow_unused=True)
            return y, g
        return y

    def clean() -> None:
        while handles:
            handles.pop().remove()

    weakref.finalize(net, clean)
    return (
        f,
        add("register_forward_hook", lambda m, a, out: out * 2),
        add("register_forward_pre_hook", lambda m, a: (a[0] + box.v,)),
        remove,
        put(box, v=2.0),
        add("register_full_backward_hook", lambda m, gi, go: None),
        add("register_full_backward_pre_hook", lambda m, go: (go[0] * 3,)),
        add("register_forward_hook", lambda m, a, k, out: out + 1, with_kwargs=True),
        remove,
        lambda: handles.append(net[0].weight.register_hook(lambda g: g * box.v)),
        add("register_forward_hook", lambda m, a, out: out - 1, prepend=True),
        clean,
    )


@world
def parametrized():
    net = nn.Linear(3, 3)

    class Sym(nn.Module):
        by = 1.0

        def forward(self, w: Any) -> Any:
            return (w + w.t()) * self.by

    sym = Sym()

    def add() -> None:
        parametrize.register_parametrization(net, "weight", sym)

    def remove() -> None:
        if parametrize.is_parametrized(net):
            parametrize.remove_parametrizations(net, "weight")

    return (
        lambda x: net(x),
        add,
        remove,
        put(sym, by=2.0),
        lambda: nn.utils.parametrizations.weight_norm(net) if not parametrize.is_parametrized(net) else 0,
    )


# ***** tensors *****


@world
def tensors_read():
    box: Any = Plain(t=torch.ones(3))
    base = torch.arange(12.0).reshape(4, 3)
    wide = torch.arange(18.0).reshape(3, 6)

    def f(x):
        t = box.t
        return (
            x * t,
            t.dtype,
            tuple(t.shape),
            t.stride(),
            t.requires_grad,
            t.is_contiguous(),
            t.storage_offset(),
            t.is_leaf,
            t.dim(),
        )

    kinds = [
        torch.ones(3) * 2,
        torch.ones(1),
        torch.tensor(2.0),
        torch.ones(3, dtype=torch.float64),
        torch.ones(3, dtype=torch.int32),
        torch.ones(3, requires_grad=True),
        base[1],
        base[0],
        wide[:, 1][:3],
        wide[0, ::2],
        torch.ones(1, 3).expand(2, 3),
        torch.ones(3, 2).t(),
        nn.Parameter(torch.ones(3)),
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor([True, False, True]),
        torch.ones(3, dtype=torch.complex64),
        torch.zeros(0),
        torch.ones(2, 2),
        3.0,
    ]
    return (
        f,
        *[put(box, t=kind) for kind in kinds],
        lambda: isinstance(box.t, torch.Tensor) and box.t.detach().zero_(),
        lambda: (
            isinstance(box.t, torch.Tensor)
            and box.t.is_floating_point()
            and box.t.is_leaf
            and box.t.requires_grad_(not box.t.requires_grad)
        ),
    )


@world
def changed_tensors():
    t, p = torch.ones(2, 3), nn.Parameter(torch.ones(3))

    def f(x):
        return (
            x * t + p,
            t.shape,
            t.stride(),
            t.dtype,
            p.requires_grad,
            t._version if False else 0,
            getattr(t, "note", None),
            p.grad is None,
        )

    def new_data(value: Any) -> Change:
        return lambda: setattr(t, "data", value)

    return (
        f,
        lambda: t.add_(1),
        new_data(torch.ones(3)),
        new_data(torch.ones(3, 2).t()),
        new_data(torch.full((1, 1), 2.0)),
        new_data(torch.ones(2, 3, dtype=torch.float64)),
        lambda: t.resize_(2, 3),
        lambda: t.t_() if t.dim() == 2 and t.shape == (3, 3) else 0,
        lambda: t.unsqueeze_(0) if t.dim() < 3 else 0,
        lambda: t.squeeze_(),
        put(t, note=1),
        put(t, note="a"),
        lambda: p.requires_grad_(not p.requires_grad),
        put(p, grad=torch.ones(3)),
        put(p, grad=None),
        lambda: t.set_(torch.full((2, 3), 5.0)) if t.dtype == torch.float32 else 0,
        lambda: t.untyped_storage().fill_(0) if hasattr(t.untyped_storage(), "fill_") else 0,
    )


@world
def tensor_lists():
    held: Any = [torch.ones(3), torch.zeros(3)]
    named: Any = {"w": torch.ones(3), "b": torch.zeros(3)}
    return (
        lambda x: (
            x * held[0]
            + held[-1]
            + named["w"] * named["b"]
            + (1 if held[0] is held[-1] else 0)
            + (2 if named["w"] is held[0] else 0)
        ),
        item(held, -1, held[0]),
        item(held, -1, torch.ones(3)),
        item(named, "w", held[0]),
        lambda: item(named, "b", held[-1])(),
        lambda: item(held, -1, held[0].view(3))(),
        lambda: held[0].add_(1),
        lambda: held.append(held[0]),
        lambda: len(held) > 2 and held.pop(),
        item(named, "w", torch.ones(1)),
        lambda: held.reverse(),
    )


@world
def aliases_written():
    box: Any = Plain(a=torch.ones(3), b=torch.ones(3))

    def f(x):
        box.a.add_(1)
        y = box.b * 2
        box.b.mul_(0.5)
        return x + y, box.a.clone(), box.b.clone()

    def share() -> None:
        box.b = box.a

    def view() -> None:
        box.b = box.a.view(3)

    def part() -> None:
        box.b = box.a[1:]
        box.a = box.a

    def flipped() -> None:
        base = torch.arange(4.0)
        box.a, box.b = base[:3], base[1:]

    return (
        f,
        share,
        view,
        flipped,
        put(box, b=torch.ones(3)),
        put(box, a=torch.zeros(3)),
        lambda: setattr(box, "b", torch.ones(1).expand(3).clone()),
        lambda: setattr(box, "a", torch.zeros(3, 1)[:, 0]),
    )


@world
def arrays_read():
    box: Any = Plain(a=np.ones(3, np.float32), s=np.float32(2))
    return (
        lambda x: (
            x * torch.from_numpy(box.a) if box.a.dtype.kind == "f" else x,
            box.a.sum() * 2,
            float(box.s),
            box.a.shape,
            torch.as_tensor(box.a),
        ),
        lambda: box.a.fill(2),
        put(box, a=np.ones(1, np.float32)),
        put(box, a=np.ones(3)),
        put(box, a=np.arange(3)),
        put(box, a=np.arange(6.0)[::2]),
        put(box, s=np.float64(2)),
        put(box, s=np.int32(1)),
        item(box.a, 0, 9),
    )


# ***** state of PyTorch *****


@world
def grad_and_inference():
    p = nn.Parameter(torch.ones(3))

    def f(x):
        y = x * p
        return y, y.requires_grad, torch.is_grad_enabled(), y.grad_fn is None

    return (
        f,
        lambda: torch.set_grad_enabled(False),
        lambda: torch.set_grad_enabled(True),
        lambda: p.requires_grad_(False),
        lambda: p.requires_grad_(True),
    )


@world
def dtypes_and_devices():
    return (
        lambda x: (
            torch.ones(2),
            torch.tensor(1.5),
            x.int() / 2,
            torch.arange(2.0),
            x.int() * 1.5,
            torch.get_default_dtype(),
            torch.full((1,), 2.0),
        ),
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_dtype(torch.float32),
        lambda: torch.set_default_dtype(torch.bfloat16),
        lambda: torch.set_default_device("meta") if False else None,
        lambda: torch.set_default_dtype(torch.float16),
    )


@world
def autocast():
    w = torch.randn(3, 3)
    return (
        lambda x: (
            x @ w,
            F.linear(x, w),
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            (x @ w).sum().dtype,
        ),
        lambda: torch.set_autocast_enabled("cpu", True),
        lambda: torch.set_autocast_enabled("cpu", False),
        lambda: torch.set_autocast_dtype("cpu", torch.float16),
        lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
    )


@world
def modes_of_the_process():
    return (
        lambda x: (
            torch.are_deterministic_algorithms_enabled(),
            torch.get_num_threads(),
            torch.is_anomaly_enabled(),
            torch.get_float32_matmul_precision(),
            x.index_add(0, torch.tensor([0]), x[:1]),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.use_deterministic_algorithms(False),
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        lambda: torch.set_num_threads(1),
        lambda: torch.set_num_threads(2),
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.set_float32_matmul_precision("highest"),
    )


@world
def random_streams():
    generator = torch.Generator().manual_seed(3)
    own = random.Random(5)
    rng = np.random.default_rng(7)
    return (
        lambda x: (
            torch.rand(2) + x[0, 0],
            F.dropout(x, 0.5),
            torch.randn(2, generator=generator),
            random.random(),
            own.randrange(100),
            np.random.rand(),
            rng.integers(9),
            torch.initial_seed(),
        ),
        lambda: torch.manual_seed(1),
        lambda: random.seed(2),
        lambda: np.random.seed(3),
        lambda: generator.manual_seed(9),
        lambda: torch.set_rng_state(torch.get_rng_state()),
        lambda: own.seed(1),
        lambda: random.setstate(random.getstate()),
        lambda: torch.rand(3),
        lambda: own.random(),
    )


@world
def default_hooks_and_modes():
    from rushlight.overrides import TorchFunctionMode
    from rushlight.utils._python_dispatch import TorchDispatchMode

    entered: list[Any] = []
    box: Any = Plain(by=2)

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            got = function(*args, **(kwargs or {}))
            return got * box.by if function is torch.sin else got

    class Below(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            got = function(*args, **(kwargs or {}))
            return got + 1 if "sin" in str(function) else got

    def f(x):
        for make in box.modes:
            mode = make()
            entered.append(mode)
            mode.__enter__()
        try:
            return torch.sin(x)
        finally:
            while entered:
                entered.pop().__exit__(None, None, None)

    box.modes = []
    return (
        f,
        put(box, by=3),
        lambda: box.modes.append(Mode),
        lambda: box.modes.append(Below),
        box.modes.clear,
        put(Mode, __torch_function__=lambda self, f, k, a=(), kw=None: f(*a, **(kw or {}))),
    )


@world
def subclasses():
    class Scaled(torch.Tensor):
        by = 2.0

        @classmethod
        def __torch_function__(cls, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            got = super().__torch_function__(function, kinds, args, kwargs or {})
            return got * cls.by if function is torch.add or function is torch.Tensor.add else got

    t: Any = torch.ones(2, 3).as_subclass(Scaled)
    box: Any = Plain(t=t)
    return (
        lambda x: torch.add(box.t, x),
        put(Scaled, by=3.0),
        put(box, t=torch.ones(2, 3)),
        put(box, t=t),
        put(Scaled, __torch_function__=torch._C._disabled_torch_function_impl),
        put(t, by=5.0),
    )


@world
def functions_of_autograd():
    box: Any = Plain(k=2.0)

    class Own(torch.autograd.Function):
        by = 3.0

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.k = box.k
            return x * box.k

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0] * Own.by

    def f(x):
        y = Own.apply(x * 1.0)
        if y.requires_grad:
            return y, torch.autograd.grad(y.sum(), x)[0]
        return y

    return (
        f,
        put(box, k=3.0),
        put(Own, by=4.0),
        put(Own, forward=staticmethod(lambda ctx, x: (ctx.save_for_backward(x), x + 1)[1])),
        put(Own, backward=staticmethod(lambda ctx, g: g * 9)),
    )


@world
def transforms():
    box: Any = Plain(k=2.0, f=torch.sin)
    held = [torch.ones(3)]
    return (
        lambda x: (
            torch.func.grad(lambda v: (box.f(v) * box.k * held[0]).sum())(x.detach()),
            torch.func.vmap(lambda v: v * box.k)(x),
            torch.func.jvp(box.f, (x.detach(),), (x.detach(),)),
        ),
        put(box, k=3.0),
        put(box, f=torch.cos),
        put(box, f=lambda v: v * v),
        item(held, 0, torch.full((3,), 2.0)),
        put(box, k=torch.tensor(2.0)),
    )


@world
def optimizers():
    p = nn.Parameter(torch.ones(3))
    best: Any = torch.optim.SGD([p], lr=0.1, momentum=0.5)
    group = best.param_groups[0]

    def f(x):
        best.zero_grad()
        with torch.enable_grad():
            loss = (x.detach() * p).sum()
            loss.backward()
        best.step()
        return loss.detach(), p.detach().clone(), len(best.state[p])

    return (
        f,
        item(group, "lr", 0.5),
        item(group, "momentum", 0.0),
        item(group, "weight_decay", 0.1),
        item(group, "nesterov", True),
        item(group, "maximize", True),
        item(group, "lr", torch.tensor(0.2)),
        best.state.clear,
        lambda: best.load_state_dict(best.state_dict()),
        item(group, "momentum", 0.9),
        lambda: best.add_param_group({"params": [nn.Parameter(torch.ones(2))]}) if len(best.param_groups) < 3 else 0,
        lambda: p.data.zero_(),
        item(group, "dampening", 0.0),
    )


@world
def types_as_values():
    box: Any = Plain(
        d=torch.float64, t=int, f=torch.contiguous_format, dev=torch.device("cpu"), size=torch.Size([2, 3]), k=list
    )
    return (
        lambda x: (
            x.to(box.d),
            box.t("3"),
            x.to(box.dev),
            x.reshape(box.size),
            box.k((1, 2)),
            box.d.is_floating_point,
            x.clone(memory_format=box.f),
            torch.zeros(1, dtype=box.d),
            torch.finfo(box.d).eps if box.d.is_floating_point else 0,
        ),
        put(box, d=torch.float32),
        put(box, d=torch.int64),
        put(box, t=float),
        put(box, size=torch.Size([3, 2])),
        put(box, size=(6,)),
        put(box, k=tuple),
        put(box, k=set),
        put(box, f=torch.preserve_format),
        put(box, dev="cpu"),
        put(box, size=(-1, 1)),
    )
