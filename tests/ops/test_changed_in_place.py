"""What an operator may have saved is overwritten before backward: its gradient is right all the same, or backward raises.

`tools/sweeps/changed_in_place.py` asks the same of all of PyTorch's samples, beside PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.ops.test_eager import arguments, listed
from tests.ops.test_operators import ENGINE

import rushlight as torch
from rushlight._ops.table import OPERATORS
from rushlight._surface.registry import function_of

KEYS = sorted(set(OPERATORS) - ENGINE)[::4]  # a sample: all of them hold, in four times the time


def gradients(key: str, change: tuple[str, int] | None) -> Any:
    """The gradients of an operator's first sample after one of its results or arguments was overwritten; None where that cannot be."""
    args, kwargs, leaves, _ = arguments(OPERATORS[key], 0)
    wanted = [x for x in leaves if x.dtype.is_floating_point or x.dtype.is_complex]
    for x in wanted:
        x.requires_grad_()
    outs = [o for o in listed(function_of(key)(*args, **kwargs)) if isinstance(o, torch.Tensor)]
    roots = [o for o in outs if o.requires_grad]
    if not roots:
        return None
    if change is not None:
        which = outs if change[0] == "result" else leaves
        if change[1] >= len(which):
            return None
        overwrite(which[change[1]])
    found = torch.autograd.grad(roots, wanted, [torch.ones_like(o) for o in roots], allow_unused=True)
    return [None if g is None else np.array(g.detach().resolve_conj().resolve_neg().numpy()) for g in found]


def overwrite(x: Any) -> None:
    """Other values, in place, for as many elements as there is memory."""
    with torch.no_grad():
        whole = (
            x.as_strided([n if s or n < 2 else 1 for n, s in zip(x.shape, x.stride(), strict=True)], x.stride())
            if 0 in x.stride()
            else x
        )
        if x.dtype.is_floating_point or x.dtype.is_complex:
            whole.copy_(whole * -1.7 + 0.3)
        elif x.dtype is torch.bool:
            whole.logical_not_()
        else:
            whole.zero_()


@pytest.mark.parametrize("key", KEYS)
def test_no_gradient_of_what_was_overwritten(key: str) -> None:
    try:
        whole = gradients(key, None)
    except (RuntimeError, NotImplementedError) as error:
        assert "differentiable" in str(error) or "derivative" in str(error), error
        return
    for change in [(kind, k) for kind in ("result", "argument") for k in range(4)] if whole is not None else []:
        try:
            found = gradients(key, change)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error) or "modified inplace" in str(error), (change, error)
            continue
        for mine, truth in zip(found or (), whole, strict=bool(found)):
            assert (mine is None) == (truth is None), change
            if mine is not None:
                np.testing.assert_allclose(mine, truth, rtol=1e-5, atol=1e-6, equal_nan=True, err_msg=str(change))
