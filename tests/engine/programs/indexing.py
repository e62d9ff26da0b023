"""Indexing: every form, reading, writing, errors, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.engine.recording import Topic, attempt

topic = Topic()


def forms(t: Any) -> dict[str, Any]:
    """Indices of a (2, 3, 4) tensor."""
    L = t.tensor
    return {
        "int": 1,
        "negative": -1,
        "slice": slice(1, None),
        "slice_step": slice(None, None, 2),
        "slice_negative": slice(-1, None),
        "slice_far": slice(5, 9),
        "slice_backward": slice(2, 1),
        "slice_clip": slice(-9, 9),
        "dots": ...,
        "none": None,
        "ints": (1, 2, 3),
        "ints_two": (0, -1),
        "dots_int": (..., 2),
        "int_dots": (1, ...),
        "dots_middle": (1, ..., 2),
        "none_middle": (0, 1, None),
        "none_last": (..., None),
        "nones": (0, None, None),
        "all": (slice(None), slice(None), slice(None)),
        "true": True,
        "false": False,
        "true_in": (0, True),
        "false_in": (slice(None), False),
        "true_none": (True, None),
        "true_list": ([True, False],),
        "list": [0, 1, 1],
        "list_negative": [-1, 0],
        "list_empty": [],
        "list_nested": [[0, 1], [1, 0]],
        "tuple_of_lists": ([0, 1], [1, 2]),
        "tensor": L([1, 0, 1]),
        "tensor_zero_dim": L(1),
        "tensor_two_dims": L([[0, 1], [1, 1]]),
        "tensor_int32": L([1, 0], dtype=t.int32),
        "tensor_uint8": L([1, 0], dtype=t.uint8),
        "tensor_empty": t.zeros(0, dtype=t.long),
        "tensor_last": (..., L([3, 0])),
        "tensor_middle": (slice(None), L([2, 0])),
        "pair": (L([0, 1]), L([2, 0])),
        "pair_broadcast": (L([[0], [1]]), L([2, 0])),
        "pair_with_slice": (L([0, 1]), slice(1, 3), L([3, 0])),
        "pair_adjacent_later": (slice(None), L([0, 2]), L([1, 3])),
        "int_and_tensor": (1, L([0, 2])),
        "tensor_and_int": (L([0, 1]), 2),
        "tensor_slice_int": (L([0, 1]), slice(None), 2),
        "int_slice_tensor": (0, slice(None), L([1, 2, 3])),
        "three": (L([0, 1]), L([1, 2]), L([2, 3])),
        "three_broadcast": (L([[0], [1]]), L([[2, 0]]), 1),
        "none_and_tensor": (None, L([0, 1]), None),
        "tensor_none_tensor": (L([0, 1]), None, L([1, 2])),
        "dots_and_tensor": (L([1]), ..., L([0, 3])),
        "mask_full": t.arange(24).reshape(2, 3, 4) % 3 == 0,
        "mask_none": t.zeros(2, 3, 4, dtype=t.bool),
        "mask_two": L([[True, False, True], [False, True, False]]),
        "mask_one": L([False, True]),
        "mask_middle": (slice(None), L([True, False, True])),
        "mask_last": (..., L([True, False, False, True])),
        "mask_and_int": (L([True, True]), 1),
        "mask_and_tensor": (L([True, True]), L([0, 2])),
        "mask_two_and_tensor": (L([[True, False, True], [False, True, False]]), L([0, 1, 3])),
        "mask_then_slice": (L([True, False]), slice(1, 2)),
        "bool_zero_dim": L(True),
        "bool_zero_dim_false": L(False),
        "numpy_array": np.array([1, 0]),
        "numpy_mask": np.array([True, False]),
        "numpy_int": np.int64(1),
        "range": range(2),
        "int_tensor_slice": slice(L(1), L(3)),
        "zero_dim_pair": (L(1), L(2)),
        "zero_dim_in_middle": (slice(None), L(1), slice(0, 2)),
        "many_dims": L([[[0, 1]], [[1, 0]]]),
        "list_of_bools": [True, False],
        "tuple_mixed": ([0], slice(None), [1, 2]),
        "empty_tuple": (),
        "list_and_dots": ([1], ...),
        "index_object": type("I", (), {"__index__": lambda self: 1})(),
        "slices_and_list": (slice(0, 1), [0, 2], slice(1, 3)),
        "negative_pair": (L([-1, -2]), L([-3, -1])),
        "empty_pair": (t.zeros(0, dtype=t.long), t.zeros(0, dtype=t.long)),
    }


@topic
def get(t: Any) -> Any:
    x = t.arange(24).reshape(2, 3, 4)
    return {name: attempt(lambda index=index: x[index]) for name, index in forms(t).items()}


@topic
def get_from_strided(t: Any) -> Any:
    x = t.arange(96.0).reshape(4, 3, 8).permute(2, 1, 0)[::4]
    return {name: attempt(lambda index=index: x[index].flatten()) for name, index in forms(t).items()}


@topic
def put_number(t: Any) -> Any:
    found = {}
    for name, index in forms(t).items():
        if name == "tensor_uint8":  # deprecated as a mask
            continue
        x = t.arange(24).reshape(2, 3, 4)
        found[name] = [attempt(lambda x=x, index=index: x.__setitem__(index, -7)), x, x._version]
    return found


@topic
def put_tensor(t: Any) -> Any:
    found = {}
    for name, index in forms(t).items():
        x = t.arange(24.0).reshape(2, 3, 4)
        shown = attempt(lambda x=x, index=index: x[index])
        if isinstance(shown, str) or name == "tensor_uint8":
            continue
        value = -t.arange(1.0, shown.numel() + 1).reshape(shown.shape)
        if name in (
            "list",
            "tensor",
            "list_nested",
            "tensor_two_dims",
            "many_dims",
        ):  # places named twice: any order may win
            value = t.full_like(value, -3.0)
        found[name] = [attempt(lambda x=x, index=index, value=value: x.__setitem__(index, value)), x]
        y = t.zeros(2, 3, 4)
        found[name].append([attempt(lambda y=y, index=index, row=t.tensor([5.0]): y.__setitem__(index, row)), y])
    return found


@topic
def gradients(t: Any) -> Any:
    found = {}
    for name, index in forms(t).items():
        x = t.arange(24.0, dtype=t.float64).reshape(2, 3, 4).requires_grad_()
        shown = attempt(lambda x=x, index=index: x[index])
        if isinstance(shown, str) or not shown.numel():
            continue
        (shown * t.arange(1.0, shown.numel() + 1, dtype=t.float64).reshape(shown.shape)).sum().backward()
        found[name] = [type(shown.grad_fn).__name__, x.grad]
    return found


BAD: dict[str, Any] = {
    "far": lambda t, x: x[2],
    "far_negative": lambda t, x: x[-3],
    "many": lambda t, x: x[0, 0, 0, 0],
    "two_dots": lambda t, x: x[..., ..., 0] if False else x[..., ...],
    "float": lambda t, x: x[1.5],
    "text": lambda t, x: x["a"],
    "float_tensor": lambda t, x: x[t.tensor([1.0])],
    "complex": lambda t, x: x[1j],
    "negative_step": lambda t, x: x[::-1],
    "zero_step": lambda t, x: x[::0],
    "mask_shape": lambda t, x: x[t.tensor([True, False, True])],
    "mask_dims": lambda t, x: x[t.ones(2, 3, 4, 1, dtype=t.bool)],
    "no_broadcast": lambda t, x: x[t.tensor([0, 1]), t.tensor([0, 1, 2])],
    "index_far": lambda t, x: x[t.tensor([5])],
    "index_far_negative": lambda t, x: x[[-3]],
    "scalar": lambda t, x: t.tensor(3)[0],
    "scalar_slice": lambda t, x: t.tensor(3)[0:1],
    "scalar_dots": lambda t, x: t.tensor(3)[...],
    "scalar_none": lambda t, x: t.tensor(3)[None],
    "scalar_mask": lambda t, x: t.tensor(3)[t.tensor(True)],
    "float_slice": lambda t, x: x[0.5:],
    "tensor_slice_many": lambda t, x: x[t.tensor([0, 1]) :],
    "ragged": lambda t, x: x[[[0], [0, 1]]],
    "set_shape": lambda t, x: x.__setitem__(0, t.zeros(5, dtype=t.long)),
    "set_far": lambda t, x: x.__setitem__(7, 1),
    "set_dtype": lambda t, x: x.__setitem__([0], t.ones(1)),
    "set_mask_count": lambda t, x: x.__setitem__(x > 20, t.arange(9)),
    "set_text": lambda t, x: x.__setitem__(0, "a"),
    "set_none": lambda t, x: x.__setitem__(0, None),
    "set_far_tensor": lambda t, x: x.__setitem__(t.tensor([9]), 0),
    "set_scalar": lambda t, x: t.tensor(3).__setitem__(0, 1),
    "del": lambda t, x: x.__delitem__(0),
    "empty_of_far": lambda t, x: t.zeros(0, 3)[0],
    "empty_index": lambda t, x: t.zeros(0, 3)[t.tensor([0])],
    "object": lambda t, x: x[object()],
    "set_list": lambda t, x: x.__setitem__((0, 0), [1, 2, 3, 4]),
}


@topic
def errors(t: Any) -> Any:
    return {name: attempt(lambda case=case: case(t, t.arange(24).reshape(2, 3, 4))) for name, case in BAD.items()}


@topic
def views_or_copies(t: Any) -> Any:
    x = t.zeros(2, 3, 4)
    found = {}
    for name, index in forms(t).items():
        shown = attempt(lambda index=index: x[index])
        if not isinstance(shown, str) and shown.numel():
            found[name] = [shown.untyped_storage().data_ptr() == x.untyped_storage().data_ptr(), shown._is_view()]
    return found


@topic
def put_casts(t: Any) -> Any:
    x = t.zeros(4, dtype=t.int64)
    x[0] = 2.7
    x[1] = True
    x[2:] = t.tensor([1.9, 3.1])
    x[t.tensor([0])] = 9.9
    y = t.zeros(2, dtype=t.bool)
    y[0] = 5
    z = t.zeros(3)
    z[0] = 2.5
    z[1:] = t.tensor([1, 2])
    z[z > 1] = t.tensor(9.0, dtype=t.float64)
    c = t.zeros(2)
    return x, y, z, attempt(lambda: c.__setitem__(0, 1j)), c


@topic
def put_broadcast(t: Any) -> Any:
    x = t.zeros(2, 3)
    x[:, 0] = t.tensor([1.0, 2.0])
    x[0] = t.tensor([[5.0, 6.0, 7.0]])
    x[:, 1:] = t.tensor([[8.0], [9.0]])
    y = t.zeros(2, 3)
    y[[0, 1], [1, 2]] = t.tensor([[4.0, 5.0]])
    y[[0]] = t.tensor([1.0, 2.0, 3.0])
    z = t.zeros(3)
    z[1] = t.tensor([4.0])
    return (
        x,
        y,
        z,
        attempt(lambda: z.__setitem__(slice(0, 2), t.zeros(3))),
        attempt(lambda: z.__setitem__(0, t.zeros(2))),
    )


@topic
def index_functions(t: Any) -> Any:
    x = t.arange(12.0).reshape(3, 4)
    i = t.tensor([2, 0])
    return [
        x.index_select(0, i),
        x.index_select(-1, i),
        t.index_select(x, 1, t.tensor(1)),
        x.take(t.tensor([[0, 11], [5, -1]])),
        x.gather(1, t.tensor([[0, 3], [1, 1], [2, 0]])),
        x.take_along_dim(t.tensor([[1], [0], [2]]), 1),
        x.masked_select(x > 5),
        x.index_fill(0, i, -1.0),
        x.index_add(0, i, t.ones(2, 4)),
        x.index_copy(0, i, t.zeros(2, 4)),
        x.index_put((i,), t.tensor(-5.0)),
        x.index_put((i, t.tensor([1, 1])), t.tensor([7.0, 8.0]), accumulate=True),
        attempt(lambda: x.index_select(0, t.tensor([3]))),
        attempt(lambda: x.index_select(0, t.tensor([[0]]))),
        attempt(lambda: x.gather(1, t.tensor([[4]]))),
        attempt(lambda: x.gather(0, t.tensor([0]))),
        attempt(lambda: x.masked_select(t.tensor([1, 0, 1, 0]))),
        attempt(lambda: x.index_select(2, i)),
        attempt(lambda: x.take(t.tensor([12]))),
        t.nonzero(x > 8),
        (x > 8).nonzero(as_tuple=True),
        t.where(x > 5),
        t.argwhere(x > 9),
        t.nonzero(t.tensor(3)),
        t.nonzero(t.zeros(2, 0)),
        x.nonzero().dtype,
    ]


@topic
def second_gradient(t: Any) -> Any:
    x = t.arange(1.0, 7.0, dtype=t.float64).requires_grad_()
    i = t.tensor([0, 2, 2, 5])
    y = (x**3)[i] * x[i]
    (g,) = t.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = t.autograd.grad((g * g).sum(), x)
    return (
        g,
        h,
        t.autograd.gradgradcheck(lambda x: x[i] ** 2, x),
        t.autograd.gradgradcheck(lambda x: (x * x)[t.tensor([True, False, True, True, False, True])], x),
    )


@topic
def iteration(t: Any) -> Any:
    x = t.arange(6).reshape(3, 2)
    a, b, c = x
    return (
        list(x),
        a,
        b,
        c,
        [v.item() for v in x[0]],
        t.tensor(2) in t.tensor([1, 2]),
        7 in x,
        list(reversed(x)),
        x.tolist(),
    )
