"""Recurrent layers as whole-sequence kernels: against NumPy in double precision, against their own steps, and for any number of threads."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.kernels.kernel_harness import Ran, check, trace_arrays

import rushlight as torch
import rushlight._backends.cpu.recurrent.recurrent as calls
from rushlight import nn
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._engine.dispatch import backward_spec, graph_calls
from rushlight._prims import prim
from rushlight._prims.nn.recurrent_cell import BIASES, EXTRA_OPERANDS, GATES, GRAD_OPERANDS, KEPT
from rushlight._types.dtype import BY_NAME
from rushlight.nn.composites import recurrence

MODES = ("lstm", "gru", "tanh", "relu")
KINDS = ("LSTM", "GRU", "RNN")


def lengths_of(rng: Any, batch: int, steps: int) -> Any:
    """How many sequences of random lengths run at each step."""
    lengths = sorted((int(n) for n in rng.integers(1, steps + 1, batch)), reverse=True)
    return np.array([sum(n > t for n in lengths) for t in range(lengths[0])], dtype="int64")


def forward_case(rng: Any, mode: str, batch: int, units: int, steps: int, packed: bool, dtype: str) -> list[Any]:
    sizes = [lengths_of(rng, batch, steps)] if packed else []
    rows = int(sizes[0].sum()) if packed else batch * steps
    shapes = [(rows, GATES[mode] * units), (GATES[mode] * units, units), (BIASES[mode] * units,), (batch, units)]
    shapes += [(batch, units)] * (mode == "lstm")
    arrays = [rng.uniform(-1, 1, s).astype(dtype) for s in shapes]
    arrays[1] /= np.sqrt(units).astype(dtype)  # states do not grow
    return arrays + sizes


def backward_case(
    rng: Any, mode: str, batch: int, units: int, steps: int, packed: bool, dtype: str, extra: bool
) -> list[Any]:
    sizes = [lengths_of(rng, batch, steps)] if packed else []
    rows = int(sizes[0].sum()) if packed else batch * steps
    widths = {
        "w": (GATES[mode] * units, units),
        "gates": (rows, KEPT[mode] * units),
        "hs": (rows, units),
        "cs": (rows, units),
        "ct_hs": (rows, units),
    }
    widths |= {"ct_gates": widths["gates"], "ct_cs": (rows, units)}
    names = GRAD_OPERANDS[mode] + (EXTRA_OPERANDS[mode] if extra else ())
    return [rng.uniform(-0.9, 0.9, widths.get(name, (batch, units))).astype(dtype) for name in names] + sizes


def run_forward(
    rng: Any, mode: str, batch: int, units: int, steps: int, packed: bool, reverse: bool, dtype: str
) -> dict[str, float]:
    """The kernel against the NumPy reference, which computes in double precision; returns how near it must be."""
    tolerance = {"rtol": 1e-4, "atol": 2e-5} if dtype == "float32" else {"rtol": 1e-11, "atol": 1e-11}
    arrays = forward_case(rng, mode, batch, units, steps, packed, dtype)
    for keep in (True, False):
        check(
            lambda *xs, keep=keep: prim.recurrence(*xs, mode=mode, reverse=reverse, keep=keep),
            *arrays,
            dtypes=[BY_NAME[a.dtype.name] for a in arrays],
            **tolerance,
        )
    return tolerance


def run_both(rng: Any, mode: str, batch: int, units: int, steps: int, packed: bool, reverse: bool, dtype: str) -> None:
    """The same for the kernels of both ways."""
    tolerance = run_forward(rng, mode, batch, units, steps, packed, reverse, dtype)
    for extra in (False, True) if KEPT[mode] else (False,):
        arrays = backward_case(rng, mode, batch, units, steps, packed, dtype, extra)
        check(
            lambda *xs, extra=extra: prim.recurrence_grad(*xs, mode=mode, reverse=reverse, extra=extra), *arrays,
            dtypes=[BY_NAME[a.dtype.name] for a in arrays], **tolerance,
        )  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_kernels_against_double_precision(mode: str) -> None:
    """Sizes about those of vectors and tiles, and random ones."""
    rng = np.random.default_rng(MODES.index(mode))
    sizes = [
        (1, 1, 1),
        (1, 16, 5),
        (2, 17, 3),
        (4, 33, 2),
        (8, 15, 3),
        (9, 32, 2),
        (20, 7, 4),
        (13, 48, 3),
        (3, 300, 2),
        (300, 5, 2),
    ]
    sizes += [(int(rng.integers(1, 40)), int(rng.integers(1, 70)), int(rng.integers(1, 6))) for _ in range(2)]
    for k, (batch, units, steps) in enumerate(sizes):
        run_both(rng, mode, batch, units, steps, k % 2 == 1, k % 3 == 1, "float64" if k % 4 == 3 else "float32")


@pytest.mark.parametrize(("lanes", "rows", "vectors", "fma"), [(4, 6, 2, False), (8, 6, 2, True), (4, 8, 3, True)])
def test_narrower_vectors(monkeypatch: pytest.MonkeyPatch, lanes: int, rows: int, vectors: int, fma: bool) -> None:
    """The tiles and cells of machines with 16 registers of 16 and 32 bytes, and with 32 of 16."""
    monkeypatch.setattr(calls, "host_tiles", lambda kind: (RegisterTile(kind, lanes, rows, vectors, fma),))
    monkeypatch.setattr(calls, "_LOADED", {})
    monkeypatch.setattr(calls, "_TILES", {})
    rng = np.random.default_rng(lanes)
    for mode, (batch, units, packed) in zip(
        ("lstm", "gru", "tanh"), ((7, 13, False), (9, 27, True), (2, 6, False)), strict=True
    ):
        run_both(rng, mode, batch, units, 3, packed, packed, "float32")


@pytest.mark.parametrize("mode", MODES)
def test_few_sequences_whose_units_threads_share(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Against double precision, and the same bits whoever takes part; units that fill their parts, and that do not."""
    monkeypatch.setattr(calls, "_SHARED_BYTES", 0)
    rng = np.random.default_rng(MODES.index(mode))
    before = torch.get_num_threads()
    try:
        for k, (batch, units, steps) in enumerate(((1, 70, 6), (2, 17, 3), (3, 130, 5), (8, 300, 4), (5, 16, 2))):
            torch.set_num_threads(2)
            run_forward(rng, mode, batch, units, steps, False, k % 2 == 1, "float64" if k == 2 else "float32")
            arrays = forward_case(rng, mode, batch, units, 40, False, "float32")
            graph = trace_arrays(lambda *xs: prim.recurrence(*xs, mode=mode, reverse=False, keep=True), arrays)
            found = []
            for threads in (1, 2, 3, 8):
                torch.set_num_threads(threads)
                found += [[np.array(x) for x in Ran(graph, arrays).results] for _ in range(3)]
            assert all(np.array_equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))
    finally:
        torch.set_num_threads(before)


