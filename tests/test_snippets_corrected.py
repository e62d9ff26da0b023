"""Widespread statements about PyTorch that aren't so, and what is: each is asked of rushlight, and of real PyTorch where it is installed.

A row: the statement, a function of the package that shows the truth, and what it gives.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest


def raised(call: Callable[[], Any]) -> str | None:
    """The class of the error that the call ends in."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return None


def shares(a: Any, b: Any) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def detached_memory_is_shared(torch: Any) -> Any:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 2
    y.detach()[0] = 10
    z = x.exp()  # its own result is what exp needs backward
    z.detach()[0] = 10
    return y.tolist(), raised(z.sum().backward)


def written_clone_is_no_leaf(torch: Any) -> Any:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y, z = x.clone(), x * 2
    y[0] = 10
    return type(y.grad_fn).__name__, str(y), z.clone().grad_fn.name(), z.grad_fn.name()


def chunk_rounds_up(torch: Any) -> Any:
    x = torch.zeros(5, 10)
    widths = [[part.shape[1] for part in parts] for parts in (x.chunk(3, dim=1), x.tensor_split(3, dim=1))]
    return widths, len(torch.zeros(6).chunk(4))


def parameters_are_parameters(torch: Any) -> Any:
    kinds = {type(p) for p in torch.nn.Linear(2, 2).parameters()}
    return kinds == {torch.nn.Parameter}, torch.nn.Parameter.__name__, issubclass(torch.nn.Parameter, torch.Tensor)


def names_are_dotted(torch: Any) -> Any:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    return [name for name, _ in net.named_parameters() if "bias" in name], list(net.named_buffers())


def compile_is_a_function(torch: Any) -> Any:
    return raised(lambda: import_module(f"{torch.__name__}.compile"))


def compile_takes_one_argument_by_position(torch: Any) -> Any:
    return raised(lambda: torch.compile(torch.nn.Linear(1, 1), torch.nn.Module))


def no_mean_among_reductions(torch: Any) -> Any:
    op = import_module(f"{torch.__name__}.distributed").ReduceOp
    return sorted(name for name in dir(op) if name.isupper())


def matmul_takes_any_number_of_dims(torch: Any) -> Any:
    return tuple(torch.matmul(torch.ones(2, 1, 3, 1, 2, 3), torch.ones(4, 1, 5, 3, 2)).shape)


def view_needs_only_merged_dims(torch: Any) -> Any:
    t = torch.arange(12).reshape(3, 4).t()  # (4, 3), strides (1, 4)
    return t.view(4, 3).stride(), t.view(2, 2, 3).stride(), raised(lambda: t.view(12))


def contiguity_is_asked_by_is_contiguous(torch: Any) -> Any:
    t = torch.ones(2, 3).t()
    return t.is_contiguous(), isinstance(t.contiguous(), torch.Tensor), t.contiguous().is_contiguous()


def contiguous_may_return_self(torch: Any) -> Any:
    x = torch.ones(2, 3)
    return x.contiguous() is x, shares(x.t(), x.t().contiguous())


def transposed_may_be_contiguous(torch: Any) -> Any:
    reshaped = torch.arange(24).reshape(2, 3, 4).transpose(0, 1).reshape(3, 2, 2, 2)  # a view of what it came from
    return (
        torch.ones(1, 5).t().is_contiguous(), torch.ones(2, 3).permute(0, 1).is_contiguous(), reshaped.is_contiguous(),
        torch.ones(2, 3).transpose(0, 1).is_contiguous(),
    )  # fmt: skip


def flatten_copies_only_when_it_must(torch: Any) -> Any:
    x = torch.ones(2, 3)
    return shares(x, x.flatten()), shares(x, x.ravel()), shares(x, x.t().flatten()), shares(x, x.t().ravel())


def weights_of_own_layers_have_the_shape_they_were_given(torch: Any) -> Any:
    own = torch.nn.Parameter(torch.randn(4, 1))
    return tuple(own.shape), tuple(torch.nn.Linear(4, 1).weight.shape)


def only_leaves_keep_gradients(torch: Any) -> Any:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    kept, plain = x * 2, x * 3
    kept.retain_grad()
    (kept + plain).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reading .grad of what is no leaf warns
        return plain.grad, kept.grad.tolist(), x.grad.tolist(), plain.is_leaf


class Counting:
    """A data set of eight numbers that counts how often it is read."""

    reads = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> int:
        self.reads += 1
        return i


def loader_keeps_no_samples(torch: Any) -> Any:
    data = Counting()
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    for _ in range(3):
        list(loader)
    return data.reads


def a_step_takes_one_batch(torch: Any) -> Any:
    data = Counting()
    batches = iter(torch.utils.data.DataLoader(data, batch_size=4))
    next(batches)
    return data.reads, len(list(batches)), data.reads


def strings_do_not_index(torch: Any) -> Any:
    out = torch.zeros(2, 3)
    return raised(lambda: out[:, "pedestrian"]) in {"TypeError", "IndexError"}, tuple(out[:, 1].shape)


def hooks_have_no_exception_of_their_own(torch: Any) -> Any:
    return hasattr(import_module(f"{torch.__name__}.utils.hooks"), "HookException")


def mean_absolute_error_is_l1(torch: Any) -> Any:
    loss = torch.nn.L1Loss()(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 2.0]))
    return hasattr(torch.nn, "MAELoss"), loss.item()


