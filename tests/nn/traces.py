"""Programs whose every step is noted: the same lines run with rushlight and with PyTorch. `traces.json` holds PyTorch's notes.

`python tests/nn/traces.py` writes the stored notes again (PyTorch must be installed).
"""

from __future__ import annotations

import copy
import json
import pathlib
import pickle
import warnings
from importlib import import_module
from typing import Any

CASES: dict[str, Any] = {}


class Notes:
    """What a program found: labels with values that JSON can hold."""

    def __init__(self, t: Any) -> None:
        self.t = t
        self.lines: list[Any] = []

    def __call__(self, label: str, value: Any) -> None:
        """Note a value, or what a function returns, raises and warns of."""
        said: list[str] = []
        if callable(value):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    value = value()
                except Exception as error:
                    value = f"{type(error).__name__}: {error}"
            said = [f"{w.category.__name__}: {w.message}" for w in caught]
        self.lines.append([label, self.plain(value), *said])

    def plain(self, value: Any) -> Any:
        """A value without the library's name in it; tensors by dtype, shape and rounded values."""
        if isinstance(value, self.t.Tensor):
            if self.t.nn.parameter.is_lazy(value):
                return repr(value)
            dtype, shape = str(value.dtype), list(value.shape)
            return (
                [dtype, shape, "meta"]
                if value.is_meta
                else [dtype, shape, [round(float(v), 5) for v in value.detach().reshape(-1).tolist()]]
            )
        if isinstance(value, dict):
            return {str(key): self.plain(v) for key, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.plain(v) for v in value]
        if value is None or isinstance(value, (bool, int, float)):
            return value
        return str(value).replace("rushlight", "torch")


def case(function: Any) -> Any:
    """A program that takes the library and a notebook."""
    CASES[function.__name__] = function
    return function


def run(t: Any, name: str) -> list[Any]:
    t.manual_seed(0)
    notes = Notes(t)
    CASES[name](t, notes)
    return notes.lines


def names(module: Any) -> list[Any]:
    """The names of everything that a module keeps."""
    return [
        list(module.state_dict()),
        [n for n, _ in module.named_parameters()],
        [n for n, _ in module.named_buffers()],
    ]


# ***** lazy modules *****


@case
def uninitialized(t: Any, note: Notes) -> None:
    param = t.nn.UninitializedParameter(dtype=t.float64)
    note("printed", lambda: repr(param))
    for what in ("shape", "dtype", "device", "data", "grad", "requires_grad", "is_leaf"):
        note(what, lambda what=what: getattr(param, what))
    note("moved", lambda: param.to(t.float32).dtype)
    note("shared", lambda: param.share_memory_())
    for what in ("clone", "numel", "detach", "zero_"):
        note(what, lambda what=what: str(getattr(param, what)()))
        note.lines[-1][1] = note.lines[-1][1].partition(" in <")[0]  # the function is printed differently
    note("copied", lambda: type(copy.deepcopy(param)).__name__)
    note("pickled", lambda: repr(pickle.loads(pickle.dumps(param))))
    param.materialize((2, 3))
    note("made", (type(param).__name__, list(param.shape), param.dtype, param.requires_grad))
    buffer = t.nn.UninitializedBuffer(persistent=False)
    note("buffer", (isinstance(buffer, t.nn.Buffer), isinstance(buffer, t.nn.Parameter), buffer.requires_grad))
    note("is lazy", (t.nn.parameter.is_lazy(buffer), t.nn.parameter.is_lazy(t.nn.Parameter())))


@case
def lazy_modules(t: Any, note: Notes) -> None:
    nn = t.nn
    layer = nn.LazyLinear(4)
    note(
        "new", lambda: (repr(layer), layer.state_dict(), layer.has_uninitialized_params(), layer.cls_to_become.__name__)
    )
    note("dtype", lambda: layer.to(t.float64).weight.dtype)
    layer.float()
    note("loaded", lambda: (layer.load_state_dict(nn.Linear(3, 4).state_dict()), layer, type(layer.weight).__name__))
    note("wrong input", lambda: layer(t.ones(2, 5)))
    note(
        "called",
        lambda: (
            layer(t.ones(2, 3)).shape,
            layer,
            type(layer).__name__,
            len(layer._forward_pre_hooks),
            len(layer._load_state_dict_pre_hooks),
        ),
    )
    note("lazy into lazy", lambda: nn.LazyLinear(4).load_state_dict(nn.LazyLinear(4).state_dict()))
    note("lazy into regular", lambda: nn.Linear(3, 4).load_state_dict(nn.LazyLinear(4).state_dict()))
    note("by keyword", lambda: nn.LazyLinear(2)(input=t.ones(1, 3)).shape)
    note("meta", lambda: nn.LazyLinear(2, device="meta")(t.ones(1, 3, device="meta")))
    note("dims", lambda: nn.LazyConv2d(4, 3)(t.ones(2, 3)))
    note("unbatched", lambda: nn.LazyConv2d(4, 3)(t.ones(2, 5, 5)).shape)
    note("groups", lambda: nn.LazyConv2d(4, 3, groups=3)(t.ones(1, 2, 5, 5)))
    note("norm", lambda: names(nn.LazyBatchNorm1d(affine=False)))
    net = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2))
    note("chain", lambda: (repr(net), net(t.ones(2, 5)), repr(net)))
    mixin = import_module(f"{nn.__name__}.modules.lazy").LazyModuleMixin

    class Own(mixin, nn.Module):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.UninitializedParameter()

        def forward(self, x: Any) -> Any:
            return x * self.w

    note("no initialize_parameters", lambda: Own()(t.ones(2)))
    Own.initialize_parameters = lambda self, x: None
    note("not made", lambda: Own()(t.ones(2)))
    Own.initialize_parameters = lambda self, x: self.w.materialize(x.shape)
    note("own", lambda: (Own()(t.ones(2)).shape, type(Own()).__name__))


