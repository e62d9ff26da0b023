"""Gradients of every sample of a batch at once: the module runs under `vmap`, each sample with parameters of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight import Tensor
from rushlight.autograd import Function
from rushlight.func import functional_call, vmap
from rushlight.nn.modules.batchnorm import _BatchNorm
from rushlight.nn.modules.module import Module
from rushlight.nn.modules.rnn import RNNBase
from rushlight.utils import _pytree as pytree

__all__ = ["call_for_per_sample_grads"]


class _PerSample(Function):
    """A parameter for each sample (samples, *shape); backward keeps their gradients in `grad_sample`."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor, samples: int, scale: int) -> Tensor:
        ctx.parameter, ctx.scale = parameter, scale
        return parameter.detach().expand(samples, *parameter.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        found = grad if ctx.scale == 1 else grad * ctx.scale
        before = getattr(ctx.parameter, "grad_sample", None)
        ctx.parameter.grad_sample = found if before is None else before + found
        return None, None, None


def call_for_per_sample_grads(
    module: Module, *, batch_size: int | None = None, loss_reduction: str = "sum", batch_first: bool = True
) -> Callable[..., Any]:
    """`module` as a function whose backward puts the gradient of each sample, (samples, *shape), into `grad_sample` of
    every parameter that wants a gradient; `grad` stays as it is.

    Tensors among the arguments have the samples in dim 0 (dim 1 without `batch_first`), of which `batch_size` is the
    number where the first tensor does not show it. `loss_reduction` says what the loss does with the samples: of a
    "mean" the gradients are multiplied by their number.

    RuntimeError for a module that mixes samples (batch norm in training), for recurrent layers, for arguments of another
    number of samples, and where `grad_sample` of an earlier call is still there. ValueError and RuntimeError of `vmap` for what it refuses.

    >>> import rushlight as torch
    >>> from rushlight.nn.utils._per_sample_grad import call_for_per_sample_grads
    >>> layer = torch.nn.Linear(2, 1, bias=False)
    >>> call_for_per_sample_grads(layer)(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    >>> layer.weight.grad_sample
    tensor([[[1., 2.]],
    <BLANKLINE>
            [[3., 4.]]])
    """
    _check(module, batch_size, loss_reduction)
    dim = 0 if batch_first else 1

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = pytree.tree_flatten((args, kwargs))
        samples = _number_of_samples(leaves, dim, batch_size)
        scale = samples if loss_reduction == "mean" else 1
        names, own = [], []
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                names.append(name)
                own.append(_PerSample.apply(parameter, samples, scale))

        def one(parameters: list[Tensor], items: list[Any]) -> Any:
            items = [x.unsqueeze(dim) if isinstance(x, Tensor) else x for x in items]
            inner_args, inner_kwargs = pytree.tree_unflatten(items, tree)
            return functional_call(module, dict(zip(names, parameters, strict=True)), inner_args, inner_kwargs)

        places = [dim if isinstance(x, Tensor) else None for x in leaves]
        made = vmap(one, in_dims=([0] * len(own), places), out_dims=dim, randomness="different")(own, leaves)
        return pytree.tree_map_only(Tensor, lambda x: _joined(x, dim), made)

    return call


def _check(module: Any, batch_size: Any, loss_reduction: str) -> None:
    if not isinstance(module, Module):
        raise RuntimeError(f"Module passed must be nn.Module, got {type(module).__name__}")
    if not (batch_size is None or isinstance(batch_size, int)):
        raise RuntimeError(f"Batch size passed must be None or an integer, got {type(batch_size).__name__}")
    if batch_size is not None and batch_size < 1:
        raise RuntimeError(f"Batch size must be positive, got {batch_size}")
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}")
    for name, parameter in module.named_parameters():
        if getattr(parameter, "grad_sample", None) is not None:
            raise RuntimeError(
                f"call_for_per_sample_grads(): {name} has a grad_sample of an earlier call, to which gradients would be added: "
                "set it to None, or delete it, first"
            )
    for name, part in module.named_modules():
        if isinstance(part, _BatchNorm) and (part.training or not part.track_running_stats):
            raise RuntimeError(
                f"call_for_per_sample_grads(): {name or 'the module'} normalizes over the batch, so a sample has no gradient of its own; "
                "use group norm or layer norm, or eval()"
            )
        if isinstance(part, RNNBase):
            raise RuntimeError(
                f"call_for_per_sample_grads(): {name or 'the module'} has the samples in other dims of its states than of its outputs; "
                "make the recurrent layer of cells"
            )


def _number_of_samples(leaves: list[Any], dim: int, given: int | None) -> int:
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    if not tensors:
        raise RuntimeError(
            "call_for_per_sample_grads(): Unable to find a tensor in the passed args and kwargs, from which to take the number of samples"
        )
    for x in tensors:
        if x.dim() <= dim:
            raise RuntimeError(
                f"call_for_per_sample_grads(): an argument of shape {list(x.shape)} has no dim {dim} of samples"
            )
        if given is None:
            given = int(x.shape[dim])
        if x.shape[dim] != given:
            raise RuntimeError(
                f"call_for_per_sample_grads(): Expected {given} samples in dim {dim} of every tensor, got a shape of {list(x.shape)}"
            )
    assert given is not None
    return given


def _joined(x: Tensor, dim: int) -> Tensor:
    """The results of all samples as one batch: each was a batch of one."""
    if x.dim() <= dim + 1 or x.shape[dim + 1] != 1:
        raise RuntimeError(
            f"call_for_per_sample_grads(): each result of the module must have the samples in dim {dim}, got a shape of "
            f"{[n for d, n in enumerate(x.shape) if d != dim]} for one sample"
        )
    return x.squeeze(dim + 1)