def saving_is_the_contexts(torch: Any) -> Any:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return 2 * ctx.saved_tensors[0] * grad

    x = torch.tensor(3.0, requires_grad=True)
    Square.apply(x).backward()
    return hasattr(torch.autograd, "save_for_backward"), hasattr(torch, "save_for_backward"), x.grad.item()


def backward_has_gradient_and_the_function_grad_tensors(torch: Any) -> Any:
    x = torch.ones(2, requires_grad=True)
    wrong = raised(lambda: (x * 2).backward(grad_tensors=torch.ones(2)))
    (x * 2).backward(gradient=torch.ones(2))
    torch.autograd.backward([x * 2], grad_tensors=[torch.ones(2)])
    return wrong, x.grad.tolist()


def both_modes_exist(torch: Any) -> Any:
    matrix = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    x, v = torch.tensor([1.0, 1.0], requires_grad=True), torch.tensor([1.0, 0.0])
    (matrix @ x).backward(gradient=v)  # v J: a row of the matrix
    forward = torch.func.jvp(lambda x: matrix @ x, (x.detach(),), (v,))[1]  # J v: a column
    return x.grad.tolist(), forward.tolist()


def what_is_not_built_in(torch: Any) -> Any:
    absent = [name for name in ("fused_adam", "LAMB", "LARS") if hasattr(torch.optim, name)]
    absent += [name for name in ("ContrastiveLoss", "FocalLoss", "DropConnect") if hasattr(torch.nn, name)]
    x = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([x], lr=0.1, fused=True)
    x.sum().backward()
    optimizer.step()
    return absent, [round(v, 4) for v in x.tolist()]


def old_names_still_lead_somewhere(torch: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        amp = import_module(f"{torch.__name__}.cuda.amp")
        with amp.autocast(enabled=False):
            pass
    return issubclass(amp.GradScaler, torch.amp.GradScaler), callable(torch.func.vmap), torch.vmap is not None


def strided_input_is_no_error(torch: Any) -> Any:
    torch.manual_seed(0)
    image, layer = torch.randn(2, 6, 6, 3).permute(0, 3, 1, 2), torch.nn.Conv2d(3, 2, 3, groups=1)
    same = torch.allclose(layer(image), layer(image.contiguous()), atol=1e-6)
    return same, raised(lambda: image.view(-1)), raised(lambda: torch.nn.functional.relu(image))


def lambdas_do_not_go_to_spawned_workers(torch: Any) -> Any:
    loader = torch.utils.data.DataLoader(
        [1, 2], num_workers=1, multiprocessing_context="spawn", collate_fn=lambda batch: batch
    )
    return raised(lambda: list(loader)) in {"PicklingError", "AttributeError"}


ROWS: list[tuple[Callable[[Any], Any], Any]] = [
    (detached_memory_is_shared, ([10.0, 4.0, 6.0], "RuntimeError")),
    (
        written_clone_is_no_leaf,
        ("CopySlices", "tensor([10.,  2.], grad_fn=<CopySlices>)", "CloneBackward0", "MulBackward0"),
    ),
    (chunk_rounds_up, ([[4, 4, 2], [4, 3, 3]], 3)),
    (parameters_are_parameters, (True, "Parameter", True)),
    (names_are_dotted, (["0.bias", "1.bias"], [])),
    (compile_is_a_function, "ModuleNotFoundError"),
    (compile_takes_one_argument_by_position, "TypeError"),
    (no_mean_among_reductions, ["AVG", "BAND", "BOR", "BXOR", "MAX", "MIN", "PREMUL_SUM", "PRODUCT", "SUM"]),
    (matmul_takes_any_number_of_dims, (2, 4, 3, 5, 2, 2)),
    (view_needs_only_merged_dims, ((1, 4), (2, 1, 4), "RuntimeError")),
    (contiguity_is_asked_by_is_contiguous, (False, True, True)),
    (contiguous_may_return_self, (True, False)),
    (transposed_may_be_contiguous, (True, True, False, False)),
    (flatten_copies_only_when_it_must, (True, True, False, False)),
    (weights_of_own_layers_have_the_shape_they_were_given, ((4, 1), (1, 4))),
    (only_leaves_keep_gradients, (None, [1.0, 1.0], [5.0, 5.0], False)),
    (loader_keeps_no_samples, 24),
    (a_step_takes_one_batch, (4, 1, 8)),
    (strings_do_not_index, (True, (2,))),
    (hooks_have_no_exception_of_their_own, False),
    (mean_absolute_error_is_l1, (False, 1.5)),
    (saving_is_the_contexts, (False, False, 6.0)),
    (backward_has_gradient_and_the_function_grad_tensors, ("TypeError", [4.0, 4.0])),
    (both_modes_exist, ([1.0, 2.0], [1.0, 3.0])),
    (what_is_not_built_in, ([], [0.9, 0.9, 0.9])),
    (old_names_still_lead_somewhere, (True, True, True)),
    (strided_input_is_no_error, (True, "RuntimeError", None)),
    (lambdas_do_not_go_to_spawned_workers, True),
]


@pytest.mark.parametrize(("show", "truth"), ROWS, ids=[show.__name__ for show, _ in ROWS])
@pytest.mark.parametrize("package", ["rushlight", pytest.param("torch", marks=pytest.mark.oracle)])
def test_what_is_so(package: str, show: Callable[[Any], Any], truth: Any) -> None:
    torch = import_module(package)
    for page in ("nn", "optim", "func", "amp", "autograd", "utils.data"):
        import_module(f"{package}.{page}")
    assert show(torch) == truth