# ***** parametrizations *****


def _parametrizations(t: Any) -> dict[str, Any]:
    def made(name: str, forward: Any, inverse: Any = None) -> Any:
        members = {"forward": forward} if inverse is None else {"forward": forward, "right_inverse": inverse}
        return type(name, (t.nn.Module,), members)

    def unable(self: Any, x: Any) -> Any:
        raise NotImplementedError

    return {
        "Symmetric": made("Symmetric", lambda self, x: x.triu() + x.triu(1).T, lambda self, x: x.triu()),
        "Double": made("Double", lambda self, x: 2 * x),
        "Product": made("Product", lambda self, a, b: a * b, lambda self, x: (x.abs(), x.sign())),
        "Shape": made("Shape", lambda self, x: x[:1]),
        "Dtype": made("Dtype", lambda self, x: x.double()),
        "InverseDtype": made("InverseDtype", lambda self, x: x, lambda self, x: x.double()),
        "InverseShape": made("InverseShape", lambda self, x: x, lambda self, x: x[:1]),
        "NoInverse": made("NoInverse", lambda self, x: x, unable),
        "NoTensor": made("NoTensor", lambda self, x: 3),
        "InverseNoTensor": made("InverseNoTensor", lambda self, x: x, lambda self, x: 3),
        "InverseSome": made("InverseSome", lambda self, *x: x[0], lambda self, x: [x, 3]),
    }


@case
def parametrized(t: Any, note: Notes) -> None:
    p, kinds = import_module(f"{t.nn.__name__}.utils.parametrize"), _parametrizations(t)
    layer = t.nn.Linear(3, 3)
    weight = layer.weight
    note("returns", p.register_parametrization(layer, "weight", kinds["Symmetric"]()) is layer)
    note("printed", lambda: repr(layer))
    note("names", names(layer))
    note(
        "class",
        (
            type(layer).__name__,
            p.type_before_parametrizations(layer).__name__,
            layer.parametrizations.weight.original is weight,
        ),
    )
    note("value", lambda: (weight, layer.weight))
    layer.weight = t.eye(3) * 2
    note("assigned", lambda: (weight, layer.weight))
    note("a parameter", lambda: setattr(layer, "weight", t.nn.Parameter(t.eye(3))))
    note("pickled", lambda: pickle.dumps(layer))
    twin = copy.deepcopy(layer)
    note("copied", (type(twin) is type(layer), twin.weight, twin.parametrizations.weight.original is weight))
    layer.weight.sum().backward()
    note("gradient", weight.grad)
    p.register_parametrization(layer, "weight", kinds["Double"]())
    note("two", lambda: (repr(layer), layer.weight))
    note("not invertible", lambda: setattr(layer, "weight", t.eye(3)))
    for name in ("Shape", "Dtype", "InverseDtype", "InverseShape", "NoTensor", "InverseNoTensor", "NoInverse"):
        note(f"second {name}", lambda name=name: p.register_parametrization(layer, "weight", kinds[name]()) is layer)
    for name in (
        "Shape",
        "Dtype",
        "InverseDtype",
        "InverseShape",
        "NoTensor",
        "InverseNoTensor",
        "NoInverse",
        "InverseSome",
    ):
        note(
            f"first {name}",
            lambda name=name: p.register_parametrization(t.nn.Linear(3, 3), "weight", kinds[name]()).weight.shape,
        )
    note(
        "unsafe",
        lambda: p.register_parametrization(t.nn.Linear(3, 3), "weight", kinds["Shape"](), unsafe=True).weight.shape,
    )
    note("no such name", lambda: p.register_parametrization(t.nn.Linear(3, 3), "nope", kinds["Double"]()))
    note("nothing", lambda: p.ParametrizationList([], t.ones(2)))
    note("is", [p.is_parametrized(layer), p.is_parametrized(layer, "bias"), p.is_parametrized(t.nn.Linear(1, 1))])
    p.remove_parametrizations(layer, "weight")
    note("removed", lambda: (repr(layer), layer.weight, layer.weight is weight, names(layer)))
    note("removed twice", lambda: p.remove_parametrizations(layer, "weight"))


