"""What errors of autograd say: the user's lines, names and versions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._base import errors


def leaf(*values: float) -> Any:
    return torch.tensor(values, requires_grad=True)


def test_saved_then_changed_names_both_lines() -> None:
    x = leaf(1.0, 2.0)
    y = x * 2
    z = y.exp() * y  # saved here
    y.add_(1)  # changed here
    with pytest.raises(RuntimeError) as error:
        z.sum().backward()
    text = str(error.value)
    assert "modified by an inplace operation" in text
    assert "saved here" in text and "changed here" in text
    assert text.count(__file__) == 2
    assert "[torch.float32 [2]]" in text and "version 1" in text and "expected version 0" in text


def test_change_through_a_view_is_named_too() -> None:
    x = leaf(1.0, 2.0)
    w = torch.ones(2)
    y = x * w  # kept for backward
    part = w[1:]
    part.zero_()  # written through
    with pytest.raises(RuntimeError, match=r"(?s)kept for backward.*written through"):
        y.sum().backward()


def test_change_by_item_assignment() -> None:
    x = leaf(1.0, 2.0)
    w = torch.ones(2)
    y = x * w
    w[0] = 5  # assigned
    with pytest.raises(RuntimeError, match="assigned"):
        y.sum().backward()


def test_own_functions_name_the_change() -> None:
    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(w)
            return x * w

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.saved_tensors[0], None

    x, w = leaf(1.0), torch.ones(1)
    y = Times.apply(x, w)
    w.mul_(3)  # the change
    with pytest.raises(RuntimeError, match=r"(?s)TimesBackward.*the change"):
        y.sum().backward()


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda x: (x * 1).backward(), "scalar outputs"),
        (lambda x: x.detach().sum().backward(), "does not require grad"),
        (lambda x: (x * 1).backward(torch.ones(3)), "shape"),
        (lambda x: x.add_(1), "leaf Variable"),
        (lambda x: x[0:1].add_(1), "view of a leaf"),
        (lambda x: (x * 1).split(1)[0].add_(1), "multiple views"),
        (lambda x: x.numpy(), "detach"),
        (lambda x: torch.autograd.grad(x.sum(), leaf(1.0)), "allow_unused"),
        (lambda x: torch.add(x, 1, out=torch.empty(2)), "automatic differentiation"),
        (lambda x: (x * 1).requires_grad_(False), "leaf"),
        (lambda x: torch.ones(2, dtype=torch.int64).requires_grad_(), "floating point"),
        (lambda x: x.resize_(3), "require"),
    ],
)
def test_words(call: Any, word: str) -> None:
    with pytest.raises(RuntimeError, match=word):
        call(leaf(1.0, 2.0))


def test_second_backward_says_what_to_do() -> None:
    x = leaf(1.0)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


def watched() -> Any:
    """Anomaly mode without the warning that it is on."""
    return torch.autograd.set_detect_anomaly(True)


def test_anomaly_mode_warns_that_it_is_on() -> None:
    with pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
        assert torch.is_anomaly_enabled()


def test_anomaly_mode_shows_the_forward_line() -> None:
    x = leaf(-1.0)
    with watched(), pytest.warns(UserWarning, match="the forward line"):
        y = torch.sqrt(x)  # the forward line
        with pytest.raises(RuntimeError, match="SqrtBackward0.*nan"):
            y.sum().backward()


def test_anomaly_mode_shows_the_users_lines_alone() -> None:
    """As tracebacks do; with the knob at `full` those of the package are there too."""
    from rushlight._base.tracebacks import TRACEBACK

    for shown in ("short", "full"):
        x = leaf(-1.0)
        with TRACEBACK.scoped(shown), watched(), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            y = torch.sqrt(x)
            with pytest.raises(RuntimeError, match="nan"):
                y.sum().backward()
        text = "".join(str(w.message) for w in seen)
        assert "y = torch.sqrt(x)" in text and ("/_engine/" in text) == (shown == "full")


def test_anomaly_mode_in_a_double_backward_shows_both_lines() -> None:
    x = leaf(0.0)
    with watched(), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = x.abs() ** 1.5  # the outer line
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)  # the inner line
        with pytest.raises(RuntimeError, match="nan"):
            torch.autograd.grad(g.sum() * 0, x)
    text = " ".join(str(w.message) for w in seen)
    assert "the inner line" in text and "the outer line" in text and "Previous calculation was induced by" in text


def test_an_error_in_backward_shows_the_forward_line() -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            raise ZeroDivisionError

    with watched(), pytest.warns(UserWarning, match="applied here"):
        y = Broken.apply(leaf(1.0))  # applied here
        with pytest.raises(ZeroDivisionError):
            y.sum().backward()


def test_errors_without_a_forward_line_say_so() -> None:
    y = torch.sqrt(leaf(-1.0))
    with (
        watched(),
        pytest.warns(UserWarning, match="No forward pass information"),
        pytest.raises(RuntimeError, match="nan"),
    ):
        y.sum().backward()


def test_anomaly_mode_ends() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(KeyError), torch.autograd.detect_anomaly():
            raise KeyError
    assert not torch.is_anomaly_enabled()


def test_partial_overlap_names_the_way_out() -> None:
    x = torch.arange(4.0)
    with pytest.raises(RuntimeError, match="clone"):
        x[1:].add_(x[:-1])
    assert x.tolist() == [0, 1, 2, 3]


def test_strided_overlap_is_computed_from_the_old_values() -> None:
    x = torch.arange(6.0)
    x[::2].add_(x[1::2])
    assert x.tolist() == [1, 1, 5, 3, 9, 5]
    y = torch.arange(9.0).reshape(3, 3)
    y[:, 0].copy_(y[0].clone())
    y[0, :].mul_(y[:, 0])
    assert y.tolist() == [[0, 1, 4], [1, 4, 5], [2, 7, 8]]


F = torch.nn.functional
# A mistake, and what its message must say: what was found, what was expected, what would work.
MISTAKES: list[tuple[Any, type[Exception], tuple[str, ...]]] = [
    (
        lambda: torch.nn.Linear(3, 4)(torch.ones(2, 5)),
        RuntimeError,
        ("linear()", "2x5 and 3x4", "[2, 5]", "3 features"),
    ),
    (
        lambda: torch.nn.Linear(3, 4)(torch.ones(2, 3, dtype=torch.int64)),
        RuntimeError,
        ("linear()", "int64", "float32", "input.to(torch.float32)"),
    ),
    (
        lambda: F.cross_entropy(torch.ones(2, 3), torch.ones(2)),
        RuntimeError,
        ("cross_entropy()", "Float", "[2]", "target.long()", "[2, 3]"),
    ),
    (
        lambda: F.nll_loss(torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.int64)),
        RuntimeError,
        ("nll_loss()", "[2]", "[2, 3]"),
    ),
    (lambda: torch.ones(2).sum().backward(), RuntimeError, ("requires_grad=True", "no_grad", "detach")),
    (lambda: torch.ones(2, requires_grad=True).backward(), RuntimeError, ("[2]", "sum()", "gradient=")),
    (lambda: torch.ones(2, requires_grad=True).add_(1), RuntimeError, ("no_grad", "clone()")),
    (lambda: torch.ones(2, 3).item(), RuntimeError, ("6 elements", "[2, 3]", "tolist()")),
    (lambda: bool(torch.ones(2)), RuntimeError, ("[2]", "any()", "all()")),
    (lambda: torch.optim.Adam(torch.nn.Linear(2, 2)), TypeError, ("Linear", "parameters()")),
    (lambda: torch.optim.SGD([], lr=0.1), ValueError, ("empty parameter list", "generator")),
    (lambda: torch.topk(torch.ones(3), 5), RuntimeError, ("3", "k is 5")),
    (lambda: torch.softmax(torch.arange(3), 0), NotImplementedError, ("Long", ".float()")),
    (lambda: torch.arange(3).mean(), RuntimeError, ("Long", ".float()", "dtype=")),
    (lambda: F.one_hot(torch.tensor([5]), 3), RuntimeError, ("found 5", "num_classes is 3")),
    (lambda: torch.ones(3, 2).t().view(6), RuntimeError, ("reshape", "[2, 3]", "strides")),
    (lambda: torch.arange(2, start=2), TypeError, ("arange()", "got (int, start=int)", "start: Scalar, end: Scalar")),
    (lambda: torch.nn.Embedding(5, 3)(torch.tensor([7])), IndexError, ("7", "5")),
]


@pytest.mark.parametrize(("mistake", "kind", "words"), MISTAKES)
def test_common_mistakes_say_what_was_found_and_what_would_work(
    mistake: Any, kind: type[Exception], words: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as raised:
        mistake()
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_views_are_named_by_what_made_them() -> None:
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x[1:]

    x = torch.ones(4, requires_grad=True).clone()
    with pytest.raises(RuntimeError, match="Output 1 of Unbind is a view and is being modified inplace"):
        x.unbind()[1].mul_(2)
    with pytest.raises(RuntimeError, match="Output 0 of Same is a view and is being modified inplace"):
        Same.apply(x).mul_(2)
    with torch.no_grad():
        first, _ = x.chunk(2)
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        first.mul_(2)


def test_results_of_inference_mode_are_not_written_to_outside() -> None:
    with torch.inference_mode():
        made = torch.ones(2)
        torch.add(torch.ones(2), 1, out=made)
    torch.add(torch.ones(2), 1, out=torch.zeros(2))  # a call that is known differs in its `out=` alone
    for change in (lambda: made.add_(1), lambda: torch.add(torch.ones(2), 1, out=made)):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
            change()


def test_switches_take_bools() -> None:
    with pytest.raises(TypeError, match="must be bool, not str"):
        torch.set_grad_enabled("no")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be bool, not int"):
        torch.autograd.set_detect_anomaly(1)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="requires_grad must be a bool"):
        torch.ones(1).requires_grad = 1  # type: ignore[assignment]
    assert torch.is_grad_enabled() and not torch.is_anomaly_enabled()


def test_a_mode_on_a_class_reaches_its_construction() -> None:
    with pytest.warns(FutureWarning, match="decorate the methods of Plain"):

        @torch.no_grad()
        class Plain:
            def __init__(self) -> None:
                self.graded = torch.is_grad_enabled()

    assert not Plain().graded and torch.is_grad_enabled()


def test_hooks_of_nodes_return_as_many_as_they_are_given() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0],) * 3)
    with pytest.raises(RuntimeError, match="got 3, but expected 2"):
        y.sum().backward()


# ***** what is done but advised against *****

READ_ONLY = np.ones(2)
READ_ONLY.flags.writeable = False
EYE = torch.eye(3)
ADVICE: list[tuple[str, Any]] = [
    (
        "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or",
        lambda: torch.tensor(EYE),
    ),
    ("rather than tensor.new_tensor(sourceTensor).", lambda: EYE.new_tensor(EYE)),
    (
        "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.",
        lambda: float(leaf(1.0)),
    ),
    (
        "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.",
        lambda: complex(leaf(1.0)),
    ),
    (
        "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.",
        lambda: torch.tensor([leaf(1.0)]),
    ),
    (
        "The given NumPy array is not writable, and PyTorch does not support non-writable tensors.",
        lambda: torch.from_numpy(READ_ONLY),
    ),
    (
        "The given buffer is not writable, and PyTorch does not support",
        lambda: torch.frombuffer(b"1234", dtype=torch.uint8),
    ),
    (
        "Creating a tensor from a list of numpy.ndarrays is extremely slow.",
        lambda: torch.tensor([np.ones(2), np.ones(2)]),
    ),
    ("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed.", lambda: (leaf(1.0) * 2).grad),
    (
        "An output with one or more elements was resized since it had shape [1], which",
        lambda: torch.add(EYE[0], 1, out=torch.ones(1)),
    ),
    ("The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated", lambda: EYE[0].T),
    (
        "torch.meshgrid: in an upcoming release, it will be required to pass the indexing",
        lambda: torch.meshgrid(EYE[0], EYE[1]),
    ),
    ("torch.qr is deprecated in favor of torch.linalg.qr", lambda: torch.qr(EYE)),
    ("torch.cholesky is deprecated in favor of torch.linalg.cholesky", lambda: torch.cholesky(EYE)),
    ("torch.lu is deprecated in favor of torch.linalg.lu_factor", lambda: torch.lu(EYE)),
    (
        "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangular",
        lambda: torch.triangular_solve(EYE, EYE),
    ),
    ("torch.chain_matmul is deprecated and will be removed", lambda: torch.chain_matmul(EYE, EYE)),
    ("torch.range is deprecated and will be removed in a future release", lambda: torch.range(0, 2)),
    (
        "A window was not provided. A rectangular window will be applied",
        lambda: torch.stft(torch.ones(8), 4, return_complex=True),
    ),
    ("Using torch.cross without specifying the dim arg is deprecated.", lambda: torch.cross(EYE, EYE)),
    ("TypedStorage is deprecated. It will be removed in the future", EYE.storage),
    ("Using a non-tuple sequence for multidimensional indexing is deprecated", lambda: EYE[[[0], [1]]]),
    (
        "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool",
        lambda: EYE[torch.tensor([1, 0, 1], dtype=torch.uint8)],
    ),
    ("`eps` parameter is deprecated and has no effect.", lambda: torch.nn.functional.gumbel_softmax(EYE, eps=1e-3)),
    (
        "var(): degrees of freedom is <= 0. Correction should be strictly less than the reduction",
        lambda: EYE.var(0, correction=3.0),
    ),
    (
        "std(): degrees of freedom is <= 0. Correction should be strictly less than the reduction",
        lambda: EYE.std(0, correction=4.0),
    ),
]


@pytest.mark.parametrize(("text", "call"), ADVICE, ids=[f"{i}-{text.split()[0]}" for i, (text, _) in enumerate(ADVICE)])
def test_what_pytorch_warns_of_is_warned_of_at_the_users_line(
    text: str, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "_SAID", set())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    assert [text in str(w.message) and w.category is UserWarning for w in seen] == [True]
    assert seen[0].filename == __file__


def test_numbers_are_taken_silently_from_what_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_SAID", set())
    x = leaf(2.0)
    assert x.item() == int(x) == float(x.detach()) == 2.0
    with torch.no_grad():
        assert float(x) == 2.0


# ***** views that may not change *****

SEVERAL = "This view is the output of a function that returns multiple views. Such functions do not allow the output views to be modified inplace."


def message(call: Any) -> str:
    with pytest.raises(RuntimeError) as error:
        call()
    return str(error.value)


@pytest.mark.parametrize("name", ["Backward", "BackwardX", "XBackwardY", "X"])
def test_views_name_the_function_that_made_them(name: str) -> None:
    function: Any = type(
        name,
        (torch.autograd.Function,),
        {"forward": staticmethod(lambda ctx, x: x.view(-1)), "backward": staticmethod(lambda ctx, g: g)},
    )
    view = function.apply(torch.ones(2, 2, requires_grad=True) * 1)
    assert message(lambda: view.mul_(2)).startswith(
        f"Output 0 of {name} is a view and is being modified inplace. This view was created inside a custom"
    )


def test_views_of_what_changed_say_so() -> None:
    base = leaf(1.0, 2.0) * 1
    part = base.unbind(0)[1]
    base.mul_(2)
    text = f"Output 1 of Unbind is a view and its base or another view of its base has been modified inplace. {SEVERAL}"
    assert message(lambda: part.grad_fn).startswith(text)
    assert message(lambda: part.backward()).startswith(text)
    assert message(lambda: part.mul_(2)).startswith(
        f"Output 1 of Unbind is a view and is being modified inplace. {SEVERAL}"
    )
    assert repr(part) == "tensor(4., grad_fn=<Invalid>)"


def test_views_made_without_gradients_say_so() -> None:
    base = torch.ones(4, 2, requires_grad=True) * 1
    with torch.no_grad():
        part = base.split(2)[1]
    assert message(lambda: part.mul_(2)).startswith(
        "A view was created in no_grad mode and is being modified inplace with grad mode enabled. Given"
    )
    seen = part.view(-1)
    assert message(lambda: seen.mul_(2)).startswith(
        "Output 0 of View is a view of a view which was created in no_grad mode and is being modified inplace"
    )


CHANGES: dict[str, Any] = {
    "the view": lambda base, view: view.mul_(2),
    "by an index": lambda base, view: view.__setitem__(0, 3.0),
    "filled": lambda base, view: view.fill_(3),
    "out=": lambda base, view: torch.add(view, 1, out=view),
    "the base": lambda base, view: base.mul_(2),
    "another view": lambda base, view: base[1].zero_(),
    "detached": lambda base, view: view.detach().mul_(2),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_views_made_without_gradients_are_refused_once_they_changed(change: str, history: bool, compiled: bool) -> None:
    """Whatever changed their memory, no gradient of theirs could be right: as in PyTorch, nothing asks for one."""

    def function(base: Any) -> Any:
        base = base * 1 if history else base
        with torch.no_grad():
            view = base[0]
            CHANGES[change](base, view)
        return base, view

    _, view = (torch.compile(function) if compiled else function)(torch.ones(2, 3, requires_grad=True))
    begin = "A view was created in no_grad mode and its base or another view of its base has been modified inplace"
    wanted: list[Any] = [
        lambda: view.is_leaf,
        lambda: view.grad_fn,
        lambda: view * 2,
        lambda: view[1:],
        lambda: view.register_hook(print),
        lambda: view.requires_grad_(False),
    ]
    assert [message(each).startswith(begin) for each in wanted] == [True] * len(wanted)
    assert view.requires_grad and repr(view).endswith("grad_fn=<Invalid>)")
    with torch.no_grad():
        assert not (view * 2).requires_grad and view.detach().is_leaf
    assert message(lambda: torch.compile(lambda x: x * 2)(view)).startswith(begin)


def test_views_made_without_gradients_whose_base_gets_a_history() -> None:
    base = torch.ones(2, 3)
    with torch.no_grad():
        view, still = base[0], torch.ones(2, 3)[0]
        still.mul_(2)
    assert view.is_leaf and not (view * 2).requires_grad and still.is_leaf
    base.mul_(torch.ones(2, 3, requires_grad=True))
    assert message(lambda: view * 2).startswith("A view was created in no_grad mode and its base or another view")


def test_an_error_stays_one_where_warnings_are_errors(capsys: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            x = leaf(1.0, 2.0) + 1
            y = x**2
            x += 1
            warnings.simplefilter("error")
            assert "modified by an inplace operation" in message(lambda: y.sum().backward())
    assert "Error detected in PowBackward0" in capsys.readouterr().err


def test_hooks_for_saved_tensors_are_functions() -> None:
    with (
        pytest.raises(TypeError, match="'pack_hook' must be callable, not int"),
        torch.autograd.graph.saved_tensors_hooks(5, lambda x: x),
    ):
        pass
    assert (leaf(1.0) * leaf(2.0)).requires_grad


def test_what_functions_save_and_ask_for() -> None:
    class SavesNumber(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x, 3)
            return x * 2

    with pytest.raises(TypeError, match="can only save variables, but argument 1 is of type int"):
        SavesNumber.apply(leaf(1.0, 2.0))
    with pytest.raises(RuntimeError, match="all inputs have to be Tensors or GradientEdges, but got str"):
        torch.autograd.grad(leaf(1.0).sum(), "a")
    with (
        torch.autograd.forward_ad.dual_level(),
        pytest.raises(NotImplementedError, match="forward AD with add_out that does not support it"),
    ):
        torch.add(torch.autograd.forward_ad.make_dual(torch.ones(2), torch.ones(2)), 1, out=torch.empty(2))


def test_functional_names_the_output() -> None:
    functional = torch.autograd.functional
    other = leaf(1.0) * 2
    with pytest.raises(RuntimeError, match="Output 0 of the user-provided function is independent of input 0"):
        functional.jacobian(lambda x: other, torch.ones(1), strict=True)
    with pytest.raises(RuntimeError, match="should return a single Tensor"):
        functional.hessian(lambda x: (x.sum(), x.sum()), torch.ones(1))
    with pytest.raises(RuntimeError, match="The given v should contain a single Tensor"):
        functional.vjp(lambda x: x, torch.ones(1), (torch.ones(1), torch.ones(1)))


def test_the_data_of_a_tensor_cannot_be_deleted() -> None:
    with pytest.raises(RuntimeError, match="Deleting tensor data is not allowed"):
        del torch.ones(2).data


def test_a_gradient_of_another_dtype_names_both_dtypes() -> None:
    x = torch.ones(2, dtype=torch.float16, requires_grad=True)
    with pytest.raises(RuntimeError, match="a gradient with dtype 'Float' to a tensor with grad_dtype 'Half'"):
        x.grad = torch.ones(2)


def test_views_can_be_asked_to_repeat_their_operators() -> None:
    assert not torch.autograd.is_view_replay_enabled()
    with torch.autograd._force_original_view_tracking(True):
        assert torch.autograd.is_view_replay_enabled()
    assert not torch.autograd.is_view_replay_enabled()


def test_strict_functional_says_which_derivative_is_missing() -> None:
    functional, other, x = torch.autograd.functional, leaf(1.0) * 2, torch.ones(1)
    for name in ("vjp", "jvp"):
        with pytest.raises(RuntimeError, match="The output of the user-provided function is independent of input 0"):
            getattr(functional, name)(lambda x: other, x, torch.ones(1), strict=True)
    with pytest.raises(RuntimeError, match="Output 1 of the user-provided function is independent of input 0"):
        functional.jacobian(lambda x: (x, other), x, strict=True)
    for function in (lambda x: x.sum() * 3, lambda x: other.sum()):
        with pytest.raises(RuntimeError, match="twice differentiable and that the jacobian depends on the inputs"):
            functional.hessian(function, x, strict=True)
