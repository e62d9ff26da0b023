"""One parameter of a group: the part that this process keeps, and the whole that its modules compute with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import meta_of
from rushlight.distributed.fsdp.meshes import Axes
from rushlight.distributed.tensor import DTensor
from rushlight.nn import Module, Parameter
from rushlight.utils.swapping import swap_tensors

__all__ = ["Managed"]

BIG = 1 << 18  # bytes: from here on copying into a message costs more than a collective of its own
ALIGNED = 64  # bytes: where whole parameters begin in the memory of their group


class Managed:
    """A parameter that stands in one or several places of modules.

    `sharded` is the `DTensor` that optimizers see.  `whole` is a leaf of autograd with the shape that the modules know:
    it looks at the group's memory while that is there.  Operators save it as the tensor that it is, so what they read in
    backward is what was gathered last.
    """

    def __init__(self, places: Sequence[tuple[Module, str]], name: str, dim: int, axes: Axes) -> None:
        module, key = places[0]
        given = module._parameters[key]
        self.places, self.name, self.dim, self.axes = list(places), name, dim, axes
        self.inner = (given.device_mesh, given.placements) if isinstance(given, DTensor) else None
        held: Any = given._local_tensor if isinstance(given, DTensor) else given
        self.shape = tuple(held.shape)  # of the whole, as far as this group divides it
        self.full, self.stride = tuple(given.shape), tuple(given.stride())
        self.sharded: Any = axes.divided(given, dim)
        for part, place in places:
            part._parameters[place] = self.sharded
        self.extent = self.shape[dim]
        self.rest = math.prod(n for d, n in enumerate(self.shape) if d != dim)
        self.step = -(-self.extent // axes.part.size)
        self.count = self.step * self.rest  # elements in the message of each process
        self.length = axes.part.length(self.extent)
        self.numel = math.prod(self.shape)
        self.even = dim == 0 and self.step * axes.part.size == self.extent
        self.whole: Any = None
        self.local: Any = None
        self._rows: list[Tensor] = []

    def keep(self, given: Any) -> None:
        """Let the object that was the parameter be the sharded one: whoever holds it, as an optimizer does, trains that."""
        held = self.sharded
        made: Any = DTensor(held._local_tensor, held._mesh, held._placed, held.shape, held.stride())
        made.requires_grad_(held.requires_grad)
        made.__dict__.update({**given.__dict__, **made.__dict__, "_is_param": True})
        swap_tensors(given, made)
        self.sharded = given
        for part, place in self.places:
            part._parameters[place] = given

    def refresh(self) -> None:
        """Look at the parameter that is in the module now: `to_empty` and `load_state_dict(assign=True)` put new ones."""
        module, key = self.places[0]
        found: Any = module._parameters[key]
        if found is self.sharded and found._local_tensor is self.local:
            return
        if not isinstance(found, DTensor) or tuple(found.shape) != self.full:
            raise RuntimeError(
                f"FSDP: parameter {self.name} was replaced by what is no DTensor of its shape {self.full}: {found}"
            )
        for part, place in self.places:
            part._parameters[place] = found
        self.sharded, self.local, self._rows = found, found._local_tensor, []

    def rows(self) -> list[Tensor]:
        """The elements that this process sends: the divided dim first, and zeros up to the length that all send."""
        if self.dim or not self._rows:
            self._rows = self.pieces(self.local)
        return self._rows

    def pieces(self, local: Tensor) -> list[Tensor]:
        """`rows` of a part."""
        found = [local.movedim(self.dim, 0).reshape(-1) if self.dim else local.view(-1)]
        missing = self.count - found[0].numel()
        if missing:
            found.append(local.new_zeros(missing))
        return found

    # ***** the whole *****

    def copies(self, memory: Tensor, start: int, got: Tensor, at: int) -> list[tuple[Tensor, Tensor]]:
        """Where the pieces of a message from everybody go: pairs of target and source."""
        whole = self._view(memory, start)
        size = self.axes.part.size
        if self.even:
            return [(whole.view(size, self.count), got[:, at : at + self.count])]
        rows = whole.movedim(self.dim, 0)
        pairs = []
        for k in range(size):
            first, last = self.step * k, min(self.step * (k + 1), self.extent)
            if first < last and self.rest:
                count = (last - first) * self.rest
                piece = got[k, at : at + count].view(last - first, *rows.shape[1:])
                pairs.append((rows[first:last], piece))
        return pairs

    def _view(self, memory: Tensor, start: int) -> Tensor:
        return memory[start : start + self.numel].view(self.shape)

    def show(self, memory: Tensor, start: int, arrived: Any) -> None:
        """Let the whole parameter look at memory; `arrived` is called when its gradient is complete."""
        view = self._view(memory, start)
        if self.whole is None:
            self.whole = Parameter(self._wrapped(view), False)
        else:
            self.elements.data = view
        wants = self.sharded.requires_grad
        if self.whole.requires_grad is not wants:
            self.whole.requires_grad_(wants)
            if wants:
                self.whole.register_post_accumulate_grad_hook(lambda _: arrived(self))

    @property
    def elements(self) -> Any:
        """The tensor with the memory of the whole parameter."""
        return self.whole if self.inner is None else self.whole._local_tensor

    def _wrapped(self, view: Tensor) -> Tensor:
        if self.inner is None:
            return view
        return DTensor(view, *self.inner, self.full, self.stride)

    def place(self) -> None:
        """Put the whole parameter in its places."""
        for module, key in self.places:
            module._parameters[key] = self.whole

    def restore(self) -> None:
        """Put the sharded parameter back."""
        for module, key in self.places:
            module._parameters[key] = self.sharded

    # ***** gradients *****

    def taken(self) -> Tensor | None:
        """The gradient of the whole parameter, which is taken away."""
        grad = self.whole.grad if self.whole is not None else None
        if grad is None:
            return None
        self.whole.grad = None
        return grad._local_tensor if isinstance(grad, DTensor) else grad

    def table(self, grad: Tensor) -> Tensor:
        """A gradient as a row for each process."""
        size = self.axes.part.size
        rows = grad.movedim(self.dim, 0) if self.dim else grad
        if self.step * size != self.extent:
            rows = rushlight.cat([rows, rows.new_zeros((self.step * size - self.extent, *rows.shape[1:]))])
        return rows.reshape(size, self.count)

    def receive(self, reduced: Tensor) -> None:
        """Add this process's part of the reduced gradient to the sharded parameter's."""
        p = self.sharded
        local = self.own(reduced, p.dtype)
        grad = DTensor(local, p._mesh, p._placed, p.shape, p.stride())
        if p.grad is None:
            p.grad = grad
        elif isinstance(p.grad, DTensor) and p.grad._placed == p._placed:
            p.grad._local_tensor.add_(local)
        else:
            p.grad = p.grad + grad
        run_post_hooks(p)

    def own(self, reduced: Tensor, dtype: Any) -> Tensor:
        """This process's part from its row of a message, in a dtype."""
        rest = [n for d, n in enumerate(self.shape) if d != self.dim]
        rows = reduced[: self.length * self.rest].view(self.length, *rest)
        local = rows.movedim(0, self.dim).contiguous() if self.dim else rows
        return local if local.dtype is dtype else local.to(dtype)


def run_post_hooks(parameter: Any) -> None:
    """Run the hooks of `register_post_accumulate_grad_hook`."""
    hooks = meta_of(parameter).post_hooks
    for hook in list(hooks.values()) if hooks else ():
        hook(parameter)


def aligned(count: int, itemsize: int) -> int:
    """A number of elements, rounded up so that what follows is aligned."""
    unit = max(ALIGNED // itemsize, 1)
    return -(-count // unit) * unit