@case
def parametrized_in_several(t: Any, note: Notes) -> None:
    p, kinds = import_module(f"{t.nn.__name__}.utils.parametrize"), _parametrizations(t)
    layer = p.register_parametrization(t.nn.Linear(2, 2), "weight", kinds["Product"]())
    note("names", names(layer))
    note("facts", (layer.parametrizations.weight.ntensors, layer.parametrizations.weight.is_tensor))
    layer.weight = t.ones(2, 2) * -3
    note(
        "assigned",
        lambda: (layer.weight, layer.parametrizations.weight.original0, layer.parametrizations.weight.original1),
    )
    note("another dtype", lambda: setattr(layer, "weight", t.ones(2, 2, dtype=t.float64)))
    other = t.nn.Linear(2, 2)
    note(
        "transferred",
        lambda: (p.transfer_parametrizations_and_params(layer, other) is other, other.weight, names(other)),
    )
    bare = t.nn.Module()
    symmetric = p.register_parametrization(t.nn.Linear(2, 2), "weight", kinds["Symmetric"]())
    note(
        "transferred to new",
        lambda: (repr(p.transfer_parametrizations_and_params(symmetric, bare, "weight")), names(bare)),
    )
    note(
        "nothing to transfer",
        lambda: repr(p.transfer_parametrizations_and_params(t.nn.Linear(1, 1), t.nn.Linear(1, 1))),
    )
    note("not parametrized", lambda: p.transfer_parametrizations_and_params(symmetric, t.nn.Linear(2, 2), "bias"))
    note("originals", lambda: p.remove_parametrizations(layer, "weight", leave_parametrized=False))
    note("removed", lambda: (repr(p.remove_parametrizations(layer, "weight")), layer.weight, names(layer)))
    double = p.register_parametrization(t.nn.Linear(2, 2), "weight", kinds["Double"]())
    p.register_parametrization(double, "bias", kinds["Double"]())
    original = double.parametrizations.weight.original
    note(
        "original again", lambda: (p.remove_parametrizations(double, "weight", False).weight is original, repr(double))
    )
    norm = p.register_parametrization(t.nn.BatchNorm1d(2), "running_mean", kinds["Double"]())
    note("a buffer", lambda: (repr(norm), names(norm)))
    with p.cached():
        note("cached", symmetric.weight is symmetric.weight)
    note("not cached", symmetric.weight is symmetric.weight)
    note("plain state", lambda: t.nn.Linear(2, 2).load_state_dict(symmetric.state_dict()))
    note("converted", lambda: (symmetric.double().weight.dtype, symmetric.parametrizations.weight.original.dtype))
    lstm = p.register_parametrization(t.nn.LSTM(2, 3), "weight_hh_l0", kinds["Double"]())
    note("lstm", lambda: (repr(lstm), lstm(t.ones(4, 1, 2))[0].shape))


@case
def orthogonal(t: Any, note: Notes) -> None:
    z = import_module(f"{t.nn.__name__}.utils.parametrizations")
    for kind in ("matrix_exp", "cayley", "householder"):
        for base in (True, False):
            for rows, cols in ((3, 3), (4, 2), (2, 3)):

                def made(kind: str = kind, base: bool = base, rows: int = rows, cols: int = cols) -> Any:
                    t.manual_seed(1)
                    layer = z.orthogonal(t.nn.Linear(cols, rows), "weight", kind, use_trivialization=base)
                    start = layer.weight.clone()
                    (layer.weight * t.arange(rows * cols).reshape(rows, cols)).sum().backward()
                    return (
                        start,
                        layer.parametrizations.weight.original.grad,
                        list(layer.state_dict()),
                        t.rand(1),
                        layer,
                    )

                def assigned(made: Any = made, rows: int = rows, cols: int = cols) -> Any:
                    layer = made()[-1]
                    layer.weight = t.linspace(-1, 2, rows * cols).reshape(rows, cols).sin()
                    return layer.weight

                note(f"{kind} {base} {rows}x{cols}", made)
                note("assigned", assigned)
    note("a vector", lambda: z.orthogonal(t.nn.Linear(3, 3), "bias"))
    note("no map", lambda: z.orthogonal(t.nn.Linear(3, 3), "weight", "polar"))
    note("no name", lambda: z.orthogonal(t.nn.Linear(3, 3), "nope"))
    note("a shape", lambda: setattr(z.orthogonal(t.nn.Linear(3, 3)), "weight", t.ones(2, 2)))


@case
def normalised_weights(t: Any, note: Notes) -> None:
    z, u = import_module(f"{t.nn.__name__}.utils.parametrizations"), t.nn.utils
    for dim in (0, 2, -1, None):
        layer = z.weight_norm(t.nn.Conv1d(2, 3, 2), "weight", dim)
        layer(t.ones(1, 2, 3)).sum().backward()
        note(f"weight norm {dim}", (layer.weight, names(layer), [p.grad for p in layer.parameters()]))
    old = t.nn.Linear(2, 3)
    weight = old.weight.detach().clone()
    note("old form", lambda: repr(u.weight_norm(old, dim=1)))
    note("its names", lambda: (names(old), type(old.weight).__name__, bool(t.allclose(old.weight, weight))))
    note("twice", lambda: u.weight_norm(old))
    note("copied", lambda: copy.deepcopy(old))
    new = z.weight_norm(t.nn.Linear(2, 3), dim=1)
    note("old state into new", lambda: (new.load_state_dict(old.state_dict()), bool(t.allclose(new.weight, weight))))
    with t.no_grad():
        old.weight_g.mul_(2)
        note("doubled", lambda: bool(t.allclose(old(t.ones(1, 2)) - old.bias, (weight.sum(1) * 2))))
    note("pickled", lambda: bool((pickle.loads(pickle.dumps(old))(t.ones(1, 2)) == old(t.ones(1, 2))).all()))
    note(
        "removed",
        lambda: (
            repr(u.remove_weight_norm(old)),
            names(old),
            bool(t.allclose(old.weight, weight * 2)),
            len(old._forward_pre_hooks),
        ),
    )
    note("removed twice", lambda: u.remove_weight_norm(old))
    note("lazy", lambda: u.weight_norm(t.nn.LazyLinear(2)))


