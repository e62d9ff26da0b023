"""`torch._foreach_*` beside the operation on each tensor, and the checks that programs write down."""

from __future__ import annotations

import warnings

import pytest

import rushlight as torch


def three() -> list[torch.Tensor]:
    return [torch.tensor([0.5, 1.5]), torch.tensor([[2.0]]), torch.tensor([0.25, 0.75, 1.25])]


def same(found, wanted) -> None:
    assert type(found) in (tuple, list) and len(found) == len(wanted)
    for f, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(f, w, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["sqrt", "exp", "neg", "reciprocal", "sign", "sigmoid", "clone"])
def test_unary(name: str) -> None:
    same(getattr(torch, f"_foreach_{name}")(three()), [getattr(x, name)() for x in three()])
    if name != "clone":
        xs = three()
        assert getattr(torch, f"_foreach_{name}_")(xs) is xs
        same(xs, [getattr(x, name)() for x in three()])


def test_binary_and_ternary() -> None:
    xs = three()
    same(torch._foreach_add(xs, 2), [x + 2 for x in xs])
    same(torch._foreach_add(xs, xs, alpha=3), [x + 3 * x for x in xs])
    same(torch._foreach_mul(xs, [1, 2, 3]), [x * k for x, k in zip(xs, (1, 2, 3), strict=True)])
    same(torch._foreach_div(xs, torch.tensor(2.0)), [x / 2 for x in xs])
    same(torch._foreach_pow(2.0, xs), [2.0**x for x in xs])
    same(torch._foreach_maximum(xs, 1.0), [x.clamp(min=1.0) for x in xs])
    same(torch._foreach_clamp_max(xs, xs), xs)
    same(torch._foreach_lerp(xs, xs, 0.5), xs)
    same(torch._foreach_addcmul(xs, xs, xs, value=0.5), [x + 0.5 * x * x for x in xs])
    same(
        torch._foreach_addcdiv(xs, xs, xs, torch.tensor([1.0, 2.0, 3.0])),
        [x + k * (x / x) for x, k in zip(xs, (1, 2, 3), strict=True)],
    )
    same(torch._foreach_norm(xs, 1), [x.sum() for x in xs])
    same(torch._foreach_copy_([torch.zeros_like(x) for x in xs], xs), xs)
    same(torch._foreach_zero_(xs), [torch.zeros_like(x) for x in xs])


