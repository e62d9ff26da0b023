"""Function modes and names of functions: what a mode is shown, as PyTorch shows it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight import overrides


def shown(program: Callable[[], Any]) -> list[str | None]:
    seen: list[str | None] = []

    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(overrides.resolve_name(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        program()
    return seen


X = torch.arange(4.0)


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (lambda: torch.ones(2), ["torch.ones"]), (lambda: torch.empty((2, 3), dtype=torch.int8), ["torch.empty"]),
        (lambda: torch.tensor([1.0]), ["torch.tensor"]), (lambda: torch.as_tensor(X), ["torch.as_tensor"]),
        (lambda: torch.from_numpy(np.ones(2)), ["torch.from_numpy"]), (lambda: torch.randn(2), ["torch.randn"]), (lambda: torch.rand(2), ["torch.rand"]),
        (lambda: torch.randint(3, (2,)), ["torch.randint"]), (lambda: torch.randperm(3), ["torch.randperm"]), (lambda: torch.full((2,), 1.0), ["torch.full"]),
        (lambda: torch.arange(3), ["torch.arange"]), (lambda: X.exp().sum(), ["torch.Tensor.exp", "torch.Tensor.sum"]),
        (lambda: torch.exp(X), ["torch.exp"]), (lambda: X + 1, ["torch.add"]), (lambda: X[0], ["torch.Tensor.__getitem__"]),
        (lambda: torch.cat([X, X]), ["torch.cat"]), (lambda: X.clone().add_(1), ["torch.clone", "torch.Tensor.add_"]),
        (lambda: X.shape, ["torch.Tensor.shape.__get__"]), (lambda: X.is_leaf, ["torch.Tensor.is_leaf.__get__"]),
        (lambda: torch.ones(2, 2).T, ["torch.ones", "torch.Tensor.T.__get__"]), (lambda: torch.ones(2, 2).mH, ["torch.ones", "torch.Tensor.mH.__get__"]),
        (lambda: X.grad, ["torch.Tensor.grad.__get__"]), (lambda: setattr(X, "grad", None), ["torch.Tensor.grad.__set__"]),
        (lambda: setattr(X, "requires_grad", False), ["torch.Tensor.requires_grad.__set__"]), (lambda: X.real, ["torch.Tensor.real.__get__"]),
        (lambda: repr(X), ["torch.Tensor.__repr__"]), (lambda: f"{X}", ["torch.Tensor.__format__"]), (lambda: len(X), ["torch.Tensor.__len__"]),
        (lambda: X.numpy(), ["torch.Tensor.numpy"]), (lambda: np.asarray(X), ["torch.Tensor.__array__"]), (lambda: X.tolist(), ["torch.Tensor.tolist"]),
        (lambda: X.dim(), ["torch.Tensor.dim"]), (lambda: copy.deepcopy(X), ["torch.Tensor.__deepcopy__"]),
        (lambda: torch.ones(2, requires_grad=True).sum().backward(), ["torch.ones", "torch.Tensor.sum", "torch.Tensor.backward"]),
        (lambda: torch.linalg.norm(X), ["torch.linalg.norm"]), (lambda: torch.ones(2).relu(), ["torch.ones", "torch.Tensor.relu"]),
    ],
)  # fmt: skip
def test_what_a_mode_is_shown(program: Callable[[], Any], names: list[str]) -> None:
    assert shown(program) == names
    assert shown(program) == names  # also where a plan is known already


def test_properties_are_themselves_again_without_a_mode() -> None:
    before = {name: torch.Tensor.__dict__[name] for name in ("shape", "T", "numpy", "__repr__")}
    getter = torch.Tensor.T.__get__
    assert X.reshape(2, 2).T.shape == (2, 2)  # the first reading
    seen: list[Any] = []

    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return "shape" if func == torch.Tensor.shape.__get__ else func(*args, **(kwargs or {}))

    x = torch.ones(2, 2)
    with Mode(), Mode():
        assert x.shape == "shape" and torch.Tensor.shape.__get__ == before["shape"].__get__
        assert x.T.sum() == 4.0 and seen[1] == seen[2] == getter  # the inner mode's, and the outer one's
        with torch._C.DisableTorchFunctionSubclass():
            assert torch.Tensor.numpy is before["numpy"]
    assert x.shape == (2, 2) and all(torch.Tensor.__dict__[name] is value for name, value in before.items())


def test_properties_of_a_subclass_with_a_say() -> None:
    seen: list[str | None] = []

    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(overrides.resolve_name(func))
            return super().__torch_function__(func, types, args, kwargs)

    x = X.clone().as_subclass(Sub)
    _ = x.shape, repr(x), x.grad, x.numpy(), np.asarray(x), x.is_leaf
    x.requires_grad = False
    x.grad = None
    names = [
        "shape.__get__",
        "__repr__",
        "grad.__get__",
        "numpy",
        "__array__",
        "is_leaf.__get__",
        "requires_grad.__set__",
        "grad.__set__",
    ]
    assert [n for n in seen if n] == [f"torch.Tensor.{n}" for n in names]


def test_a_mode_that_changes_what_factories_make() -> None:
    class Double(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if func in (torch.ones, torch.tensor, torch.randn):
                kwargs.setdefault("dtype", torch.float64)
            return func(*args, **kwargs)

    with Double():
        assert torch.ones(2).dtype is torch.tensor([1]).dtype is torch.randn(2).dtype is torch.float64
        assert torch.ones(2, dtype=torch.int8).dtype is torch.int8 and torch.zeros(2).dtype is torch.float32
        assert torch.nn.Linear(2, 2).weight.dtype is torch.float32
    assert torch.ones(2).dtype is torch.float32


def test_names() -> None:
    assert (
        overrides.resolve_name(torch.add) == "torch.add"
        and overrides.resolve_name(torch.nn.functional.relu) == "torch.nn.functional.relu"
    )
    assert (
        overrides.resolve_name(torch.Tensor.__add__) == "torch.Tensor.__add__" and overrides.resolve_name(len) is None
    )
    assert overrides.resolve_name(torch.Tensor.shape.__get__) == "torch.Tensor.shape.__get__"
    assert overrides.is_tensor_method_or_property(torch.Tensor.__add__) and not overrides.is_tensor_method_or_property(
        torch.cat
    )


# ***** subclasses with a __new__ of their own *****


class Named(torch.Tensor):
    @staticmethod
    def __new__(cls, x, name, *args, **kwargs):
        return super().__new__(cls, x, *args, **kwargs)

    def __init__(self, x, name) -> None:
        self.name_of = name


@pytest.mark.parametrize("given", [[1.0, 2.0], (1.0, 2.0), torch.tensor([1.0, 2.0])])
def test_new_of_a_subclass_hands_on_to_the_constructor(given: Any) -> None:
    made = Named(given, "a")
    assert type(made) is Named and made.name_of == "a" and made.tolist() == [1.0, 2.0] and type(made + 1) is Named
    assert type(torch.Tensor.__new__(Named, 2, 3)) is Named and torch.Tensor.__new__(torch.Tensor, 2, 3).shape == (2, 3)


# ***** arguments as PyTorch shows them: what its Python functions require by place, everything else by name *****


class Shown:
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return overrides.resolve_name(func), len(args), kwargs or {}


F = torch.nn.functional
S = Shown()


def test_a_function_of_two_pages_has_one_home(run_python: Callable[..., Any]) -> None:
    """Whichever page is asked first."""
    program = """