@case
def spectral_norms(t: Any, note: Notes) -> None:
    z, u = import_module(f"{t.nn.__name__}.utils.parametrizations"), t.nn.utils
    x = t.linspace(-1, 1, 6).reshape(1, 2, 3)
    for made in (z.spectral_norm, u.spectral_norm):
        layer = made(t.nn.ConvTranspose1d(2, 3, 2), n_power_iterations=2)
        note("names", (names(layer), dict(layer.state_dict()._metadata)))
        out = layer(x)
        out.sum().backward()
        note("called", (out, [p.grad for p in layer.parameters()], list(layer.buffers())))
        layer.eval()
        note("evaluation", (layer(x), bool((layer(x) == layer(x)).all())))
        note("iterations", lambda made=made: made(t.nn.Linear(3, 2), n_power_iterations=0))
    note("a vector", lambda: z.spectral_norm(t.nn.Linear(3, 2), "bias").bias.norm())
    note("dim", lambda: z.spectral_norm(t.nn.Linear(3, 2), dim=5))
    note("no name", lambda: z.spectral_norm(t.nn.Linear(3, 2), "nope"))
    note("no parameter", lambda: u.spectral_norm(t.nn.Linear(3, 2, bias=False), "bias"))
    note("twice", lambda: u.spectral_norm(layer))
    note("loaded", lambda: u.spectral_norm(t.nn.ConvTranspose1d(2, 3, 2)).load_state_dict(layer.state_dict()))
    older = dict(layer.state_dict(), weight=layer.weight.detach())
    del older["weight_v"]
    other = u.spectral_norm(t.nn.ConvTranspose1d(2, 3, 2)).eval()
    note("an old state", lambda: (other.load_state_dict(older), bool(t.allclose(other(x), layer(x), atol=1e-4))))
    del older["weight_u"]
    note("an incomplete one", lambda: other.load_state_dict(older))
    with t.no_grad():
        note("pickled", lambda: bool((pickle.loads(pickle.dumps(layer))(x) == layer(x)).all()))
    note(
        "removed",
        lambda: (
            repr(u.remove_spectral_norm(layer)),
            names(layer),
            len(layer._forward_pre_hooks),
            len(layer._state_dict_hooks),
        ),
    )
    note("removed twice", lambda: u.remove_spectral_norm(layer))


# ***** pruning *****


@case
def pruning_once(t: Any, note: Notes) -> None:
    p = import_module(f"{t.nn.__name__}.utils.prune")
    x = t.linspace(-1, 1, 8).reshape(1, 2, 2, 2)
    ways = {
        "identity": lambda m: p.identity(m, "weight"),
        "random": lambda m: p.random_unstructured(m, "weight", 0.3),
        "random none": lambda m: p.random_unstructured(m, "weight", 0),
        "l1": lambda m: p.l1_unstructured(m, "weight", 0.4),
        "l1 by scores": lambda m: p.l1_unstructured(m, "weight", 5, importance_scores=m.weight.cos()),
        "random structured": lambda m: p.random_structured(m, "weight", 2, 0),
        "random structured last": lambda m: p.random_structured(m, "weight", 0.5, -1),
        "ln": lambda m: p.ln_structured(m, "weight", 2, 2, 0),
        "ln infinite": lambda m: p.ln_structured(m, "weight", 0.5, float("inf"), 1),
        "mask": lambda m: p.custom_from_mask(m, "weight", m.weight > 0),
        "bias": lambda m: p.l1_unstructured(m, "bias", 2),
    }
    for label, way in ways.items():
        t.manual_seed(2)
        layer = t.nn.Conv2d(2, 4, 2)
        name = "bias" if label == "bias" else "weight"
        param = getattr(layer, name)
        note(label, (way(layer) is layer, names(layer), p.is_pruned(layer), t.rand(1)))
        note("mask", (getattr(layer, name + "_mask"), type(next(iter(layer._forward_pre_hooks.values()))).__name__))
        out = layer(x)
        out.sum().backward()
        note("called", (out, getattr(layer, name + "_orig").grad))
        note("pickled", lambda layer=layer, out=out: bool((pickle.loads(pickle.dumps(layer))(x) == out).all()))
        note("removed", lambda layer=layer, name=name: names(p.remove(layer, name)))
        note("parameter", (getattr(layer, name) is param, param, p.is_pruned(layer)))
        note("removed twice", lambda layer=layer, name=name: p.remove(layer, name))


