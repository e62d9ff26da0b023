"""Recorded programs do what eager calls do, bit for bit."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests.capture.recording.recorded import assert_same, bits, check, normal, program_of

import rushlight as torch
from rushlight import nn
from rushlight._capture.recording import DataDependentError, Recording, RecordingError

# ***** the device *****


def test_a_recorded_tensor_looks_like_one_of_the_cpu() -> None:
    with Recording() as recording:
        x = recording.stand_in(torch.ones(2, 3).t())
        assert str(x.device) == "cpu" and repr(x.device) == "device(type='cpu')"
        assert x.device == torch.device("cpu") and torch.device("cpu") == x.device
        assert (x.device != torch.device("cpu"), x.device == torch.device("meta")) == (False, False)
        assert x.stride() == (1, 3) and x.is_cpu
        assert recording.is_recorded(x) and recording.is_recorded(torch.zeros(2, device="cpu"))
        assert recording.is_recorded(torch.zeros(2, device=x.device)) and recording.is_recorded(x.cpu())
        assert recording.is_recorded(torch.tensor([1.0, 2.0])) and recording.is_recorded(torch.rand(2))
    assert not recording.is_recorded(torch.zeros(2)) and torch.zeros(2).tolist() == [0.0, 0.0]


def test_other_threads_see_nothing() -> None:
    found: list[Any] = []
    with Recording():
        thread = threading.Thread(target=lambda: found.append((torch.zeros(2) + 1).tolist()))
        thread.start()
        thread.join()
    assert found == [[1.0, 1.0]]


def test_stand_ins() -> None:
    base = torch.arange(6.0)
    x, y = base[1:], base.view(2, 3)
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.zeros(2)
    with Recording() as recording:
        a, b = recording.stand_in(x), recording.stand_in(y)
        assert recording.stand_in(x) is a
        assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        assert (a.storage_offset(), b.storage_offset()) == (1, 0)
        w = recording.stand_in(weight)
        assert isinstance(w, nn.Parameter) and w.is_leaf and w.requires_grad and recording.is_recorded(w.grad)
        hidden = recording.stand_in(weight * 2)
        assert hidden.requires_grad and not hidden.is_leaf
    assert [id(t) for t in recording.inputs[:3]] == [id(x), id(y), id(weight)]
    assert recording.origins[:4] == [("given", None), ("given", None), ("given", None), ("grad", 2)]


@pytest.mark.parametrize(
    "asks",
    [
        lambda x: x.sum().item(), lambda x: x.tolist(), lambda x: bool(x[0, 0] > 0), lambda x: x.nonzero(), lambda x: x.numpy(), repr,
        lambda x: x[x > 0], lambda x: torch.unique(x), lambda x: float(x.sum()), lambda x: torch.equal(x, x + 1),
    ],
)  # fmt: skip
def test_reads_of_elements_are_refused(asks: Callable[[Any], Any]) -> None:
    with Recording() as recording, pytest.raises(DataDependentError):
        asks(recording.stand_in(torch.randn(2, 2)))


def test_what_no_program_can_do() -> None:
    state = torch.get_rng_state()
    with Recording():
        for refused in (lambda: torch.manual_seed(0), torch.Generator, lambda: torch.set_rng_state(state)):
            with pytest.raises(RecordingError, match="cannot be part of a recorded program"):
                refused()
        with pytest.raises(RecordingError, match="already"):
            Recording().__enter__()


def test_a_tensor_of_another_recording() -> None:
    with Recording() as first:
        x = first.stand_in(torch.ones(2))
    with pytest.raises(RecordingError):
        x + 1
    with Recording() as second, pytest.raises(RecordingError, match="another recording"):
        second.finish([x + 1])


def test_tensors_that_nobody_gave_are_inputs() -> None:
    held = torch.ones(3)
    recording, program = program_of(lambda x: [x * held], torch.arange(3.0))
    assert recording.origins == [("given", None), ("found", None)]
    held.fill_(5)
    assert program(recording.inputs)[0].tolist() == [0.0, 5.0, 10.0]


# ***** programs *****


def test_arithmetic_and_gradients() -> None:
    check(lambda x, y: [(x * y + 1).exp().sum(0), x.t() @ y], normal(3, 4, grad=True), normal(3, 4))


def test_views_and_writes() -> None:
    def function(x: Any) -> list[Any]:
        y = x * 2
        y[1:].add_(1)
        y.t()[0].mul_(3)
        y.diagonal().copy_(torch.zeros(3))
        z = torch.zeros(3)
        z[::2] = 5.0
        z[1:2].fill_(7)
        return [y, y.t() @ z, z, y[1:, ::2], y.view(-1)[3:]]

    check(function, normal(3, 4, grad=True), gradients=False)


def test_gradients_through_writes() -> None:
    def function(x: Any) -> list[Any]:
        y = x * 2
        y[1:].mul_(y[:2].detach().clone())
        y[:, 1] = x[:, 2]
        return [y.sin()]

    check(function, normal(3, 4, grad=True))


def test_inputs_are_changed() -> None:
    def function(x: Any) -> list[Any]:
        x.mul_(2)
        x[:, 1] = 3.0
        return [x[1:], x, x + 1, x.t()]

    found = check(function, normal(3, 4))
    x = torch.ones(3, 4)
    part, same, _, turned = found([x])
    assert same is x and part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() == turned.data_ptr()


def test_inputs_over_one_storage() -> None:
    def function(base: Any) -> Callable[..., Any]:
        def run(x: Any, y: Any) -> list[Any]:
            x.add_(1)
            return [y * 2]

        return run

    for views in (
        lambda b: (b[1:], b.view(2, 3)), lambda b: (b[:3], b[3:]), lambda b: (b[::2], b[1:]), lambda b: (b, b.view(3, 2).t()),
    ):  # fmt: skip
        eager, mine = torch.arange(6.0), torch.arange(6.0)
        recording, program = program_of(function(mine), *views(mine))
        want, found = function(eager)(*views(eager)), program(recording.inputs)
        assert_same(want[0], found[0])
        assert_same(eager, mine)


def test_results_share_memory_as_they_do_eagerly() -> None:
    _, program = program_of(lambda x: [y := x + 1, y[1:], y.view(-1)], torch.ones(2, 2))
    y, part, row = program([torch.ones(2, 2)])
    row.zero_()
    assert y.tolist() == [[0, 0], [0, 0]] and part.tolist() == [[0, 0]]


def test_views_know_their_bases() -> None:
    def function(x: Any) -> list[Any]:
        y = x + 1
        return [x[0], y, y.t(), (x * 2)[1:], x.detach()]

    want, given = function(x := torch.ones(2, 2)), torch.ones(2, 2)
    found = program_of(function, torch.ones(2, 2))[1]([given])
    assert found[0]._base is given and found[2]._base is found[1] and found[3]._base.tolist() == [[2, 2], [2, 2]]
    assert [x._base is None for x in found] == [x._base is None for x in want]
    leaf = torch.ones(2, 2, requires_grad=True)
    (part,) = program_of(lambda x: [x[0]], leaf)[1]([leaf])
    with pytest.raises(RuntimeError, match="view of a leaf"):
        part.add_(1)
    assert x is not given


def test_random_numbers_are_those_of_eager() -> None:
    generator = torch.Generator().manual_seed(5)

    def function(x: Any) -> list[Any]:
        dropped = nn.functional.dropout(x, 0.5)
        made = (
            torch.rand(2, 3),
            torch.randn(20),
            torch.randint(9, (4,)),
            torch.randperm(5),
            torch.empty(3, 2).t().uniform_(),
        )
        state = torch.zeros(6).exponential_(), torch.zeros(3, dtype=torch.bool).bernoulli_(0.5)
        return [dropped, *made, *state]

    check(function, normal(3, 4, grad=True))
    want = torch.rand(3, generator=torch.Generator().manual_seed(5))
    _, program = program_of(lambda x: [x + torch.rand(3, generator=generator)], torch.zeros(3))
    assert_same(program([torch.zeros(3)])[0], want)


def test_numbers_are_drawn_again_from_an_earlier_state() -> None:
    def function(x: Any) -> list[Any]:
        def part(x: Any) -> Any:
            return nn.functional.dropout(x.tanh(), 0.5) * torch.rand(4)

        return [torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False), torch.rand(2)]

    check(function, normal(3, 4, grad=True))
    with Recording() as recording:
        state = torch.get_rng_state()
        torch.rand(2)
        torch.set_rng_state(state)
        with pytest.raises(RecordingError, match="left in an earlier state"):
            recording.finish([torch.ones(1)])
        with pytest.raises(RecordingError, match="other random numbers"):
            torch.rand(3)


def test_draws_that_nobody_reads_move_the_stream() -> None:
    check(lambda x: [torch.rand(3) * 0 + x, *([x] if torch.rand(2).shape == (3,) else [])], normal(3))


def test_no_result_at_all() -> None:
    recording, program = program_of(lambda x: [], torch.ones(2))
    assert program(recording.inputs) == []


def test_a_module_with_buffers() -> None:
    def make() -> Any:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 2))

    eager, mine, module, x = make(), make(), make(), torch.randn(5, 4)
    with Recording() as recording:
        for at, other in zip(module.modules(), mine.modules(), strict=True):
            for table in ("_parameters", "_buffers"):
                getattr(at, table).update({k: recording.stand_in(v) for k, v in getattr(other, table).items()})
        program = recording.finish([module(recording.stand_in(x))])
    for _ in range(3):
        want, (found,) = eager(x), program(recording.inputs)
        assert_same(want, found)
        want.sum().backward()
        found.sum().backward()
    for a, b in zip(eager.state_dict().values(), mine.state_dict().values(), strict=True):
        assert_same(a, b)
    for a, b in zip(eager.parameters(), mine.parameters(), strict=True):
        assert_same(a.grad, b.grad)


# ***** gradients *****


def test_double_backward() -> None:
    x = torch.randn(3, 4).requires_grad_()
    _, program = program_of(lambda x: [(x.exp() * x).sum()], x)
    for f in (lambda: (x.exp() * x).sum(), lambda: program([x])[0]):
        (g,) = torch.autograd.grad(f(), x, create_graph=True)
        g.pow(2).sum().backward()
    first = x.grad.clone()
    x.grad = None
    (g,) = torch.autograd.grad((x.exp() * x).sum(), x, create_graph=True)
    g.pow(2).sum().backward()
    assert torch.allclose(first, 2 * x.grad)


def test_double_backward_of_a_network() -> None:
    def function(x: Any, w: Any, v: Any) -> list[Any]:
        return [nn.functional.layer_norm((x @ w).tanh() @ v, (3,)).softmax(1)]

    found = []
    make = normal(3, 4, grad=True), normal(4, 5, grad=True), normal(5, 3, grad=True)
    mine = [m() for m in make]
    _, program = program_of(function, *mine)
    for xs, outs in ((given := [m() for m in make], function(*given)), (mine, program(mine))):
        grads = torch.autograd.grad((outs[0] * outs[0]).sum(), xs, create_graph=True)
        sum((g * g).sum() for g in grads).backward()
        found.append((grads, [x.grad for x in xs]))
    for a, b in zip(found[0][0], found[1][0], strict=True):
        assert bits(a) == bits(b)
    for a, b in zip(found[0][1], found[1][1], strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_gradients_of_some_outputs() -> None:
    def function(x: Any, w: Any) -> list[Any]:
        hidden = (x @ w).tanh()
        return [hidden, hidden.sum(0), (w * w).sum(), x.detach()]

    make = normal(3, 4, grad=True), normal(4, 2, grad=True)
    for chosen in ([0], [1], [2], [0, 2], [1, 2], [0, 1]):
        eager, mine = [[m() for m in make] for _ in range(2)]
        _, program = program_of(function, *mine)
        for again in range(2):
            for xs, outs in ((eager, function(*eager)), (mine, program(mine))):
                torch.manual_seed(again)
                cotangents = [torch.randn(outs[k].shape) for k in chosen]
                torch.autograd.backward([outs[k] for k in chosen], cotangents)
                assert outs[3].grad_fn is None and xs is not None
            for a, b in zip(eager, mine, strict=True):
                assert (a.grad is None) == (b.grad is None)
                if a.grad is not None:
                    assert_same(a.grad, b.grad)


def test_gradients_of_some_outputs_of_changed_inputs() -> None:
    def function(x: Any, w: Any) -> list[Any]:
        y = (x * 2) * w
        x.mul_(w)
        return [y.sin()]

    found = []
    for run in (function, lambda *xs: program_of(function, torch.ones(3), normal(3, grad=True)())[1](xs)):
        x, w = torch.full((3,), 2.0), normal(3, grad=True)()
        run(x, w)[0].sum().backward()
        found.append(w.grad)
    assert_same(*found)


def test_hooks_see_what_is_saved() -> None:
    seen: list[Any] = []
    x = torch.randn(3, requires_grad=True)
    _, program = program_of(lambda x: [x.exp().sin()], x)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
        (y,) = program([x])
    y.sum().backward()
    assert seen and torch.equal(x.grad, x.exp().cos() * x.exp())


def test_a_graph_is_freed_and_retained() -> None:
    x = torch.randn(3).requires_grad_()
    _, program = program_of(lambda x: [(x.exp() * x).sum()], x)
    (y,) = program([x])
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_leaves_that_the_program_makes() -> None:
    def function(x: Any) -> list[Any]:
        weight = nn.Parameter(torch.ones(3))
        hidden = weight * x
        hidden.retain_grad()
        (hidden * hidden).sum().backward()
        return [weight, hidden.detach(), hidden.grad]

    x = torch.arange(3.0)
    weight, _, grad = program_of(function, x)[1]([x])
    want = function(x)
    assert type(weight) is nn.Parameter and weight.is_leaf and weight.requires_grad
    assert_same(weight.grad, want[0].grad)
    assert_same(grad, want[2])


def test_inference_mode() -> None:
    x = torch.ones(2)
    with torch.inference_mode():
        (y,) = program_of(lambda x: [x * 2], x)[1]([x])
    assert y.is_inference() and y.tolist() == [2.0, 2.0] and not x.is_inference()


def test_inputs_that_want_gradients_from_now_on() -> None:
    x = torch.ones(2)
    (y,) = program_of(lambda x: [x.requires_grad_() * 2], torch.ones(2))[1]([x])
    assert x.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_saved_tensors_that_the_program_changes() -> None:
    def function(x: Any) -> list[Any]:
        y = x.exp()
        wrong, right = y * y, (x * 2).sum()
        y.add_(1)
        return [wrong, right]

    x = torch.ones(2, requires_grad=True)
    wrong, right = program_of(function, x)[1]([x])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        wrong.sum().backward()
    right.backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_hooks_behind_accumulation() -> None:
    x, seen = torch.ones(2, requires_grad=True), []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    for first in (None, torch.ones(2)):
        x.grad = first
        (y,) = program_of(lambda x: [(x * 3).sum()], x)[1]([x, *([] if first is None else [first])])
        y.backward()
        with pytest.raises(RecordingError, match="hooks would have to run"):
            program_of(lambda x: [(x * 3).sum().backward()] and [], x)
    assert seen == [[3.0, 3.0], [4.0, 4.0]]


def test_histories_of_changed_inputs() -> None:
    def function(x: Any, w: Any) -> list[Any]:
        x.mul_(w)
        return [x.sum()]

    found = []
    for run in (function, lambda *xs: program_of(function, torch.ones(3), normal(3, grad=True)())[1](xs)):
        x, w = torch.ones(3), normal(3, grad=True)()
        (total,) = run(x, w)
        (total + (x * x).sum()).backward()
        found.append((x, w.grad))
    assert_same(found[0][0], found[1][0])
    assert_same(found[0][1], found[1][1])
    hidden = torch.ones(3, requires_grad=True) * 2
    for refused in (lambda x: [x.detach_()], lambda x: [x.register_hook(print)] and []):
        with pytest.raises(RecordingError):
            program_of(refused, hidden)


def test_a_changed_input_is_noticed() -> None:
    x, w = torch.randn(3).requires_grad_(), torch.randn(3)
    _, program = program_of(lambda x, w: [x * w], x, w)
    (y,) = program([x, w])
    w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_whole_steps() -> None:
    def step(w: Any, x: Any) -> list[Any]:
        loss = (x @ w).relu().sum()
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        return [loss.detach()]

    check(step, normal(4, 3, grad=True), normal(2, 4))
    recording, program = program_of(lambda w: [(w * w).sum().backward()] and [], w := torch.ones(2, requires_grad=True))
    program(recording.inputs)
    assert w.grad.tolist() == [2.0, 2.0]


# ***** numbers of the host *****


def test_counters_become_numbers_of_the_host() -> None:
    def function(x: Any, count: Any) -> list[Any]:
        count += 1
        step = count.item()
        return [x * (1 - 0.9**step) + torch.full((2,), 2.0) / (step * 2 - 1)]

    check(function, normal(2), lambda: torch.tensor(2.0))
    check(lambda x, n: [x * (n.item() // 2) + n.item() % 3], normal(2), lambda: torch.tensor(7))


def test_the_value_of_a_host_number_is_refused() -> None:
    count = torch.tensor(3.0)
    with Recording() as recording:
        step = recording.stand_in(count).item()
        for asks in (bool, float, int, repr, lambda n: n > 1, lambda n: n == 1, lambda n: [1, 2][n]):
            with pytest.raises(DataDependentError):
                asks(step + 1)
        assert torch.tensor(3.0).item() == 3.0 and (torch.tensor([1, 2]) * 2)[1].item() == 4


def test_numbers_are_results_too() -> None:
    count = torch.tensor(3.0)
    recording = Recording()
    with recording:
        step = recording.stand_in(count).item()
        program = recording.finish([step * 2, torch.ones(1) * step, step])
    double, made, same = program(recording.inputs)
    assert (double, made.tolist(), same) == (6.0, [3.0], 3.0)


def test_numbers_of_a_function() -> None:
    rate = [0.5]
    recording = Recording()
    with recording:
        program = recording.finish([recording.stand_in(torch.ones(2)) * recording.host_number(lambda: rate[0])])
    assert program(recording.inputs)[0].tolist() == [0.5, 0.5]
    rate[0] = 2.0
    assert program(recording.inputs)[0].tolist() == [2.0, 2.0]


# ***** steps of optimizers *****


def swapped(model: Any, optimizer: Any, recording: Recording) -> Callable[[], None]:
    """Let a model and its optimizer have stand-ins; returns what puts them back."""
    tables = [t for m in model.modules() for t in (m._parameters, m._buffers)] + [
        *optimizer.param_groups,
        optimizer.state,
    ]
    before = [dict(table) for table in tables]
    for module in model.modules():
        for table in (module._parameters, module._buffers):
            table.update({k: v if v is None else recording.stand_in(v) for k, v in table.items()})
    for group in optimizer.param_groups:
        group["params"] = [recording.stand_in(p) for p in group["params"]]
    state = {
        recording.stand_in(p): {k: recording.stand_in(v) if torch.is_tensor(v) else v for k, v in held.items()}
        for p, held in optimizer.state.items()
    }
    optimizer.state.clear()
    optimizer.state.update(state)

    def back() -> None:
        for table, held in zip(tables, before, strict=True):
            table.clear()
            table.update(held)

    return back


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
        lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True), lambda p: torch.optim.AdamW(p, lr=0.01), lambda p: torch.optim.RMSprop(p, momentum=0.5),
        lambda p: torch.optim.NAdam(p), lambda p: torch.optim.Adagrad(p), lambda p: torch.optim.Adamax(p),
    ],
    ids=["SGD", "SGD with momentum", "Adam", "AdamW", "RMSprop", "NAdam", "Adagrad", "Adamax"],
)  # fmt: skip
def test_whole_steps_of_optimizers(make: Callable[[Any], Any]) -> None:
    def model() -> Any:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(8), nn.Linear(8, 3))

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    eager, mine = model(), model()
    eager_optimizer, mine_optimizer = make(eager.parameters()), make(mine.parameters())
    for m, o in ((eager, eager_optimizer), (mine, mine_optimizer)):
        torch.manual_seed(2)
        step(m, o, x, y)
    with Recording() as recording:
        back = swapped(mine, mine_optimizer, recording)
        program = recording.finish([step(mine, mine_optimizer, recording.stand_in(x), recording.stand_in(y))])
        back()
    for number in range(3):
        torch.manual_seed(number)
        want = step(eager, eager_optimizer, x, y)
        torch.manual_seed(number)
        (found,) = program(recording.inputs)
        assert_same(want, found)
        for a, b in zip(eager.parameters(), mine.parameters(), strict=True):
            assert_same(a, b)
            assert_same(a.grad, b.grad)
            for key, value in eager_optimizer.state[a].items():
                if torch.is_tensor(value):
                    assert_same(value, mine_optimizer.state[b][key])


# ***** threads and memory *****


def test_threads_record_at_once() -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(4):
                x = torch.randn(3, 4, requires_grad=True)
                _, program = program_of(lambda x: [(x @ x.t()).softmax(0).sum(1)], x)
                assert torch.equal(program([x])[0], (x @ x.t()).softmax(0).sum(1))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_programs_and_recordings_go_away() -> None:
    def once() -> list[Any]:
        x = torch.randn(3, requires_grad=True)
        recording, program = program_of(lambda x: [(x * 2).exp()], x)
        program([x])[0].sum().backward()
        return [weakref.ref(recording), weakref.ref(program), weakref.ref(x)]

    references = once()
    gc.collect()
    assert [r() for r in references] == [None] * 3
