"""Numbers that a dtype cannot hold, and ints beyond 63 bits: the value PyTorch gives, or its error; never another value in silence."""

import math

import pytest

import rushlight as torch

LARGE = 2**63
OVERFLOW = "without overflow|Overflow when unpacking|too big"


def test_an_integer_tensor_is_divided_by_numbers_beyond_its_dtype():
    """The number was cast to the tensor's dtype first: 300 became 44."""
    for dtype in (torch.uint8, torch.int8, torch.int16):
        x = torch.tensor([1, 2], dtype=dtype)
        for made in (x / 300.0, x / 300, torch.true_divide(x, 300), torch.div(x, 70000) * (70000 / 300)):
            torch.testing.assert_close(made, torch.tensor([1 / 300, 2 / 300]))
        torch.testing.assert_close(70000 / x, torch.tensor([70000.0, 35000.0]))


def test_ints_beyond_63_bits_beside_floats():
    x, mask = torch.tensor([1.0, 2.0]), torch.tensor([True, False])
    for made, first in (
        (x + LARGE, 2.0**63), (x * LARGE, 2.0**63), (LARGE - x, 2.0**63), (x / LARGE, 2.0**-63), (x.clone().fill_(LARGE), 2.0**63),
        (torch.add(x, x, alpha=LARGE), 2.0**63), (x.masked_fill(mask, LARGE), 2.0**63), (x.clamp(max=LARGE), 1.0), (x.clamp_min(LARGE), 2.0**63),
        (torch.where(mask, LARGE, x), 2.0**63), (torch.copysign(x, LARGE), 1.0), (torch.full((1,), LARGE, dtype=torch.float32), 2.0**63),
        (torch.full_like(x, LARGE), 2.0**63), (x.new_full((1,), LARGE), 2.0**63), (x // LARGE, 0.0), (x % LARGE, 1.0),
        (torch.addcmul(x, x, x, value=LARGE), 2.0**63), (torch.tensor([1, 2]) / LARGE, 2.0**-63), (x.index_fill(0, torch.tensor([0]), LARGE), 2.0**63),
    ):  # fmt: skip
        assert made.dtype is torch.float32 and made[0].item() == first
    assert (x < LARGE).all() and not (x > LARGE).any()
    assert (x + (2**64 - 1))[0].item() == 2.0**64


@pytest.mark.parametrize("value", (2**64, 2**70, -(2**63) - 1))
def test_ints_beyond_64_bits_are_refused(value):
    x = torch.tensor([1.0, 2.0])
    for call in (
        lambda: x + value, lambda: x.fill_(value), lambda: x.clamp(min=value), lambda: torch.full((1,), value), lambda: torch.arange(value, value + 1),
        lambda: x.masked_fill(x > 1, value), lambda: x.__setitem__(0, value), lambda: torch.tensor(value), lambda: torch.eye(abs(value)), lambda: torch.eye(1, abs(value)), lambda: torch.linspace(0, value, 3), lambda: torch.linspace(0, 1, abs(value)), lambda: torch.scalar_tensor(value), lambda: torch.result_type(x, value), lambda: x.roll(value),
    ):  # fmt: skip
        with pytest.raises((OverflowError, ValueError, RuntimeError, TypeError), match=OVERFLOW + "|negative int"):
            call()


def test_numbers_that_an_integer_dtype_cannot_hold():
    """Where PyTorch reads a number in the dtype of a tensor it refuses one that does not fit; numbers in the place of tensors wrap around."""
    for dtype, value in ((torch.uint8, 300), (torch.int8, 200), (torch.int32, 2**40), (torch.int64, LARGE)):
        x = torch.tensor([1, 2], dtype=dtype)
        row = x.reshape(1, 2)
        for call in (
            lambda x=x, v=value: torch.add(x, x, alpha=v), lambda x=x, v=value: x.sub(x, alpha=v), lambda x=x, v=value: torch.addcmul(x, x, x, value=v),
            lambda x=x, v=value: torch.nn.functional.threshold(x, v, 1), lambda x=x, v=value: x.clamp_min(v), lambda x=x, v=value: x.clamp(0, v),
            lambda x=x, v=value: x.scatter(0, torch.tensor([0]), v), lambda x=x, v=value: x.masked_fill(x > 1, v), lambda x=x, v=value: x.fill_(v),
            lambda x=x, v=value: x**v, lambda x=x, v=value: x.add_(x, alpha=v), lambda r=row, v=value: torch.addmm(r, r[:, :1], r, beta=v),
        ):  # fmt: skip
            with pytest.raises(RuntimeError, match=OVERFLOW):
                call()
    assert (torch.tensor([1, 2], dtype=torch.uint8) + 300).tolist() == [45, 46]
    with pytest.raises(RuntimeError, match=OVERFLOW):
        torch.nn.functional.pad(torch.tensor([1], dtype=torch.uint8), (1, 1), value=300)


def test_bool_beside_ints_beyond_63_bits():
    x = torch.tensor([True, False])
    with pytest.raises(RuntimeError, match="not supported, attempted to promote Bool and UInt64"):
        x + LARGE
    assert x.clone().fill_(LARGE).tolist() == [True, True]


def test_a_boolean_factor_of_an_outer_product():
    x = torch.ones(2)
    with pytest.raises(RuntimeError, match="Boolean alpha only supported for Boolean results"):
        torch.addr(torch.ones(2, 2), x, x, alpha=True)
    with pytest.raises(RuntimeError, match="Boolean beta only supported for Boolean results"):
        torch.addr(torch.ones(2, 2), x, x, beta=True)


def test_sums_over_absurd_sizes_end():
    """The window of `local_response_norm` ends where the channels do; `mvlgamma` was a graph of as many nodes as its sum has terms."""
    x = torch.arange(1.0, 13.0).reshape(1, 3, 4)
    total = (x * x).sum(1, keepdim=True)
    for size in (7, 2**31, 2**60):
        torch.testing.assert_close(
            torch.nn.functional.local_response_norm(x, size), x / (1 + 1e-4 * total / size) ** 0.75
        )
    value = torch.tensor([3e4, 4e4], dtype=torch.float64, requires_grad=True)
    terms = value.detach()[:, None] - torch.arange(40000) / 2
    torch.testing.assert_close(
        torch.mvlgamma(value, 40000), torch.lgamma(terms).sum(1) + 40000 * 39999 / 4 * math.log(math.pi)
    )
    torch.mvlgamma(value, 40000).sum().backward()
    torch.testing.assert_close(value.grad, torch.digamma(terms).sum(1))
    with pytest.raises(RuntimeError, match="at most"):
        torch.mvlgamma(value, 2**31)


@pytest.mark.parametrize("size", (2**60 + 1, 2**61 - 1))
def test_sizes_whose_bytes_have_63_bits(size):
    with pytest.raises(RuntimeError):
        torch.nn.functional.interpolate(torch.ones(1, 1, 4), size=size)
