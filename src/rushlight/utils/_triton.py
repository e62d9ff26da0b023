"""`torch.utils._triton`: whether programs can launch Triton kernels on a GPU."""

from __future__ import annotations

from importlib.util import find_spec

import rushlight

__all__ = [
    "has_triton",
    "has_triton_package",
    "has_triton_tensor_descriptor_host_tma",
    "has_triton_tma",
    "has_triton_tma_device",
]


def has_triton_package() -> bool:
    """Whether `import triton` finds something: our language under the name `torch`, or an installed Triton."""
    return find_spec("triton") is not None


def has_triton() -> bool:
    """Whether `import triton` gives the language of `rushlight.triton`, and there is a GPU for it.

    False for an installed Triton, too: its way to our GPUs has not been proved on a card.  False without a GPU, as in
    PyTorch, although our kernels run on the CPU.
    """
    found, ours = find_spec("triton"), find_spec("rushlight.triton")
    if found is None or ours is None or found.origin != ours.origin:
        return False
    return rushlight.cuda.is_available() and rushlight.cuda.get_device_capability()[0] >= 7


def has_triton_tma() -> bool:
    """Whether a GPU is there that copies blocks by descriptors (sm_90 and later)."""
    return rushlight.cuda.is_available() and rushlight.cuda.get_device_capability() >= (9, 0)


def has_triton_tma_device() -> bool:
    """The same for descriptors that kernels make."""
    return has_triton_tma()


def has_triton_tensor_descriptor_host_tma() -> bool:
    """The same for descriptors that the host makes."""
    return has_triton_tma()