def test_arguments_by_name_and_place() -> None:
    xs = three()
    assert [x.dtype for x in torch._foreach_norm(xs, 2, torch.float64)] == [torch.float64] * 3
    same(torch._foreach_lerp(xs, tensors1=xs, weight=0.5), xs)
    same(torch._foreach_addcmul(xs, tensor1=xs, tensor2=xs), [x + x * x for x in xs])
    same(torch._foreach_pow(2.0, exponent=xs), [2.0**x for x in xs])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda xs: torch._foreach_add(xs, []), "Tensor list must have same number of elements as scalar list."),
        (lambda xs: torch._foreach_mul_(xs, [1.0]), "Tensor list must have same number of elements as scalar list."),
        (
            lambda xs: torch._foreach_mul(xs, torch.ones(2)),
            "expected to be 0 dim but it has 1 dimensions and 2 elements",
        ),
        (lambda xs: torch._foreach_addcmul(xs, xs, xs[:1]), "the same number of tensors, got 3 and 1"),
        (lambda xs: torch._foreach_addcmul(xs, xs, []), "the same number of tensors, got 3 and 0"),
        (
            lambda xs: torch._foreach_addcdiv(xs, xs, xs, torch.ones(())),
            "packed scalar Tensor to be of dimension 1. Got 0",
        ),
        (lambda xs: torch._foreach_addcdiv(xs, xs, xs, torch.ones(2)), "match input of length 3 but got 2"),
        (lambda xs: xs[0].to(torch.complex64).abs_(), "In-place abs is not supported for complex tensors."),
    ],
)
def test_refusals(call, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        call(three())


def test_lists_are_told_apart() -> None:
    for _ in range(3):
        xs, ys = three(), [x * 3 for x in three()]
        same(torch._foreach_add(xs, xs), [x + x for x in xs])
        same(torch._foreach_add(xs, ys), [x + y for x, y in zip(xs, ys, strict=True)])
        for number in (2.0, 3.0, 0.5):
            same(torch._foreach_mul(xs, number), [x * number for x in xs])
            same(torch._foreach_pow(xs, number), [x**number for x in xs])
            same(torch._foreach_add(xs, ys, alpha=number), [x + number * y for x, y in zip(xs, ys, strict=True)])
            same(torch._foreach_norm(xs, number), [torch.linalg.vector_norm(x, number) for x in xs])
        wanted = [x + 2 * y for x, y in zip(xs, ys, strict=True)]
        assert torch._foreach_add_(xs, ys, alpha=2) is xs
        same(xs, wanted)
        versions = [x._version for x in xs]
        assert torch._foreach_zero_(xs) is xs
        assert [x._version for x in xs] == [v + 1 for v in versions]


def test_wrong_lists() -> None:
    with pytest.raises(RuntimeError, match="Tensor lists must have the same number of tensors, got 3 and 1"):
        torch._foreach_add(three(), [torch.ones(1)])
    with pytest.raises(RuntimeError, match="at least one tensor"):
        torch._foreach_add([], 1)
    with pytest.raises(TypeError, match="must be tuple of Tensors, not int"):
        torch._foreach_sqrt(3)
    with pytest.raises(AttributeError, match="_foreach_nothing"):
        torch._foreach_nothing


def test_checks() -> None:
    for check, error in ((torch._check, RuntimeError), (torch._check_index, IndexError), (torch._check_value, ValueError),
                         (torch._check_type, TypeError), (torch._check_not_implemented, NotImplementedError)):  # fmt: skip
        assert check(True) is None
        with pytest.raises(error, match="said so"):
            check(False, lambda: "said so")
    with pytest.raises(TypeError, match="cond must be a bool"):
        torch._check(1)
    with pytest.raises(TypeError, match="callable"):
        torch._check(False, "text")
    torch._check_tensor_all(torch.tensor([True, True]))
    with pytest.raises(RuntimeError, match="not all"):
        torch._check_tensor_all(torch.tensor([True, False]), lambda: "not all")
    with pytest.raises(RuntimeError, match="got zero"):
        torch._assert_async(torch.tensor(0.0))
    assert torch._shape_as_tensor(torch.ones(2, 3)).tolist() == [2, 3]


def test_factors_between_tensors() -> None:
    """Calls of older programs: `x.addcmul_(0.5, a, b)`."""
    x, m = torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (
            torch.equal(x.add(2, x), 3 * x)
            and torch.equal(x.clone().add_(-0.5, x), 0.5 * x)
            and torch.equal(x.sub(2, x), -x)
        )
        assert torch.equal(x.addcmul(2.0, x, x), x + 2 * x * x) and torch.equal(torch.addcdiv(x, 2.0, x, x), x + 2)
        assert torch.equal(torch.addmm(2.0, m, 3.0, m, m), 2 * m + 3 * (m @ m)) and torch.equal(
            m.addmm(2.0, m, m), 2 * m + m @ m
        )
    with pytest.raises(TypeError, match="positional arguments"):
        x.mul(2, x)
    assert [part.tolist() for part in x.split(split_size=1)] == [[1.0], [2.0]]
    named = torch.split(tensor=x, split_size_or_sections=1, dim=0)  # the function's own word
    assert [part.tolist() for part in named] == [[1.0], [2.0]]


@pytest.mark.parametrize(
    "name",
    ["add", "sub", "add_", "sub_", "mul", "mul_", "div_", "lerp", "lerp_", "addcmul", "addcdiv_", "pow", "clamp_min"],
)
def test_numbers_in_tensors_are_read_at_each_call(name: str) -> None:
    """A plan that was kept for one value of `alpha` must not serve another."""
    xs, others = [torch.tensor([1.0, 2.0, 3.0])], [torch.tensor([4.0, 5.0, 6.0])]
    plain = name.rstrip("_")
    for value in (1.0, -0.5, 0.25, 3.0):
        number = torch.tensor(value)
        if plain in ("add", "sub"):
            args, named, wanted = (others,), {"alpha": number}, getattr(xs[0], plain)(others[0], alpha=value)
        elif plain in ("addcmul", "addcdiv"):
            args, named, wanted = (
                (others, others, number.reshape(1)),
                {},
                getattr(xs[0], plain)(others[0], others[0], value=value),
            )
        elif plain == "lerp":
            args, named, wanted = (others, number), {}, xs[0].lerp(others[0], value)
        else:
            args, named, wanted = (number,), {}, getattr(xs[0], plain)(value)
        given = [x.clone() for x in xs]
        made = getattr(torch, f"_foreach_{name}")(given, *args, **named)
        assert torch.equal((given if name.endswith("_") else made)[0], wanted), value
