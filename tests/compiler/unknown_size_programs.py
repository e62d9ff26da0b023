"""Programs whose sizes only elements tell, for fx graphs under `capture_dynamic_output_shape_ops` and `capture_scalar_outputs`.

Each is a function of a package (`torch`) and tensors.  `tools/compiled/fx_documents.py` stores what PyTorch makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROW = [0, 1, 2]


def nonzero(torch: Any, x: Any) -> Any:
    i = x.nonzero()
    return i + 1


def mask(torch: Any, x: Any) -> Any:
    y = x[x > 0]
    return y * 2, y.sum()


def masked_select(torch: Any, x: Any) -> Any:
    return torch.masked_select(x, x > 1).sin()


def unique(torch: Any, x: Any) -> Any:
    u = torch.unique(x)
    return u * 2


def a_size(torch: Any, x: Any) -> Any:
    i = x.nonzero()
    return torch.zeros(i.size(0)), i.size(0) + 1, i.float() / i.size(0)


def two_masks(torch: Any, x: Any) -> Any:
    a = x[x > 0]
    b = x[x < 1]
    return torch.cat([a, b])


def where_true(torch: Any, x: Any) -> Any:
    (r,) = torch.where(x > 0)
    return r + 1


def argwhere(torch: Any, x: Any) -> Any:
    return torch.argwhere(x).float()


def repeat_interleave(torch: Any, x: Any) -> Any:
    return torch.repeat_interleave(x * 2, x) - 1


def checked_size(torch: Any, x: Any) -> Any:
    n = x.sum().item()
    torch._check_is_size(n)
    torch._check(n <= 10)
    return torch.zeros(n)


def checked_number(torch: Any, x: Any) -> Any:
    n = x.sum().item()
    torch._check(n >= 2)
    return torch.arange(n)


def checked_sum(torch: Any, x: Any) -> Any:
    y = torch.arange(9.0)
    n = x.sum().item()
    torch._check_is_size(n)
    torch._check(n + 1 < y.shape[0])
    return y[:n] * 2


def checked_with_a_message(torch: Any, x: Any) -> Any:
    n = x.sum().item()
    torch._check(n >= 2, lambda: "too few")
    return x + n


def asserted(torch: Any, x: Any) -> Any:
    torch._assert_async((x >= 0).all())
    return x + 1


def added_numbers(torch: Any, x: Any) -> Any:
    a = x.sum().item()
    b = x.max().item()
    torch._check_is_size(a)
    torch._check_is_size(b)
    return torch.ones(a + b), a + b


def listed(torch: Any, x: Any) -> Any:
    a, b, c = x.tolist()
    torch._check_is_size(b)
    return torch.ones(b), a + c, x * c


UNKNOWN: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (
        nonzero, mask, masked_select, unique, a_size, two_masks, where_true, argwhere, repeat_interleave, checked_size, checked_number, checked_sum,
        checked_with_a_message, asserted, added_numbers, listed,
    )
}  # fmt: skip


def asserting(torch: Any, x: Any) -> Any:
    assert x.sum() == 0, "no"
    assert x.max().item() <= 3
    return x * 2


def telling(torch: Any, x: Any) -> Any:
    assert x.max() < 3, f"{x.shape}"
    return x
