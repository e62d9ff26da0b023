"""Pruning: a mask over a parameter that leaves the least important elements out.

Pruning the parameter `name` moves it to `<name>_orig`, keeps the mask in the buffer `<name>_mask`, and computes their
product into the attribute `<name>` before each call of the module.

    >>> import rushlight as torch
    >>> from rushlight.nn.utils import prune
    >>> layer = prune.l1_unstructured(torch.nn.Linear(4, 2), "weight", amount=0.5)
    >>> int((layer.weight == 0).sum())
    4
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import rushlight
from rushlight.nn.utils.convert_parameters import parameters_to_vector

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer", "RandomStructured",
    "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]  # fmt: skip


class BasePruningMethod(ABC):
    """How to choose what is pruned: subclasses define `compute_mask` and `PRUNING_TYPE`.

    The type is "unstructured" (elements; a further pruning looks only at those that are left), "structured" (slices
    along `dim`; it looks only at those slices that are left) or "global" (it looks at everything).
    """

    _tensor_name: str
    PRUNING_TYPE: str

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask for `t` (importance scores, or the tensor itself), zero where `default_mask` is zero."""

    def apply_mask(self, module: Any) -> Any:
        """The product of the module's original tensor and its mask."""
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        mask, orig = getattr(module, self._tensor_name + "_mask"), getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=orig.dtype) * orig

    @classmethod
    def apply(cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any) -> Any:
        """Prune the parameter `name` of `module` by this method, made from the other arguments, on top of earlier
        prunings.

        `importance_scores`, of the parameter's shape, are looked at in its place. Returns the hook.
        """
        made: Any = cls(*args, **kwargs)
        made._tensor_name = name
        earlier = _taken_hook(module, name)
        orig = getattr(module, name)
        scores = orig if importance_scores is None else importance_scores
        if scores.shape != orig.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got {scores.shape} vs {orig.shape}"
            )
        if earlier is None:
            method = made
            module.register_parameter(name + "_orig", orig)
            del module._parameters[name]
            default_mask = rushlight.ones_like(orig)
        else:
            method = earlier if isinstance(earlier, PruningContainer) else PruningContainer(earlier)
            method.add_pruning_method(made)
            default_mask = getattr(module, name + "_mask").detach().clone(memory_format=rushlight.contiguous_format)
        try:
            with rushlight.no_grad():
                mask = method.compute_mask(scores, default_mask=default_mask)
            module.register_buffer(name + "_mask", mask)
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if earlier is None:
                module.register_parameter(name, getattr(module, name + "_orig"))
                del module._parameters[name + "_orig"]
            raise
        return method

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """The pruned version of a tensor that belongs to no module."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as tensor t, got {scores.shape} vs {t.shape}"
            )
        default_mask = rushlight.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=default_mask)

    def remove(self, module: Any) -> None:
        """Make the pruned tensor an ordinary parameter again, with zeros in it; the hook itself is left to the caller."""
        name = self._tensor_name
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        orig = module._parameters[name + "_orig"]
        orig.data = weight.data
        del module._parameters[name + "_orig"]
        del module._buffers[name + "_mask"]
        setattr(module, name, orig)


def _taken_hook(module: Any, name: str) -> BasePruningMethod | None:
    """The hook that prunes `name` already, taken out of the module."""
    found = [
        key
        for key, hook in module._forward_pre_hooks.items()
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
    ]
    if len(found) > 1:
        raise AssertionError(
            f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. Use a PruningContainer."
        )
    return module._forward_pre_hooks.pop(found[0]) if found else None


class PruningContainer(BasePruningMethod):
    """Several prunings of one tensor, one after the other."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a pruning of the same tensor. TypeError for what is none, ValueError for another tensor."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on "
                f"the parameter named '{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask of the last method, applied to what the methods before it left."""
        method: Any = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype).clone()
        left: Any
        if method.PRUNING_TYPE == "unstructured":
            left = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError(
                    f'Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined. {method} has none.'
                )
            dim = method.dim % t.dim()
            others = [d for d in range(t.dim()) if d != dim]
            left = (slice(None),) * dim + (default_mask.sum(dim=others) != 0,)
        elif method.PRUNING_TYPE == "global":
            left = (slice(None),) * t.dim()
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask[left] = method.compute_mask(t[left], default_mask=mask[left]).to(dtype=mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing, and prepares the module as if something were pruned."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask there is."""
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> Any:  # type: ignore[override]
        """See `identity`."""
        return super().apply(module, name)


# ***** how many *****


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    whole = isinstance(amount, numbers.Integral)
    if float(amount) < 0 or (not whole and float(amount) > 1):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    if isinstance(amount, numbers.Integral) and int(amount) > tensor_size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _count(amount: Any, available: int) -> int:
    """How many of `available` are pruned."""
    count = _compute_nparams_toprune(amount, available)
    _validate_pruning_amount(count, available)
    return count


# ***** elements *****


class RandomUnstructured(BasePruningMethod):
    """Prunes elements at random. `amount` is their number (an int), or their part (a float in [0, 1])."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Zero where an element's random number is among the largest."""
        count = _count(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=rushlight.contiguous_format)
        if count:
            chosen = rushlight.topk(rushlight.rand_like(t).view(-1), k=count).indices
            mask.view(-1)[chosen] = 0
        return mask

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any) -> Any:  # type: ignore[override]
        """See `random_unstructured`."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(BasePruningMethod):
    """Prunes the elements with the smallest absolute values. `amount` is as in `RandomUnstructured`."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Zero where the absolute value is among the smallest."""
        count = _count(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=rushlight.contiguous_format)
        if count:
            chosen = rushlight.topk(t.abs().reshape(-1), k=count, largest=False).indices
            mask.view(-1)[chosen] = 0
        return mask

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, importance_scores: Any = None) -> Any:  # type: ignore[override]
        """See `l1_unstructured`."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


# ***** slices along a dimension *****


def _validate_structured_pruning(t: Any) -> None:
    if t.dim() <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. "
            f"Found tensor of shape {t.shape} with {t.dim()} dims"
        )


def _validate_pruning_dim(t: Any, dim: int) -> None:
    if dim >= t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _compute_norm(t: Any, n: Any, dim: int) -> Any:
    """The n-norm of each slice along `dim`."""
    dim = dim % t.dim()
    return rushlight.norm(t, p=n, dim=[d for d in range(t.dim()) if d != dim])


def _slices_only(t: Any, dim: int, chosen: Any) -> Any:
    """One in the chosen slices along `dim`, zero elsewhere."""
    mask = rushlight.zeros_like(t)
    mask[(slice(None),) * (dim % t.dim()) + (chosen,)] = 1
    return mask


class RandomStructured(BasePruningMethod):
    """Prunes slices along `dim` at random. `amount` is their number (an int), or their part (a float in [0, 1])."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.dim = dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Zero in the slices whose random number is among the smallest."""
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        size = t.shape[self.dim]
        count = _count(self.amount, size)
        if count == 0:
            return default_mask
        drawn = rushlight.rand(size)
        return _slices_only(t, self.dim, drawn > drawn.kthvalue(k=count).values) * default_mask.to(dtype=t.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, dim: int = -1) -> Any:  # type: ignore[override]
        """See `random_structured`."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(BasePruningMethod):
    """Prunes the slices along `dim` with the smallest n-norms. `amount` is as in `RandomStructured`."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.n = n
        self.dim = dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Zero in the slices whose norm is among the smallest."""
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        size = t.shape[self.dim]
        count = _count(self.amount, size)
        if count == 0:
            return default_mask
        kept = rushlight.topk(_compute_norm(t, self.n, self.dim), k=size - count, largest=True).indices
        return _slices_only(t, self.dim, kept) * default_mask.to(dtype=t.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None) -> Any:  # type: ignore[override]
        """See `ln_structured`."""
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


# ***** a given mask *****


class CustomFromMask(BasePruningMethod):
    """Prunes where `mask` is zero."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The product of the two masks."""
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"mask shape {self.mask.shape} does not match {default_mask.shape}")
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Any) -> Any:  # type: ignore[override]
        """See `custom_from_mask`."""
        return super().apply(module, name, mask=mask)


