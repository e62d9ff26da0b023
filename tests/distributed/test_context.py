"""Attention over sequences that are divided among processes, and functions on the parts of sharded tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.distributed.programs import context_programs as programs
from tests.distributed.ranks import Ranks

import rushlight as torch
import rushlight.distributed as dist
import rushlight.nn.functional as F
from rushlight._interface.operators import INSTEAD
from rushlight.distributed.tensor.experimental import context_parallel
from rushlight.distributed.tensor.experimental._attention import (
    _HeadTailLoadBalancer,
    _PerDocumentHeadTailLoadBalancer,
    _PTRRLoadBalancer,
)
from rushlight.nn.attention.flex_attention import create_block_mask


def test_attention_over_parts_is_attention_over_the_whole(four: Ranks) -> None:
    for differences in four.run(programs.attention, programs.ROWS[:1]):
        assert len(differences) == 1 and max(differences) < 2e-6


@pytest.mark.distributed
def test_every_way_round(four: Ranks) -> None:
    for differences in four.run(programs.attention, programs.ROWS[1:]):
        assert max(differences) < 2e-6


@pytest.mark.distributed
def test_a_model_trains_as_on_one_process(four: Ranks) -> None:
    for one, divided in four.run(programs.training):
        assert divided == pytest.approx(one, rel=1e-5)


def test_refusals(four: Ranks) -> None:
    found = four.run(programs.refusals)[0]
    parts = (
        "cannot be divided equally among 2 processes",
        "same number of elements",
        "must be a subset",
        "cannot resize variables that require grad",
        "takes is_causal, no attn_mask",
        "has no dropout",
        "as many queries as keys",
        "using x for kv shards rotation",
    )
    for text, part in zip(found, parts, strict=True):
        assert part in text


def test_functions_on_parts(four: Ranks) -> None:
    found = four.run(programs.on_parts)[0]
    parts = ("mismatched placements", "length 3 does not match", "received 1 for 2", "Non-tensor output expects None")
    for text, part in zip(found, parts, strict=True):
        assert part in text


@pytest.fixture
def mesh() -> Iterator[Any]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_every_way_to_attention_is_met(mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that were imported before, `MultiheadAttention`, and functions that were compiled before."""
    early, x = F.scaled_dot_product_attention, torch.randn(1, 2, 4, 4)
    compiled = torch.compile(lambda q: early(q, q, q, is_causal=True))
    part, y = torch.nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(1, 4, 4)
    calls: list[Any] = [
        lambda: early(x, x, x, is_causal=True),
        lambda: compiled(x),
        lambda: part(y, y, y, need_weights=False)[0],
    ]
    seen: list[int] = []
    for number, call in enumerate(calls):
        expected = call()
        with context_parallel(mesh):
            plain = type(INSTEAD[-1]).__call__
            monkeypatch.setattr(
                type(INSTEAD[-1]), "__call__", lambda *a, n=number, plain=plain: (seen.append(n), plain(*a))[1]
            )
            assert torch.allclose(call(), expected, atol=1e-6)
            monkeypatch.undo()
        assert torch.equal(call(), expected) and not INSTEAD
    assert seen == [0, 1, 2]


def test_modules_of_attention_over_parts(four: Ranks) -> None:
    """As styles of modules: alone, compiled, and computed again in backward with a policy for operators."""
    for rows in four.run(programs.styles, timeout=120.0):
        assert set(rows) == {"plain", "checkpointed", "selective", "compiled", "context", "flex", "flex ordered"}
        assert max(rows.values()) < 1e-5, rows


def test_orders_of_balanced_sequences() -> None:
    """Values of PyTorch 2.13."""
    order = _HeadTailLoadBalancer(12, 3, "cpu")
    assert order._generate_indices().tolist() == [[0, 1, 10, 11, 2, 3, 8, 9, 4, 5, 6, 7]]
    assert order._generate_indices().dtype is torch.int32
    assert order._generate_indices()[0][order._generate_indices(restore=True)[0]].tolist() == list(range(12))
    with pytest.raises(AssertionError, match="cannot be divided into 6 equal pieces"):
        _HeadTailLoadBalancer(9, 3, "cpu")._generate_indices()
    documents = _PerDocumentHeadTailLoadBalancer([[4, 8, 4], [8, 8, 0]], 2, "cpu")._generate_indices()
    assert documents[0].tolist() == [0, 3, 1, 2, 4, 5, 10, 11, 6, 7, 8, 9, 12, 15, 13, 14]
    assert documents[1].tolist() == [0, 1, 6, 7, 2, 3, 4, 5, 8, 9, 14, 15, 10, 11, 12, 13]


def test_blocks_are_dealt_out_by_their_work() -> None:
    """The examples of PyTorch's documentation."""
    times = torch.tensor([9, 14, 2, 20, 10, 15, 8, 14, 16, 19, 15, 3, 12, 1, 12, 10])
    parts = _PTRRLoadBalancer.ptrr_scheduling(times, 4)
    assert parts.tolist() == [[3, 12, 13, 14], [2, 4, 7, 9], [1, 8, 11, 15], [0, 5, 6, 10]]
    with pytest.raises(NotImplementedError, match="must be divisible by group_size 3"):
        _PTRRLoadBalancer.ptrr_scheduling(times, 3)
    starts = torch.tensor([0] * 4 + [4] * 8 + [12] * 4)
    mask = create_block_mask(lambda b, h, q, k: (q >= k) & (k >= starts[q]), 1, 1, 16, 16, BLOCK_SIZE=1)
    order = _PTRRLoadBalancer(mask, 2)
    assert order._generate_indices().tolist() == [[2, 3, 5, 6, 8, 11, 12, 13, 0, 1, 4, 7, 9, 10, 14, 15]]
    assert order._generate_indices()[0][order._generate_indices(restore=True)[0]].tolist() == list(range(16))
    heads = create_block_mask(lambda b, h, q, k: q >= k, 1, 2, 8, 8, BLOCK_SIZE=2)
    with pytest.raises(ValueError, match="one head"):
        _PTRRLoadBalancer(heads, 2)._generate_indices()


def test_compiled_functions_follow_the_dispatcher(four: Ranks) -> None:
    assert four.run(programs.compiled_before, timeout=100.0) == [[0.0] * 4] * 4


@pytest.mark.distributed
def test_compiled_functions_go_over_parts(four: Ranks) -> None:
    assert four.run(programs.compiled_around, timeout=100.0) == [[0.0] * 6] * 4
