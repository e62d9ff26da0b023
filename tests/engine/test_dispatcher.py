"""Native dispatchers and plans: the second call of a kind must do what the first did, and leave nothing behind."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._engine.core.state import clear_plans, plan_counts
from rushlight._engine.dispatch.plans import native_plans
from rushlight._engine.dispatch.plans.native_lookup import RUNS, make_cached

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "add alpha": lambda x, y: torch.add(x, y, alpha=3),
    "add default alpha": lambda x, y: torch.add(x, y, alpha=1),
    "numbers": lambda x, y: (x * 2, x * 2.5, x * True, 1 - x, x**2, x**2.0, x**0.5),
    "compare": lambda x, y: (x > 0.5, x == y, x != 0),
    "view": lambda x, y: (x.view(6, 4), x.view(-1), x.view((3, 8)), x.view([12, 2]), x.view(y.shape)),
    "reshape": lambda x, y: (x.t().reshape(24), x.reshape(2, -1), x.flatten(), x.T, x.mT),
    "index": lambda x, y: (x[1], x[1, 2], x[1:3, None], x[..., 0], x[-1], x[:, ::2]),
    "index by tensors": lambda x, y: (x[torch.tensor([0, 2])], x[x > 0.5], x[torch.tensor(1)], x[[0, 1]]),
    "split": lambda x, y: (*x.split(2), *x.chunk(2), *x.unbind(1), *x.split([1, 3])),
    "lists": lambda x, y: (torch.cat((x, y)), torch.cat([x, y], dim=1), torch.stack([x, y, x], -1)),
    "reduce": lambda x, y: (x.sum(), x.sum(1), x.sum((0, 1)), x.sum(dim=0, keepdim=True), *x.max(1), x.argmax(-1)),
    "cast": lambda x, y: (x.double(), x.to(torch.int64), x.long(), x.float(), x.to(y.dtype), x.clone(), x.detach()),
    "out": lambda x, y: (torch.add(x, y, out=torch.empty(4, 6)), torch.sum(x, 1, out=torch.empty(4))),
    "in place": lambda x, y: x.clone().add_(y, alpha=2).mul_(0.5).clamp_(0, 1),
    "copy": lambda x, y: (
        torch.empty(4, 6).copy_(y),
        torch.zeros(4, 6).copy_(x[0]),
        torch.empty(4, 6, dtype=torch.float64).copy_(x),
    ),
    "index by tensors, in tuples": lambda x, y: (
        x[torch.tensor([0, 2]), 1:3],
        x[:, torch.tensor([1, 1])],
        x[torch.tensor([3, 0]), torch.tensor([1, 2])],
        x[None, torch.tensor([1])],
        x[torch.tensor([0, 2]), torch.tensor(1)],
        x[2:, torch.tensor([4])],
        x[1:][torch.tensor([-1]), None],
    ),
    "powers": lambda x, y: (x**y, 2**x, torch.pow(x, y), x.pow(torch.tensor(2)), x.clone().pow_(y)),
    "factories": lambda x, y: (
        torch.zeros(2, 3),
        torch.zeros((2, 3), dtype=torch.int64),
        torch.ones([2]),
        torch.full((2,), 2.5),
        torch.full((2,), 3, dtype=torch.uint8),
        torch.full_like(x.t(), 2),
        torch.ones_like(x.t()),
        x.new_zeros(2, 3),
        x.new_full((2,), 7),
        torch.arange(5),
        torch.arange(0, 1, 0.25),
        torch.arange(5, 0, -2, dtype=torch.float32),
        torch.linspace(0, 1, 5),
        torch.eye(2, 3),
        torch.tril_indices(3, 3),
        torch.zeros(3, device=torch.device("cpu")),
        torch.arange(3, device=x.device),
    ),
    "composites": lambda x, y: (
        x.norm(),
        x.norm(dim=1),
        torch.cross(x[:, :3], y[:, :3]),
        torch.trapezoid(x),
        x.median(),
        *x.mode(1),
        torch.renorm(x, 2, 0, 1.0),
        torch.pdist(x),
        torch.combinations(x[0]),
        torch.cartesian_prod(x[0], y[0]),
        *torch.meshgrid(x[0], y[0, :2], indexing="ij"),
        torch.block_diag(x, y),
        x.ravel(),
        x.t().ravel(),
        x.expand_as(x),
        torch.broadcast_to(x[0], (4, 6)),
        *torch.broadcast_tensors(x, y[0]),
        x.type_as(y.double()),
        torch.tensordot(x, y.t(), 1),
        torch.einsum("ij,kj->ik", x, y),
        *torch.tensor_split(x, 3),
        torch.repeat_interleave(x, 2, dim=0),
        torch.isin(x, y),
        torch.searchsorted(x.sort()[0], y),
        *torch.gradient(x),
        torch.linalg.matrix_power(x @ y.t(), 3),
    ),
    "parts of complex numbers": lambda x, y: (
        torch.complex(x, y).real,
        torch.complex(x, y).imag,
        torch.complex(x, y).conj().resolve_conj(),
        torch.view_as_real(torch.complex(x, y)),
        torch.view_as_complex(x.view(4, 3, 2)),
        torch.complex(x, y).conj().imag.clone(),
        torch.fft.fft(x),
        torch.fft.irfft(torch.fft.rfft(y)),
    ),
    "memory under other layouts": lambda x, y: (
        x.view(torch.int32),
        x.view(torch.float16).view(torch.int16),
        x.as_strided((2, 2), (6, 1)),
        x.as_strided((2, 2), (6, 1), 3),
        x[1:].as_strided((2, 3), (1, 2)),
    ),
    "answers": lambda x, y: (
        torch.tensor(torch.equal(x, y)),
        torch.tensor(torch.equal(x, x.clone())),
        torch.tensor(torch.allclose(x, y)),
    ),
    "product": lambda x, y: (
        x @ y.t(),
        torch.nn.functional.linear(x, y),
        torch.softmax(x, -1),
        torch.where(x > y, x, y),
    ),
}


def flat(made: Any) -> list[np.ndarray[Any, Any]]:
    return [v.numpy() for v in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_known_do_what_they_did_first(name: str) -> None:
    x, y = torch.rand(4, 6), torch.rand(4, 6)
    clear_plans()
    first = flat(CALLS[name](x, y))
    for _ in range(2):
        again = flat(CALLS[name](x, y))
        for a, b in zip(first, again, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides and np.array_equal(a, b)


def cached(function: Callable[..., Any], *names: str) -> Any:
    return make_cached(function, names, 0)


def test_a_function_of_several_plans_becomes_a_tape() -> None:
    runs = []

    def function(a: Any, b: Any, parts: Any) -> Any:
        runs.append(1)
        low, high = a.sort(1)[0].chunk(2, 1)
        total = torch.zeros(4, 3)
        for part in parts:
            total.add_(low).mul_(part).sub_(high, alpha=2)
        b.add_(1.0)
        return total, b, (total + 1).sum(0)

    call, n = cached(function, "a?", "b?", "parts?"), 0
    for seed in range(4):
        torch.manual_seed(seed)
        a, b, parts = torch.rand(4, 6), torch.rand(3), [torch.rand(4, 3), torch.rand(3)]
        wanted = function(a, b.clone(), parts)
        n += len(runs)
        runs.clear()
        found = call(a, b, parts)
        assert found[1] is b
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(x.numpy(), y.numpy())
        assert len(runs) == (seed == 0)  # later calls are run without the function


def test_gradients_go_through_a_tape() -> None:
    call = cached(lambda a, b: ((a * b).exp().sum(1), a.t() @ b), "a?", "b?")
    for _ in range(3):
        a, b = torch.rand(4, 6).requires_grad_(), torch.rand(4, 6)
        first, second = call(a, b)
        (first.sum() + second.sum()).backward()
        wanted = (b * (a.detach() * b).exp()) + b.sum(1, keepdim=True)
        np.testing.assert_allclose(a.grad.numpy(), wanted.numpy(), rtol=1e-5)


def test_what_depends_on_elements_is_no_tape() -> None:
    def by_item(a: Any) -> Any:
        return a + 1 if a[0, 0].item() > 0 else a - 1

    def by_truth(a: Any) -> Any:
        return a + 1 if a[0, 0] > 0 else a - 1

    def by_list(a: Any) -> Any:
        return a * a.tolist()[0][0]

    def by_array(a: Any) -> Any:
        b = a + 0
        b.numpy()[0] = 7
        return b * 2

    def by_places(a: Any) -> Any:
        return a.flatten()[a.flatten() > 0] * 2

    def by_format(a: Any) -> Any:
        return a * len(f"{a[0, 0]:.3f}")

    for function in (by_item, by_truth, by_list, by_array, by_places, by_format):
        call = cached(function, "a?")
        for value in (1.0, 1.0, -1.0, 20.0, 3.0):
            a = torch.full((2, 2), value)
            a[1, 1] = -a[1, 1]
            np.testing.assert_array_equal(call(a).numpy(), function(a).numpy(), err_msg=function.__name__)


def test_a_tensor_that_is_given_twice_is_not_taken_for_another() -> None:
    x, y, b = torch.rand(3, 3), torch.rand(3, 3), torch.rand(3, 3) > 0.5
    for first, second in ((x, x), (x, y), (y, x), (y, y)):
        np.testing.assert_array_equal(
            torch.where(b, first, second).numpy(), np.where(b.numpy(), first.numpy(), second.numpy())
        )
        np.testing.assert_allclose(
            torch.cross(first, second).numpy(), np.cross(first.numpy(), second.numpy(), axis=0), atol=1e-6
        )
    call = cached(lambda a, b: (a + b * 2, b), "a?", "b?")
    for wants in (False, True):
        x, y = torch.rand(2).requires_grad_(wants), torch.rand(2).requires_grad_(wants)
        for a, b in ((x, x), (x, y), (y, y)):
            made, same = call(a, b)
            assert same is b
            np.testing.assert_array_equal(made.detach().numpy(), (a + b * 2).detach().numpy())


def test_threads_learn_apart() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slowly(a: Any) -> Any:
        b = a + 1
        inside.set()
        assert go_on.wait(60)
        return b * 2

    call, found = cached(slowly, "a?"), []
    thread = threading.Thread(target=lambda: found.append(call(torch.ones(3))))
    thread.start()
    assert inside.wait(60)
    other = cached(lambda a: (a * 3).sum() + torch.zeros(1), "a?")
    assert [other(torch.ones(2)).item() for _ in range(3)] == [6.0] * 3  # while the first thread is in the middle
    go_on.set()
    thread.join(60)
    assert found[0].tolist() == [4.0] * 3
    assert call(torch.full((3,), 2.0)).tolist() == [6.0] * 3
    assert RUNS.now is None


def test_random_numbers_are_drawn_anew() -> None:
    call = cached(lambda a: (torch.rand_like(a) + a).sum(), "a?")
    a = torch.zeros(5, 5)
    assert len({call(a).item() for _ in range(5)}) == 5


def test_numbers_of_a_tape_are_part_of_its_signature() -> None:
    call = cached(lambda a, n: (a * n + n).sum(0), "a?", "n")
    a = torch.ones(2, 2)
    for n in (2, 3, 2.0, 0.5, True):
        assert call(a, n).tolist() == [4.0 * n, 4.0 * n]


def test_a_tape_may_fail_in_the_middle() -> None:
    call = cached(lambda a, i: (a + 1).index_select(0, i).sum(), "a?", "i?")
    a, good, bad = torch.zeros(3, 2), torch.tensor([0, 2]), torch.tensor([0, 5])
    for _ in range(3):
        assert call(a, good).item() == 4.0
        with pytest.raises(IndexError):
            call(a, bad)


def test_views_by_strides_stay_within_memory() -> None:
    for _ in range(3):
        assert torch.arange(10.0).as_strided((3, 2), (4, 1)).tolist() == [[0, 1], [4, 5], [8, 9]]
        with pytest.raises(RuntimeError, match="out of bounds"):
            torch.arange(10.0)[2:].view(8).as_strided((3, 2), (4, 1))
        with pytest.raises(RuntimeError, match="out of bounds"):
            torch.arange(10.0).as_strided((3, 2), (4, 1), 1)
        base = torch.zeros(10)
        base[2:].as_strided((2,), (3,)).add_(1)
        base[2:].as_strided((2,), (3,), 1).add_(2)
        assert base.tolist() == [0, 2, 1, 0, 2, 1, 0, 0, 0, 0]


def test_a_number_is_never_taken_for_another() -> None:
    x = torch.ones(3)
    for _ in range(2):
        for number in (1, 2, 1.0, 2.0, -1, 1 << 40, True):
            assert (x * number).tolist() == [float(number)] * 3
            number = number if number is not True else 3
            assert torch.add(x, x, alpha=number).tolist() == [float(np.float32(1.0 + number))] * 3
            assert torch.full((2,), float(number)).tolist() == [float(number)] * 2
    assert (torch.ones(3, dtype=torch.int64) * (1 << 61)).tolist() == [1 << 61] * 3
    assert x.softmax(0).tolist() == x.softmax(-1).tolist()
    with pytest.raises(IndexError):
        x.softmax(1)


def test_assignment_to_parts() -> None:
    x, held = torch.zeros(4, 6), np.zeros((4, 6), np.float32)
    for k in range(3):
        for index, value in (
            ((1, 2), 0.5 + k),
            (1, 1),
            (slice(2, 4), 3.5),
            ((slice(None), 3), k),
            ((Ellipsis, 0), -1.0),
        ):
            x[index] = value
            held[index] = value
        x[1], held[1] = x[2], held[2]
        x[2:4, 1:3], held[2:4, 1:3] = torch.full((2, 2), 9.0), 9.0
        x[x > 8], held[held > 8] = 4.0, 4.0
        assert np.array_equal(x.numpy(), held)
    before = x._version
    x[0, 0] = 1.0
    assert x._version == before + 1
    whole = torch.arange(4)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="overflow"):
            whole[0] = float("inf")


def test_assignment_by_tensors() -> None:
    x, held = torch.zeros(5, 6), np.zeros((5, 6), np.float32)
    i, j = [0, 2, 4, 2], [1, 1, 3, 0]
    for k in range(3):
        rows, columns = torch.tensor(i), torch.tensor(j)
        x[rows], held[i] = k + 0.5, k + 0.5
        x[rows, columns], held[i, j] = k, k
        x[rows, 1:3], held[i, 1:3] = 7.0, 7.0
        x[:, columns[1:]], held[:, j[1:]] = torch.arange(3.0), np.arange(3.0)
        x[1:, columns], held[1:, j] = -k, -k
        for at in range(4):  # what a tensor without dims holds is part of the index
            x[torch.tensor(at)], held[at] = float(at), float(at)
            x[torch.tensor(at), 5], held[at, 5] = 3.0 * at, 3.0 * at
            x[rows[:2], torch.tensor(at)], held[i[:2], at] = 0.25 * at, 0.25 * at
            assert x[torch.tensor(at)].tolist() == held[at].tolist()
            assert x[rows, torch.tensor(at)].tolist() == held[i, at].tolist()
            x.index_put_((torch.tensor(at),), torch.full((6,), 9.0))
            held[at] = 9.0
        x.index_put_((rows[:2], columns[:2]), torch.ones(2), accumulate=True)
        held[i[:2], j[:2]] += 1
        assert np.array_equal(x.numpy(), held)
        for wrong in ([0, 5], [-6]):
            with pytest.raises(IndexError):
                x[torch.tensor(wrong), 1:3]
            with pytest.raises(IndexError):
                x[torch.tensor(wrong)] = 1.0
    grad = torch.zeros(5, 6, requires_grad=True)
    for _ in range(2):
        y = grad * 2
        y[torch.tensor([0, 1]), 1:3] = 5.0
        (found,) = torch.autograd.grad(y[torch.tensor([1, 2]), :2].sum(), grad)
        assert found.sum().item() == 6.0


def test_numbers_that_do_not_fit() -> None:
    small, wide = torch.zeros(3, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64)
    for _ in range(3):
        assert small.fill_(255).tolist() == [255] * 3 and wide.fill_(1 << 40).tolist() == [1 << 40] * 3
        assert small.fill_(2.5).tolist() == [2] * 3 and small.clamp(0, 1).tolist() == [1] * 3
        assert torch.full((2,), 200, dtype=torch.uint8).tolist() == [200] * 2
        for refused in (lambda: small.fill_(256), lambda: small.clamp(0, 1 << 20), lambda: torch.full((2,), 300, dtype=torch.uint8),
                        lambda: torch.full((2,), float("inf"), dtype=torch.int32)):  # fmt: skip
            with pytest.raises(RuntimeError, match="overflow"):
                refused()


def test_factories_ask_the_state() -> None:
    for _ in range(3):
        assert torch.zeros(2, requires_grad=True).requires_grad and not torch.zeros(2).requires_grad
        assert torch.arange(2.0, requires_grad=True).requires_grad and not torch.arange(2.0).requires_grad
        with torch.inference_mode():
            assert (
                torch.zeros(2).is_inference()
                and torch.full((2,), 1.0).is_inference()
                and torch.arange(2).is_inference()
            )
        with torch.device("meta"):
            assert (
                torch.zeros(2).device.type == torch.full((2,), 1.0).device.type == torch.arange(2).device.type == "meta"
            )
        torch.set_default_dtype(torch.float64)
        try:
            assert torch.zeros(2).dtype is torch.full((2,), 1.0).dtype is torch.arange(2.0).dtype is torch.float64
        finally:
            torch.set_default_dtype(torch.float32)
        out = torch.ones(2)
        assert torch.zeros(2, out=out) is out and out.tolist() == [0, 0]
        made = torch.zeros(2)
        made.add_(1)
        assert torch.zeros(2).tolist() == [0, 0]


def test_random_fills_go_on() -> None:
    for fill in (
        lambda x: x.normal_(),
        lambda x: x.uniform_(-1, 1),
        lambda x: x.exponential_(),
        lambda x: x.geometric_(0.01),
        torch.randn_like,
    ):
        for x in (torch.zeros(20), torch.zeros(4, 5).t(), torch.zeros(3, 8)[:, ::2]):
            torch.manual_seed(7)
            clear_plans()
            first = [fill(x).tolist() for _ in range(1)]
            rest = [fill(x).tolist() for _ in range(3)]
            assert all(a != b for k, a in enumerate([*first, *rest]) for b in [*first, *rest][:k])
            torch.manual_seed(7)
            assert [fill(x).tolist() for _ in range(4)] == [*first, *rest]
    leaf = torch.zeros(3, requires_grad=True)
    version = torch.zeros(3)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="leaf"):
            leaf.normal_()
        before = version._version
        assert version.normal_() is version and version._version == before + 1


def test_devices_are_one_object() -> None:
    cpu = torch.device("cpu")
    assert (
        cpu
        is torch.device("cpu")
        is torch.device(cpu)
        is copy.deepcopy(cpu)
        is pickle.loads(pickle.dumps(cpu))
        is torch.zeros(1).device
    )
    assert torch.device("cuda:1") is torch.device("cuda", 1) and torch.device("cpu", 0) != cpu


def test_histories_follow_assignment() -> None:
    x = torch.ones(3, requires_grad=True)
    for _ in range(3):
        y = x * 2
        y[0] = 5.0
        y[1:].mul_(3.0)
        (grad,) = torch.autograd.grad(y.sum(), x)
        assert grad.tolist() == [0.0, 6.0, 6.0]
        with pytest.raises(RuntimeError, match="leaf"):
            x[0] = 1.0


def test_the_state_is_part_of_a_signature() -> None:
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        assert (x * 2).requires_grad
        with torch.no_grad():
            assert not (x * 2).requires_grad and not x[0].view(1)._node
        with torch.inference_mode():
            assert (x * 2).is_inference()
    found = []
    other = threading.Thread(target=lambda: found.append((x * 2).requires_grad))
    with torch.no_grad():
        other.start()
        other.join()
    assert found == [True]


def test_operands_in_one_memory() -> None:
    for _ in range(3):
        x = torch.arange(6.0)
        x[1:].add_(x[:-1].clone())
        assert x.tolist() == [0.0, 1.0, 3.0, 5.0, 7.0, 9.0]
        with pytest.raises(RuntimeError, match="single memory location"):
            x[1:].add_(x[:-1])
        y = torch.ones(4)
        assert torch.cumsum(y.data, 0, out=y).tolist() == [1.0, 2.0, 3.0, 4.0]
        z = torch.rand(3, 3)
        assert torch.equal(torch.mm(z, z, out=torch.empty(3, 3)), z @ z)


def test_views_know_their_base() -> None:
    x = torch.rand(4, 6)
    for _ in range(3):
        v = x.view(6, 4).t()[1:3].unsqueeze(0)
        assert v._base is x and v.shape == (1, 2, 6) and v._is_view()
    leaf = torch.rand(4, requires_grad=True)
    for _ in range(3):
        y = leaf * 1
        a, b = y.split(2)
        with pytest.raises(RuntimeError, match="multiple views"):
            a.mul_(2)
        assert type(b.grad_fn).__name__ == "SplitBackward0" and b.output_nr == 1


def test_saved_values_are_watched() -> None:
    for _ in range(3):
        x = torch.rand(3, requires_grad=True)
        y = x.exp()
        z = y * y
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_errors_of_known_calls() -> None:
    table, good, bad = torch.rand(3, 2), torch.tensor([0, 2]), torch.tensor([0, 3])
    for _ in range(3):
        assert torch.nn.functional.embedding(good, table).shape == (2, 2)
        with pytest.raises(IndexError):
            torch.nn.functional.embedding(bad, table)
        with pytest.raises(TypeError):
            torch.add(table)
        with pytest.raises(TypeError, match="unexpected keyword"):
            torch.exp(table, colour=1)


@pytest.mark.slow
def test_nothing_is_left_behind() -> None:
    x = torch.rand(4, 6)

    def calls() -> None:
        for name in CALLS:
            CALLS[name](x, x)
        leaf = torch.rand(3, requires_grad=True)
        (leaf * 2 + leaf.exp()).sum().backward()

    for _ in range(20):  # what is kept for kinds of calls is there after some
        calls()
    gc.collect()
    shared = [None, True, False, x._spec, torch.float32]
    counts, objects = [sys.getrefcount(s) for s in shared], len(gc.get_objects())
    for _ in range(20):
        calls()
    gc.collect()
    assert len(gc.get_objects()) - objects < 20
    assert all(abs(sys.getrefcount(s) - c) < 20 for s, c in zip(shared, counts, strict=True))


def test_tensors_die_at_once() -> None:
    gc.collect()
    gc.disable()
    try:
        clear_plans()
        for _ in range(3):
            x = torch.rand(4, 6)
            seen = [weakref.ref(x), weakref.ref(x + 1), weakref.ref(x.view(-1)), weakref.ref(x[0])]
            torch.stack([x, x]).sum(0).mul_(x)
            del x
            assert [r() for r in seen] == [None] * 4
    finally:
        gc.enable()


def test_plans_are_forgotten() -> None:
    x = torch.rand(2, 3)
    x + x
    assert native_plans.cached_plans(torch.Tensor.__add__) > 0
    clear_plans()
    assert native_plans.cached_plans(torch.Tensor.__add__) == 0 and plan_counts() == 0
    assert torch.equal(x + x, x * 2)


def test_a_dispatcher_looks_like_a_function() -> None:
    function = torch.add
    assert function.__name__ == "add" and function.__doc__ and callable(function) and inspect.isroutine(function)
    assert pickle.loads(pickle.dumps(function)) is function and copy.deepcopy(function) is function
    assert native_plans.is_function(function) and not native_plans.is_function(torch.Tensor)
    x = torch.rand(3)
    bound = x.add
    assert torch.equal(bound(1), x + 1)
    assert torch.equal(torch.Tensor.add(x, 1), x + 1)
    with pytest.raises(TypeError, match="descriptor"):
        torch.Tensor.exp(3)


def test_a_deep_graph_is_freed() -> None:
    x = torch.rand(3, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y + 0.5
    del y
    y = x
    for _ in range(50_000):
        y = y.mul(1.0)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0] * 3


def test_the_changed_elements_may_be_operands() -> None:
    a = np.arange(12.0).reshape(3, 4)
    for _ in range(3):
        x = torch.tensor(a)
        before = x._version
        x[0] += x[1]
        x[1:3] *= 2
        x[:, 1] -= x[:, 1]
        x.add_(x).mul_(x)
        x.copy_(x)
        x[1] = x[1]
        expected = a.copy()
        expected[0] += expected[1]
        expected[1:3] *= 2
        expected[:, 1] = 0
        expected = (2 * expected) ** 2
        np.testing.assert_array_equal(x.numpy(), expected)
        assert x._version > before + 7
        x.t().copy_(x.t())
        x[:2] = x[1:].clone()
        y = x.clone()
        x[:, 1:] = x[:, :-1]  # the same memory, other elements
        np.testing.assert_array_equal(x[:, 1:].numpy(), y[:, :-1].numpy())
        with pytest.raises(RuntimeError, match="single memory location"):
            x[1:] += x[:-1]
        with pytest.raises(RuntimeError, match="single memory location"):
            x[0].scatter_add_(0, torch.tensor([0]), x[0])


def test_tensors_that_stand_for_ints_in_an_index() -> None:
    a = np.arange(24.0).reshape(2, 3, 4)
    x, rows = torch.tensor(a), torch.tensor([0, 2])
    k = torch.tensor(0)
    for i in (0, 1, -1, 0):
        k.fill_(i)  # the same tensor, another number
        assert x[k].tolist() == a[i].tolist()
        assert x[k, k].tolist() == a[i, i].tolist()
        assert x[k, 1:, k].tolist() == a[i, 1:, i].tolist()
        assert x[k, rows].tolist() == a[i, [0, 2]].tolist()
        assert x[..., k].tolist() == a[..., i].tolist()
        y, expected = x.clone(), a.copy()
        y[k], expected[i] = 7.0, 7.0
        y[k, k] = torch.arange(4.0)
        expected[i, i] = np.arange(4)
        y[k, rows, k], expected[i, [0, 2], i] = -1.0, -1.0
        y[:, k] += 1
        expected[:, i] += 1
        np.testing.assert_array_equal(y.numpy(), expected)
    k.fill_(5)
    for wrong in (lambda: x[k], lambda: x[0, k], lambda: x.__setitem__(k, 0.0), lambda: x.__setitem__((0, k), 0.0)):
        with pytest.raises(IndexError, match="out of bounds"):
            wrong()
    leaf = torch.ones(3, requires_grad=True)
    y = leaf * 2
    y[torch.tensor(1)] = 0.0
    y.sum().backward()
    assert leaf.grad.tolist() == [2.0, 0.0, 2.0]


def test_powers_of_tensors_are_kept() -> None:
    x, y = torch.rand(5) + 1, torch.rand(5)
    plain = torch.Tensor.__pow__
    for _ in range(3):
        np.testing.assert_allclose((x**y).numpy(), x.numpy() ** y.numpy(), rtol=1e-6)
        np.testing.assert_allclose((x**x).numpy(), x.numpy() ** x.numpy(), rtol=1e-6)
        for n in (2, 3, 0.5, -1, 2.0):
            np.testing.assert_allclose((x**n).numpy(), x.numpy() ** n, rtol=1e-6)
    kept = native_plans.cached_plans(plain)
    assert (x**y).shape == (5,)
    assert native_plans.cached_plans(plain) == kept


def test_another_version_counter_through_data() -> None:
    x = torch.ones(3, requires_grad=True)
    for make in (lambda: x, lambda: torch.nn.Parameter(torch.ones(3)), lambda: torch.ones(3)[1:]):
        t = make()
        held = t.data
        assert type(held) is torch.Tensor
        assert (held.data_ptr(), held.requires_grad, held.grad_fn) == (t.data_ptr(), False, None)
        held.add_(1)
        assert (t._version, held._version) == (0, 1)
        assert t.tolist() == held.tolist()
    assert torch.ones(2, device="meta").data.device.type == "meta"
    with pytest.raises((TypeError, AttributeError)):
        torch.Tensor.data.__get__(5)


def test_leaves_that_factories_make() -> None:
    makers: list[Callable[..., Any]] = [
        lambda **k: torch.zeros(3, **k), lambda **k: torch.full((2,), 1.5, **k), lambda **k: torch.randn(4, **k), lambda **k: torch.rand(2, 2, **k),
        lambda **k: torch.zeros_like(torch.ones(2), **k), lambda **k: torch.ones(2).new_ones(3, **k), lambda **k: torch.linspace(0, 1, 3, **k),
    ]  # fmt: skip
    for make in makers:
        for _ in range(3):
            first, plain, second = make(requires_grad=True), make(), make(requires_grad=True)
            assert (first.requires_grad, plain.requires_grad, second.requires_grad) == (True, False, True)
            assert first.is_leaf
            (first * 2).sum().backward()
            assert second.grad is None
            assert first.grad.eq(2).all()
    for make in (torch.zeros, torch.randn):
        for _ in range(2):
            with pytest.raises(TypeError, match="must be bool"):
                make(3, requires_grad=1)
            with pytest.raises((RuntimeError, NotImplementedError)):
                make(3, requires_grad=True, dtype=torch.int64)
    torch.randint(0, 3, (3,))
    with pytest.raises(RuntimeError, match="floating point"):
        torch.randint(0, 3, (3,), requires_grad=True)


class Asked(torch.Tensor):
    """A tensor with a say."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func


