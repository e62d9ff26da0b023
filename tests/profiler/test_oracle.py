"""Tables, sums and files of the same events, beside PyTorch's own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from rushlight.autograd import profiler as ours
from rushlight.profiler import schedule

pytestmark = pytest.mark.oracle


@pytest.fixture
def theirs() -> Any:
    return pytest.importorskip("torch").autograd.profiler


def events(module: Any, **options: Any) -> Any:
    """A small program: a range that calls two operators, one with an inner one, and backward."""
    made = [
        module.FunctionEvent(1, "step", 1, 0.0, 5000.25, scope=7, is_user_annotation=True, input_shapes=[], stack=["a.py(3): main"]),
        module.FunctionEvent(2, "aten::linear", 1, 10.5, 1200.0, input_shapes=[[2, 3], [4, 3], [4]], stack=["b.py(1): f", "a.py(3): main"],
                             cpu_memory_usage=4096, sequence_nr=3, flops=48),
        module.FunctionEvent(3, "aten::addmm", 1, 11.0, 1100.5, input_shapes=[[4], [2, 3], [3, 4]], stack=["b.py(1): f", "a.py(3): main"],
                             cpu_memory_usage=2048, sequence_nr=3, flops=48000),
        module.FunctionEvent(4, "aten::addmm", 1, 12.0, 1000.5, input_shapes=[], stack=[], sequence_nr=3),
        module.FunctionEvent(5, "aten::add", 1, 2000.0, 2100.0, input_shapes=[[2, 4], []], stack=["a.py(9): main " + "x" * 90]),
        module.FunctionEvent(6, "AddmmBackward0", 1, 3000.0, 3000000.125, input_shapes=[[2, 4]], stack=["other"], scope=1, sequence_nr=3,
                             fwd_thread=1),
        module.FunctionEvent(7, "autograd::engine::evaluate_function: a very long name of a node of backward", 2, 0.0, 20.0,
                             cpu_memory_usage=-3 * 1024**3, input_shapes=[[i] for i in range(40)], stack=[]),
    ]  # fmt: skip
    found = module.EventList(made, **options)
    found._build_tree()
    return found


SORTS = [
    None,
    "cpu_time_total",
    "self_cpu_time_total",
    "cpu_time",
    "cpu_memory_usage",
    "self_cpu_memory_usage",
    "count",
    "self_cuda_time_total",
]


@pytest.mark.parametrize("sort_by", SORTS)
def test_tables(theirs: Any, sort_by: str | None) -> None:
    a, b = events(ours, profile_memory=True), events(theirs, profile_memory=True)
    for limit, unit, header, top in ((100, None, None, False), (2, "ms", "head", False), (-1, "s", None, True)):
        options = {
            "sort_by": sort_by,
            "row_limit": limit,
            "time_unit": unit,
            "header": header,
            "top_level_events_only": top,
        }
        assert a.table(**options) == b.table(**options)
    widths = {"max_name_column_width": 20, "max_shapes_column_width": 10, "max_src_column_width": 30}
    assert a.table(**widths) == b.table(**widths)


@pytest.mark.parametrize(("shapes", "stack"), list(itertools.product((False, True), (0, 1, 2))))
def test_averages(theirs: Any, shapes: bool, stack: int) -> None:
    a, b = (events(m).key_averages(group_by_input_shapes=shapes, group_by_stack_n=stack) for m in (ours, theirs))
    assert a.table() == b.table()
    assert [repr(row) for row in a] == [repr(row) for row in b]


def test_tables_with_operations(theirs: Any) -> None:
    a, b = (events(m, with_flops=True).key_averages() for m in (ours, theirs))
    assert a.table(sort_by="cpu_time_total") == b.table(sort_by="cpu_time_total")
    assert repr(events(ours).total_average()) == repr(events(theirs).total_average())


def test_nesting(theirs: Any) -> None:
    a, b = events(ours), events(theirs)
    assert [(e.name, e.cpu_parent and e.cpu_parent.id, [c.id for c in e.cpu_children], e.stack) for e in a] == [
        (e.name, e.cpu_parent and e.cpu_parent.id, [c.id for c in e.cpu_children], e.stack) for e in b
    ]
    assert [repr(e) for e in a] == [repr(e) for e in b]


def test_stacks_file(theirs: Any, tmp_path: Path) -> None:
    written = []
    for module in (ours, theirs):
        path = tmp_path / module.__name__
        events(module).export_stacks(str(path), "self_cpu_time_total")
        written.append(path.read_text())
    assert written[0] == written[1]


def test_schedules() -> None:
    torch: Any = pytest.importorskip("torch")
    for wait, warmup, active, repeat, skip, first in itertools.product((0, 2), (1, 2), (1, 3), (0, 2), (0, 1), (0, 1)):
        options = {
            "wait": wait,
            "warmup": warmup,
            "active": active,
            "repeat": repeat,
            "skip_first": skip,
            "skip_first_wait": first,
        }
        a, b = schedule(**options), torch.profiler.schedule(**options)
        assert [a(i).name for i in range(20)] == [b(i).name for i in range(20)], options


def _step(torch: Any) -> Any:
    """One training step of a small network, profiled: operations by name, and the pairs (row, row inside) of products."""
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 8),
        nn.GELU(),
        nn.LayerNorm(8),
        nn.Linear(8, 5),
    )
    x, y = torch.randn(2, 3, 8, 8), torch.tensor([1, 2])
    for _ in range(2):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], with_flops=True, record_shapes=True
    ) as prof:
        nn.functional.cross_entropy(model(x), y).backward()
    flops = {row.key: row.flops for row in prof.key_averages() if row.flops}
    return flops, {(e.cpu_parent.name, e.name) for e in prof.events() if e.cpu_parent is not None}


def test_a_step_has_pytorchs_rows_and_operations() -> None:
    import rushlight

    theirs_flops, theirs = _step(pytest.importorskip("torch"))
    flops, ours = _step(rushlight)
    assert flops == theirs_flops
    assert {
        ("aten::linear", "aten::addmm"), ("aten::conv2d", "aten::convolution"), ("aten::convolution", "aten::_convolution"), ("aten::relu", "aten::clamp_min"),
        ("aten::batch_norm", "aten::_batch_norm_impl_index"), ("aten::_batch_norm_impl_index", "aten::native_batch_norm"),
        ("aten::max_pool2d", "aten::max_pool2d_with_indices"), ("aten::layer_norm", "aten::native_layer_norm"), ("AddmmBackward0", "aten::mm"),
        ("ConvolutionBackward0", "aten::convolution_backward"), ("ReluBackward0", "aten::threshold_backward"), ("GeluBackward0", "aten::gelu_backward"),
        ("NativeBatchNormBackward0", "aten::native_batch_norm_backward"), ("NativeLayerNormBackward0", "aten::native_layer_norm_backward"),
        ("MaxPool2DWithIndicesBackward0", "aten::max_pool2d_with_indices_backward"), ("NllLossBackward0", "aten::nll_loss_backward"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0"),
    } <= ours & theirs  # fmt: skip