def test_special_values_stay() -> None:
    """NaN and infinities go where the formulas take them, and to no other sequence."""
    layer = nn.LSTM(3, 17)
    x = torch.randn(4, 9, 3)
    want, _ = layer(x)
    x[1, 2, 0], x[2, 5, 1] = float("nan"), float("inf")
    found, (h, c) = layer(x)
    assert (
        found[1:, 2].isnan().all() and not found[0, 2].isnan().any() and h[0, 2].isnan().all() and c[0, 2].isnan().all()
    )
    others = [b for b in range(9) if b not in (2, 5)]
    assert torch.equal(found[:, others], want[:, others])


def gradients(layer: Any, inputs: list[Any], call: Any) -> list[Any]:
    """Results and gradients of everything, for weights that make each result count differently."""
    for p in layer.parameters():
        p.grad = None
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    results = call(layer, *leaves)
    total = sum(
        ((r * torch.arange(1.0, r.numel() + 1, dtype=r.dtype).reshape(r.shape).cos()).sum() for r in results),
        torch.zeros((), dtype=results[0].dtype),
    )
    total.backward()
    return [*results, *[x.grad for x in leaves], *[p.grad for p in layer.parameters()]]


def beside_steps(monkeypatch: pytest.MonkeyPatch, layer: Any, inputs: list[Any], call: Any, tolerance: float) -> None:
    found = gradients(layer, inputs, call)
    with monkeypatch.context() as patch:
        patch.setattr(recurrence, "_suits", lambda tensors: False)
        want = gradients(layer, inputs, call)
    for f, w in zip(found, want, strict=True):
        assert (f is None) == (w is None)
        if f is not None:
            torch.testing.assert_close(f, w, rtol=tolerance, atol=tolerance)


