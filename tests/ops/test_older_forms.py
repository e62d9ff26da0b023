"""Orders of arguments that PyTorch deprecated and still takes: numbers before the tensors that they multiply; weights before indices."""

import warnings

import pytest

import rushlight as torch

O, M, N = torch.ones(2, 4), torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(3, 4)
V, W = torch.arange(1.0, 4), torch.tensor([2.0, 3.0, 4.0])
PRODUCTS = {
    "addmm": (O, M, N), "addmv": (torch.ones(2), M, V), "addr": (O, torch.ones(2), torch.ones(4)),
    "addbmm": (O, torch.ones(2, 2, 3), torch.ones(2, 3, 4)), "baddbmm": (torch.ones(2, 2, 4), torch.ones(2, 2, 3), torch.ones(2, 3, 4)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("two", (2, torch.tensor(2.0)), ids=("number", "0-d tensor"))
def test_products_with_their_factors_in_front(name, two):
    x, a, b = PRODUCTS[name]
    function = getattr(torch, name)
    both, one = function(x, a, b, beta=2, alpha=3), function(x, a, b, beta=2)
    for made, wanted in (
        (function(two, x, 3, a, b), both), (function(two, x, a, b), one), (getattr(x, name)(two, 3, a, b), both), (getattr(x, name)(two, a, b), one),
        (getattr(x.clone(), name + "_")(two, 3, a, b), both), (function(two, x, 3, a, b, out=torch.empty_like(both)), both),
    ):  # fmt: skip
        assert torch.equal(made, wanted)
    for wrong in ((x, a, 2, b), (x, a, b, 2), (2, x, 3, a), (2, x, "a", a, b)):
        with pytest.raises(TypeError):
            function(*wrong)
    with pytest.raises(TypeError):
        function(2, x, a, b, beta=3)


@pytest.mark.parametrize("name", ("addcmul", "addcdiv"))
def test_pointwise_products_with_their_factor_between(name):
    function = getattr(torch, name)
    wanted = function(V, V, W, value=2)
    for made in (function(V, 2, V, W), getattr(V, name)(2, V, W), getattr(V.clone(), name + "_")(2, V, W), function(V, 2, V, tensor2=W),
                 function(V, 2, tensor1=V, tensor2=W), function(V, torch.tensor(2.0), V, W)):  # fmt: skip
        assert torch.equal(made, wanted)
    with pytest.raises(TypeError):
        function(V, V, 2, W)


@pytest.mark.parametrize(("name", "sign"), (("add", 1), ("sub", -1)))
def test_sums_with_their_factor_between(name, sign):
    function = getattr(torch, name)
    wanted = V + sign * 2 * W
    for made in (
        function(V, 2, W),
        getattr(V, name)(2, W),
        getattr(V.clone(), name + "_")(2, W),
        function(V, 2, other=W),
        function(V, 2, W, out=torch.empty(3)),
    ):
        assert torch.equal(made, wanted)
    assert torch.equal(function(V, 2, 3), V + sign * 6) and torch.equal(
        function(V, torch.tensor(2.0), torch.tensor(3.0)), V + sign * 6
    )
    with pytest.raises(RuntimeError, match="argument alpha must not be a floating point number"):
        function(torch.tensor([1]), 2.5, 3)


def test_sums_of_bools_with_a_bool_between():
    yes = torch.tensor(True)
    for made in (torch.add(yes, yes, True), yes.add(yes, True), torch.tensor([True]).add_(yes, True)[0]):
        assert made.dtype is torch.bool and made.item() is True
    assert torch.rsub(V, 2, 3).tolist() == [-1.0, -4.0, -7.0]


def test_weights_before_indices():
    weight, bags = torch.arange(8.0).reshape(4, 2), torch.tensor([[0, 1], [2, 3]])
    with pytest.warns(UserWarning, match="Argument order of nn.functional.embedding_bag was changed"):
        made = torch.nn.functional.embedding_bag(weight, bags)
    assert torch.equal(made, torch.nn.functional.embedding_bag(bags, weight))


def test_older_overloads_warn():
    from rushlight._base.errors import forget_warning

    forget_warning(
        "This overload of addcmul is deprecated: addcmul(Tensor, Number, Tensor, Tensor); give its numbers by name"
    )
    x = torch.arange(17.0).half()  # no call of this kind is known
    with pytest.warns(UserWarning, match="This overload of addcmul is deprecated"):
        assert torch.addcmul(x, 2, x, x).equal(x + 2 * x * x)
