"""Layers that repeat an earlier one are followed once: when they are, when they must not be, and that nothing differs."""

from __future__ import annotations

import contextlib
import copy

import numpy as np
import pytest

import rushlight as torch
from rushlight._capture.trace import repeats
from rushlight.nn import functional as F

WIDTH = 4


@pytest.fixture
def traces(monkeypatch):
    """What every trace knew of its calls, in order."""
    made = []
    begin = repeats.Repeats.__init__

    def noted(self, *args):
        begin(self, *args)
        made.append(self)

    monkeypatch.setattr(repeats.Repeats, "__init__", noted)
    torch._dynamo.reset()
    return made


class Layer(torch.nn.Module):
    def __init__(self, p=0.0):
        super().__init__()
        self.inner, self.norm = torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH)
        self.p, self.scale, self.calls = p, 2.0, 0
        self.register_buffer("seen", torch.zeros(WIDTH))

    def forward(self, x):
        return x + F.dropout(torch.relu(self.inner(self.norm(x))), self.p, self.training) * self.scale


class Buffered(Layer):
    def forward(self, x):
        self.seen.add_(x.detach().sum(0))
        return self.inner(x) + self.seen


class Counting(Layer):
    def forward(self, x):
        self.calls += 1
        return self.inner(x) * self.calls


class Reading(Layer):
    def forward(self, x):
        return self.inner(x) * self.calls


class Split(Layer):
    def forward(self, x):
        a, b = (part * 2 for part in self.inner(x).split(2, 1))
        return torch.cat([b, a.neg()], dim=1) if x.shape[0] == 2 else x


class InPlace(Layer):
    def forward(self, x):
        y = self.inner(x)
        y[0] = 1.0
        return y.mul_(2.0)


class NoGrad(Layer):
    def forward(self, x):
        with torch.no_grad():
            y = self.inner(x)
        return y + self.inner.weight.sum() * x


class Recursive(Layer):
    def forward(self, x, depth=2):
        return self(self.inner(x), depth - 1) if depth else self.norm(x)


class Stored(Layer):
    def forward(self, x):
        LIST.append(x.shape[0])
        return self.inner(x) + len(LIST)


LIST: list[int] = []


class Model(torch.nn.Module):
    def __init__(self, kind=Layer, layers=4, **how):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.layers = torch.nn.ModuleList([kind(**how) for _ in range(layers)])

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return x


def run(model, function, x):
    """The result, the gradients and the buffers of two steps."""
    found = []
    LIST.clear()
    torch.manual_seed(5)
    for _ in range(2):
        y = function(x)
        if y.requires_grad:
            y.sum().backward()
        found.append(y.detach().clone())
    found += [torch.zeros(0) if p.grad is None else p.grad for p in model.parameters()]
    found += [*model.buffers(), torch.rand(2)]
    return [each.numpy() for each in found]


