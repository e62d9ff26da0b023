"""`local_map`: a function of plain tensors, applied to the parts of sharded ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.distributed.tensor._api import DTensor
from rushlight.utils import _pytree as pytree

__all__ = ["local_map"]


def local_map(
    func: Callable[..., Any] | None = None,
    out_placements: Any = None,
    in_placements: tuple[Any, ...] | None = None,
    in_grad_placements: tuple[Any, ...] | None = None,
    device_mesh: Any = None,
    *,
    redistribute_inputs: bool = False,
) -> Callable[..., Any]:
    """A function that gives `func` each process's parts of its `DTensor` arguments, and makes `DTensor`s of its results.

    - `out_placements`: how the results lie: a sequence of placements for one, a tuple of those (None for what is no tensor)
      for several
    - `in_placements`: how each positional argument must lie, None for what is no tensor; ValueError where one lies
      otherwise, unless `redistribute_inputs`
    - `in_grad_placements`: how the gradients of the parts lie; by default as the arguments
    - `device_mesh`: by default that of the arguments

    Without a `DTensor` among the arguments `func` is called as it is, and plain tensors come back.

    >>> import rushlight as torch
    >>> import rushlight.distributed as dist
    >>> from rushlight.distributed.tensor import Shard, distribute_tensor
    >>> from rushlight.distributed.tensor.experimental import local_map
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> mesh = dist.init_device_mesh("cpu", (1,))
    >>> double = local_map(lambda x: x * 2, out_placements=[Shard(0)], in_placements=([Shard(0)],))
    >>> double(distribute_tensor(torch.ones(3), mesh, [Shard(0)])).placements
    (Shard(dim=0),)
    >>> dist.destroy_process_group()
    """
    if func is None:  # as a decorator with settings
        return functools.partial(
            local_map,
            out_placements=out_placements,
            in_placements=in_placements,
            in_grad_placements=in_grad_placements,
            device_mesh=device_mesh,
            redistribute_inputs=redistribute_inputs,
        )
    function = func

    @functools.wraps(function)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = pytree.tree_flatten(args)
        for what, given in (("in_placements", in_placements), ("in_grad_placements", in_grad_placements)):
            if given is not None and len(given) != len(leaves):
                raise AssertionError(
                    f"{what} length {len(given)} does not match the number of input args {len(leaves)}!"
                )
        mesh, local, seen = device_mesh, [], False
        for k, leaf in enumerate(leaves):
            if isinstance(leaf, DTensor):
                mesh, seen = mesh or leaf.device_mesh, True
                wanted = None if in_placements is None else in_placements[k]
                leaf = _lying(leaf, wanted, in_placements is not None, redistribute_inputs)
                grads = None if in_grad_placements is None else in_grad_placements[k]
                leaf = leaf.to_local(grad_placements=grads)
            elif in_placements is not None and in_placements[k] is not None and seen and hasattr(leaf, "to_local"):
                raise TypeError(f"argument {k} is a {type(leaf).__name__}")
            local.append(leaf)
        found = function(*pytree.tree_unflatten(local, tree), **kwargs)
        return _spread(found, out_placements, mesh) if seen else found

    return mapped


def _lying(x: DTensor, wanted: Sequence[Any] | None, asked: bool, moves: bool) -> DTensor:
    """The tensor as it must lie; ValueError where it does not."""
    if not asked:
        return x
    if wanted is None:
        raise AssertionError(f"DTensor input {x} expects placements but received {wanted}!")
    if tuple(x.placements) == tuple(wanted):
        return x
    if not moves:
        raise ValueError(
            f"arg {x} in local_map has a mismatched placements: arg placements is {x.placements} but the input placements is {tuple(wanted)}! If"
            " redistribute_inputs is wanted, set redistribute_inputs=True to local_map."
        )
    return x.redistribute(placements=tuple(wanted))


def _spread(found: Any, placements: Any, mesh: Any) -> Any:
    """Results of the function as DTensors."""
    leaves, tree = pytree.tree_flatten(found)
    several = isinstance(placements, tuple)
    given = list(placements) if several else [placements]
    if len(given) != len(leaves):
        raise AssertionError(
            f"local_map requires one PlacementType be provided for each output value, received {len(given)} for {len(leaves)}!"
        )
    made = []
    for leaf, placed in zip(leaves, given, strict=True):
        if not hasattr(leaf, "grad_fn"):
            if placed is not None:
                raise AssertionError(f"Non-tensor output expects None placements but received {placed}!")
            made.append(leaf)
            continue
        if isinstance(leaf, DTensor):
            raise AssertionError(
                f"Expected output to be a plain tensor, got {leaf}: the function gets parts, and returns parts"
            )
        made.append(leaf if placed is None else DTensor.from_local(leaf, mesh, tuple(placed), run_check=False))
    return pytree.tree_unflatten(made, tree)
