"""Exported programs compute what the module computes, and change what it changes; decomposed ones to rounding."""

from __future__ import annotations

import copy
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch

sys.path.insert(0, str(Path(__file__).parent))
from table import PROGRAMS

RANDOM = {"mlp_dynamic", "transformer_layer"}  # dropout: numbers are drawn


def made(name: str) -> tuple[Any, ...]:
    mod, args, *rest = PROGRAMS[name](torch)
    kwargs, shapes = [*rest, None, None][:2]
    if name in RANDOM:
        mod.eval()
    torch.manual_seed(0)
    args = torch.utils._pytree.tree_map(
        lambda t: torch.rand_like(t) + 1 if isinstance(t, torch.Tensor) and t.is_floating_point() else t, args
    )
    return mod, args, kwargs or {}, shapes


def leaves(value: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(value)


def same(one: Any, two: Any, exact: bool) -> None:
    for a, b in zip(leaves(one), leaves(two), strict=True):
        if not isinstance(a, torch.Tensor):
            assert a == b
        elif exact:
            assert a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
        else:
            torch.testing.assert_close(a, b)


_QUICK = ("buffers", "batch_norm", "nested", "gpt_block", "in_place")
_EACH = [n if n in _QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS]


@pytest.mark.parametrize("name", _EACH)
def test_a_program_computes_what_its_module_computes(name: str) -> None:
    mod, args, kwargs, shapes = made(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(mod, args, kwargs, dynamic_shapes=shapes)
        decomposed = program.run_decompositions()
    assert program.dialect == "TRAINING" and decomposed.dialect == "ATEN"
    for each, exact in ((program, True), (decomposed, False)):
        fresh, module = copy.deepcopy(mod), copy.deepcopy(each).module()
        mine, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):
                same(module(*mine[0], **mine[1]), fresh(*theirs[0], **theirs[1]), exact)
        same(mine, theirs, exact)
        state = fresh.state_dict()
        for key, value in module.state_dict().items():
            same(value, state[key], exact)