def compare(model, x=None):
    """Compiled and eager calls give the same bits, and change the same things."""
    other = copy.deepcopy(model)
    x = torch.linspace(-1, 1, 2 * WIDTH).reshape(2, WIDTH) if x is None else x
    expected = run(model, model, x)
    for ours, theirs in zip(run(other, torch.compile(other), x), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return other


@pytest.mark.parametrize("kind", [Layer, Buffered, Split, InPlace, NoGrad])
def test_layers_of_one_kind_are_followed_once(traces, kind):
    compare(Model(kind))
    assert traces[0].count == 3


def test_random_numbers_are_those_of_eager_calls(traces):
    compare(Model(p=0.5))
    assert traces[0].count == 3


@pytest.mark.parametrize("kind", [Counting, Recursive, Stored])
def test_what_a_call_leaves_behind_is_not_lost(traces, kind):
    model = compare(Model(kind))
    if kind is Counting:
        assert [layer.calls for layer in model.layers] == [2] * 4


def frozen(model):
    model.layers[2].inner.weight.requires_grad_(False)


def hooked(model):
    model.layers[2].register_forward_hook(lambda module, args, result: result * 3)


def hooked_inside(model):
    model.layers[2].inner.register_forward_pre_hook(lambda module, args: (args[0] + 1,))


def in_evaluation(model):
    model.layers[2].eval()


def other_number(model):
    model.layers[2].scale = 3.0


def other_type(model):
    model.layers[2].scale = 2


def zero_of_other_sign(model):
    for layer in model.layers:
        layer.scale = 0.0
    model.layers[2].scale = -0.0


def other_strides(model):
    inner = model.layers[2].inner
    inner.weight = torch.nn.Parameter(inner.weight.detach().t().contiguous().t())


def without_bias(model):
    model.layers[2].inner = torch.nn.Linear(WIDTH, WIDTH, bias=False)


def other_class_inside(model):
    model.layers[2].norm = torch.nn.Identity()


def own_forward(model):
    model.layers[2].forward = lambda x: x * 5


@pytest.mark.parametrize(
    "change",
    [
        frozen, hooked, hooked_inside, in_evaluation, other_number, other_type, zero_of_other_sign, other_strides, without_bias,
        other_class_inside, own_forward,
    ],
)  # fmt: skip
def test_a_layer_that_differs_is_followed_itself(traces, change):
    model = Model(p=0.5)
    change(model)
    compare(model)
    assert traces[0].count < 3 + 2 * 3  # those of the layers that are alike, and of modules inside of the other one


@pytest.mark.parametrize("change", [frozen, hooked, in_evaluation, other_number, other_strides, without_bias])
def test_guards_of_repeated_layers_see_later_changes(traces, change):
    model = Model()
    compiled, x = torch.compile(model), torch.ones(2, WIDTH)
    np.testing.assert_array_equal(compiled(x).detach().numpy(), model(x).detach().numpy())
    before = len(traces)
    change(model)
    np.testing.assert_array_equal(compiled(x).detach().numpy(), model(x).detach().numpy())
    assert traces[0].count == 3 and (
        len(traces) > before or change is other_number
    )  # that is a number of each call now


def test_shared_parameters(traces):
    model = Model()
    model.layers[2].inner.weight = model.layers[1].inner.weight
    model.layers[3].inner.weight = torch.nn.Parameter(model.layers[0].inner.weight.detach()[:])  # the same memory
    compare(model)
    tied = Model()
    for layer in tied.layers:
        layer.inner.weight = tied.first.weight
    compare(tied)


def test_one_layer_that_is_called_again_and_again(traces):
    model = Model(layers=1)
    model.layers = torch.nn.ModuleList([model.layers[0]] * 4)
    compare(model)
    assert traces[0].count == 3


def test_a_parameter_that_is_the_argument(traces):
    class Own(Layer):
        def forward(self, x, weight):
            return x @ weight.t() if weight is self.inner.weight else x * weight.sum()

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([Own() for _ in range(3)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x, self.layers[1].inner.weight)
            return x

    compare(Outer())


def test_attributes_that_the_trace_wrote(traces):
    def step(model, x):
        for number, layer in enumerate(model.layers):
            layer.calls = number
            x = layer(x)
        return x

    model = Model(Reading)
    x = torch.ones(2, WIDTH)
    found = torch.compile(step)(model, x)
    assert torch.equal(found, step(model, x))
    assert [layer.calls for layer in model.layers] == [0, 1, 2, 3]


def test_globals_and_lists_that_the_trace_changed(traces):
    shared = {"scale": 1.0}

    class Scaled(Layer):
        def forward(self, x):
            return self.inner(x) * shared["scale"]

    def step(model, x):
        for layer in model.layers:
            shared["scale"] = shared["scale"] + 1.0
            x = layer(x)
        return x

    model, x = Model(Scaled), torch.ones(2, WIDTH)
    expected = step(model, x)
    shared["scale"] = 1.0
    assert torch.equal(torch.compile(step)(model, x), expected)
    assert shared["scale"] == 5.0


@pytest.mark.parametrize("where", [1, 2])
def test_a_break_within_a_repeated_layer(traces, where):
    class Printing(Layer):
        def forward(self, x):
            y = self.inner(x)
            if self.calls:
                torch._dynamo.graph_break()
            return self.norm(y)

    model = Model(Printing)
    model.layers[where].calls = 1
    compare(model)


def test_errors_that_a_layer_handles(traces):
    class Trying(Layer):
        def forward(self, x):
            try:
                return self.inner(x[:, :2])
            except RuntimeError:
                return self.inner(x)

    compare(Model(Trying))


def test_state_of_the_dispatcher_between_calls(traces):
    def step(model, x):
        for number, layer in enumerate(model.layers):
            with torch.no_grad() if number % 2 else contextlib.nullcontext():
                x = layer(x)
        return x

    model, x = Model(), torch.ones(2, WIDTH)
    found, expected = torch.compile(step)(model, x), step(model, x)
    assert torch.equal(found, expected) and found.requires_grad == expected.requires_grad


def test_optimizer_step_of_repeated_layers(traces):
    def trained(function_of):
        torch.manual_seed(1)
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = function_of(step)
        return [*[step(torch.ones(2, WIDTH)) for _ in range(3)], *model.parameters()]

    for ours, theirs in zip(trained(torch.compile), trained(lambda f: f), strict=True):
        assert torch.equal(ours, theirs)
    assert traces[0].count == 3


def test_a_repetition_that_differs_is_traced_without_any(traces, monkeypatch):
    def differs(self, expected, made, tensors):
        raise repeats._Unfit

    monkeypatch.setattr(repeats._Repeatable, "_compare", differs)
    with_repeats = len(traces)
    compare(Model())
    assert len(traces) == with_repeats + 1  # the second trace has none


class Config:
    def __init__(self):
        self.scale = 2.0


class Configured(Layer):
    def __init__(self):
        super().__init__()
        self.config = Config()

    def forward(self, x):
        return self.inner(x) * self.config.scale


def test_an_object_of_a_repeated_layer_that_is_reached_in_another_way(traces):
    """What is written by one name is read by the other only while both are one object."""
    model = Model(Configured)
    shared = {"config": model.layers[2].config}

    def step(x):
        x = model(x)
        shared["config"].scale = 3.0
        return x * model.layers[2].config.scale

    def called(function):
        shared["config"].scale = model.layers[2].config.scale = 2.0
        return function(torch.ones(2, WIDTH)).detach()

    compiled = torch.compile(step)
    np.testing.assert_array_equal(called(compiled).numpy(), called(step).numpy())
    assert traces[0].count == 3
    model.layers[2].config = Config()
    np.testing.assert_array_equal(called(compiled).numpy(), called(step).numpy())
