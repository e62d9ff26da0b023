"""Attention of few queries to many keys: keys in parts, whose sums a second kernel adds up in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cuda.running import close, primitive

from rushlight._backends.cuda.attention.attention import call_sequences, sequence_steps
from rushlight._backends.cuda.attention.sequences import key_parts
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.program.steps import Memory, Operand
from rushlight._prims import PRIMITIVES
from rushlight._prims.samples import any_dtype
from rushlight._types.dtype import BFLOAT16, INT32

LIMITS = {"scale": 0.4, "left": -1, "right": -1}


def in_parts(call: ExternCall) -> Any:
    return sequence_steps(call, span=64)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("limits", [{}, {"right": 0}, {"right": 0, "left": 70}])
def test_pages(dtype: str, limits: dict[str, int]) -> None:
    """Sequences without keys, with fewer than a part, and with several; the last tokens belong to none."""
    q, k, v = (any_dtype(s, dtype, i) for i, s in enumerate(((8, 4, 20), (20, 16, 2, 20), (20, 16, 2, 12))))
    starts, used = np.array([0, 1, 3, 4, 6], np.int32), np.array([0, 30, 150, 129], np.int32)
    table = np.random.default_rng(0).permutation(20)[None].repeat(4, 0)[:, :10].astype(np.int32)
    params = LIMITS | {"max_q": 2, "max_k": 160} | limits
    given = [q, k, v, starts, used, table]
    expected = PRIMITIVES["paged_attention"].reference(*given, **params)
    for found, right in zip(primitive("paged_attention", given, params, build=in_parts), expected, strict=True):
        close(found, right, "float16" if dtype == "float16" else None)


def test_sequences() -> None:
    q, k, v = (any_dtype(s, "float32", i) for i, s in enumerate(((40, 2, 16), (200, 1, 16), (200, 1, 16))))
    starts = np.array([0, 36, 40], np.int32), np.array([0, 170, 200], np.int32)
    params = LIMITS | {"max_q": 36, "max_k": 170, "right": 0}
    given = [q, k, v, *starts]
    expected = PRIMITIVES["ragged_attention"].reference(*given, **params)
    for found, right in zip(primitive("ragged_attention", given, params, build=in_parts), expected, strict=True):
        close(found, right)


def _parts(sequences: int, heads: int, groups: int, max_q: int, max_k: int) -> tuple[int, int]:
    array = lambda *shape, dtype=BFLOAT16: Operand(Memory(0), dtype, shape, (0,) * len(shape))
    numbers = (sequences + 1,), (sequences,), (sequences, max_k // 16)
    inputs = [
        array(sequences * max_q, heads, 128), *(array(64, 16, groups, 128) for _ in range(2)),
        *(array(*s, dtype=INT32) for s in numbers),
    ]  # fmt: skip
    params = LIMITS | {"max_q": max_q, "max_k": max_k}
    return key_parts(call_sequences(ExternCall("paged_attention", inputs, [], params)))


def test_parts_follow_from_sizes() -> None:
    """One sequence of 32k keys is work for a card; many sequences, or few keys, are not cut."""
    assert _parts(1, 32, 8, 1, 1 << 15) == (32, 1024)
    assert _parts(8, 32, 8, 1, 1 << 15)[0] == 4
    assert _parts(64, 32, 8, 1, 1 << 15)[0] == 1
    assert _parts(1, 32, 8, 1, 256)[0] == 1