import rushlight as torch
homes = [(torch.layer_norm.__module__, torch.nn.functional.layer_norm.__module__)]
homes.append((torch.nn.functional.group_norm.__module__, torch.group_norm.__module__))
assert torch.layer_norm is torch.nn.functional.layer_norm
print(homes)
"""
    done = run_python("-c", program)
    page = "rushlight.nn.functional"
    assert done.stdout.strip() == str([(page, page), (page, page)]), done.stderr


ORDERS = """
import rushlight as torch
import rushlight.fft, rushlight.linalg, rushlight.nn.functional, rushlight.special
from rushlight._interface.operators import SPACES

pairs = [(page, name) for page in SPACES for name in list(SPACES[page])][::{step}]
made = {{f"{{page}}.{{name}}": SPACES[page][name] for page, name in pairs}}
for name, value in sorted(made.items()):
    if callable(value):
        print(name, value.__module__, value.__name__, torch.overrides.resolve_name(value))
"""


def test_names_of_functions_do_not_depend_on_which_alias_is_used_first(forked: Any, tmp_path: Path) -> None:
    """Generated code and pickles hold them.  Names of PyTorch 2.13, where an alias is a function of its own."""
    shown = []
    for step in (1, -1):
        script = tmp_path / "names.py"
        script.write_text(ORDERS.format(step=step))
        done = forked.run(script, cwd=tmp_path)
        assert not done.returncode, done.stderr
        shown.append(done.stdout.splitlines())
    assert len(shown[0]) > 800
    assert [pair for pair in zip(*shown, strict=True) if pair[0] != pair[1]] == []
    own = {line.split()[0]: line.split()[2] for line in shown[0]}
    names = ("sigmoid", "igamma", "igammac", "lgamma", "mvlgamma", "matmul", "relu_")
    assert {name: own[f"torch.{name}"] for name in names} == {name: name for name in names}


@pytest.mark.parametrize(
    ("program", "name", "places", "named"),
    [
        (lambda: F.relu(S), "relu", 1, {"inplace": False}), (lambda: F.relu(S, True), "relu", 1, {"inplace": True}),
        (lambda: F.dropout(S, 0.5, False), "dropout", 1, {"p": 0.5, "training": False, "inplace": False}),
        (lambda: F.softmax(S, dim=-1), "softmax", 1, {"dim": -1, "_stacklevel": 3, "dtype": None}),
        (lambda: F.layer_norm(S, (2,)), "layer_norm", 2, {"weight": None, "bias": None, "eps": 1e-05}),
        (lambda: F.batch_norm(S, X, X), "batch_norm", 3, {"weight": None, "bias": None, "training": False, "momentum": 0.1, "eps": 1e-05}),
        (lambda: F.max_pool2d(S, 2), "max_pool2d", 2, {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False, "return_indices": False}),
        (lambda: F.cross_entropy(S, X), "cross_entropy", 2,
         {"weight": None, "size_average": None, "ignore_index": -100, "reduce": None, "reduction": "mean", "label_smoothing": 0.0}),
        (lambda: F.embedding(input=S, weight=X), "embedding", 2,
         {"padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False, "sparse": False}),
        (lambda: F.interpolate(S, scale_factor=2), "interpolate", 1,
         {"size": None, "scale_factor": 2, "mode": "nearest", "align_corners": None, "recompute_scale_factor": None, "antialias": False}),
        (lambda: F.pad(S, (1, 1)), "pad", 2, {"mode": "constant", "value": None}),
        (lambda: F.linear(S, X), "linear", 2, {}), (lambda: F.conv2d(S, weight=X), "conv2d", 1, {"weight": X}), (lambda: F.gelu(S), "gelu", 1, {}),
    ],
)  # fmt: skip
def test_arguments_that_overrides_are_shown(
    program: Callable[[], Any], name: str, places: int, named: dict[str, Any]
) -> None:
    assert program() == (f"torch.nn.functional.{name}", places, named)


def test_names_do_not_depend_on_who_loaded_a_function(run_python: Callable[..., Any]) -> None:
    code = "import rushlight as torch\nf = torch.conv2d, torch.pixel_shuffle, torch.sigmoid, torch.nn.functional.tanh\nprint(*map(torch.overrides.resolve_name, (*f, torch.add)))"
    names = run_python("-c", code, check=True).stdout.split()
    assert names == [
        "torch.nn.functional.conv2d",
        "torch.nn.functional.pixel_shuffle",
        "torch.sigmoid",
        "torch.tanh",
        "torch.add",
    ]


@pytest.mark.parametrize("name", ["t_", "squeeze_", "unsqueeze_", "transpose_", "swapaxes_", "swapdims_"])
def test_views_in_place_are_shown_as_such(name: str) -> None:
    seen: list[str | None] = []

    class Told(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.ones(1, 3).as_subclass(Told)
    places = {"t_": (), "squeeze_": (0,), "unsqueeze_": (0,)}.get(name, (0, 1))
    seen.clear()
    assert getattr(x, name)(*places) is x and seen == [name]
    assert tuple(x.as_subclass(torch.Tensor).shape) == {"squeeze_": (3,), "unsqueeze_": (1, 1, 3)}.get(name, (3, 1))


@pytest.mark.parametrize(
    "name",
    [
        "numel",
        "is_complex",
        "is_floating_point",
        "is_signed",
        "is_conj",
        "is_neg",
        "is_inference",
        "is_nonzero",
        "get_device",
    ],
)
def test_questions_of_the_package_ask(name: str) -> None:
    assert getattr(torch, name)(S) == (f"torch.{name}", 1, {})


class Answers:
    """An object with a say that is no tensor, as a proxy of a trace."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return overrides.resolve_name(func), len(args)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *[
            (name, 1)
            for name in (
                "dequantize",
                "int_repr",
                "q_scale",
                "q_zero_point",
                "q_per_channel_axis",
                "q_per_channel_scales",
            )
        ],
        *[("quantize_per_tensor", 4), ("quantize_per_channel", 5), ("quantize_per_tensor_dynamic", 3)],
        *[
            ("choose_qparams_optimized", 5),
            ("fused_moving_avg_obs_fake_quant", 11),
            ("embedding_bag", 3),
            ("convolution", 9),
        ],
        *[("lstm", 9), ("gru", 9), ("rnn_tanh", 9), ("lstm_cell", 4), ("gru_cell", 4), ("norm_except_dim", 3)],
        *[("poisson_nll_loss", 6), ("batch_norm_stats", 2), ("batch_norm_update_stats", 4), ("frobenius_norm", 2)],
        *[(f"nn.init.{name}_", 1) for name in ("uniform", "normal", "kaiming_uniform")],
    ],
)
def test_functions_written_in_python_ask_objects_with_a_say(name: str, count: int) -> None:
    owner, _, last = f"torch.{name}".rpartition(".")
    function = getattr(torch.nn.init if owner.endswith("init") else torch, last)
    assert function(*[Answers() for _ in range(count)]) == (f"torch.{name}", count)


def test_traces_record_quantization() -> None:
    def function(x: Any) -> Any:
        return torch.dequantize(torch.quantize_per_tensor(x, 0.5, 3, torch.quint8)) + 1

    traced = torch.fx.symbolic_trace(function)
    assert [node.target for node in traced.graph.nodes][1:3] == [torch.quantize_per_tensor, torch.dequantize]
    x = torch.tensor([0.0, 0.6, -9.0])
    assert traced(x).tolist() == function(x).tolist() == [1.0, 1.5, -0.5]
