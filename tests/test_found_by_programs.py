"""What random programs found, as small programs of its own; the values are PyTorch 2.13's."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as torch


@pytest.mark.parametrize("value", [200, -200, 200.0, float("inf"), float("nan")])
def test_numbers_outside_of_an_integer_dtype_are_refused(value: float) -> None:
    x, mask, places = torch.ones(2, dtype=torch.int8), torch.tensor([True, False]), torch.tensor([0])
    calls = [
        lambda: x.fill_(value), lambda: x.__setitem__(0, value), lambda: x.masked_fill(mask, value), lambda: x.index_fill(0, places, value),
        lambda: torch.full_like(x, value), lambda: torch.full((1,), value, dtype=torch.int8),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(RuntimeError, match="without overflow"):
            call()
    assert x.tolist() == [1, 1]


def test_integers_wrap_in_arithmetic_and_one_turn_for_unsigned() -> None:
    x = torch.tensor([1], dtype=torch.int8)
    assert (x + 200).tolist() == [-55] and (x == 300).tolist() == [False]
    assert x.view(torch.uint8).fill_(-200).tolist() == [56]
    assert torch.where(torch.tensor([False]), x, 5).tolist() == [5]
    for call in (lambda: torch.where(torch.tensor([True]), x, 200), lambda: x.clamp(max=300)):
        with pytest.raises(RuntimeError, match="without overflow"):
            call()


def test_bool_with_a_number_of_a_greater_kind_is_that_kind() -> None:
    x = torch.tensor([True])
    found = [x << 2, torch.fmod(x, 2), torch.remainder(x, 2), torch.div(x, 2, rounding_mode="floor"), x // 2]
    assert [(v.tolist(), v.dtype) for v in found] == [
        ([4], torch.int64),
        ([1], torch.int64),
        ([1], torch.int64),
        ([0], torch.int64),
        ([0], torch.int64),
    ]
    assert torch.addcmul(x, torch.tensor([2.0]), torch.tensor([3.0])).tolist() == [7.0]
    with pytest.raises(NotImplementedError, match="'Bool'"):
        torch.fmod(x, True)


def test_refusals_have_pytorch_classes() -> None:
    x = torch.tensor([True])
    with pytest.raises(RuntimeError, match="not implemented for complex"):
        torch.maximum(x, torch.tensor([1j]))
    with pytest.raises(NotImplementedError, match='"bitwise_and_cpu"'):
        torch.tensor(1) & torch.tensor(1.0)


def test_strides_of_new_dims() -> None:
    x = torch.ones(2, 3).t()
    assert torch.ones(2).expand(1, 2).stride() == (2, 1)
    assert x.expand(1, 1, 3, 2).stride() == (3, 3, 1, 3)
    assert torch.ones(2).expand(3, 1, 2).stride() == (0, 2, 1)
    assert torch.tensor(2.0).expand(1).stride() == (0,)
    assert torch.ones(4)[::2].unsqueeze(1).stride() == (2, 1)
    assert torch.ones(0).unsqueeze(0).stride() == (0, 1)
    assert torch.ones(2, 1).expand(2, 3).unsqueeze(0).stride() == (2, 1, 0)


def test_views_made_without_gradients_want_what_their_base_wants() -> None:
    leaf = torch.tensor([[1.0, 2.0]], requires_grad=True)
    made = leaf * 2
    with torch.no_grad():
        views = [
            leaf.t(),
            made.t(),
            leaf[0],
            leaf.expand(2, 2),
            leaf.unbind(0)[0],
            leaf.t().t(),
            leaf.as_strided((1,), (1,)),
        ]
        apart = [leaf.detach(), leaf.data, leaf.clone(), leaf.detach().t()]
    assert all(v.requires_grad and v.grad_fn is None and v.is_leaf for v in views)
    assert not any(v.requires_grad for v in apart)
    (views[0] * 3).sum().backward()  # goes nowhere
    assert leaf.grad is None and views[0].grad is None
    with pytest.raises(RuntimeError, match="does not have a grad_fn"):
        views[6].backward()
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        views[1].mul_(2)


def test_a_view_made_without_gradients_can_become_a_leaf() -> None:
    memory = torch.ones(3)
    with torch.no_grad():
        part = memory[:2]
    part.requires_grad_()
    (part * 3).sum().backward()
    assert part.grad.tolist() == [3.0, 3.0]


def test_operands_that_are_their_own_target() -> None:
    x, at = torch.tensor([1.0, 2.0]), torch.tensor([0, 1])
    calls = [
        lambda: x.__setitem__([0, 0], x), lambda: x.index_put_((at,), x), lambda: x.index_add_(0, at, x), lambda: x.index_copy_(0, at, x),
        lambda: x.scatter_(0, at, x),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            call()
    number = torch.tensor(1.0)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.add(number, torch.ones(2), out=number)


def test_what_writes_the_same_everywhere_may_write_into_expanded_tensors() -> None:
    x = torch.ones(1).expand(2)
    assert x.index_fill_(0, torch.tensor([0, 1]), 2).tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        x.add_(1)


def test_results_that_want_gradients_are_resized_without_them() -> None:
    out = torch.tensor(1.0, requires_grad=True)
    with torch.no_grad(), pytest.warns(UserWarning, match="resized"):
        torch.add(torch.ones(2), 1, out=out)
    assert out.tolist() == [2.0, 2.0] and out.requires_grad


def test_places_along_a_dim_go_around() -> None:
    x, at = torch.tensor([1, 2, 3]), torch.tensor([-8, -1, 5])
    assert torch.take_along_dim(x, at, 0).tolist() == [2, 3, 3]
    with pytest.raises(RuntimeError, match="out of bounds"):
        torch.take_along_dim(x, at)


def test_no_dims_to_transpose() -> None:
    x = torch.tensor(2.0)
    assert x.mT.shape == x.H.shape == x.mH.shape == ()
    try:
        torch.set_warn_always(True)  # it is said once in a program
        with pytest.warns(UserWarning, match="deprecated"):
            assert torch.ones(3).T.shape == (3,)
    finally:
        torch.set_warn_always(False)


def test_names_of_nodes() -> None:
    x = torch.tensor([2.0, 1.0], requires_grad=True)
    found = [
        torch.fmod(x, x), torch.fmod(x, 2), torch.remainder(x, x), torch.remainder(x, 2), x.sort(stable=True)[0], x.sort()[0],
        x.to(torch.float32, copy=True), torch.zeros(2).copy_(x),
    ]  # fmt: skip
    assert [v.grad_fn.name() for v in found] == [
        "FmodBackward1", "FmodBackward0", "RemainderBackward1", "RemainderBackward0", "SortBackward1", "SortBackward0", "ToCopyBackward0",
        "torch::autograd::CopyBackwards",
    ]  # fmt: skip
    assert found[0].grad_fn.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"


def test_bytes_read_as_another_dtype_are_no_view_for_autograd() -> None:
    for dtype in (torch.float32, torch.int32):
        x = torch.ones(3, requires_grad=True)
        y = x.view(dtype)
        assert not y._is_view() and not y.requires_grad and y.data_ptr() == x.data_ptr() and y is not x


@pytest.mark.parametrize("what", ["index_select", "take", "gather", "expanded", "constant"])
def test_indices_are_checked_where_the_place_does_not_depend_on_them(what: str) -> None:
    wrong, scalar = torch.tensor([5]), torch.tensor(3.0)
    calls = {
        "index_select": lambda: torch.index_select(scalar, 0, wrong),
        "take": lambda: torch.take(scalar, wrong),
        "gather": lambda: torch.gather(scalar, 0, torch.tensor(5)),
        "expanded": lambda: torch.ones(1).expand(4)[wrong],
        "constant": lambda: torch.ones(2, 1).expand(2, 3)[:, wrong],
    }
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        calls[what]()


def test_an_index_into_a_dim_of_size_one_still_reads_it() -> None:
    assert torch.index_select(torch.tensor(3.0), 0, torch.tensor([0, -1, 0][:1])).tolist() == 3.0
    assert torch.ones(1).expand(4)[torch.tensor([3, -4])].tolist() == [1.0, 1.0]


def test_resizing_moves_every_tensor_over_the_storage_and_refuses_foreign_memory() -> None:
    whole = torch.arange(6.0)
    part, other = whole[2:4], whole.view(2, 3)
    part.resize_(8)
    assert (
        part[:4].tolist() == [2, 3, 4, 5]
        and part.data_ptr() - whole.data_ptr() == 8
        and other.data_ptr() == whole.data_ptr()
    )
    part[0] = 7
    assert whole[2] == 7 and other[0, 2] == 7
    one = torch.arange(4.0)
    another = one.view(
        2, 2
    )  # a single one besides: one reference more than a storage that is alone has, however an interpreter counts
    one.resize_(1000)
    one.fill_(7)
    assert another.data_ptr() == one.data_ptr() and another.tolist() == [[7, 7], [7, 7]]
    assert whole.untyped_storage().resizable() and not torch.from_numpy(np.zeros(3)).untyped_storage().resizable()
    with pytest.raises(RuntimeError, match="storage that is not resizable"):
        torch.from_numpy(np.zeros((2, 3), np.float32)).resize_(4, 4)
    with pytest.raises(RuntimeError, match="storage that is not resizable"), pytest.warns(UserWarning):
        torch.cat((torch.ones(4, 6), torch.ones(4, 6)), out=torch.from_numpy(np.zeros((2, 3), np.float32)))


def test_binary_cross_entropy_refuses_what_is_no_probability() -> None:
    target = torch.ones(40)
    for wrong in (1.5, -0.1, float("nan")):
        x = torch.full((40,), 0.5)
        x[33] = wrong
        for reduction in ("mean", "none"):
            with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
                torch.nn.functional.binary_cross_entropy(x, target, reduction=reduction)
            with pytest.raises(RuntimeError, match="all elements of target should be between 0 and 1"):
                torch.nn.functional.binary_cross_entropy(target / 2, x, reduction=reduction)
    edge = torch.tensor([0.0, 1.0], requires_grad=True)
    loss = torch.nn.functional.binary_cross_entropy(edge, torch.tensor([0.0, 1.0]))
    loss.backward()
    assert loss.item() == 0 and edge.grad.tolist() == [0, 0]


def test_a_weight_without_dims_takes_part_in_promotion() -> None:
    half, single, double = torch.float16, torch.float32, torch.float64
    for dtype, other, dims, result in (
        (single, double, (), double), (single, double, (2,), single), (half, single, (), single), (half, single, (2,), half),
        (double, half, (2,), double), (torch.int64, single, (2,), single),
    ):  # fmt: skip
        x, end = torch.full(dims, 1, dtype=dtype), torch.full(dims, 3, dtype=dtype)
        mixed = torch.lerp(x, end, torch.tensor(0.25, dtype=other))
        assert mixed.dtype is result and mixed.flatten()[0].item() == 1.5
    x = torch.ones(2, requires_grad=True)
    weight = torch.tensor(0.25, dtype=double, requires_grad=True)
    torch.lerp(x, torch.full((2,), 3.0), weight).sum().backward()
    assert (
        x.grad.dtype is single
        and x.grad.tolist() == [0.75, 0.75]
        and weight.grad.dtype is double
        and weight.grad.item() == 4
    )
    assert torch.ones(2).lerp_(torch.zeros(2), torch.tensor(0.5, dtype=double)).dtype is single
    with pytest.raises(RuntimeError, match="for `weight`"):
        torch.lerp(torch.ones(2), torch.ones(2), torch.ones(1, dtype=double))
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.ones(2).lerp_(torch.ones(2), torch.tensor(1j))
    with pytest.raises(NotImplementedError, match="lerp_kernel"):
        torch.lerp(torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64), 0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64, torch.uint8])
def test_imaginary_parts_are_not_dropped_from_fill_values(dtype: torch.dtype) -> None:
    x = torch.ones(2, dtype=dtype)
    for call in (
        lambda: torch.full((2,), 1 + 2j, dtype=dtype), lambda: torch.full_like(x, 2j), lambda: x.new_full((2,), 1 + 2j), lambda: x.fill_(1 + 2j),
        lambda: torch.fill(x, 1 + 2j), lambda: x.index_fill(0, torch.tensor([0]), 1 + 2j),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="without overflow|non-complex"):
            call()
    assert torch.full((2,), 1 + 0j, dtype=dtype).tolist() == [1, 1] and x.tolist() == [1, 1]
    assert torch.full((2,), 2j, dtype=torch.bool).tolist() == [True, True]


def test_hypot_refuses_complex_numbers_on_either_side() -> None:
    for x, y in (
        (torch.ones(2), torch.ones(2, dtype=torch.complex64)),
        (torch.ones(2, dtype=torch.complex64), torch.ones(2)),
    ):
        with pytest.raises(NotImplementedError, match="hypot_cpu"):
            torch.hypot(x, y)


def test_as_many_indices_as_lines_are_added() -> None:
    x, places = torch.ones(3), torch.tensor([0, 1])
    for call in (lambda: x.index_add(0, places, x), lambda: x.index_add_(0, places, x)):
        with pytest.raises(
            RuntimeError, match=r"Number of indices \(2\) should be equal to source.size\(dim\): \(3\), for dim: 0"
        ):
            call()
    with pytest.raises(IndexError, match=r"Number of indices \(2\) should be equal to source.size\(dim\) \(3\)"):
        x.index_copy(0, places, x)


@pytest.mark.parametrize("name, args", [
    ("t_", ()), ("transpose_", (0, 0)), ("squeeze_", ()), ("unsqueeze_", (0,)), ("swapaxes_", (0, 0)), ("swapdims_", (0, 0)), ("as_strided_", ((2,), (1,))),
])  # fmt: skip
def test_views_taken_in_place_are_changes_for_autograd(name: str, args: tuple[object, ...]) -> None:
    leaf = torch.ones(2, 1, requires_grad=True)
    with torch.inference_mode():
        inferred = torch.ones(2, 1)
    for x, text in (
        (leaf, "^a leaf Variable"), (leaf.flatten(), "^a view of a leaf Variable"), ((leaf * 1).unbind(0)[0], "multiple views"),
        (inferred, "inference tensor"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=text):
            getattr(x, name)(*args)
    for x in ((leaf * 1).flatten(), leaf * 1, leaf.detach()):
        assert getattr(x, name)(*args) is x
    with torch.no_grad():
        assert getattr(leaf.flatten(), name)(*args).numel() == 2


@pytest.mark.parametrize("function", [torch.add, torch.isclose, torch.eq, torch.maximum])
def test_shapes_that_do_not_fit_are_compared_from_the_last_dim(function) -> None:
    with pytest.raises(
        RuntimeError, match=r"tensor a \(5\) must match the size of tensor b \(2\) at non-singleton dimension 1"
    ):
        function(torch.ones(2, 5), torch.ones(5, 2))
    with pytest.raises(
        RuntimeError, match=r"tensor a \(4\) must match the size of tensor b \(5\) at non-singleton dimension 2"
    ):
        function(torch.ones(3, 4, 4), torch.ones(5, 5))


def test_broadcast_shapes_names_the_argument_that_does_not_fit() -> None:
    with pytest.raises(
        RuntimeError,
        match=r"dimension of length 2 at -1! Mismatching argument at index 1 had \(5, 2\); .* broadcastable to \[2, 5\]",
    ):
        torch.broadcast_shapes((2, 5), (5, 2))
    assert torch.broadcast_shapes((3, 1), 4, (2, 1, 1)) == (2, 3, 4)


def test_a_hook_after_accumulation_may_give_the_parameter_back() -> None:
    v = torch.zeros(3, requires_grad=True)
    v.register_post_accumulate_grad_hook(lambda p: p.add_(p.grad, alpha=-0.5))
    v.backward(torch.tensor([1.0, 2.0, 3.0]))
    assert v.tolist() == [-0.5, -1.0, -1.5]
    v.register_post_accumulate_grad_hook(lambda p: p.grad)
    with pytest.raises(RuntimeError, match="should return None"):
        v.sum().backward()


def test_dim_order_that_is_not_unique() -> None:
    x = torch.empty(1, 2, 3, 4)
    refused = pytest.raises(RuntimeError, match="unique dim order")
    for check in (True, [torch.contiguous_format, torch.channels_last]):
        assert torch.empty(2, 3, 4, 5).mT.dim_order(ambiguity_check=check) == (0, 1, 3, 2)
    assert x.dim_order(ambiguity_check=[torch.contiguous_format, torch.channels_last]) == (0, 1, 2, 3)
    for call in (lambda: x.dim_order(ambiguity_check=True), lambda: x.dim_order(ambiguity_check=[torch.channels_last])):
        with refused:
            call()
    with pytest.raises(TypeError, match="bool or a list of memory formats"):
        x.dim_order(ambiguity_check="contiguous")


def test_inner_with_a_number_promotes() -> None:
    assert torch.inner(torch.tensor([1.5, 2.0]), torch.tensor(2)).tolist() == [3.0, 4.0]
    found = torch.inner(torch.ones(3, dtype=torch.int64), torch.tensor(1.5))
    assert (found.tolist(), found.dtype) == ([1.5] * 3, torch.float32)


def test_no_tensors_are_at_least_anything() -> None:
    assert torch.atleast_1d() == torch.atleast_2d() == torch.atleast_3d() == ()


def test_asarray_copies_only_where_it_may() -> None:
    a = torch.ones(3)
    refusals = [(lambda: torch.asarray([1, 2], copy=False), "arbitrary sequence"), (lambda: torch.asarray(a, dtype=torch.float64, copy=False), "'Float' into dtype"),
                (lambda: torch.asarray(a, device="meta", copy=False), "'cpu' to 'meta'"), (lambda: torch.asarray(np.ones(2)[::-1]), "negative")]  # fmt: skip
    for call, match in refusals:
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(RuntimeError, match="NumPy scalars"):
        torch.asarray(np.float64(2), copy=False)
    with pytest.raises(TypeError, match="must be bool"):
        torch.asarray(a, requires_grad=3)
    assert torch.asarray(a, copy=False) is a and torch.asarray(a, copy=True) is not a
    held = bytearray(b"\1\0\2\0")
    assert torch.asarray(held, dtype=torch.int16).tolist() == [1, 2] and torch.asarray(held).dtype is torch.float32
    torch.asarray(held, dtype=torch.uint8)[0] = 5
    assert held[0] == 5


def test_asarray_keeps_the_history_unless_told_otherwise() -> None:
    x = torch.ones(2, requires_grad=True)
    torch.asarray(x * 3, copy=True, dtype=torch.float64).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert torch.asarray(x * 3, requires_grad=False).grad_fn is None
    assert torch.asarray(x, copy=True, requires_grad=True).grad_fn is not None
    assert not torch.asarray(x, requires_grad=False).requires_grad and not x.requires_grad  # a leaf itself is told


def test_layer_norm_over_windows_that_are_seen_across() -> None:
    """Its weights' gradients are sums over three dims that do not merge, the last of them short."""
    torch.manual_seed(0)
    x = torch.randn(2, 49, 16, 128).swapaxes(1, 2)
    grad = torch.randn(2, 16, 49, 128)
    norm = torch.nn.LayerNorm(128)
    norm(x).backward(grad)
    v, g = x.numpy().astype(np.float64), grad.numpy().astype(np.float64)
    normed = (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + norm.eps)
    np.testing.assert_allclose(norm.weight.grad.numpy(), (normed * g).sum((0, 1, 2)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(norm.bias.grad.numpy(), g.sum((0, 1, 2)), rtol=1e-4, atol=1e-4)