# ***** functions *****


def identity(module: Any, name: str) -> Any:
    """Prune nothing of the parameter `name`, but add `<name>_orig` and `<name>_mask`; returns the module.

    >>> import rushlight as torch
    >>> torch.nn.utils.prune.is_pruned(torch.nn.utils.prune.identity(torch.nn.Linear(2, 1), "weight"))
    True
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prune `amount` elements of the parameter `name` (an int), or a part of them (a float in [0, 1]), at random.

    Returns the module.

    >>> import rushlight as torch
    >>> layer = torch.nn.utils.prune.random_unstructured(torch.nn.Linear(4, 2), "weight", amount=0.5)
    >>> int(layer.weight_mask.sum())
    4
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Any = None) -> Any:
    """Prune those elements of the parameter `name` with the smallest absolute values (of themselves, or of
    `importance_scores`).

    `amount` is their number (an int), or their part (a float in [0, 1]). Returns the module.

    >>> import rushlight as torch
    >>> layer = torch.nn.Linear(4, 2)
    >>> int((torch.nn.utils.prune.l1_unstructured(layer, "weight", amount=3).weight == 0).sum())
    3
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prune `amount` slices along `dim` of the parameter `name` (an int), or a part of them (a float), at random.

    Returns the module.

    >>> import rushlight as torch
    >>> layer = torch.nn.utils.prune.random_structured(torch.nn.Linear(4, 2), "weight", amount=1, dim=1)
    >>> int(layer.weight_mask.sum())
    6
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None) -> Any:
    """Prune those slices along `dim` of the parameter `name` with the smallest n-norms; returns the module.

    `n` is an order that `rushlight.norm` knows; `amount` is the number of slices (an int), or their part (a float in
    [0, 1]).

    >>> import rushlight as torch
    >>> layer = torch.nn.utils.prune.ln_structured(torch.nn.Linear(4, 2), "weight", amount=1, n=2, dim=0)
    >>> layer.weight_mask.sum(1).sort().values
    tensor([0., 4.])
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any) -> None:
    """Prune several parameters as if they were one tensor.

    - `parameters`: pairs (module, name).
    - `pruning_method`: a class of type "unstructured", made from the keywords (`amount=0.2`).
    - `importance_scores`: scores by (module, name); the parameter itself where there are none.

    TypeError for other arguments and types of pruning.

    >>> import rushlight as torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Linear(2, 2))
    >>> torch.nn.utils.prune.global_unstructured([(m, "weight") for m in model], torch.nn.utils.prune.L1Unstructured, amount=6)
    >>> sum(int((m.weight == 0).sum()) for m in model)
    6
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    importance_scores = {} if importance_scores is None else importance_scores
    if not isinstance(importance_scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    parameters = list(parameters)
    values = [getattr(module, name) for module, name in parameters]
    scores = parameters_to_vector(
        [importance_scores.get(pair, value) for pair, value in zip(parameters, values, strict=True)]
    )
    masks = [
        getattr(module, name + "_mask", rushlight.ones_like(value))
        for (module, name), value in zip(parameters, values, strict=True)
    ]
    # A container, so that what was pruned before is left out of the count.
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method {pruning_method} of type {method.PRUNING_TYPE}'
        )
    with rushlight.no_grad():
        mask = container.compute_mask(scores, parameters_to_vector(masks))
    start = 0
    for (module, name), value in zip(parameters, values, strict=True):
        custom_from_mask(module, name, mask=mask[start : start + value.numel()].view_as(value))
        start += value.numel()


def custom_from_mask(module: Any, name: str, mask: Any) -> Any:
    """Prune the parameter `name` where `mask` is zero; returns the module.

    >>> import rushlight as torch
    >>> layer = torch.nn.utils.prune.custom_from_mask(torch.nn.Linear(2, 1), "weight", torch.tensor([[1, 0]]))
    >>> float(layer.weight[0, 1].abs())
    0.0
    """
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Any, name: str) -> Any:
    """Make the pruned parameter `name` an ordinary one again, with zeros in it; returns the module. ValueError if it is
    not pruned.

    >>> import rushlight as torch
    >>> layer = torch.nn.utils.prune.l1_unstructured(torch.nn.Linear(4, 2), "weight", amount=3)
    >>> layer = torch.nn.utils.prune.remove(layer, "weight")
    >>> torch.nn.utils.prune.is_pruned(layer), int((layer.weight == 0).sum())
    (False, 3)
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Any) -> bool:
    """Whether the module, or one inside it, is pruned.

    >>> is_pruned(rushlight.nn.Linear(2, 2))
    False
    """
    return any(
        isinstance(hook, BasePruningMethod) for part in module.modules() for hook in part._forward_pre_hooks.values()
    )
