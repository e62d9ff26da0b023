"""Recurrent layers and packed sequences."""

from __future__ import annotations

import json
import pathlib
from functools import partial
from typing import Any

import pytest
from tests.nn import stored
from tests.nn.rnn_cases import CASES, CELLS, run, run_cell

import rushlight as torch
from rushlight import nn
from rushlight.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)

EXPECTED = json.loads(pathlib.Path(__file__).with_name("rnn.json").read_text())


same = partial(stored.same, rel=2e-5, abs=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_layers(name: str) -> None:
    same(run(torch, name), EXPECTED[name])


@pytest.mark.parametrize("kind", CELLS)
def test_cells(kind: str) -> None:
    same(run_cell(torch, kind), EXPECTED[kind])


def test_unbatched_input_and_given_state() -> None:
    lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True)
    x = torch.randn(5, 3)
    out, (h, c) = lstm(x)
    assert out.shape == (5, 8) and h.shape == (4, 4) and c.shape == (4, 4)
    batched, _ = lstm(x.unsqueeze(1), (torch.zeros(4, 1, 4), torch.zeros(4, 1, 4)))
    assert out.tolist() == batched.squeeze(1).tolist()
    first, state = lstm(x[:2].unsqueeze(1))
    assert first.shape == (2, 1, 8) and isinstance(state, tuple)


def test_running_in_two_parts() -> None:
    gru = nn.GRU(3, 4)
    x = torch.randn(6, 2, 3)
    whole, last = gru(x)
    head, middle = gru(x[:4])
    tail, end = gru(x[4:], middle)
    assert torch.cat([head, tail]).tolist() == whole.tolist() and end.tolist() == last.tolist()


def test_packing() -> None:
    parts = [torch.arange(4.0), torch.arange(2.0), torch.arange(3.0)]
    packed = pack_sequence(parts, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 3, 2, 1] and packed.data.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3]
    assert [p.tolist() for p in unpack_sequence(packed)] == [p.tolist() for p in parts]
    padded, lengths = pad_packed_sequence(packed, batch_first=True, padding_value=-1, total_length=5)
    assert lengths.tolist() == [4, 2, 3] and padded.shape == (3, 5) and padded[1].tolist() == [0, 1, -1, -1, -1]
    assert packed.double().data.dtype is torch.float64 and packed.to(torch.float32) is packed
    assert PackedSequence(packed.data, packed.batch_sizes).sorted_indices is None


def test_errors() -> None:
    x = torch.ones(3, 2, 1)
    for bad, text in (
        (lambda: pack_padded_sequence(x, [1, 2]), "must be sorted in decreasing order"),
        (lambda: pack_padded_sequence(x, [2, 0]), "has to be greater than 0"),
        (lambda: pack_padded_sequence(x, [2]), "equal to batch_size"),
        (lambda: pack_padded_sequence(x, [4, 1]), "at most 3"),
        (lambda: nn.LSTM(3, 4)(x), "input.size.-1. must be equal to input_size. Expected 3, got 1"),
        (lambda: nn.GRU(1, 4)(x, torch.zeros(1, 3, 4)), "Expected hidden size"),
        (lambda: nn.GRU(1, 4)(x, torch.zeros(3, 4)), "hx should also be 3-D but got 2-D"),
    ):
        with pytest.raises(RuntimeError, match=text):
            bad()
    for bad, kind in (
        (lambda: nn.LSTM(0, 4), ValueError),
        (lambda: nn.LSTM(1, 4, proj_size=4), ValueError),
        (lambda: nn.GRU(1, 4, proj_size=2), ValueError),
        (lambda: nn.RNN(1, 4, nonlinearity="sigmoid"), ValueError),
        (lambda: nn.LSTM(1, 4, dropout=2), ValueError),
        (lambda: nn.LSTM(1, 4, bias=1), TypeError),
        (lambda: nn.GRU(1, 4)(x.double()), ValueError),
        (lambda: nn.GRU(1, 4)(torch.ones(1)), ValueError),
        (lambda: nn.GRUCell(1, 4)(x), ValueError),
    ):
        with pytest.raises(kind):
            bad()
    with pytest.warns(UserWarning, match="non-zero dropout expects num_layers greater than 1"):
        nn.LSTM(1, 2, dropout=0.5)
    with pytest.raises(ValueError, match="at least the length of the longest"):
        pad_packed_sequence(pack_sequence([torch.ones(3)]), total_length=2)


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_cells_without_hidden_units(cell: Any) -> None:
    x = torch.ones(3, 5, requires_grad=True)
    found = cell(5, 0)(x)
    h = found[0] if isinstance(found, tuple) else found
    assert h.shape == (3, 0)
    h.sum().backward()
    assert torch.equal(x.grad, torch.zeros(3, 5))


@pytest.mark.parametrize(("rows", "sizes"), [(0, []), (3, [2, 2]), (5, [2, 2]), (5, [2, 3])])
def test_batch_sizes_that_do_not_belong_to_the_data(rows: int, sizes: list[int]) -> None:
    packed = PackedSequence(torch.zeros(rows, 4), torch.tensor(sizes, dtype=torch.int64))
    for undo in (pad_packed_sequence, unpack_sequence):
        with pytest.raises(RuntimeError, match="batch_sizes"):
            undo(packed)