@case
def pruning_again(t: Any, note: Notes) -> None:
    p = import_module(f"{t.nn.__name__}.utils.prune")
    layer = t.nn.Conv2d(2, 4, 2)
    for again in (
        lambda: p.l1_unstructured(layer, "weight", 4),
        lambda: p.l1_unstructured(layer, "weight", 0.5),
        lambda: p.random_unstructured(layer, "weight", 2),
        lambda: p.ln_structured(layer, "weight", 1, 2, 0),
        lambda: p.random_structured(layer, "weight", 1, 1),
        lambda: p.custom_from_mask(layer, "weight", t.ones_like(layer.weight)),
    ):
        again()
        hooks = list(layer._forward_pre_hooks.values())
        chain = [type(m).__name__ for m in hooks[0]] if isinstance(hooks[0], p.PruningContainer) else []
        note("mask", (layer.weight_mask, len(hooks), type(hooks[0]).__name__, chain))
    chain = hooks[0]
    note("chain", (len(chain), type(chain[-1]).__name__, chain._tensor_name))
    note("no method", lambda: chain.add_pruning_method(3))
    for amount in (-1, 1.5, "x", 100, -0.1, None):
        note(f"amount {amount}", lambda amount=amount: p.l1_unstructured(t.nn.Linear(2, 2), "weight", amount))
    note("one dim", lambda: p.random_structured(t.nn.Linear(2, 2), "bias", 1, 0))
    note("no dim", lambda: p.ln_structured(t.nn.Linear(2, 2), "weight", 1, 2, 7))
    note("restored", lambda: names(layer))
    net = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.ReLU(), t.nn.Linear(4, 2))
    both = [(net[0], "weight"), (net[2], "weight")]
    for options in (
        {"pruning_method": p.L1Unstructured, "amount": 0.3},
        {"pruning_method": p.RandomUnstructured, "amount": 5},
    ):
        note("global", lambda options=options: p.global_unstructured(both, **options))
        note("masks", (net[0].weight_mask, net[2].weight_mask))
    scores = {(net[0], "bias"): t.arange(4.0)}
    p.global_unstructured([(net[0], "bias"), (net[2], "bias")], p.L1Unstructured, importance_scores=scores, amount=3)
    note("by scores", (net[0].bias_mask, net[2].bias_mask, p.is_pruned(net)))
    note("no iterable", lambda: p.global_unstructured(3, p.L1Unstructured, amount=1))
    note("structured", lambda: p.global_unstructured(both, p.LnStructured, amount=1, n=2))
    note("no scores", lambda: p.global_unstructured(both, p.L1Unstructured, importance_scores=3, amount=1))
    values = t.tensor([[1.0, -2.0, 3.0], [0.25, 5.0, -0.5]])
    note("a tensor", (p.L1Unstructured(2).prune(values), p.LnStructured(1, 2, 0).prune(values)))
    note("with a mask", p.L1Unstructured(2).prune(values, default_mask=(values != 3).float()))

    class Odd(p.BasePruningMethod):  # type: ignore[misc, name-defined]
        PRUNING_TYPE = "odd"

        def compute_mask(self, t: Any, default_mask: Any) -> Any:
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    other = t.nn.Linear(2, 3)
    note("own", lambda: Odd.apply(other, "weight").apply_mask(other))
    note("unknown type", lambda: Odd.apply(other, "weight"))
    note("abstract", lambda: sorted(p.BasePruningMethod.__abstractmethods__))


# ***** hooks and state dicts *****


