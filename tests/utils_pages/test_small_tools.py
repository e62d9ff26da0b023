"""The smaller pages of `torch.utils`: weak dictionaries, module names, swapped tensors, reports, what needs C++."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.utils import collect_env, cpp_extension, deterministic, throughput_benchmark, weak
from rushlight.utils.module_tracker import ModuleTracker


def test_weak_dictionaries_hold_identities() -> None:
    x, y = torch.ones(2), torch.ones(2)
    d = weak.WeakTensorKeyDictionary({x: 1})
    d[y] = 2
    assert (d[x], d[y], len(d), x in d, 3 in d) == (1, 2, 2, True, False)
    assert d == {x: 1, y: 2} and d != {x: 1} and copy.copy(d) == d
    assert d.get(torch.ones(2)) is None and d.setdefault(x, 5) == 1 and d.pop(y) == 2 and d.pop(y, 7) == 7
    with pytest.raises(KeyError):
        d.pop(y)
    assert (d | {y: 3})[y] == 3 and ({y: 3} | d)[x] == 1
    assert [k is x for k in d] == [True] and [r() is x for r in d.keyrefs()] == [True]
    key, value = d.popitem()
    assert key is x and value == 1
    with pytest.raises(KeyError):
        d.popitem()


def test_entries_go_with_their_keys() -> None:
    x = torch.ones(2)
    d = weak.WeakIdKeyDictionary({x: [1]}, ref_type=weak.WeakIdRef)
    deep = copy.deepcopy(d)
    assert deep[x] == [1] and deep[x] is not d[x]
    reference = weak.TensorWeakRef(x)
    del x
    gc.collect()
    assert len(d) == 0 and reference() is None
    with pytest.raises(AssertionError, match=r"expected torch\.Tensor"):
        weak.TensorWeakRef(3)


class Inner(nn.Module):
    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, x: Any) -> Any:
        self.seen.append(sorted(tracker.parents))
        return x * 1


tracker = ModuleTracker()


@pytest.mark.parametrize("wants", [False, True])
def test_module_tracker_in_forward_and_backward(wants: bool) -> None:
    seen: list[Any] = []
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), Inner(seen)))
    x = torch.ones(1, 2, requires_grad=wants)

    def note(word: str) -> Any:
        return lambda grad: seen.append((word, sorted(tracker.parents), tracker.is_bw))

    with tracker:
        out = model(x)
        assert tracker.parents == {"Global"}
        out.register_hook(note("out"))
        model[1][0].weight.register_hook(note("inner"))
        model[0].weight.register_hook(note("first"))
        out.sum().backward()
        assert tracker.parents == {"Global"} and not tracker.is_bw
    top = ["Global", "Sequential"]
    assert seen[0] == [*top, "Sequential.1", "Sequential.1.1"]
    assert ("out", [*top, "Sequential.1", "Sequential.1.1"], True) in seen
    assert ("inner", [*top, "Sequential.1", "Sequential.1.0"], True) in seen
    # where the input wants a gradient, that one ends the module; which of input and weight comes first is open
    ends = [["Global"], [*top, "Sequential.0"]] if wants else [[*top, "Sequential.0"]]
    assert next(entry for entry in seen if entry[0] == "first")[1] in ends
    nn.Linear(2, 2)(torch.ones(1, 2))
    assert tracker.parents == {"Global"}


def test_swap_tensors() -> None:
    a, b = nn.Parameter(torch.ones(2)), torch.zeros(3)
    b.note = "b"
    a.grad = torch.full((2,), 5.0)
    torch.utils.swap_tensors(a, b)
    assert type(a) is torch.Tensor and a.tolist() == [0, 0, 0] and a.note == "b"
    assert type(b) is nn.Parameter and b.grad.tolist() == [5, 5]
    (b * 2).sum().backward()  # type: ignore[operator]
    assert b.grad.tolist() == [7, 7] and a.grad is None
    held = weakref.ref(a)
    with pytest.raises(RuntimeError, match="Cannot swap t1 because it has weakref"):
        torch.utils.swap_tensors(a, b)
    assert held() is a


def test_backward_refuses_leaves_that_were_swapped() -> None:
    a, b = torch.ones(2, requires_grad=True), torch.full((2,), 3.0, requires_grad=True)
    loss = (a * 2).sum() + (b * 4).sum()
    torch.utils.swap_tensors(a, b)
    with pytest.raises(RuntimeError, match="poisoned by swap_tensors"):
        loss.backward()
    assert a.grad is None and b.grad is None
    ((a * 2).sum() + (b * 4).sum()).backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([2, 2], [4, 4])  # graphs made since are as ever


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        _, y = ctx.saved_tensors
        return grads[0] * y, None


@pytest.mark.parametrize("product", [torch.mul, _Product.apply, torch.compile(torch.mul)])
def test_backward_refuses_saved_tensors_that_were_swapped(product: Any) -> None:
    x, factor = torch.ones(2, requires_grad=True), torch.full((2,), 3.0)
    y = product(x, factor).sum()
    torch.utils.swap_tensors(factor, torch.full((2,), 5.0))
    with pytest.raises(RuntimeError):
        y.backward()
    assert x.grad is None


def test_swap_tensors_refuses_bases_weak_references_and_other_slots() -> None:
    class Slotted(torch.Tensor):
        __slots__ = ("note",)

    base, leaf = torch.ones(2), torch.ones(2, requires_grad=True)
    row = base[0]
    with pytest.raises(RuntimeError, match="use_count of t2"):
        torch.utils.swap_tensors(torch.zeros(3), base)
    assert row._base is base
    (leaf * 2).sum().backward()  # the graph refers to its leaf weakly, as the user does
    held = weakref.ref(leaf)
    with pytest.raises(RuntimeError, match="weakref"):
        torch.utils.swap_tensors(leaf, torch.zeros(2))
    with pytest.raises(RuntimeError, match="different slots"):
        torch.utils.swap_tensors(torch.zeros(2).as_subclass(Slotted), torch.zeros(2))
    assert held() is leaf
    first, second = torch.zeros(2).as_subclass(Slotted), torch.ones(2).as_subclass(Slotted)
    first.note = "first"
    torch.utils.swap_tensors(first, second)
    assert second.note == "first" and not hasattr(first, "note")


def test_small_names() -> None:
    class Named:
        pass

    torch.utils.set_module(Named, "a.b")
    assert Named.__module__ == "a.b"
    with pytest.raises(TypeError):
        torch.utils.set_module(Named, None)
    assert torch.utils.model_zoo.load_url is torch.hub.load_state_dict_from_url
    assert torch.utils.dlpack.DLDeviceType.kDLCPU == 1
    assert deterministic.fill_uninitialized_memory is True
    with pytest.raises(RuntimeError, match="expected a bool, but got int"):
        deterministic.fill_uninitialized_memory = 3  # type: ignore[assignment]
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(1).isnan()
        deterministic.fill_uninitialized_memory = False
        ones = torch.ones(1 << 20)
        del ones  # its memory is given out again as it is
        assert not torch.empty(1 << 20).isnan().any()
    finally:
        deterministic.fill_uninitialized_memory = True
        torch.use_deterministic_algorithms(False)
    with pytest.raises(NotImplementedError, match="rushlight"):
        torch.utils.get_cpp_backtrace()
    with pytest.raises(RuntimeError, match="in-tree device name: cuda"):
        torch.utils.rename_privateuse1_backend("cuda")


def test_extensions_in_cpp_say_that_there_are_none() -> None:
    assert cpp_extension.CUDA_HOME is None and cpp_extension.include_paths() == []
    for call in (
        lambda: cpp_extension.load("name", ["a.cpp"]),
        lambda: cpp_extension.load_inline("name", "int f();"),
        lambda: cpp_extension.CppExtension("name", []),
        cpp_extension.BuildExtension,
    ):
        with pytest.raises(NotImplementedError, match="custom_op"):
            call()


def test_collect_env() -> None:
    env = collect_env.get_env_info()
    text = collect_env.pretty_str(env)
    assert text.startswith(
        f"PyTorch version: {torch.__version__} (rushlight)\nIs debug build: False\nCUDA used to build PyTorch: Could not collect"
    )
    assert "numpy==" in env.pip_packages and "\nCPU:\n" in text and "Python version: 3." in text


def test_throughput() -> None:
    bench = torch.utils.ThroughputBenchmark(nn.Linear(2, 2))
    with pytest.raises(AssertionError, match="provide benchmark inputs"):
        bench.benchmark()
    bench.add_input(torch.ones(1, 2))
    assert tuple(bench.run_once(torch.ones(1, 2)).shape) == (1, 2)
    stats = bench.benchmark(num_calling_threads=2, num_warmup_iters=1, num_iters=7)
    assert stats.num_iters == 7 and stats.latency_avg_ms > 0 and stats.iters_per_second > 0
    assert str(stats).startswith("Average latency per example: ")
    bench = torch.utils.ThroughputBenchmark(lambda x: x.view(3))
    bench.add_input(torch.ones(2))
    with pytest.raises(RuntimeError, match="shape"):
        bench.benchmark(num_calling_threads=2)
    assert [throughput_benchmark.format_time(t) for t in (0.5, 1500, 2.5e6)] == ["0.500us", "1.500ms", "2.500s"]
    with pytest.raises(AssertionError):
        throughput_benchmark.format_time(1, 2)


def test_structures_as_text() -> None:
    """The texts are those that PyTorch 2.13 writes."""
    from collections import OrderedDict, defaultdict, deque, namedtuple

    from rushlight.utils import _pytree as pytree

    leaf = '{"type": null, "context": null, "children_spec": []}'

    def text(name: str, context: str, count: int) -> str:
        return f'[1, {{"type": "{name}", "context": {context}, "children_spec": [{", ".join([leaf] * count)}]}}]'

    counted = defaultdict(list, x=1)
    cases: list[tuple[Any, str]] = [
        (1, f"[1, {leaf}]"),
        ([1, 2], text("builtins.list", '"null"', 2)),
        ((), text("builtins.tuple", '"null"', 0)),
        ({"a": 1, 2: 3}, text("builtins.dict", '"[\\"a\\", 2]"', 2)),
        (OrderedDict(b=1, a=2), text("collections.OrderedDict", '"[\\"b\\", \\"a\\"]"', 2)),
        (deque([1], 3), text("collections.deque", '"3"', 1)),
        (counted, text(
            "collections.defaultdict", '{"default_factory_module": "builtins", "default_factory_name": "list", "dict_context": ["x"]}', 1
        )),
    ]  # fmt: skip
    for tree, expected in cases:
        spec = pytree.tree_structure(tree)
        assert pytree.treespec_dumps(spec) == expected
        assert pytree.treespec_loads(expected) == spec

    point = namedtuple("point", "x y")
    with pytest.raises(NotImplementedError, match="_register_namedtuple"):
        pytree.treespec_dumps(pytree.tree_structure(point(1, 2)))
    pytree._register_namedtuple(point, serialized_type_name="tests.point")
    written = pytree.treespec_dumps(pytree.tree_structure(point(1, 2)))
    assert written == text("collections.namedtuple", '"tests.point"', 2)
    assert pytree.treespec_loads(written).unflatten([3, 4]) == point(3, 4)

    class Box:
        def __init__(self, item: Any) -> None:
            self.item = item

    pytree.register_pytree_node(
        Box, lambda b: ([b.item], object), lambda items, _: Box(*items), serialized_type_name="tests.Box",
        to_dumpable_context=lambda context: context.__name__, from_dumpable_context=lambda name: {"object": object}[name],
    )  # fmt: skip
    written = pytree.treespec_dumps(pytree.tree_structure(Box(1)))
    assert written == text("tests.Box", '"object"', 1) and pytree.treespec_loads(written).context is object
    pytree._deregister_pytree_node(Box)
    with pytest.raises(NotImplementedError, match=r"tests\.Box"):
        pytree.treespec_loads(written)
    with pytest.raises(ValueError, match="Unknown protocol 2"):
        pytree.treespec_dumps(pytree.tree_structure(1), protocol=2)
    with pytest.raises(ValueError, match="Unknown protocol 7"):
        pytree.treespec_loads("[7, {}]")
    with pytest.raises(TypeError, match="PyTreeSpec"):
        pytree.treespec_dumps([1])
