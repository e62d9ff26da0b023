"""Copy-on-write: whatever writes to a lazy clone, to its source or to a view of either leaves the other as it was; whatever reads copies nothing.

The sweep goes over the operator table (the first sample here, all of them in `tools/sweeps/lazy_clones.py`) and over everything else that writes; `_is_cow_tensor` and `_data_address` say what happened to the memory.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import io
import pickle
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from tests.ops.wrapped import OPERATORS, Case, Run, cases, listed

import rushlight as torch
from rushlight._C import _data_address as address
from rushlight._C import _is_cow_tensor as is_cow

IN_PLACE = [key for key in OPERATORS if any(True for _ in cases(key, ("in_place",)))]
OUT = [key for key in OPERATORS if any(True for _ in cases(key, ("out",)))]
KINDS = ("clone", "source", "view of the clone", "view of the source", "detached clone", "data of the source")


def fourth(names: Iterable[str]) -> list[Any]:
    """Every fourth, and the others among the slow tests: a write looks through all objects of a process for the tensors
    that share its memory.
    """
    return [pytest.param(name, marks=[pytest.mark.slow] if i % 4 else []) for i, name in enumerate(names)]


def held(x: Any) -> bytes:
    """The bytes in a tensor's memory, read without the library's help."""
    return ctypes.string_at(address(x), x.numel() * x.element_size()) if x.numel() else b""


def shared(x: Any) -> tuple[Any, Any]:
    """A tensor with the values of `x` and memory of its own, and its lazy clone."""
    source = x.detach().clone(memory_format=torch.contiguous_format)
    clone = source._lazy_clone()
    assert is_cow(source) and is_cow(clone) and address(source) == address(clone)
    return source, clone


def written(kind: str, source: Any, clone: Any) -> tuple[Any, Any]:
    """What a kind of write goes to, and what it must leave as it was."""
    target = source if "source" in kind else clone
    other = clone if target is source else source
    if kind.startswith("view"):
        target = target.view_as(target)
    elif kind.startswith("detached"):
        target = target.detach()
    elif kind.startswith("data"):
        target = target.data
    return target, other


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, type) or isinstance(b, type):
        return a is b
    return all(np.array_equal(x.detach().numpy(force=True), y.detach().numpy(force=True), equal_nan=x.dtype.is_floating_point or x.dtype.is_complex)
               if isinstance(x, torch.Tensor) else x == y for x, y in zip(listed(a), listed(b), strict=True))  # fmt: skip


def run_of(key: str, number: int) -> Run:
    return Run(torch, Case(key, number, "out", None, "all"))  # "out": nothing wants gradients


def check_in_place(key: str, number: int, kind: str) -> None:
    """An operator's in-place form on one side of a lazy clone, then on the other."""
    name = OPERATORS[key].public + "_"
    change = getattr(torch.Tensor, name, None) or getattr(torch.nn.functional, name)
    run = run_of(key, number)
    first, *rest = run.args
    if not isinstance(first, torch.Tensor):
        return
    expected = outcome(lambda: change(first.clone(), *rest, **run.kwargs))
    source, clone = shared(first)
    target, other = written(kind, source, clone)
    before = held(other)
    found = outcome(lambda: change(target, *rest, **run.kwargs))
    assert same(found, expected), kind
    assert held(other) == before, kind
    if not isinstance(found, type) and first.numel():
        assert not is_cow(target) and address(target) != address(other), kind
        whole = source if "source" in kind else clone
        assert address(whole) == address(target) and same(whole, target), kind
    assert same(outcome(lambda: change(other, *rest, **run.kwargs)), expected), kind  # the last one


def check_out(key: str, number: int) -> bool:
    """An operator's `out=` form into lazy clones; False where the call takes none."""
    run = run_of(key, number)
    function = run.function()
    made = listed(function(*run.args, **run.kwargs))
    plain = tuple([torch.zeros_like(x) for x in made])
    expected = outcome(lambda: listed(function(*run.args, **run.kwargs, out=plain if len(plain) > 1 else plain[0])))
    if isinstance(expected, type):
        return False
    pairs = [shared(torch.zeros_like(x)) for x in made]
    outs, before = [clone for _, clone in pairs], [held(source) for source, _ in pairs]
    function(*run.args, **run.kwargs, out=tuple(outs) if len(outs) > 1 else outs[0])
    assert same(outs, expected) and [held(source) for source, _ in pairs] == before
    assert not any(is_cow(x) for x in outs if x.numel())
    return True


