"""Sparsifiers: which weights become zero."""

from __future__ import annotations

import abc
import copy
from collections import defaultdict
from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.ao.pruning.masks import FakeSparsity, get_arg_info_from_tensor_fqn, module_to_fqn
from rushlight.nn import functional
from rushlight.nn.utils import parametrize

__all__ = ["BaseSparsifier", "NearlyDiagonalSparsifier", "WeightNormSparsifier"]

_OWN = ("module", "module_fqn", "tensor_name", "tensor_fqn")
SUPPORTED = {nn.Linear}


class BaseSparsifier(abc.ABC):
    """Base of sparsifiers: `prepare` masks weights, `step` chooses the masks anew, `squash_mask` makes them final."""

    def __init__(self, defaults: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.defaults: dict[str, Any] = defaults or {}
        self.state: dict[str, dict[str, Any]] = defaultdict(dict)
        self.groups: list[dict[str, Any]] = []
        self.enable_mask_update = True

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "groups": self.groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for k, group in enumerate(self.groups):
            text += f"\n\tGroup {k}\n\t    module: {group['module']}\n"
            text += "".join(f"\t    {key}: {group[key]}\n" for key in sorted(group) if key != "module")
        return text + ")"

    def state_dict(self) -> dict[str, Any]:
        """The masks, and the settings of each group without its module."""
        groups = [{k: v for k, v in group.items() if k != "module"} for group in self.groups]
        return {"state": self.state, "groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:
        """Take masks and settings; with `strict`, the groups must be those of the model."""
        groups = copy.deepcopy(state_dict["groups"])
        for name, held in state_dict["state"].items():
            info = get_arg_info_from_tensor_fqn(self.model, name)
            module, tensor = info["module"], info["tensor_name"]
            if strict and module is None:
                raise RuntimeError(f"Error loading {name} into the model")
            if module is None:
                continue
            found = (
                [p for p in getattr(getattr(module, "parametrizations", {}), tensor, []) if isinstance(p, FakeSparsity)]
                if hasattr(module, "parametrizations")
                else []
            )
            if not found:
                parametrize.register_parametrization(
                    module, tensor, FakeSparsity(torch.ones(getattr(module, tensor).shape))
                )
                found = [p for p in module.parametrizations[tensor] if isinstance(p, FakeSparsity)]
            found[0].mask = held["mask"]
        for group in groups:
            group["module"] = get_arg_info_from_tensor_fqn(self.model, group["tensor_fqn"])["module"]
        self.__setstate__({"state": defaultdict(dict, state_dict["state"]), "groups": groups})

    def make_config_from_model(self, model: Any, SUPPORTED_MODULES: Any = SUPPORTED) -> None:
        """A configuration of every weight of the supported modules."""
        self.config = []
        queue = [model]
        while queue:
            module = queue.pop()
            for child in module.children():
                if type(child) in SUPPORTED_MODULES:
                    self.config.append({"tensor_fqn": f"{module_to_fqn(model, child)}.weight"})
                else:
                    queue.append(child)

    def prepare(self, model: Any, config: Any) -> None:
        """Mask the weights that `config` lists (None: those of all linear layers)."""
        self.model, self.config = model, config
        if self.config is None:
            self.make_config_from_model(model)
        for row in self.config:
            given = {**self.defaults, **row}
            info = get_arg_info_from_tensor_fqn(model, given["tensor_fqn"])
            if info["module"] is None:
                raise AssertionError(f"there is no module of {given['tensor_fqn']}")
            self.groups.append({**given, **info})
        for group in self.groups:
            module, name = group["module"], group["tensor_name"]
            made = group.get("parametrization", FakeSparsity)
            mask = group.get("mask", torch.ones_like(getattr(module, name).detach()))
            self.state[group["tensor_fqn"]]["mask"] = mask
            parametrize.register_parametrization(module, name, made(mask))

    def squash_mask(
        self, params_to_keep: Any = None, params_to_keep_per_layer: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        """Make the masks final: weights are zeros where they were masked, and the masks are gone."""
        for group in self.groups:
            module, name = group["module"], group["tensor_name"]
            parametrize.remove_parametrizations(module, name, leave_parametrized=True)
            kept = {k: group[k] for k in (params_to_keep or ()) if k in group}
            for k in (params_to_keep_per_layer or {}).get(group["module_fqn"], ()):
                kept[k] = group[k]
            if kept:
                module.sparse_params = kept

    def convert(
        self, module: Any, mapping: Any = None, inplace: bool = False, parameterization: Any = FakeSparsity
    ) -> Any:
        """The model with masked modules replaced by those of a mapping."""
        if mapping is None:
            raise NotImplementedError("Need to auto generate mapping ")
        module = module if inplace else copy.deepcopy(module)
        for name, child in list(module.named_children()):
            masked = parametrize.is_parametrized(child) and any(
                isinstance(p, parameterization) for p in child.parametrizations.weight
            )
            target = mapping.get(parametrize.type_before_parametrizations(child)) if masked else None
            module._modules[name] = (
                self.convert(child, mapping, True, parameterization) if target is None else target.from_dense(child)
            )
        return module

    def step(self, use_path: bool = True) -> None:
        """Choose all masks anew."""
        if not self.enable_mask_update:
            return
        with torch.no_grad():
            for group in self.groups:
                self.update_mask(**group)

    @abc.abstractmethod
    def update_mask(self, module: Any, tensor_name: str, **kwargs: Any) -> None:
        """Write the mask of one weight."""

    def _mask_of(self, module: Any, tensor_name: str) -> Any:
        return module.parametrizations[tensor_name][0].mask


class WeightNormSparsifier(BaseSparsifier):
    """Zeros in the blocks of least norm: in each, `zeros_per_block` of the smallest weights.

    >>> import rushlight as torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 4))
    >>> sparsifier = torch.ao.pruning.WeightNormSparsifier(sparsity_level=0.5, sparse_block_shape=(1, 4))
    >>> sparsifier.prepare(net, [{"tensor_fqn": "0.weight"}])
    >>> sparsifier.step()
    >>> int((net[0].weight == 0).sum())
    16
    """

    def __init__(
        self,
        sparsity_level: float = 0.5,
        sparse_block_shape: tuple[int, int] = (1, 4),
        zeros_per_block: int | None = None,
        norm: Any = None,
    ) -> None:
        if zeros_per_block is None:
            zeros_per_block = sparse_block_shape[0] * sparse_block_shape[1]
        super().__init__(
            {
                "sparsity_level": sparsity_level,
                "sparse_block_shape": sparse_block_shape,
                "zeros_per_block": zeros_per_block,
            }
        )
        norms = {None: lambda x: x * x, 2: lambda x: x * x, 1: torch.abs}
        if norm not in norms and not callable(norm):
            raise NotImplementedError(f"L-{norm} is not yet implemented.")
        self.norm_fn = norm if callable(norm) else norms[norm]

    def update_mask(  # type: ignore[override]
        self,
        module: Any,
        tensor_name: str,
        sparsity_level: float,
        sparse_block_shape: tuple[int, int],
        zeros_per_block: int,
        **kwargs: Any,
    ) -> None:
        """Write the mask of one weight."""
        high, wide = sparse_block_shape
        count = high * wide
        if zeros_per_block > count:
            raise ValueError(
                "Number of zeros per block cannot be more than the total number of elements in that block."
            )
        if zeros_per_block < 0:
            raise ValueError("Number of zeros per block should be positive.")
        mask = self._mask_of(module, tensor_name)
        if sparsity_level <= 0 or zeros_per_block == 0:
            mask.fill_(1)
            return
        if sparsity_level >= 1.0 and zeros_per_block == count:
            mask.fill_(0)
            return
        rows, columns = (torch.tensor(module.parametrizations[tensor_name].original.shape)).tolist()
        size = self.norm_fn(module.parametrizations[tensor_name].original.detach())
        padded = functional.pad(size, (0, -columns % wide, 0, -rows % high))
        blocks = padded.reshape(padded.shape[0] // high, high, padded.shape[1] // wide, wide).permute(0, 2, 1, 3)
        flat = blocks.reshape(-1, count)
        chosen = torch.zeros(flat.shape[0], dtype=torch.bool)
        order = flat.sum(1).argsort()
        chosen[order[: round(sparsity_level * flat.shape[0])]] = True
        zeros = torch.zeros_like(flat, dtype=torch.bool)
        zeros.scatter_(1, flat.argsort(1)[:, :zeros_per_block], True)
        kept = (~(zeros & chosen[:, None])).reshape(blocks.shape).permute(0, 2, 1, 3).reshape(padded.shape)
        mask.copy_(kept[:rows, :columns].to(mask.dtype))


class NearlyDiagonalSparsifier(BaseSparsifier):
    """Zeros everywhere but near the diagonal: `nearliness` is an odd number of diagonals."""

    def __init__(self, nearliness: int = 1) -> None:
        super().__init__({"nearliness": nearliness})

    def update_mask(self, module: Any, tensor_name: str, nearliness: int, **kwargs: Any) -> None:  # type: ignore[override]
        """Write the mask of one weight."""
        mask = self._mask_of(module, tensor_name)
        rows, columns = mask.shape
        if nearliness <= 0:
            mask.fill_(0)
            return
        if nearliness % 2 == 0:
            raise ValueError("nearliness can only be an odd number")
        distance = nearliness // 2
        if distance >= min(rows, columns):
            raise ValueError("nearliness cannot be larger than the dimensions of tensor.")
        apart = (torch.arange(rows)[:, None] - torch.arange(columns)[None]).abs()
        mask.copy_((apart <= distance).to(mask.dtype))
