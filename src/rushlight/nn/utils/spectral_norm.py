"""Spectral normalisation by a hook: the older form of `parametrizations.spectral_norm`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.nn import functional as F
from rushlight.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from rushlight.nn.parameter import Parameter, is_lazy

__all__ = [
    "SpectralNorm",
    "SpectralNormLoadStateDictPreHook",
    "SpectralNormStateDictHook",
    "remove_spectral_norm",
    "spectral_norm",
]


class SpectralNorm:
    """The hook that divides a weight by its largest singular value before each call."""

    # Before version 1 the vector `v` was not kept in state dicts.
    _version = 1

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def reshape_weight_to_matrix(self, weight: Any) -> Any:
        """The weight as a matrix whose rows are the indices of `dim`."""
        if self.dim != 0:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.reshape(weight.size(0), -1)

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Any:
        """The normalised weight; the vectors that stand for the singular value are improved first, in place, if wanted."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with rushlight.no_grad():
                for _ in range(self.n_power_iterations):
                    # In place: the buffers are those that other processes and devices know.
                    v = F.normalize(rushlight.mv(matrix.t(), u), dim=0, eps=self.eps, out=v)
                    u = F.normalize(rushlight.mv(matrix, v), dim=0, eps=self.eps, out=u)
                # Copies: backward needs these values, and the next call changes the buffers.
                u = u.clone(memory_format=rushlight.contiguous_format)
                v = v.clone(memory_format=rushlight.contiguous_format)
        return weight / rushlight.dot(u, rushlight.mv(matrix, v))

    def remove(self, module: Any) -> None:
        """Make the weight one parameter again."""
        with rushlight.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for name in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + name)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    def _solve_v_and_rescale(self, weight_mat: Any, u: Any, target_sigma: Any) -> Any:
        """The v with u = normalise(W v) and u^T W v = sigma, by the normal equations."""
        v = rushlight.linalg.pinv(weight_mat.t() @ weight_mat) @ (weight_mat.t() @ u.unsqueeze(1))
        v = v.squeeze(1)
        return v * (target_sigma / rushlight.dot(u, rushlight.mv(weight_mat, v)))

    @staticmethod
    def apply(module: Any, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        """Put `<name>_orig` in the place of the parameter `name`, and register the hooks."""
        for each in module._forward_pre_hooks.values():
            if isinstance(each, SpectralNorm) and each.name == name:
                raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `SpectralNorm` can't have uninitialized parameters. Make sure to run the dummy forward before applying "
                "spectral normalization"
            )
        with rushlight.no_grad():
            matrix = hook.reshape_weight_to_matrix(weight)
            u, v = (F.normalize(weight.new_empty(size).normal_(0, 1), dim=0, eps=eps) for size in matrix.size())
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        # A plain attribute until the first call computes it: not a parameter, and not a buffer that a state dict would
        # hold.
        setattr(module, name, weight.data)
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(hook)
        module._register_state_dict_hook(SpectralNormStateDictHook(hook))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(hook))
        return hook


class SpectralNormLoadStateDictPreHook:
    """Makes `v` for state dicts that do not hold it."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        fn = self.fn
        version = local_metadata.get("spectral_norm", {}).get(fn.name + ".version", None)
        if version is not None and version >= 1:
            return
        key = prefix + fn.name
        if version is None and key not in state_dict and all(key + end in state_dict for end in ("_orig", "_u", "_v")):
            # Complete, though nothing says which version: the metadata were lost on the way.
            return
        missing = False
        for end in ("_orig", "", "_u"):
            if key + end not in state_dict:
                missing = True
                if strict:
                    missing_keys.append(key + end)
        if missing:
            return
        with rushlight.no_grad():
            orig = state_dict[key + "_orig"]
            weight = state_dict.pop(key)
            sigma = (orig / weight).mean()
            matrix = fn.reshape_weight_to_matrix(orig)
            state_dict[key + "_v"] = fn._solve_v_and_rescale(matrix, state_dict[key + "_u"], sigma)


class SpectralNormStateDictHook:
    """Writes the version into a state dict's metadata."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Any, state_dict: Any, prefix: str, local_metadata: Any) -> None:
        versions = local_metadata.setdefault("spectral_norm", {})
        key = self.fn.name + ".version"
        if key in versions:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        versions[key] = self.fn._version


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divide a parameter by its largest singular value before each call; the parameter that is trained is
    `<name>_orig`.

    More than two dimensions count as a matrix whose rows are the indices of `dim` (default 1 for transposed
    convolutions, else 0).  In training each call makes `n_power_iterations` steps of power iteration. Returns the
    module.  `parametrizations.spectral_norm` is the newer form.
    """
    if dim is None:
        dim = 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Undo `spectral_norm`, keeping the present weight; returns the module. ValueError if there is nothing to undo."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            break
    else:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    for table, kind in (
        (module._state_dict_hooks, SpectralNormStateDictHook),
        (module._load_state_dict_pre_hooks, SpectralNormLoadStateDictPreHook),
    ):
        for key, each in list(table.items()):
            each = getattr(each, "hook", each)
            if isinstance(each, kind) and each.fn.name == name:
                del table[key]
                break
    return module