@case
def hooks_in_order(t: Any, note: Notes) -> None:
    nn, page = t.nn, import_module(f"{t.nn.__name__}.modules.module")
    seen: list[Any] = []

    def named(label: str) -> Any:
        return lambda *args, **kwargs: seen.append([label, [type(a).__name__ for a in args]])

    def show(label: str) -> None:
        note(label, list(seen))
        seen.clear()

    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    handles = [
        page.register_module_forward_pre_hook(named("global pre")),
        page.register_module_forward_hook(named("global")),
        page.register_module_forward_hook(named("global, keywords"), with_kwargs=True),
        page.register_module_full_backward_pre_hook(named("global backward pre")),
        page.register_module_full_backward_hook(named("global backward")),
        net.register_forward_pre_hook(named("pre 1")),
        net.register_forward_pre_hook(named("pre 0"), prepend=True),
        net.register_forward_pre_hook(named("pre, keywords"), with_kwargs=True),
        net.register_forward_hook(named("after 1")),
        net.register_forward_hook(named("after 0"), prepend=True),
        net.register_forward_hook(named("after, keywords"), with_kwargs=True),
        net.register_forward_hook(named("after, always"), always_call=True),
        net.register_full_backward_pre_hook(named("backward pre 1")),
        net.register_full_backward_pre_hook(named("backward pre 0"), prepend=True),
        net.register_full_backward_hook(named("backward 1")),
        net.register_full_backward_hook(named("backward 0"), prepend=True),
        net[0].register_full_backward_hook(named("backward of a layer")),
    ]
    out = net(t.ones(1, 2, requires_grad=True))
    show("forward")
    out.sum().backward()
    show("backward")
    out = net(t.ones(1, 2))
    seen.clear()
    note("no gradient at the input", lambda: out.sum().backward())
    show("backward")
    with t.no_grad():
        net(t.ones(1, 2))
    show("no grad")
    for handle in handles:
        handle.remove()
    net(t.ones(1, 2)).sum().backward()
    show("removed")

    class Failing(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("no")

    failing = Failing()
    failing.register_forward_hook(named("always"), always_call=True)
    failing.register_forward_hook(named("else"))
    note("failing", lambda: failing(1))
    show("called")

    def wrong(*args: Any) -> Any:
        raise RuntimeError("wrong hook")

    failing.register_forward_hook(wrong, always_call=True)
    note("failing hook", lambda: failing(1))
    show("called")


@case
def backward_hooks(t: Any, note: Notes) -> None:
    nn = t.nn

    class Made(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, function: Any) -> None:
            super().__init__()
            self.function = function

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.function(*args, **kwargs)

    seen: list[Any] = []
    a, b = t.ones(2, requires_grad=True), t.ones(3, requires_grad=True)
    for label, function, args in (
        ("one of two", lambda a, b: a * 2, (a, b)),
        ("whole numbers", lambda a, b: a * 2, (a, t.arange(3))),
        ("no tensor", lambda a, b: a * 2, (a, 3)),
        ("two results", lambda a, b: (a * 2, b * 3), (a, b)),
        ("not only tensors", lambda a, b: (a * 2, 5, b + 1), (a, b)),
        ("a list", lambda a: [a * 2, a + 1], (a,)),
        ("a dictionary", lambda a: {"a": a * 2}, (a,)),
    ):
        module = Made(function)
        module.register_full_backward_hook(lambda m, grad_in, grad_out: seen.append((grad_in, grad_out)))
        module.register_full_backward_pre_hook(lambda m, grad_out: seen.append(grad_out))

        def through(module: Any = module, args: Any = args) -> Any:
            out = module(*args)
            first = out if isinstance(out, t.Tensor) else next(iter(out.values())) if isinstance(out, dict) else out[0]
            first.sum().backward()
            return list(seen)

        note(label, through)
        seen.clear()
    for label, function, args in (
        ("a list", lambda a: [a * 2], (a,)),
        ("mixed", lambda a: (a * 2, 3), (a,)),
        ("a number", lambda a, k: a * 2, (a, 3)),
        ("several nodes", lambda a: a * 2 * 3, (a,)),
        ("two nodes", lambda a: (a * 2, a * 3), (a,)),
        ("none", lambda a: a.detach(), (a,)),
        ("one node", lambda a: a * 2, (a * 1,)),
    ):
        module = Made(function)
        module.register_backward_hook(lambda *args: None)
        note(f"old: {label}", lambda module=module, args=args: (module(*args), None)[1])
    for label, kind, given in (
        ("scaled", "full_backward_hook", lambda m, grad_in, grad_out: (grad_in[0] * 10,)),
        ("scaled before", "full_backward_pre_hook", lambda m, grad_out: (grad_out[0] * 10,)),
        ("too many", "full_backward_hook", lambda m, grad_in, grad_out: (1, 2)),
        ("too many before", "full_backward_pre_hook", lambda m, grad_out: (1, 2)),
    ):
        module = Made(lambda x: x * 3)
        getattr(module, f"register_{kind}")(given)
        x = t.ones(2, requires_grad=True)
        note(label, lambda module=module, x=x: (module(x).sum().backward(), x.grad))
    module = nn.Linear(1, 1)
    module.register_full_backward_hook(lambda *args: None)
    note("mixed kinds", lambda: module.register_backward_hook(lambda *args: None))


@case
def state_dicts(t: Any, note: Notes) -> None:
    nn = t.nn
    seen: list[Any] = []

    def made() -> Any:
        t.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))

    def show(label: str) -> None:
        note(label, list(seen))
        seen.clear()

    net = made()
    net.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(["before", prefix, keep]))
    net[0].register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(["before, inside", prefix, keep]))
    net.register_state_dict_post_hook(lambda m, state, prefix, meta: seen.append(["after", list(state), prefix, meta]))
    net.register_load_state_dict_pre_hook(
        lambda m, state, prefix, meta, strict, *lists: seen.append(
            ["load", type(m).__name__, prefix, dict(meta), strict, lists]
        )
    )
    net[1].register_load_state_dict_pre_hook(
        lambda m, state, prefix, *rest: seen.append(["load, inside", list(state), prefix])
    )
    net.register_load_state_dict_post_hook(lambda m, keys: seen.append(["loaded", repr(keys)]))
    state = net.state_dict()
    show("writing")
    note("reading", lambda: net.load_state_dict(state))
    show("hooks")
    net.register_state_dict_post_hook(lambda *args: 3)
    note("a result", lambda: net.state_dict())
    other = made()
    other.register_load_state_dict_post_hook(lambda m, keys: 3)
    note("a result of loading", lambda: other.load_state_dict(other.state_dict()))
    net = made()
    full = net.state_dict()
    net.register_load_state_dict_post_hook(
        lambda m, keys: keys.missing_keys.remove("0.bias") if "0.bias" in keys.missing_keys else None
    )
    note("forgiven", lambda: net.load_state_dict({k: v for k, v in full.items() if k != "0.bias"}))
    for label, change in (
        ("missing", {"0.weight": None}),
        ("unexpected", {"z": t.ones(1), "0.q.r": t.ones(1)}),
        ("sizes", {"0.weight": t.ones(1), "1.bias": t.ones(2, 2)}),
        ("no tensor", {"0.bias": 3}),
    ):
        changed = {k: v for k, v in {**full, **change}.items() if v is not None}
        for strict in (True, False):
            note(
                f"{label}, strict {strict}",
                lambda changed=changed, strict=strict: made().load_state_dict(changed, strict=strict),
            )
    note("no dictionary", lambda: net.load_state_dict([1]))
    doubled = {k: v.double() for k, v in full.items()}
    note("another dtype", lambda: (net.load_state_dict(doubled), net[0].weight.dtype))
    note(
        "assigned",
        lambda: (
            net.load_state_dict(doubled, assign=True),
            net[0].weight.dtype,
            type(net[0].weight).__name__,
            net[0].weight.requires_grad,
        ),
    )
    on_meta = nn.Linear(2, 2, device="meta")
    note("onto meta", lambda: on_meta.load_state_dict(nn.Linear(2, 2).state_dict()))
    note(
        "assigned onto meta",
        lambda: (on_meta.load_state_dict(nn.Linear(2, 2).state_dict(), assign=True), on_meta.weight.device.type),
    )
    note("kept", lambda: [type(v).__name__ for v in made().state_dict(keep_vars=True).values()])
    note("prefix", lambda: list(made().state_dict(prefix="a.")))
    note("positional", lambda: list(made().state_dict({}, "p.")))

    class Extra(nn.Module):
        value = 1

        def get_extra_state(self) -> Any:
            return {"value": self.value}

        def set_extra_state(self, state: Any) -> None:
            self.value = state["value"]

    one, two = Extra(), Extra()
    one.value = 5
    note("extra", lambda: (one.state_dict(), two.load_state_dict(one.state_dict()), two.value))
    note("no extra", lambda: two.load_state_dict({}))
    note("unexpected extra", lambda: nn.Module().load_state_dict(one.state_dict()))
    for name in ("0", "9", "0.weight", ""):
        note(f"submodule {name}", lambda name=name: type(net.get_submodule(name)).__name__)
    for name in ("0.weight", "0.zz", "0", "1.running_mean"):
        note(f"parameter {name}", lambda name=name: net.get_parameter(name).shape)
        note(f"buffer {name}", lambda name=name: net.get_buffer(name).shape)
    for name, value, strict in (
        ("1", nn.Tanh(), False),
        ("", nn.Tanh(), False),
        ("0.w.z", nn.Tanh(), False),
        ("7", nn.Tanh(), True),
        ("1", 3, False),
    ):
        note(f"set {name}", lambda name=name, value=value, strict=strict: net.set_submodule(name, value, strict=strict))
    note("set", lambda: repr(net))