def check_reading(key: str, number: int) -> None:
    """An operator's function on lazy clones leaves them as they are."""
    run = run_of(key, number)
    expected = outcome(lambda: run.function()(*run.args, **run.kwargs))
    pairs = {id(x): shared(x) for x in run.given}

    def lazy(value: Any) -> Any:
        return (
            [lazy(v) for v in value]
            if isinstance(value, list)
            else pairs[id(value)][1]
            if id(value) in pairs
            else value
        )

    found = outcome(lambda: run.function()(*map(lazy, run.args), **{k: lazy(v) for k, v in run.kwargs.items()}))
    assert all(is_cow(s) and is_cow(c) and address(s) == address(c) for s, c in pairs.values())
    assert same(found, expected)


@pytest.mark.parametrize("key", fourth(IN_PLACE))
def test_in_place(key: str) -> None:
    check_in_place(key, 0, KINDS[IN_PLACE.index(key) % len(KINDS)])


@pytest.mark.parametrize("key", OUT)
def test_out(key: str) -> None:
    if not check_out(key, 0):
        pytest.skip("this form takes no out")


@pytest.mark.parametrize("key", [key for key in IN_PLACE if OPERATORS[key].spaces][::4])
def test_reading_copies_nothing(key: str) -> None:
    check_reading(key, 0)


@pytest.mark.parametrize(
    "key", ["add", "mul", "exp", "masked_fill", "clamp", "sigmoid", "index_fill", "cumsum", "copysign", "pow"]
)
def test_gradients(key: str) -> None:
    change = getattr(torch.Tensor, OPERATORS[key].public + "_")
    found = []
    for clone in (torch.clone, torch._lazy_clone):
        run = Run(torch, Case(key, 0, "in_place", None, "all"))
        leaf = run.leaves[0]
        source = leaf * 2
        target = clone(source)
        change(target, *run.args[1:], **run.kwargs)
        found.append([target.detach(), *torch.autograd.grad((target.sum() + (source * source).sum()), [leaf])])
    assert same(*found)


def _optimizer(kind: Any, **how: Any) -> Callable[[Any], None]:
    def step(x: Any) -> None:
        x.grad = torch.ones_like(x)
        kind([x], **how).step()

    return step


