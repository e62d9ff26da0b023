"""NumPy's arrays and scalars as operands of Python's operators, on both sides, and NumPy's functions on tensors."""

import operator
import warnings

import numpy as np
import pytest

import rushlight as torch

OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift", "eq", "ne", "lt", "le", "gt", "ge",
)  # fmt: skip
TENSORS = {
    "int64": lambda t: t.tensor([1, 2]), "float32": lambda t: t.tensor([1.0, 2.0]), "leaf": lambda t: t.tensor([1.0, 2.0], requires_grad=True),
    "0-d": lambda t: t.tensor(2.0), "bool": lambda t: t.tensor([True, False]), "bfloat16": lambda t: t.ones(2, dtype=t.bfloat16),
    "subclass": lambda t: t.nn.Parameter(t.tensor([1.0, 2.0]), requires_grad=False),
}  # fmt: skip
ARRAYS = {
    "int64": lambda: np.array([1, 2]), "float64": lambda: np.array([1.0, 3.0]), "float32": lambda: np.array([1.0, 3.0], "f4"), "0-d": lambda: np.array(2.0),
    "bool": lambda: np.array([True, True]), "matrix": lambda: np.ones((2, 2)), "uint8": lambda: np.array([1, 2], "u1"), "complex": lambda: np.array([1j, 2]),
    "objects": lambda: np.array([1, None], dtype=object), "text": lambda: np.array(["a", "b"]), "shape": lambda: np.ones(3),
    "scalar": lambda: np.float64(2), "scalar float32": lambda: np.float32(2), "scalar int32": lambda: np.int32(2), "scalar bool": lambda: np.bool_(True),
    "scalar long": lambda: np.longdouble(1.5), "scalar uint64": lambda: np.uint64(2**63), "scalar text": lambda: np.str_("a"),
    "scalar date": lambda: np.datetime64("2020-01-01"),
}  # fmt: skip
FORMS = {
    "t op a": lambda name, t, a: getattr(operator, name)(t, a),
    "a op t": lambda name, t, a: getattr(operator, name)(a, t),
    "t op= a": lambda name, t, a: getattr(operator, "i" + name.rstrip("_"))(t, a),
    "a op= t": lambda name, t, a: getattr(operator, "i" + name.rstrip("_"))(a, t),
}


def test_an_operator_with_an_array_gives_a_tensor():
    x = torch.tensor([1, 2])
    for made, values, dtype in (
        (x + np.array([1.0, 3.0]), [2.0, 5.0], torch.float64),
        (x * np.array([2, 3]), [2, 6], torch.int64),
        (np.array([2.0, 4.0]) / x, [2.0, 2.0], torch.float64),
        (torch.ones(2) + np.ones(2, "f4"), [2.0, 2.0], torch.float32),
        (x == np.array([1, 3]), [True, False], torch.bool),
        (np.array([1, 3]) == x, [True, False], torch.bool),
        (x @ np.array([1.0, 2.0]), 5.0, torch.float64),
    ):
        assert isinstance(made, torch.Tensor) and made.dtype is dtype and made.tolist() == values


def test_an_array_in_front_is_refused_as_by_pytorch():
    """`array * tensor` asks the tensor, which leaves it to the array: Python then refuses both."""
    x, a = torch.ones(2), np.ones(2)
    for call in (lambda: a * x, lambda: a - x, lambda: a @ x, lambda: a**x, lambda: a < x):
        with pytest.raises(TypeError, match="not supported|unsupported operand"):
            call()
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.ones(2, requires_grad=True) + a


def test_methods_and_functions_take_no_arrays():
    x = torch.ones(2)
    for call in (
        lambda: x.add(np.ones(2)),
        lambda: torch.add(x, np.ones(2)),
        lambda: x.eq(np.ones(2)),
        lambda: x.mul_(np.ones(2)),
    ):
        with pytest.raises(TypeError, match="must be Tensor"):
            call()


def test_operands_of_no_kind_leave_it_to_python():
    x = torch.ones(2)
    for call in (
        lambda: x + None,
        lambda: x - "a",
        lambda: None / x,
        lambda: "a" ** x,
        lambda: [1] - x,
        lambda: x < [1, 2],
        lambda: x @ 2,
    ):
        with pytest.raises(TypeError, match="not supported|unsupported operand"):
            call()
    assert x.__iadd__([1]) is NotImplemented and x.tolist() == [1.0, 1.0]
    assert (x == None) is False and (x != None) is True and (x == [1.0, 1.0]) is False  # noqa: E711

    class Answers:
        def __radd__(self, other):
            return "radd", other is x

    y = x
    y += Answers()
    assert x + Answers() == ("radd", True) and y == ("radd", True)


def test_scalars_of_numpy():
    x = torch.tensor([1, 2])
    assert (x + np.int8(3)).dtype is torch.int64 and (x * np.float32(0.5)).dtype is torch.float32
    assert (x + np.longdouble(1.5)).tolist() == [2.5, 3.5]
    assert (x + np.bool_(True)).dtype is torch.float32  # as in PyTorch, where it reads as a float
    for wrong in (np.str_("a"), np.datetime64("2020-01-01")):
        for call in (
            lambda wrong=wrong: x.clamp(min=wrong),
            lambda wrong=wrong: torch.add(x, wrong),
            lambda wrong=wrong: torch.add(x, x, alpha=wrong),
        ):
            with pytest.raises(TypeError, match="must be (Number|Tensor)"):
                call()


def _ending(module, form, name, tensor, array):
    """How a call ends: its result with dtype, shape, values and graph; or the type of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = FORMS[form](name, tensor, array)
        except Exception as error:
            return "error", type(error).__name__.replace("NotImplementedError", "RuntimeError")
    if isinstance(made, module.Tensor):
        return "tensor", str(made.dtype).rpartition(".")[2], tuple(made.shape), str(made.tolist()), made.requires_grad
    return type(made).__name__, str(made)


@pytest.mark.oracle
@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_is_pytorch_s(name):
    import torch as oracle

    forms = FORMS if hasattr(operator, "i" + name.rstrip("_")) else list(FORMS)[:2]
    wrong = []
    for form in forms:
        for kind, tensor in TENSORS.items():
            for other, array in ARRAYS.items():
                ours, theirs = (_ending(m, form, name, tensor(m), array()) for m in (torch, oracle))
                if ours != theirs:
                    wrong.append((form, kind, other, ours, theirs))
    assert not wrong, f"{len(wrong)} differ: {wrong[:5]}"