def test_guards_leave_the_usual_calls_to_the_function() -> None:
    plain, own = torch.ones(2), torch.ones(2).as_subclass(Asked)
    weight = torch.nn.Parameter(plain)
    guard = native_plans.make_guard(lambda *args, **kwargs: "asked", lambda *args, **kwargs: "function", 1 << 4, 6)
    usual = [
        (),
        (plain,),
        (weight, 1, 2.0, True, None, "sum"),
        ([plain, weight], (1, 2)),
        (torch.float32, plain.shape, torch.device("cpu")),
    ]
    unusual = [
        (own,),
        (plain, own),
        ([plain, own],),
        ((1, (plain, own)),),
        (np.float32(1.0),),
        ([[1, 2]],),
        (1, 2, 3, 4, 5, 6, 7),
    ]
    assert [guard(*args) for args in usual] == ["function"] * len(usual)
    assert [guard(*args) for args in unusual] == ["asked"] * len(unusual)
    assert guard(plain, b=weight) == "function" and guard(plain, b=own) == "asked"
    by_place = native_plans.make_guard(
        lambda *args, **kwargs: "asked", lambda *args, **kwargs: "function", 0, named=False
    )
    assert by_place(plain) == "function" and by_place(plain, b=1) == "asked"
    with torch.overrides.TorchFunctionMode():
        assert guard(plain) == "asked" and by_place(plain) == "function"
    assert guard(plain) == "function"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("batch_norm", (None, None, None, None, True)),
        ("interpolate", (4,)),
        ("one_hot", ()),
        ("relu", ()),
        ("scaled_dot_product_attention", (None, None)),
    ],
)
def test_functions_behind_guards_are_what_overrides_are_shown(name: str, args: tuple[Any, ...]) -> None:
    function = getattr(torch.nn.functional, name)
    assert function(torch.ones(1, 2, 3).as_subclass(Asked), *args) is function
    assert function.__name__ == name and pickle.loads(pickle.dumps(function)) is function
    assert list(inspect.signature(function).parameters)[0] in ("input", "query")


def test_guards_go_with_what_they_hold() -> None:
    def function(x: Any) -> Any:
        return x

    guard = native_plans.make_guard(function, function, 0)
    assert guard(3) == 3
    seen = weakref.ref(function)
    del guard, function
    gc.collect()
    assert seen() is None


def test_plans_of_plain_calls_are_native():
    from rushlight._engine.dispatch.plans.native_plans import ready

    x = torch.ones(3)
    torch.exp(x)
    plan, inputs = ready().find_plan(torch.exp, (x,), None)
    assert type(plan) is ready().Plan and inputs[0] is x


def test_functions_print_as_pytorchs() -> None:
    """Programs that rewrite graphs know functions by their text."""
    for function, text in (
        (torch.flatten, "built-in method flatten of type object"),
        (torch.nn.functional.relu, "function relu"),
    ):
        assert str(function) == repr(function) and repr(function).startswith(f"<{text} at 0x"), repr(function)