WRITES: dict[str, Callable[[Any], Any]] = {
    "item": lambda x: x.__setitem__(0, 5.0), "slice": lambda x: x.__setitem__(slice(0, 2), torch.ones(2, 4)), "mask": lambda x: x.__setitem__(x > 1, 0.0),
    "list": lambda x: x.__setitem__([0, 2], 7.0), "element": lambda x: x.__setitem__((1, 1), 9.0), "row of a view": lambda x: x[1:].mul_(2), "copy": lambda x: x.copy_(torch.ones(4)),
    "zero": lambda x: x.zero_(), "fill": lambda x: x.fill_(3), "+=": lambda x: x.__iadd__(1), "transposed": lambda x: x.t().add_(1), "diagonal": lambda x: x.diagonal().fill_(8),
    "unbound": lambda x: x.unbind()[1].mul_(2), "split": lambda x: x.split(1)[1].mul_(2), "as_strided": lambda x: x.as_strided((2,), (1,), 1).fill_(4),
    "bytes": lambda x: x.view(torch.int32).zero_(), "flat": lambda x: x.view(-1)[3:].add_(1), "storage": lambda x: x.untyped_storage().fill_(0),
    "typed storage": lambda x: x.untyped_storage().__setitem__(0, 1), "data": lambda x: x.data.mul_(2), "data_ptr": lambda x: ctypes.memset(x.data_ptr(), 0, 8),
    "numpy": lambda x: x.numpy().fill(2), "array": lambda x: np.asarray(x).fill(2), "from_dlpack": lambda x: np.from_dlpack(x.numpy()).dtype and np.asarray(x).fill(1),
    "dlpack": lambda x: torch.from_dlpack(torch.utils.dlpack.to_dlpack(x)).mul_(2), "share": lambda x: x.share_memory_().mul_(2), "resize": lambda x: x.resize_(2, 2).fill_(1),
    "grow": lambda x: x.resize_(9, 9).fill_(1), "set": lambda x: torch.empty(0).set_(x).fill_(1), "set storage": lambda x: torch.empty(0).set_(x.untyped_storage()).fill_(1),
    "normal": lambda x: x.normal_(), "uniform": lambda x: x.uniform_(), "random": lambda x: x.random_(5), "bernoulli": lambda x: x.bernoulli_(0.5), "exponential": lambda x: x.exponential_(),
    "cauchy": lambda x: x.cauchy_(), "log_normal": lambda x: x.log_normal_(), "geometric": lambda x: x.geometric_(0.5), "bernoulli each": lambda x: x.bernoulli_(torch.full((3, 4), 0.5)),
    "rand out": lambda x: torch.rand(3, 4, out=x), "randn out": lambda x: torch.randn(3, 4, out=x), "arange out": lambda x: torch.arange(12.0, out=x.view(-1)), "ones out": lambda x: torch.ones(3, 4, out=x),
    "normal out": lambda x: torch.normal(0.0, torch.ones(3, 4), out=x), "cat out": lambda x: torch.cat([torch.ones(3, 2)] * 2, 1, out=x), "stack out": lambda x: torch.stack([torch.ones(4)] * 3, out=x),
    "einsum into": lambda x: x.addmm_(torch.ones(3, 2), torch.ones(2, 4)), "baddbmm": lambda x: x.view(1, 3, 4).baddbmm_(torch.ones(1, 3, 2), torch.ones(1, 2, 4)), "addr": lambda x: x.addr_(torch.ones(3), torch.ones(4)),
    "index_add": lambda x: x.index_add_(0, torch.tensor([0]), torch.ones(1, 4)), "scatter": lambda x: x.scatter_(1, torch.tensor([[1]]), 5.0), "put": lambda x: x.put_(torch.tensor([2]), torch.ones(1)),
    "index_put": lambda x: x.index_put_((torch.tensor([1]),), torch.ones(4), accumulate=True), "masked_scatter": lambda x: x.masked_scatter_(x > 0, torch.ones(12)), "fill_diagonal": lambda x: x.fill_diagonal_(6),
    "index_copy": lambda x: x.index_copy_(0, torch.tensor([1]), torch.ones(1, 4)), "relu": lambda x: torch.nn.functional.relu(x - 0, inplace=True) is not None and torch.relu_(x.sub_(5)),
    "leaky": lambda x: torch.nn.functional.leaky_relu(x.neg_(), inplace=True), "dropout": lambda x: torch.nn.functional.dropout(x, 0.5, inplace=True), "foreach": lambda x: torch._foreach_add_([x, x.clone()], 1.0),
    "foreach list": lambda x: torch._foreach_mul_([x], [torch.full((3, 4), 2.0)]), "foreach zero": lambda x: torch._foreach_zero_([x]), "foreach copy": lambda x: torch._foreach_copy_([x], [torch.ones(3, 4)]),
    "lerp": lambda x: torch._foreach_lerp_([x], [torch.ones(3, 4)], 0.5), "init": lambda x: torch.nn.init.xavier_uniform_(x), "orthogonal": lambda x: torch.nn.init.orthogonal_(x),
    "trunc_normal": lambda x: torch.nn.init.trunc_normal_(x), "clip": lambda x: setattr(p := torch.nn.Parameter(torch.ones(3, 4)), "grad", x) or torch.nn.utils.clip_grad_norm_([p], 0.1),
    "zero_grad": lambda x: setattr(p := torch.nn.Parameter(torch.ones(3, 4)), "grad", x) or torch.optim.SGD([p], 0.1).zero_grad(set_to_none=False),
    "accumulated gradient": lambda x: setattr(p := torch.nn.Parameter(torch.ones(3, 4)), "grad", x) or (p * 2).sum().backward(),
    "SGD": _optimizer(torch.optim.SGD, lr=0.1, momentum=0.9), "Adam": _optimizer(torch.optim.Adam, lr=0.1), "AdamW": _optimizer(torch.optim.AdamW, lr=0.1, foreach=False), "Adagrad": _optimizer(torch.optim.Adagrad, lr=0.1),
    "Adafactor": _optimizer(torch.optim.Adafactor, lr=0.1), "RMSprop": _optimizer(torch.optim.RMSprop, lr=0.1), "LBFGS": lambda x: torch.optim.LBFGS([x]).step(lambda: (x.grad is None and setattr(x, "grad", torch.ones_like(x))) or torch.ones(())),
    "load_state_dict": lambda x: (m := torch.nn.Linear(4, 3), setattr(m, "weight", torch.nn.Parameter(x, requires_grad=False)), m.load_state_dict(torch.nn.Linear(4, 3).state_dict())),
    "batch_norm": lambda x: torch.nn.functional.batch_norm(torch.randn(5, 4), x[0], torch.ones(4), training=True), "requires_grad": lambda x: x.requires_grad_().data.mul_(2),
    "sort out": lambda x: torch.sort(torch.randn(3, 4), 1, out=(x, torch.empty(3, 4, dtype=torch.int64))), "max out": lambda x: torch.max(torch.randn(3, 4, 2), 2, out=(x, torch.empty(3, 4, dtype=torch.int64))),
    "take out": lambda x: torch.take(torch.ones(9), torch.zeros(3, 4, dtype=torch.int64), out=x), "qr out": lambda x: torch.linalg.qr(torch.randn(3, 4), out=(torch.empty(3, 3), x)),
    "squeezed": lambda x: x.unsqueeze_(0).mul_(2), "t_": lambda x: x.t_().mul_(2), "real of complex": lambda x: torch.view_as_complex(x.view(3, 2, 2)).mul_(2j), "named": lambda x: x.addcmul_(x, x, value=2),
    "vmap": lambda x: torch.func.vmap(lambda r: r.mul_(2))(x), "grad transform": lambda x: torch.func.grad(lambda r: r.mul_(2).sum())(x), "renorm": lambda x: x.renorm_(2, 0, 0.5), "apply": lambda x: x.apply_(lambda v: v + 1),
    "map": lambda x: x.map_(torch.ones(3, 4), lambda a, b: a + b), "sum into": lambda x: torch.sum(torch.ones(3, 4, 2), 2, out=x), "no_grad": lambda x: x.requires_grad_() is None or _quietly(x),
    "Function": lambda x: _Doubled.apply(x), "unscale": lambda x: torch._amp_foreach_non_finite_check_and_unscale_([x], torch.zeros(1), torch.full((1,), 0.5)) if hasattr(torch, "_amp_foreach_non_finite_check_and_unscale_") else x.mul_(0.5),
}  # fmt: skip


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