def padded(layer: Any, x: Any, *state: Any) -> list[Any]:
    out, last = layer(x, (state if layer.mode == "LSTM" else state[0]) if state else None)
    return [out, *(last if isinstance(last, tuple) else (last,))]


def packed(layer: Any, x: Any, *state: Any) -> list[Any]:
    given = nn.utils.rnn.pack_padded_sequence(x, [5, 2, 6, 3], enforce_sorted=False)
    out, last = layer(given, (state if layer.mode == "LSTM" else state[0]) if state else None)
    return [out.data, *(last if isinstance(last, tuple) else (last,))]


@pytest.mark.parametrize("kind", KINDS)
def test_layers_beside_their_steps(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Layers, directions, packed and padded sequences, with states given or not, with and without biases: values and all gradients."""
    torch.manual_seed(0)
    for k, (how, state, bias) in enumerate(itertools.product((padded, packed), (False, True), (False, True))):
        dtype = torch.float64 if k % 2 else torch.float32
        layer = getattr(nn, kind)(3, 5, num_layers=2, bidirectional=k % 4 > 1, bias=bias, dtype=dtype)
        states = (
            [torch.randn(4 if k % 4 > 1 else 2, 4, 5, dtype=dtype) for _ in range(2 if kind == "LSTM" else 1)]
            if state
            else []
        )
        beside_steps(monkeypatch, layer, [torch.randn(6, 4, 3, dtype=dtype), *states], how, 1e-10 if k % 2 else 2e-5)
    first = getattr(nn, kind)(3, 5, batch_first=True)
    beside_steps(monkeypatch, first, [torch.randn(4, 6, 3)], padded, 2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_of_every_kind(kind: str) -> None:
    """Slopes by differences, their own slopes, forward mode, and batches of inputs and of weights."""
    layer = getattr(nn, kind)(1, 2, dtype=torch.float64)
    x, h = (
        torch.randn(2, 2, 1, dtype=torch.float64, requires_grad=True),
        torch.randn(1, 2, 2, dtype=torch.float64, requires_grad=True),
    )

    def call(x: Any, h: Any, *weights: Any) -> Any:
        names = [name for name, _ in layer.named_parameters()]
        state = (h, h * 0.5) if kind == "LSTM" else h
        out, last = torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x, state))
        return (out, *(last if isinstance(last, tuple) else (last,)))

    weights = [p.detach().requires_grad_() for p in layer.parameters()]
    assert torch.autograd.gradcheck(call, (x, h, *weights), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x, h, w: call(x, h, weights[0], w, *weights[2:])[0], (x, h, weights[1]))
    many = torch.randn(3, 2, 2, 1, dtype=torch.float64)
    found = torch.vmap(lambda x: call(x, h, *weights)[0])(many)
    torch.testing.assert_close(found, torch.stack([call(x, h, *weights)[0] for x in many]))
    stacks = [torch.stack([w, 2 * w]) for w in weights]
    found = torch.vmap(lambda *ws: call(x, h, *ws)[0])(*stacks)
    torch.testing.assert_close(found[1], call(x, h, *[2 * w for w in weights])[0])


def second_gradients(layer: Any, inputs: list[Any], call: Any) -> list[Any]:
    """Gradients of everything, and those of a function of them."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    results = call(layer, *leaves)
    total = sum(
        ((r * torch.arange(1.0, r.numel() + 1, dtype=r.dtype).reshape(r.shape).cos()).sum() for r in results),
        torch.zeros((), dtype=results[0].dtype),
    )
    every = [*leaves, *layer.parameters()]
    first = torch.autograd.grad(total, every, create_graph=True)
    second = torch.autograd.grad(sum((g * g.sin()).sum() for g in first), every)
    return [*first, *second]


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_of_derivatives_beside_steps(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Sequences that end at their own times, both directions, states given or not: as the steps of cells have them."""
    torch.manual_seed(0)
    for how, state in itertools.product((padded, packed), (False, True)):
        layer = getattr(nn, kind)(3, 5, num_layers=2, bidirectional=True, dtype=torch.float64)
        states = [torch.randn(4, 4, 5, dtype=torch.float64) for _ in range(2 if kind == "LSTM" else 1)] if state else []
        inputs = [torch.randn(6, 4, 3, dtype=torch.float64), *states]
        found = second_gradients(layer, inputs, how)
        with monkeypatch.context() as patch:
            patch.setattr(recurrence, "_suits", lambda tensors: False)
            want = second_gradients(layer, inputs, how)
        for f, w in zip(found, want, strict=True):
            torch.testing.assert_close(f, w, rtol=1e-9, atol=1e-9)


def test_derivatives_of_derivatives_are_no_longer_for_longer_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is differentiated is one step at a time: a graph of all steps would take seconds to make a plan for."""
    sizes = []
    differentiate = graph_calls.differentiate_graph

    def watched(graph: Any, *rest: Any, **more: Any) -> Any:
        sizes.append(len(graph.nodes))
        return differentiate(graph, *rest, **more)

    for module in (backward_spec, graph_calls):
        monkeypatch.setattr(module, "differentiate_graph", watched)
    for kind in KINDS:
        second_gradients(getattr(nn, kind)(3, 5), [torch.randn(50, 4, 3)], padded)
    assert sizes and max(sizes) < 120


def test_the_same_bits_for_any_number_of_threads() -> None:
    before = torch.get_num_threads()
    made = []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            for kind in KINDS:
                layer = getattr(nn, kind)(9, 40, num_layers=2)
                made.append((threads, gradients(layer, [torch.randn(7, 21, 9)], padded)))
    finally:
        torch.set_num_threads(before)
    for k, (_, values) in enumerate(made[3:]):
        assert all(torch.equal(a, b) for a, b in zip(values, made[k % 3][1], strict=True))


def test_new_lengths_make_no_new_kernels_and_bad_ones_no_harm() -> None:
    gru = nn.GRU(2, 3)
    for sizes in ([3, 2, 1], [3, 3], [2, 4], [3, 2, 2], [4, 1, 1]):
        data = nn.utils.rnn.PackedSequence(torch.randn(6, 2), torch.tensor(sizes))
        if sum(sizes) == 6 and sizes == sorted(sizes, reverse=True):
            assert gru(data)[0].data.shape == (6, 3)
        else:
            with pytest.raises((RuntimeError, ValueError)):
                gru(data)
    rows, weights, states = np.zeros((6, 3), "float32"), np.zeros((3, 3), "float32"), np.zeros((3, 3), "float32")
    for bad in ([3, 4], [3, -1, 1], [2, 9], [100]):
        with pytest.raises(RuntimeError, match="a kernel failed"):
            arrays = [rows, weights, rows[0], states, np.array(bad, "int64")]
            Ran(trace_arrays(lambda *xs: prim.recurrence(*xs, mode="tanh", reverse=False, keep=False), arrays), arrays)


@pytest.mark.parametrize("kind", KINDS)
def test_narrow_dtypes_and_cells(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        layer = getattr(nn, kind)(4, 6, dtype=dtype)
        x = torch.randn(5, 3, 4, dtype=dtype, requires_grad=True)
        out, _ = layer(x)
        out.sum().backward()
        wide = layer.float()(x.float())[0]
        assert out.dtype is dtype and x.grad.dtype is dtype
        torch.testing.assert_close(out.float(), wide, rtol=0.0, atol=0.01)
    cell = getattr(nn, kind + "Cell")(4, 6)
    pair = kind == "LSTM"

    def step(cell: Any, x: Any, *state: Any) -> list[Any]:
        found = cell(x, state if pair else state[0])
        return list(found) if pair else [found]

    for shape in ((3,), ()):
        beside_steps(
            monkeypatch,
            cell,
            [torch.randn(*shape, 4), *[torch.randn(*shape, 6) for _ in range(2 if pair else 1)]],
            step,
            1e-5,
        )


def test_no_sequences() -> None:
    out, (h, c) = nn.LSTM(3, 4)(torch.zeros(5, 0, 3))
    assert out.shape == (5, 0, 4) and h.shape == c.shape == (1, 0, 4)
    with pytest.raises(RuntimeError, match="Expected sequence length to be larger than 0"):
        nn.LSTM(3, 4)(torch.zeros(0, 2, 3))
