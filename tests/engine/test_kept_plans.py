"""Plans made of what earlier processes kept: they are what would be derived, and nothing is believed that cannot be.

A second process is played by forgetting all plans and reading the records again; some tests start real ones.  `check_plans` has every plan that is
read derived as well, and compared byte for byte.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rushlight as rl
import rushlight._ops.families
import rushlight._ops.samples.arrays
import rushlight._ops.samples.linalg
import rushlight._ops.samples.numbers
import rushlight._ops.samples.recurrent
from rushlight._base.log import LOG
from rushlight._engine.core.state import clear_plans
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.call import Caller, make_function
from rushlight._engine.dispatch.kept import plan_store
from rushlight._engine.dispatch.kept.plan_store import CHECK_PLANS, KEEP_PLANS, store
from rushlight._native.cache import CACHE_DIR, default_cache
from rushlight._ops.samples import Draw, samples_of
from rushlight._ops.table import OPERATORS

F = rl.nn.functional


@pytest.fixture
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Records are kept in a cache that no other process writes to, and all that are read are checked."""
    folder = tmp_path_factory.getbasetemp() / "kept_plans"
    with CACHE_DIR.scoped(str(folder)), KEEP_PLANS.scoped(True), CHECK_PLANS.scoped(True):
        clear_plans()
        plan_store._further[0] = 0
        yield
        plan_store.flush()
    clear_plans()


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators whose graphs are traced from now on, and a word for each graph that is scheduled."""
    from rushlight._backends.cpu import backend as program
    from rushlight._engine.dispatch import lower, lowered_call

    names: list[str] = []
    trace, schedule = lower.trace_operator, program.compile_graph

    def traced(op: Any, *args: Any, **kwargs: Any) -> Any:
        names.append(op.name)
        return trace(op, *args, **kwargs)

    def scheduled(*args: Any, **kwargs: Any) -> Any:
        names.append("schedule")
        return schedule(*args, **kwargs)

    monkeypatch.setattr(lower, "trace_operator", traced)
    monkeypatch.setattr(lowered_call, "trace_operator", traced)
    monkeypatch.setattr(program, "compile_graph", scheduled)
    return names


def second_process() -> None:
    plan_store.flush()
    plan_store._further[0] = 0  # a process may keep so many plans of further sizes
    clear_plans()
    store().clear()


def training_step(seed: int = 0) -> list[Any]:
    rl.manual_seed(seed)
    x = rl.randn(6, 8, requires_grad=True)
    w, b = rl.randn(5, 8, requires_grad=True), rl.randn(5, requires_grad=True)
    y = F.gelu(F.linear(x, w, b)) * 3
    loss = (F.log_softmax(y, -1).exp() - 0.5).square().mean()
    loss.backward()
    return [loss.detach().numpy(), *[t.grad.numpy() for t in (x, w, b)]]


def alike(found: list[Any], wanted: list[Any]) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, wanted, strict=True))


# ***** what a second process does *****


def test_a_second_process_derives_nothing(keeping, derived):
    with CHECK_PLANS.scoped(False):
        wanted = training_step()
        second_process()
        derived.clear()
        assert alike(training_step(), wanted)
        assert derived == []


def test_sizes_cast_from_a_template_are_what_is_derived(keeping):
    """Their kernels may have slots of their own for sizes that are equal by chance."""

    def convolved() -> list[Any]:
        found = []
        for n in (4, 6, 8):
            x = rl.arange(2.0 * n * n * n).view(2, n, n, n).div(1000).requires_grad_()
            w = rl.ones(n, n, 3, 3, requires_grad=True)
            y = F.relu(F.conv2d(x, w, rl.ones(n), padding=1))
            y.sum().backward()
            found += [y.detach().numpy(), x.grad.numpy(), w.grad.numpy()]
        return found

    wanted = convolved()
    second_process()
    hits = store().hits
    assert alike(convolved(), wanted)
    assert store().hits > hits + 10


def test_what_is_read_is_checked(keeping):
    wanted = training_step()
    second_process()
    hits = store().hits
    assert alike(training_step(), wanted)
    assert store().hits > hits + 10


def test_without_the_knob_everything_is_derived(keeping, derived):
    training_step()
    second_process()
    derived.clear()
    with KEEP_PLANS.scoped(False):
        assert store() is None
        training_step()
    assert {"linear", "gelu", "schedule"} <= set(derived)


def test_everything_is_derived_while_somebody_looks(keeping, derived):
    training_step()
    second_process()
    derived.clear()
    with LOG.scoped(frozenset({"graph"})):
        training_step()
    assert {"linear", "gelu", "schedule"} <= set(derived)
    second_process()
    derived.clear()
    text = str(rl.explain(training_step)())
    assert "gelu" in text and "gelu" in derived


def test_the_default_dtype_takes_part(keeping):
    def step() -> Any:
        return (rl.arange(5) / 2).dtype

    assert step() is rl.float32
    second_process()
    rl.set_default_dtype(rl.float64)
    try:
        assert step() is rl.float64
    finally:
        rl.set_default_dtype(rl.float32)
    second_process()
    assert step() is rl.float32


def test_numbers_of_other_types_are_other_calls(keeping):
    def results() -> list[Any]:
        x = rl.arange(4)
        return [
            x.sum(0).dtype,
            (x + 1).dtype,
            (x + 1.0).dtype,
            (x + True).dtype,
            x.clamp(max=2).dtype,
            x.clamp(max=2.5).dtype,
        ]

    wanted = results()
    second_process()
    assert results() == wanted


@pytest.mark.parametrize("again", range(2))
def test_derivatives_of_derivatives(keeping, again):
    """They need the graphs of kept plans."""

    def second() -> list[Any]:
        x = rl.linspace(-1, 1, 7).requires_grad_()
        y = (F.silu(x) * x.exp()).sum()
        (g,) = rl.autograd.grad(y, x, create_graph=True)
        (h,) = rl.autograd.grad(g.square().sum(), x, create_graph=True)
        h.sum().backward()
        return [g.detach().numpy(), h.detach().numpy(), x.grad.numpy()]

    wanted = second()
    second_process()
    assert alike(second(), wanted)


def test_gradients_of_some_results(keeping):
    def some() -> list[Any]:
        x = rl.arange(12.0).view(3, 4).requires_grad_()
        values, _ = x.sort(-1)
        mean = rl.var_mean(x, dim=1)[1]
        (values[:, 0].sum() + mean.sum()).backward()
        return [x.grad.numpy()]

    wanted = some()
    second_process()
    assert alike(some(), wanted)


def test_refused_derivatives_are_refused_again(keeping):
    def refused() -> str:
        x = rl.ones(3, requires_grad=True)
        y = rl.special.zeta(x + 1, x)
        with pytest.raises((RuntimeError, NotImplementedError)) as error:
            y.sum().backward()
        return str(error.value)

    wanted = refused()
    second_process()
    assert refused() == wanted


def test_numbers_beyond_the_range_are_refused_again(keeping):
    def out_of_range() -> str:
        with pytest.raises(RuntimeError) as error:
            rl.zeros(3, dtype=rl.uint8).masked_fill(rl.ones(3, dtype=rl.bool), 300)
        return str(error.value)

    rl.zeros(3, dtype=rl.uint8).masked_fill(rl.ones(3, dtype=rl.bool), 200)
    wanted = out_of_range()
    second_process()
    rl.zeros(3, dtype=rl.uint8).masked_fill(rl.ones(3, dtype=rl.bool), 200)
    assert out_of_range() == wanted


def test_storage_that_is_too_small_is_still_refused(keeping):
    def released() -> str:
        x = rl.ones(4)
        (x * 2).sum()
        x.untyped_storage().resize_(0)
        with pytest.raises(RuntimeError) as error:
            x * 2
        return str(error.value)

    wanted = released()
    second_process()
    assert released() == wanted


def test_complex_numbers_and_conjugates(keeping):
    def complexes() -> list[Any]:
        x = rl.complex(rl.arange(3.0), rl.ones(3)).requires_grad_()
        y = (x.conj() * (2 + 1j) + x * 1j).abs().sum()
        y.backward()
        return [y.detach().numpy(), x.grad.numpy()]

    wanted = complexes()
    second_process()
    assert alike(complexes(), wanted)


def test_modes_are_those_of_the_reader(keeping):
    def inference() -> list[bool]:
        with rl.inference_mode():
            a = rl.ones(3) * 2
        with rl.no_grad():
            b = rl.ones(3, requires_grad=True) * 2
        c = rl.ones(3, requires_grad=True) * 2
        return [a.is_inference(), b.requires_grad, c.requires_grad, b.is_inference()]

    assert inference() == [True, False, True, False]
    second_process()
    assert inference() == [True, False, True, False]


def test_sizes_that_were_not_kept_are_derived(keeping):
    for n in (5, 6, 7):
        rl.ones(n).exp().sum()
    second_process()
    assert [rl.ones(n).exp().sum().item() for n in (5, 9, 6, 11, 13, 7)] == pytest.approx(
        [np.e * n for n in (5, 9, 6, 11, 13, 7)]
    )


def test_a_new_size_beside_kept_ones_makes_a_plan_template(keeping, monkeypatch):
    from rushlight._engine.dispatch.plans import shape_classes

    def step(n: int) -> Any:
        return (rl.arange(3.0 * n).view(3, n).exp() * 2).numpy()

    step(5)
    second_process()
    made: list[Any] = []
    derive = shape_classes._derive
    monkeypatch.setattr(shape_classes, "_derive", lambda *args: made.append(args[2]) or derive(*args))
    step(5)
    assert not made
    np.testing.assert_allclose(step(7), np.exp(np.arange(21, dtype=np.float32)).reshape(3, 7) * 2, rtol=1e-5)
    assert len(made) >= 3


# ***** every operator *****


def drawn(value: Any, rng: Any, grad: bool) -> Any:
    if isinstance(value, Draw):
        made = rl.from_numpy(np.ascontiguousarray(value.array(rng)))
        return made.requires_grad_() if grad and value.dtype.is_floating_point else made
    return [drawn(v, rng, grad) for v in value] if isinstance(value, list) else value


def results_of(function: Callable[..., Any], call: Any) -> list[Any]:
    """Results and gradients as arrays; an error as its type and text."""
    rng, op = np.random.default_rng(0), function.operator  # type: ignore[attr-defined]
    names = [a.name for a in op.schema.arguments]
    args = [drawn(v, rng, names[min(k, len(names) - 1)] not in op.constants) for k, v in enumerate(call.args)]
    kwargs = {name: drawn(v, rng, name not in op.constants) for name, v in call.kwargs.items()}
    rl.manual_seed(0)
    try:
        made = function(*args, **kwargs)
        results = [r for r in (made if isinstance(made, (tuple, list)) else [made]) if isinstance(r, Tensor)]
        wanted = [r for r in results if r.requires_grad]
        if wanted:
            rl.autograd.backward(wanted, [rl.ones_like(r) for r in wanted])
    except (RuntimeError, IndexError, ValueError) as error:
        return [(type(error), str(error))]
    tensors = [
        t for a in (*args, *kwargs.values()) for t in (a if isinstance(a, list) else [a]) if isinstance(t, Tensor)
    ]
    return [
        t.detach().resolve_conj().numpy().copy() for t in [*results, *[t.grad for t in tensors if t.grad is not None]]
    ]


def same(found: list[Any], wanted: list[Any]) -> bool:
    if len(found) != len(wanted):
        return False
    return all(
        a == b if isinstance(a, tuple) else a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        for a, b in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize("part", [0, 4, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 3, 5, 6, 7))])
def test_operators_as_they_were_derived(part: int, keeping: None) -> None:
    """The same bits and the same errors from records, which are what is derived."""
    names = sorted(name for name in OPERATORS if name != "empty_like")[part::8]
    calls = [(name, samples_of(OPERATORS[name])[:1]) for name in names]
    wanted = {name: results_of(make_function(Caller(OPERATORS[name])), call[0]) for name, call in calls if call}
    second_process()
    hits = store().hits
    for name, call in calls:
        if call:
            found = results_of(make_function(Caller(OPERATORS[name])), call[0])
            assert same(found, wanted[name]), (name, found, wanted[name])
    assert store().hits - hits > len(names) // 2


# ***** records that cannot be believed *****


def spoiled(change: Callable[[dict[str, Any]], Any]) -> int:
    """Change the heads of all records that wait, in a form that is whole again; how many there were."""
    plan_store.flush()
    kept, count = store(), 0
    kept.clear()
    for segment in kept._opened():
        for key, _, body in list(segment.records()):
            size = int.from_bytes(body[:4], "little")
            head = json.loads(body[4 : 4 + size])
            made = change(head)
            text = made if isinstance(made, bytes) else json.dumps(head if made is None else made).encode()
            kept.put(key, len(text).to_bytes(4, "little") + text + body[4 + size :])
            count += 1
    clear_plans()
    return count


def set_in(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    def change(head: dict[str, Any]) -> None:
        if name in head:
            head[name] = value

    return change


def in_program(change: Callable[[Any], None]) -> Callable[[dict[str, Any]], Any]:
    def changed(head: dict[str, Any]) -> None:
        if head.get("program"):
            change(head["program"])

    return changed


def other_kernel(program: Any) -> None:
    for step in program[3]:
        if step[0] == "kernel":
            step[1] = "k" + "0" * 24


def lost_kernel(program: Any) -> None:
    for step in program[3]:
        if step[0] == "kernel":
            step[1], step[2] = "k" + "1" * 24, "1" * 64


def far_words(program: Any) -> None:
    for step in program[3]:
        if step[0] == "kernel":
            step[5] = [99 for _ in step[5]]


def small_results(program: Any) -> None:
    for step in program[3]:
        if step[0] == "kernel":
            step[4][3] = 0


SPOILS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no JSON": lambda head: b"{",
    "no head": lambda head: [1],
    "nothing": lambda head: {},
    "deep": lambda head: b"[" * 100_000,
    "large numbers": set_in("specs", [["float32", [1 << 62, 8], [8, 1]]]),
    "negative sizes": set_in("specs", [["float32", [-3], [1]]]),
    "no specs": set_in("specs", []),
    "an unknown dtype": set_in("specs", [["float33", [3], [1]]]),
    "results": set_in("results", 7),
    "an input that is not there": set_in("wrt", [9]),
    "a source that is not there": set_in("saved", [["input", 9]]),
    "a source of no kind": set_in("saved", [["memory", 0]]),
    "no program": set_in("program", None),
    "an empty program": set_in("program", [0, 0, [], []]),
    "another program": set_in("program", [9, 9, [0], []]),
    "a step of no kind": in_program(lambda p: p[3].append(["exec", "import os"])),
    "a call of no library": in_program(lambda p: p[3].append(["call", "nothing", [], [], [], {"dict": []}, None, [], []])),
    "another kernel": in_program(other_kernel),
    "a kernel that is gone": in_program(lost_kernel),
    "words from elsewhere": in_program(far_words),
    "results that do not fit": in_program(small_results),
    "results from elsewhere": in_program(lambda p: p.__setitem__(2, [77 for _ in p[2]])),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILS)
def test_spoilt_records_are_left_aside(name: str, tmp_path: Path, derived: list[str]) -> None:
    with KEEP_PLANS.scoped(True), CACHE_DIR.scoped(str(tmp_path)):
        clear_plans()
        wanted = training_step()
        assert spoiled(SPOILS[name]) > 10
        derived.clear()
        assert alike(training_step(), wanted)
        assert "schedule" in derived
        plan_store.flush()
        clear_plans()


def test_spoilt_graphs_are_derived_anew(tmp_path: Path) -> None:
    """They are read late, when somebody asks for them."""

    def second() -> list[Any]:
        x = rl.linspace(-1, 1, 7).requires_grad_()
        (g,) = rl.autograd.grad(F.silu(x).sum(), x, create_graph=True)
        g.sum().backward()
        return [x.grad.numpy()]

    with KEEP_PLANS.scoped(True), CACHE_DIR.scoped(str(tmp_path)):
        clear_plans()
        wanted = second()
        plan_store.flush()
        kept = store()
        kept.clear()
        for segment in kept._opened():
            for key, _, body in list(segment.records()):
                size = int.from_bytes(body[:4], "little")
                kept.put(key, body[: 4 + size] + b"[[[],[],[0]],7]" * bool(body[4 + size :]))
        clear_plans()
        assert alike(second(), wanted)
        plan_store.flush()
        clear_plans()


# ***** real processes *****

PROGRAM = """
import rushlight as rl
from rushlight._engine.dispatch.kept.plan_store import store
x = rl.arange(12.0).view(3, 4).requires_grad_()
y = (x @ x.t()).softmax(-1).log().sum()
y.backward()
print(y.item(), x.grad.sum().item())
kept = store()
print(kept.hits if kept is not None else -1, kept.misses if kept is not None else -1)
"""


def ran(run_python: Any, cache: Path, **env: str) -> tuple[str, int, int]:
    done = run_python(
        "-c",
        PROGRAM,
        check=True,
        env={**os.environ, "RUSHLIGHT_CACHE_DIR": str(cache), "RUSHLIGHT_KEEP_PLANS": "1", **env},
    )
    values, counts = done.stdout.splitlines()
    return values, *map(int, counts.split())  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.parametrize("checked", ["0", "1"])
def test_processes(run_python, tmp_path, checked):
    first = ran(run_python, tmp_path, RUSHLIGHT_CHECK_PLANS=checked)
    assert first[1] == 0 and first[2] > 5
    second = ran(run_python, tmp_path, RUSHLIGHT_CHECK_PLANS=checked)
    assert second[0] == first[0] and second[2] == 0 and second[1] == first[2]
    without = ran(run_python, tmp_path, RUSHLIGHT_KEEP_PLANS="0")
    assert without == (first[0], -1, -1)
    other = ran(run_python, tmp_path, RUSHLIGHT_VECTOR_BYTES="16")  # another machine, so to speak
    assert other[1] == 0


def test_an_edition_is_of_its_sources_and_versions(monkeypatch):
    with KEEP_PLANS.scoped(True):
        before = plan_store._edition()
        assert plan_store._edition() == before
        monkeypatch.setattr(plan_store.sources, "sources_digest", lambda names: b"others")
        assert plan_store._edition() != before
        monkeypatch.undo()
        monkeypatch.setattr(sys, "version", "3.99")
        assert plan_store._edition() != before
        monkeypatch.undo()
        monkeypatch.setattr(plan_store, "_numpy_version", lambda: b"9.9")
        assert plan_store._edition() != before


def test_the_sources_that_take_part(monkeypatch):
    named: list[Any] = []
    monkeypatch.setattr(plan_store.sources, "sources_digest", lambda names: named.append(names) or b"x")
    plan_store._edition()
    rooms = {name.split("/")[0] for name in named[0]}
    layers = (Path(rl.__file__).parent / "LAYERS").read_text().split("\n")
    wanted = {line.strip() for line in layers if line.startswith("_")} - {"_surface", "_cli"}
    assert {room for room in wanted if (Path(rl.__file__).parent / room).is_dir()} <= rooms


def test_children_of_a_fork_leave_records_to_their_parent(tmp_path):
    with KEEP_PLANS.scoped(True), CACHE_DIR.scoped(str(tmp_path)):
        clear_plans()
        rl.ones(3).exp()
        waiting = len(plan_store._PENDING)
        child = os.fork()
        if not child:
            os._exit(len(plan_store._PENDING))
        assert waiting and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        plan_store.flush()
        clear_plans()


def test_without_a_cache_nothing_is_kept():
    with KEEP_PLANS.scoped(True), CACHE_DIR.scoped(""):
        assert store() is None and default_cache().directory == ""


def test_operators_declared_outside_of_the_package_are_derived_anew(keeping: None, derived: list[str]) -> None:
    """No record says what the source of a program is, so an operator that it declares may have another body next time."""
    from rushlight._ops.table import operator

    for factor in (2.0, 3.0):
        declared = operator("scaled_by_a_program(Tensor input) -> Tensor", promote="float")(lambda x, f=factor: x * f)
        try:
            scaled = make_function(Caller(declared))
            x = rl.ones(2, requires_grad=True)
            y = scaled(x)
            y.sum().backward()
            assert y.tolist() == [factor, factor] and x.grad is not None and x.grad.tolist() == [factor, factor]
        finally:
            del OPERATORS[declared.name]
        second_process()
    assert derived.count("scaled_by_a_program") >= 2


# ***** changes in place *****


def changed_in_place() -> list[Any]:
    found = []
    for n in (3, 5, 6):
        x = rl.linspace(-2, 2, 2 * n).view(2, n)
        x.mul_(3).add_(rl.ones(n)).clamp_(min=-1.5)
        w = rl.ones(n, requires_grad=True)
        y = (x * w).add_(w).sigmoid_() + F.relu(x * w, inplace=True)
        y.sum().backward()
        half = rl.arange(n).to(rl.float16).exp_()
        found += [x.numpy().copy(), y.detach().numpy(), w.grad.numpy(), half.numpy()]
    return found


def test_changes_in_place(keeping, derived):
    wanted = changed_in_place()
    second_process()
    hits = store().hits
    assert alike(changed_in_place(), wanted)
    assert store().hits > hits + 15
    with CHECK_PLANS.scoped(False):
        clear_plans()
        changed_in_place()
        second_process()
        derived.clear()
        assert alike(changed_in_place(), wanted)
        assert not derived


def test_refusals_of_changes_in_place(keeping):
    def refused() -> list[str]:
        found = []
        leaf = rl.ones(3, requires_grad=True)
        for call in (lambda: leaf.mul_(2), lambda: rl.ones(3).add_(rl.ones(2, 3)), lambda: rl.ones(3, dtype=rl.int64).mul_(1.5),
                     lambda: rl.ones(1).expand(3).mul_(2)):  # fmt: skip
            with pytest.raises(RuntimeError) as error:
                call()
            found.append(str(error.value))
        return found

    rl.ones(3).mul_(2)
    wanted = refused()
    second_process()
    rl.ones(3).mul_(2)
    assert refused() == wanted