# ***** sequences, fusion, and the rest *****


@case
def packed(t: Any, note: Notes) -> None:
    r = import_module(f"{t.nn.__name__}.utils.rnn")
    made = r.pack_sequence([t.ones(2, 2), t.ones(3, 2) * 2], enforce_sorted=False)
    for name in ("double", "float", "half", "long", "int", "short", "char", "byte", "cpu"):
        note(name, getattr(made, name)())
    note("itself", (made.float() is made, made.cpu() is made, made.to("cpu") is made, made.is_cuda, made.is_pinned()))
    note("moved", lambda: (made.to("meta"), made.cpu(dtype=t.float64), made.to(t.float64)))
    note("pickled", lambda: pickle.loads(pickle.dumps(made)))
    note("padded", lambda: r.pad_packed_sequence(made, batch_first=True, padding_value=-1, total_length=4))
    note("too short", lambda: r.pad_packed_sequence(made, total_length=2))
    note("unpacked", lambda: r.unpack_sequence(made))
    for lengths in ([1, 2], [3, 0], [3]):
        note(f"lengths {lengths}", lambda lengths=lengths: r.pack_padded_sequence(t.ones(3, 2), lengths))
    note("inverted", (r.invert_permutation(t.tensor([2, 0, 1])), r.invert_permutation(None)))


@case
def fused_and_skipped(t: Any, note: Notes) -> None:
    nn, u = t.nn, t.nn.utils
    for conv, norm, transpose in (
        (nn.Conv2d(2, 3, 2, bias=False), nn.BatchNorm2d(3), False),
        (nn.ConvTranspose2d(2, 3, 2), nn.BatchNorm2d(3), True),
        (nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3, affine=False), False),
        (nn.Linear(2, 3), nn.BatchNorm1d(3), None),
    ):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        conv.eval(), norm.eval()
        fused = u.fuse_linear_bn_eval(conv, norm) if transpose is None else u.fuse_conv_bn_eval(conv, norm, transpose)
        note("fused", (repr(fused), fused.weight, fused.bias, fused.weight.requires_grad, type(fused.bias).__name__))
    note("training", lambda: u.fuse_conv_bn_eval(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)))
    note("features", lambda: u.fuse_linear_bn_eval(nn.Linear(3, 2).eval(), nn.BatchNorm1d(3).eval()))
    note(
        "no statistics",
        lambda: u.fuse_conv_bn_eval(nn.Conv2d(1, 1, 1).eval(), nn.BatchNorm2d(1, track_running_stats=False).eval()),
    )
    note("skipped", lambda: (u.skip_init(nn.Linear, 3, 4, dtype=t.float64).weight.dtype, t.rand(1)))
    note("no device", lambda: u.skip_init(nn.ReLU))
    note("no module", lambda: u.skip_init(int))
    layer = nn.Linear(2, 1, bias=False)
    note(
        "stateless",
        lambda: import_module(f"{nn.__name__}.utils.stateless").functional_call(
            layer, {"weight": t.ones(1, 2)}, (t.ones(1, 2),)
        ),
    )
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.ConvTranspose2d(3, 2, 2), nn.Conv3d(2, 3, 2), nn.Linear(2, 3))
    u.convert_conv2d_weight_memory_format(net, t.channels_last)
    note("strides", [m.weight.stride() for m in net])
    u.convert_conv3d_weight_memory_format(net, t.channels_last_3d)
    note("strides in 3d", [m.weight.stride() for m in net])