def _quietly(x: Any) -> None:
    with torch.no_grad():
        x.mul_(3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", fourth(WRITES))
def test_other_writes(name: str) -> None:
    place = list(WRITES).index(name)
    for kind in (
        "clone",
        *(("source", "view of the clone", "view of the source", "with views")[place // 3 % 4 :][: place % 3 == 0]),
    ):
        torch.manual_seed(0)
        alone = torch.linspace(0.5, 3, 12).reshape(3, 4)
        expected = outcome(lambda: WRITES[name](alone)) if kind == "clone" else None  # noqa: B023
        torch.manual_seed(0)
        source, clone = shared(torch.linspace(0.5, 3, 12).reshape(3, 4))
        views = [(source[1:], source), (clone.t(), clone)] if kind == "with views" else []
        target, other = written(kind, source, clone)
        before = held(other)
        found = outcome(lambda: WRITES[name](target))  # noqa: B023
        assert held(other) == before, kind
        if kind == "clone":
            assert isinstance(found, type) == isinstance(expected, type), f"{found} instead of {expected}"
            assert torch.equal(clone.detach(), alone.detach()) or "unscale" in name, name
        for view, base in views:
            assert view._storage.ptr == base._storage.ptr or name == "grow"


READS: dict[str, Callable[[Any], Any]] = {
    "print": repr, "list": lambda x: x.tolist(), "item": lambda x: x[0, 0].item(), "sum": lambda x: x.sum(), "view": lambda x: x.view(-1)[2:], "clone": lambda x: x.clone(),
    "to": lambda x: x.to(torch.float64), "index": lambda x: x[x > 1], "matmul": lambda x: x @ x.t(), "backward": lambda x: (x.requires_grad_() * 2).sum().backward(), "compare": lambda x: x.equal(x + 0),
    "bool": lambda x: bool(x.sum() > 0), "detach": lambda x: x.detach(), "hash": hash, "stride": lambda x: (x.stride(), x.storage_offset(), x.is_contiguous(), x._version), "cat": lambda x: torch.cat([x, x]),
    "sort": lambda x: x.sort(), "max": lambda x: x.max(0), "softmax": lambda x: x.softmax(0), "linear": lambda x: torch.nn.functional.linear(x, x), "again": lambda x: x._lazy_clone(), "pickle": pickle.dumps,
    "rows": lambda x: list(x), "len": len, "where": lambda x: torch.where(x > 1, x, 0.0), "copy from": lambda x: torch.empty(3, 4).copy_(x), "into another": lambda x: torch.add(x, 1, out=torch.empty(3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_reads(name: str) -> None:
    source, clone = shared(torch.linspace(0.5, 3, 12).reshape(3, 4))
    READS[name](clone)
    READS[name](source)
    assert is_cow(source) and is_cow(clone) and address(source) == address(clone)


def test_many_clones_and_the_last_one() -> None:
    x = torch.arange(6.0)
    clones = [x._lazy_clone() for _ in range(4)]
    clones.append(clones[0]._lazy_clone())
    place = address(x)
    for k, each in enumerate(clones[1:]):
        each.add_(k + 1)
        assert not is_cow(each) and address(each) != place
    assert address(clones[0]) == place and torch.equal(x, torch.arange(6.0)) and torch.equal(clones[0], x)
    x.mul_(2)
    assert address(clones[0]) == place and torch.equal(clones[0], torch.arange(6.0))
    clones[0].mul_(3)  # alone by now: nothing is copied
    assert address(clones[0]) == place and not is_cow(clones[0]) and torch.equal(clones[0], 3 * torch.arange(6.0))
    again = clones[0]._lazy_clone()
    assert is_cow(again) and address(again) == place
    again.zero_()
    assert torch.equal(clones[0], 3 * torch.arange(6.0))


def test_a_clone_outlives_its_source() -> None:
    x = torch.arange(1000.0)
    y, place = x._lazy_clone(), address(x)
    del x
    gc.collect()
    torch.empty(1000).fill_(7)  # would take the memory, were it free
    assert torch.equal(y, torch.arange(1000.0)) and address(y) == place
    y.add_(1)
    assert address(y) == place and not is_cow(y) and torch.equal(y, torch.arange(1.0, 1001.0))


def test_memory_goes_back() -> None:
    from rushlight._backends.cpu.runtime.storage import memory_stats

    before = memory_stats()["allocated"]
    for _ in range(20):
        x = torch.zeros(1 << 16)
        y, z = x._lazy_clone(), x._lazy_clone()
        y.add_(1)
        x.add_(1)
        z.add_(1)
    del x, y, z
    gc.collect()
    assert memory_stats()["allocated"] <= before + (1 << 16)


def test_views_and_windows_move_together() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    row, turned = x[1], x.t()
    y = x._lazy_clone()
    assert is_cow(x) and is_cow(row)
    window, detached = x.data, x.detach()
    row.mul_(10)
    for each in (x, turned.t(), window, detached):
        assert torch.equal(each[1], 10 * torch.arange(4.0, 8.0)) and not is_cow(each)
    window[0, 0] = -1.0
    assert x[0, 0] == -1 and turned[0, 0] == -1 and detached[0, 0] == -1
    assert torch.equal(y, torch.arange(12.0).reshape(3, 4))
    late = y.data
    late.zero_()
    assert not y.any() and x[0, 0] == -1


@pytest.mark.slow
def test_memory_that_others_see_is_copied_at_once() -> None:
    array = np.ones(3)
    x = torch.ones(3)
    kept = x.numpy()
    for source, change in ((torch.from_numpy(array), lambda: array.fill(5)), (x, lambda: kept.fill(5))):
        clone = source._lazy_clone()
        assert not is_cow(clone) and not is_cow(source)
        change()
        assert source.eq(5).all() and clone.eq(1).all()
    for hold in (lambda v: v.untyped_storage(), lambda v: v.data, lambda v: memoryview(v._storage)):
        x = torch.ones(3)
        outside = hold(x)
        assert not is_cow(x._lazy_clone())
        del outside
        assert is_cow(x._lazy_clone())
    shared_one = torch.ones(3).share_memory_()
    assert not is_cow(shared_one._lazy_clone())


def test_versions_and_saved_tensors() -> None:
    p = torch.ones(3, requires_grad=True)
    w = torch.full((3,), 2.0)
    w.mul_(1)
    y = w._lazy_clone()
    assert (w._version, y._version) == (1, 0)
    out = p * w
    y.mul_(5)  # not what was saved
    out.sum().backward()
    assert p.grad.tolist() == [2.0, 2.0, 2.0] and (w._version, y._version) == (1, 1)
    out = p * w
    z = w._lazy_clone()
    w.mul_(5)
    assert w._version == 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    assert z.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.slow
def test_the_gradient_goes_through() -> None:
    p = torch.ones(3, dtype=torch.float64, requires_grad=True)
    y = p._lazy_clone()
    assert y.grad_fn.name() == "LazyCloneBackward0" and not y.is_leaf and y._base is None
    y.mul_(3)
    (y * p).sum().backward()
    assert p.grad.tolist() == [6.0] * 3 and p.tolist() == [1.0] * 3
    assert torch.autograd.gradcheck(lambda v: v._lazy_clone().mul_(v).exp_(), (p,))
    assert not torch.ones(2)._lazy_clone().requires_grad
    with torch.no_grad():
        assert not p._lazy_clone().requires_grad
    with torch.inference_mode():
        assert torch.ones(2)._lazy_clone().is_inference()


def test_other_kinds_of_tensor() -> None:
    class Sub(torch.Tensor):
        pass

    assert type(torch.ones(2).as_subclass(Sub)._lazy_clone()) is Sub
    assert torch.ones(3, device="meta")._lazy_clone().shape == (3,)
    assert torch.func.vmap(lambda r: r._lazy_clone().mul_(2))(torch.ones(2, 3)).eq(2).all()
    assert torch.func.grad(lambda v: v._lazy_clone().mul_(v).sum())(torch.ones(2)).eq(2).all()
    z = torch.ones(2, dtype=torch.complex64).mul_(1j).conj()._lazy_clone()
    z.mul_(2)
    assert z.tolist() == [-2j, -2j]
    part = torch.arange(6.0).reshape(2, 3)[:, 1:]._lazy_clone()
    assert part.stride() == (3, 1) and part.storage_offset() == 1 and part.tolist() == [[1.0, 2.0], [4.0, 5.0]]


def test_copies_and_files() -> None:
    source, clone = shared(torch.arange(4.0))
    first, second = copy.deepcopy([source, clone])
    first.zero_()
    assert second.tolist() == [0.0, 1.0, 2.0, 3.0]
    source, clone = shared(torch.arange(4.0))
    file = io.BytesIO()
    torch.save([source, clone, clone[1:]], file)
    file.seek(0)
    first, second, part = torch.load(file)
    first.zero_()
    part.mul_(10)
    assert second.tolist() == [0.0, 10.0, 20.0, 30.0]
    first, second = pickle.loads(pickle.dumps(shared(torch.arange(4.0))))
    first.zero_()
    assert second.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert not torch.ones(2).is_set_to(torch.ones(2)._lazy_clone())


def test_overlap_is_looked_for_in_memory_of_ones_own() -> None:
    source, clone = shared(torch.arange(5.0))
    assert torch.add(source[:-1], 1, out=clone[1:]).tolist() == [1.0, 2.0, 3.0, 4.0]
    source, clone = shared(torch.arange(5.0))
    assert clone[1:].add_(source[:-1]).tolist() == [1.0, 3.0, 5.0, 7.0] and source.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_tensors_the_collector_does_not_list() -> None:
    source = torch.arange(4.0)
    row = source[:2]
    clone = source._lazy_clone()
    gc.freeze()  # and left so: what collection made is frozen as well
    source.add_(1)
    assert row.tolist() == [1.0, 2.0] and clone.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_the_search_for_views_ends_where_all_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old objects are not looked at: they may be millions."""
    seen: list[int] = []
    listed = gc.get_objects
    monkeypatch.setattr(gc, "get_objects", lambda generation=None: seen.append(generation) or listed(generation))
    base = torch.arange(6.0)
    views = [base[:2], base.view(2, 3)]
    clone = base._lazy_clone()
    other = clone[3:]
    clone.add_(1)
    base.mul_(2)
    assert set(seen) <= {0, 1, 2}
    assert other.tolist() == [4.0, 5.0, 6.0] and [view.sum().item() for view in views] == [2.0, 30.0]


@pytest.mark.slow
def test_threads() -> None:
    for _ in range(4):
        base = torch.zeros(64, 8)
        rows = list(base)
        clone = base._lazy_clone()
        barrier = threading.Barrier(8)

        def write(k: int) -> None:
            barrier.wait()  # noqa: B023
            for row in rows[k::8]:  # noqa: B023
                row.add_(k + 1)

        threads = [threading.Thread(target=write, args=(k,)) for k in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not clone.any()
        assert base.tolist() == [[float(k % 8 + 1)] * 8 for k in range(64)]


def test_an_array_keeps_only_its_own_side_from_moving() -> None:
    source, clone = shared(torch.zeros(4))
    kept = clone.numpy()
    with pytest.raises(RuntimeError, match="not resizable"):
        clone.resize_(100)
    source.resize_(100)[:4].fill_(1)
    assert not kept.any() and not clone.any()