@case
def small_pages(t: Any, note: Notes) -> None:
    nn = t.nn
    gradients, tuples, reduction = (
        import_module(f"{nn.__name__}.{page}") for page in ("grad", "modules.utils", "_reduction")
    )
    for n, shape, size in (
        (1, (2, 4, 7), (6, 2, 3)),
        (2, (2, 4, 6, 5), (6, 2, 3, 2)),
        (3, (1, 2, 3, 3, 4), (4, 1, 2, 2, 2)),
    ):
        x, weight = (t.arange(float(t.Size(s).numel())).reshape(s).sin() for s in (shape, size))
        out = getattr(nn.functional, f"conv{n}d")(x, weight, stride=2, padding=1, groups=2)
        wave = t.arange(out.numel(), dtype=out.dtype).reshape(out.shape).cos()
        note(f"input {n}", getattr(gradients, f"conv{n}d_input")(shape, weight, wave, stride=2, padding=1, groups=2))
        note(f"weight {n}", getattr(gradients, f"conv{n}d_weight")(x, size, wave, 2, 1, 1, 2))
    note(
        "tuples",
        (
            tuples._pair(3),
            tuples._pair([1, 2]),
            tuples._single(1),
            tuples._triple("ab"),
            tuples._quadruple(2),
            tuples._ntuple(2)(5),
        ),
    )
    note("defaults", (tuples._list_with_default([None, 3], [5, 6, 7]), tuples._list_with_default(3, [5, 6])))
    note("too many", lambda: tuples._list_with_default([1, 2], [3]))
    state = nn.Sequential(nn.Sequential(nn.Linear(1, 1))).state_dict()
    tuples.consume_prefix_in_state_dict_if_present(state, "0.")
    note("prefix", (list(state), dict(state._metadata)))
    for name in ("none", "mean", "sum", "elementwise_mean", "product"):
        note(name, lambda name=name: reduction.get_enum(name))
    for size_average in (None, True, False):
        for reduce in (None, True, False):
            note(f"{size_average} {reduce}", lambda a=size_average, b=reduce: reduction.legacy_get_string(a, b))


@case
def wrong_arguments(t: Any, note: Notes) -> None:
    nn, f = t.nn, t.nn.functional
    for kind in ("RNNCell", "GRUCell", "LSTMCell"):
        cell = getattr(nn, kind)(2, 3)
        for x, h in (
            ((4, 2), (3, 3)),
            ((4, 2), (4, 1)),
            ((2,), (3,)),
            ((2,), (4,)),
            ((4, 5), (4, 3)),
            ((1, 4, 2), (4, 3)),
            ((4, 2), (1, 1, 4, 3)),
        ):
            state = t.zeros(h)
            note(
                f"{kind} {x} {h}",
                lambda c=cell, x=x, s=state, pair=kind == "LSTMCell": (
                    t.stack([*c(t.ones(x), (s, s) if pair else s)]).shape
                ),
            )
            note.lines[-1][1] = note.lines[-1][1] if isinstance(note.lines[-1][1], str) else "fine"
    for training, eps in ((True, 0.0), (True, -1.0), (False, 0.0), (False, -1.0)):
        note(
            f"eps {eps} {training}",
            lambda a=training, e=eps: f.batch_norm(t.ones(2, 1), t.zeros(1), t.ones(1), training=a, eps=e),
        )
    for ignored in (-1, 0):
        note(f"ignored {ignored}", lambda i=ignored: f.cross_entropy(t.ones(1, 2), t.ones(1, 2) / 2, ignore_index=i))
    note("smoothing", lambda: nn.LinearCrossEntropyLoss(3, 2, label_smoothing=2.0))
    lstm = nn.LSTM(2, 3, proj_size=1)
    for x, h, c in (
        ((4, 1, 2), (1, 1, 3), (1, 1, 3)),
        ((4, 1, 2), (1, 1, 1), (1, 1, 1)),
        ((4, 1, 5), (1, 1, 1), (1, 1, 3)),
        ((4, 2), (1, 1, 1), (1, 1, 3)),
    ):
        note(f"lstm {x} {h} {c}", lambda x=x, h=h, c=c: lstm(t.ones(x), (t.ones(h), t.ones(c))))
    note(
        "sizes",
        lambda: (
            lstm.get_expected_hidden_size(t.ones(4, 5, 2), None),
            lstm.get_expected_cell_size(t.ones(7, 2), t.tensor([3, 2])),
        ),
    )
    note(
        "order",
        lambda: lstm.permute_hidden((t.arange(2.0).reshape(1, 2, 1), t.arange(4.0).reshape(1, 2, 2)), t.tensor([1, 0])),
    )
    for module in (nn.Linear(1, 1),):
        for given in ((t.int64,), (t.float32, "cpu")):
            note(f"to {given}", lambda m=module, g=given: m.to(*g))
            note.lines[-1][1] = str(note.lines[-1][1]).partition(" - got")[0]


if __name__ == "__main__":
    import torch

    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(run(torch, name))}" for name in CASES)
    pathlib.Path(__file__).with_name("traces.json").write_text("{\n" + text + "\n}\n")
