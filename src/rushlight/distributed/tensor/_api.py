"""`DTensor`: one tensor that is spread over the processes of a mesh."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import warn_user
from rushlight._interface.dispatch import disabled_torch_function
from rushlight.autograd import Function
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed._mesh_layout import _FlatLayout, _MeshLayout
from rushlight.distributed.device_mesh import DeviceMesh, current_mesh, init_device_mesh
from rushlight.distributed.tensor import _calls
from rushlight.distributed.tensor._dtensor_spec import DTensorSpec, PlacedSpec, ShardOrderEntry, TensorMeta
from rushlight.distributed.tensor._random import stream_of_the_first
from rushlight.distributed.tensor._redistribute import global_shape, redistribute, shard_of
from rushlight.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, _StridedShard, interned
from rushlight.serialization import add_safe_globals
from rushlight.serialization.rebuild import rebuild_from_type_v2, rebuild_wrapper_subclass

__all__ = ["DTensor", "distribute_tensor", "empty", "full", "ones", "rand", "randn", "zeros"]

Placements = tuple[Placement, ...]
_KIND_OF_NORM = {math.inf: "max", -math.inf: "min"}
_OWN = ("_local_tensor", "_mesh", "_placed", "_moved_view")


class _OpDispatcher:
    """`DTensor._op_dispatcher`, of which programs know one setting; rules of operators are made by `register_sharding`."""

    @property
    def _allow_implicit_replication(self) -> bool:
        """Whether plain tensors beside `DTensor`s are the same on all processes; see `implicit_replication`."""
        return DTensor.implicit_replication

    @_allow_implicit_replication.setter
    def _allow_implicit_replication(self, value: bool) -> None:
        DTensor.implicit_replication = value


class DTensor(Tensor):
    """A tensor over a `DeviceMesh`: it has the shape of the whole; each process holds what `placements` say, one for each
    axis of the mesh.  Operators, autograd and in-place changes give what they give for the whole tensor.

    Made by `distribute_tensor`, `DTensor.from_local` and the factories of this page.
    """

    _local_tensor: Tensor
    _mesh: DeviceMesh
    _placed: Placements
    _moved_view = ""  # which operator made this tensor as a view of elements that had to be moved
    implicit_replication = False
    _op_dispatcher = _OpDispatcher()
    # What functions give that are not asked below (`new_tensor`) stays as it is: it has no mesh.
    __torch_function__ = disabled_torch_function

    @staticmethod
    def __new__(
        cls, local: Tensor, mesh: Any, placements: Any = None, shape: Any = None, stride: Any = None, *, requires_grad: Any = None
    ) -> Any:  # fmt: skip
        """From parts; or `DTensor(local, spec, requires_grad=...)` of a `DTensorSpec`, as subclasses in programs make it."""
        if isinstance(mesh, DTensorSpec):
            if local.requires_grad and not requires_grad:
                warn_user(
                    "To construct DTensor from torch.Tensor, it's recommended to use local_tensor.detach() and make requires_grad consistent.",
                    UserWarning,
                )
            made = cls.__new__(cls, local, mesh.mesh, mesh.placements, mesh.shape, mesh.stride)
            return made if requires_grad is None else made.requires_grad_(requires_grad)
        wrapper: Any = Tensor
        made = wrapper._make_wrapper_subclass(
            cls,
            tuple(shape),
            strides=tuple(stride),
            dtype=local.dtype,
            device=local.device,
            requires_grad=local.requires_grad,
        )
        made._local_tensor, made._mesh, made._placed = local.detach(), mesh, interned(placements)
        made._spec = PlacedSpec.on(made._spec, mesh, made._placed)
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @classmethod
    def _wrapped(cls, local: Tensor, mesh: DeviceMesh, placements: Placements, shape: Any, stride: Any) -> DTensor:
        return DTensor(local, mesh, placements, shape, stride)

    @staticmethod
    def _of_spec(local: Tensor, mesh: DeviceMesh, placements: Placements, spec: Any) -> DTensor:
        """The result of an operator, without a history, as a whole tensor of a spec that an earlier one had; `placements` are
        interned.
        """
        made: Any = object.__new__(DTensor)
        made._storage, made._ptr, made._spec = None, 0, PlacedSpec.on(spec, mesh, placements)
        made._rg, made._node, made._autograd_meta = False, None, None
        made._local_tensor, made._mesh, made._placed = local, mesh, placements
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _calls.call(func, args, kwargs, DTensor, DTensor.implicit_replication)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """The local tensor and where it lies, as PyTorch's files have it; nothing of the whole tensor's size."""
        meta = TensorMeta(self.shape, self.stride(), self.dtype)
        more = {name: value for name, value in self.__dict__.items() if name not in _OWN}
        state = {"_local_tensor": self._local_tensor, "_spec": DTensorSpec(self._mesh, self._placed, meta), **more}
        shell = DTensor, self.dtype, tuple(self.shape), self.stride(), 0, self.layout, self.device, self.requires_grad
        return rebuild_from_type_v2, (rebuild_wrapper_subclass, DTensor, shell, (None, state))

    @staticmethod
    def _from_pickled(shell: tuple[Any, ...], state: Any) -> DTensor:
        """The tensor of such a file."""
        held = state[1] if isinstance(state, tuple) else state
        local, spec = held["_local_tensor"], held["_spec"]
        if not isinstance(spec, DTensorSpec) or not isinstance(local, Tensor) or not isinstance(spec.mesh, DeviceMesh):
            raise RuntimeError("corrupt file: a DTensor needs a tensor and a DTensorSpec of a DeviceMesh")
        made: DTensor = DTensor(local, spec, requires_grad=bool(shell[-1]))
        made.__dict__.update({name: value for name, value in held.items() if name not in (*_OWN, "_spec")})
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        local = self._local_tensor
        shown = local.item() if not local.ndim and local.numel() == 1 and self._mesh.get_coordinate() else local
        return f"DTensor(local_tensor={shown}, device_mesh={self._mesh}, placements={self._placed})"

    @staticmethod
    def _kept_gradient(leaf: Tensor, grad: DTensor) -> DTensor:
        """A gradient lies as its leaf, whoever else has it: all processes exchange the same."""
        moved = DTensor._as_gradient(grad, (leaf if isinstance(leaf, DTensor) else grad)._gradient_context())
        local = moved._local_tensor.clone() if moved is grad else moved._local_tensor
        return DTensor(local, moved._mesh, moved._placed, moved.shape, leaf.stride())

    def _gradient_context(self) -> Any:
        """Context for `__tensor_unflatten__` of a gradient with this tensor's placements."""
        placed = tuple(Replicate() if p.is_partial() else p for p in self._placed)
        return self._mesh, placed, tuple(self.shape), self.stride(), False

    @staticmethod
    def _as_gradient(grad: DTensor, context: Any) -> DTensor:
        """A gradient, moved to where `_gradient_context` of its tensor says."""
        placed = context[1]
        moved = redistribute(grad._local_tensor, grad.shape, grad.device_mesh, grad.placements, placed)
        if moved is grad._local_tensor:
            return grad
        return DTensor(moved.detach(), grad.device_mesh, placed, grad.shape, grad.stride())

    @staticmethod
    def _elements(tensors: Sequence[Any]) -> Sequence[Any]:
        """The local tensors of some that lie alike, whose elements are changed one by one; else the tensors."""
        mesh, placed = tensors[0]._mesh, tensors[0]._placed
        for x in tensors:
            if not isinstance(x, DTensor) or x._placed != placed or x._mesh != mesh:
                return tensors
        return tensors if any(p.is_partial() for p in placed) else [x._local_tensor for x in tensors]

    @staticmethod
    def _common_norm(tensors: Sequence[Any], order: float) -> DTensor | None:
        """The norm of tensors of one mesh as one vector: what the processes have is reduced once.  None for others."""
        mesh = tensors[0]._mesh
        groups: dict[tuple[bool, ...], list[Tensor]] = {}
        for x in tensors:
            if not isinstance(x, DTensor) or x._mesh != mesh or any(p.is_partial() for p in x._placed):
                return None
            groups.setdefault(tuple(p.is_shard() for p in x._placed), []).append(x._local_tensor)
        if mesh.get_coordinate() is None:
            return None
        kind, finite = _KIND_OF_NORM.get(order, "sum"), abs(order) != math.inf
        power = order if finite and order else 1.0
        terms = []
        for divided, parts in groups.items():
            norms = [rushlight.linalg.vector_norm(part, order) for part in parts if part.numel()]
            if not norms:
                nothing = math.inf if order < 0 and not finite else 0.0
                norms = [rushlight.full((), nothing, dtype=parts[0].dtype, device=parts[0].device)]
            found = rushlight.stack(norms)
            part = found.sum() if not order else rushlight.linalg.vector_norm(found, order) ** power
            placed: Placements = tuple(Partial(kind) if cut else Replicate() for cut in divided)
            terms.append(DTensor.from_local(part, mesh, placed).redistribute(placements=(Replicate(),) * mesh.ndim))
        whole = rushlight.stack(terms)
        total = whole.sum() if kind == "sum" else whole.amax() if kind == "max" else whole.amin()
        return total ** (1.0 / power)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["_local_tensor"], (self._mesh, self._placed, tuple(self.shape), self.stride(), self.requires_grad)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: Any, size: Any, stride: Any) -> DTensor:
        mesh, placements, shape, strides, wants = context
        made = DTensor(inner["_local_tensor"], mesh, placements, shape, strides)
        return made.requires_grad_(wants)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh over which the tensor is spread."""
        return self._mesh

    @property
    def placements(self) -> Placements:
        """How it lies along each axis of the mesh."""
        return self._placed

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Any = None,
        stride: tuple[int, ...] | None = None,
        grad_placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        """A tensor from what each process has of it.

        It is moved to the mesh's type of device.  Parts are taken to be even unless `shape` and `stride` of the whole
        are given.  With `run_check` replicas become those of the first process of their group.  Differentiable; the
        gradient is that of the local tensor, from one that lies as `grad_placements` (by default as the tensor itself,
        whole where it lies as terms).
        """
        if isinstance(local_tensor, DTensor):
            raise RuntimeError(
                f"the local_tensor argument only accepts torch.Tensor but got {type(local_tensor)} value."
            )
        mesh = device_mesh or _all_processes()
        local_tensor = _on_mesh(local_tensor, mesh)
        placed = _normalized(placements, mesh, local_tensor.ndim) or (Replicate(),) * mesh.ndim
        if (shape is None) != (stride is None):
            raise RuntimeError(
                f"Found shape:{shape}, stride:{stride}. Please pass both shape and stride at the same time."
            )
        if run_check and mesh.get_coordinate() is not None:
            for axis, placement in enumerate(placed):
                if placement.is_replicate():
                    local_tensor = local_tensor.contiguous()
                    first = dist.get_process_group_ranks(mesh.get_group(axis))[0]
                    dist.broadcast(local_tensor.detach(), first, group=mesh.get_group(axis))
        grads = _normalized(grad_placements, mesh, local_tensor.ndim)
        return _FromLocal.apply(local_tensor, mesh, placed, shape, stride, grads)

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """This process's part.  Differentiable: its gradient is taken to lie as `grad_placements`, by default as the
        tensor itself.
        """
        if not (rushlight.is_grad_enabled() and self.requires_grad):
            return self._local_tensor
        return _ToLocal.apply(self, _normalized(grad_placements, self._mesh, self.ndim))

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: Any = None,
        backward_dtype: Any = None,
    ) -> DTensor:
        """The same tensor under other placements of its mesh.  Differentiable.

        RuntimeError for another mesh, and for terms of what is no such terms now.
        """
        if device_mesh is not None and device_mesh != self._mesh:
            raise NotImplementedError("Cross device mesh comm not supported yet!")
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        placed = _normalized(placements, self._mesh, self.ndim)
        assert placed is not None
        for here, there in zip(self._placed, placed, strict=True):
            if there.is_partial() and here != there:
                raise RuntimeError(
                    f"Can not redistribute from {here} to {there}, redistributing to Partial is for internal use only!"
                )
        return _Redistribute.apply(self, placed, forward_dtype, backward_dtype)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """The whole tensor, on every process."""
        whole = self.redistribute(placements=(Replicate(),) * self._mesh.ndim)
        return whole.to_local(grad_placements=grad_placements)


class _FromLocal(Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, mesh: Any, placed: Placements, shape: Any, stride: Any, grads: Any) -> Any:
        ctx.placed = grads or tuple(Replicate() if p.is_partial() else p for p in placed)
        ctx.mesh = mesh
        ctx.set_materialize_grads(False)
        if shape is None:
            shape = global_shape(local.shape, mesh, placed)
            stride = _strides_like(local, shape)
        if mesh.get_coordinate() is None:
            local = local.new_empty(0)
        return DTensor(local.detach(), mesh, placed, shape, stride)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if grad is None:
            return None, None, None, None, None, None
        if _differentiated(grad):
            return _ToLocal.apply(_Redistribute.apply(grad, ctx.placed, None, None), None), None, None, None, None, None
        local = redistribute(grad._local_tensor, grad.shape, ctx.mesh, grad.placements, ctx.placed)
        return local, None, None, None, None, None


class _ToLocal(Function):
    @staticmethod
    def forward(ctx: Any, x: DTensor, grads: Placements | None) -> Any:
        ctx.set_materialize_grads(False)
        placed = grads or tuple(Replicate() if p.is_partial() else p for p in x.placements)
        ctx.like = x._mesh, placed, tuple(x.shape), tuple(x.stride())
        return x._local_tensor.view_as(x._local_tensor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        if grad is None:
            return None, None
        mesh, placed, shape, stride = ctx.like
        if _differentiated(grad):
            return _FromLocal.apply(grad, mesh, placed, shape, stride, None), None
        return DTensor(grad.detach(), mesh, placed, shape, stride), None


class _Redistribute(Function):
    @staticmethod
    def forward(ctx: Any, x: DTensor, placed: Placements, forward_dtype: Any, backward_dtype: Any) -> Any:
        ctx.before = tuple(
            Replicate() if here.is_partial() and not there.is_partial() else here
            for here, there in zip(x.placements, placed, strict=True)
        )
        ctx.dtypes = x.dtype, backward_dtype
        ctx.set_materialize_grads(False)
        local = x._local_tensor if forward_dtype is None else x._local_tensor.to(forward_dtype)
        moved = redistribute(local, x.shape, x.device_mesh, x.placements, placed)
        return DTensor(moved.view_as(moved), x.device_mesh, placed, x.shape, x.stride())

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        dtype, backward_dtype = ctx.dtypes
        if grad is None:
            return None, None, None, None
        if _differentiated(grad):
            after = _after(grad, ctx.before)
            return _Redistribute.apply(grad, after, backward_dtype, dtype).to(dtype), None, None, None
        local = grad._local_tensor if backward_dtype is None else grad._local_tensor.to(backward_dtype)
        after = _after(grad, ctx.before)
        moved = redistribute(local, grad.shape, grad.device_mesh, grad.placements, after).to(dtype)
        return DTensor(moved, grad.device_mesh, after, grad.shape, grad.stride()), None, None, None


def _differentiated(grad: Tensor) -> bool:
    """Whether backward has to be differentiable itself."""
    return rushlight.is_grad_enabled() and grad.requires_grad


def _after(grad: Any, before: Placements) -> Placements:
    """How a gradient lies that has come back through a redistribution from `before`."""
    return tuple(
        here if there.is_shard() and here == there else there
        for here, there in zip(grad.placements, before, strict=True)
    )


def _all_processes() -> DeviceMesh:
    """The mesh that is meant where none is named: of the `with` block, else one axis of all processes."""
    return current_mesh() or init_device_mesh("cpu", (dist.get_world_size(),))


def _normalized(placements: Sequence[Placement] | None, mesh: DeviceMesh, ndim: int) -> Placements | None:
    """Placements with dims counted from the front; errors for what does not fit."""
    if placements is None:
        return None
    if len(placements) != mesh.ndim:
        raise ValueError(
            f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: {len(placements)},"
            f" and device_mesh.ndim: {mesh.ndim}."
        )
    found: list[Placement] = []
    for axis, placement in enumerate(placements):
        if not isinstance(placement, Placement):
            raise RuntimeError(
                f"Trying to distribute tensor with unsupported placements {placement} on device mesh dimension {axis}!"
            )
        if isinstance(placement, Shard):
            dim = placement.dim + ndim if placement.dim < 0 else placement.dim
            assert 0 <= dim < ndim, f"Sharding dim {placement.dim} greater than tensor ndim {ndim}"
            placement = Shard(dim)
        found.append(placement)
    return tuple(found)


def _strides_like(local: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a whole tensor whose dims lie in the order of a part's."""
    strides, step = [0] * len(shape), 1
    for d in sorted(range(len(shape)), key=lambda d: (local.stride(d), -d)):
        strides[d], step = step, step * max(shape[d], 1)
    return tuple(strides)


# ***** making tensors *****


def _on_mesh(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """A tensor on a device of the mesh's type; without elements as it is."""
    return x if x.is_meta or x.device.type == mesh.device_type else x.to(mesh.device_type)


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """A tensor that every process has, spread over a mesh; by default replicated.

    It is moved to the mesh's type of device.  What the process `src_data_rank` of each group has counts; with None
    every process takes its part of its own tensor and nothing is sent.
    """
    mesh = device_mesh or _all_processes()
    placed = _normalized(placements, mesh, tensor.ndim) or (Replicate(),) * mesh.ndim
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise ValueError(
                f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh {mesh}."
            )
        if tensor.placements != placed:
            raise ValueError(
                f"Cannot distribute a DTensor with placements {tensor.placements} to a different placements {placed}. do you want to call"
                " `redistribute` instead?"
            )
        return tensor
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    local = _on_mesh(tensor.detach(), mesh)
    if mesh.get_coordinate() is None:
        local = local.new_empty(0)
        return DTensor(local, mesh, placed, tensor.shape, tensor.stride()).requires_grad_(tensor.requires_grad)
    if src_data_rank is not None and mesh.size() > 1 and not local.is_meta:
        local = local.clone(memory_format=rushlight.contiguous_format)
        for axis in range(mesh.ndim):
            first = dist.get_process_group_ranks(mesh.get_group(axis))[src_data_rank]
            dist.broadcast(local, first, group=mesh.get_group(axis))
    for axis, placement in enumerate(placed):
        if isinstance(placement, Shard):
            local = shard_of(local, placement.dim, mesh, axis)
        elif isinstance(placement, Partial):
            local = _term_of(local, placement, mesh.size(axis))
    return DTensor(local, mesh, placed, tensor.shape, tensor.stride()).requires_grad_(tensor.requires_grad)


def _term_of(x: Tensor, placement: Partial, size: int) -> Tensor:
    """The term that every process takes of a tensor which all have; ValueError for products."""
    if placement.reduce_op == "sum":
        return x / size
    if placement.reduce_op in ("avg", "max", "min"):
        return x.clone()
    raise ValueError(f"Replicate to Partial({placement.reduce_op}) conversion is not supported.")


def _factory(
    make: Callable[..., Tensor], size: Any, mesh: Any, placements: Any, requires_grad: bool, **options: Any
) -> DTensor:
    """A tensor made whole on every process, of which each keeps its part: random numbers do not depend on the mesh."""
    mesh = mesh or _all_processes()
    options.pop("layout", None)
    options["device"] = mesh.device_type
    with stream_of_the_first(mesh) if make in (rushlight.rand, rushlight.randn) else nullcontext():
        whole = make(size, **options)
    return distribute_tensor(whole, mesh, placements, src_data_rank=None).requires_grad_(requires_grad)


def _size(size: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)


def _filled(make: Callable[..., Tensor], name: str, doc: str) -> Callable[..., DTensor]:
    def function(
        *size: Any,
        requires_grad: bool = False,
        dtype: Any = None,
        layout: Any = None,
        device_mesh: Any = None,
        placements: Any = None,
    ) -> DTensor:
        return _factory(make, _size(size), device_mesh, placements, requires_grad, dtype=dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


zeros = _filled(rushlight.zeros, "zeros", "Zeros over a mesh.")
ones = _filled(rushlight.ones, "ones", "Ones over a mesh.")
empty = _filled(rushlight.empty, "empty", "A tensor over a mesh whose elements are not set.")
rand = _filled(
    rushlight.rand, "rand", "Random numbers of [0, 1): those that one process would draw, whatever the mesh."
)
randn = _filled(
    rushlight.randn, "randn", "Normal random numbers: those that one process would draw, whatever the mesh."
)


def full(
    size: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, requires_grad: bool = False, device_mesh: Any = None,
    placements: Any = None,
) -> DTensor:  # fmt: skip
    """A tensor over a mesh whose elements are one number."""
    return _factory(
        lambda size, **o: rushlight.full(size, fill_value, **o),
        tuple(size),
        device_mesh,
        placements,
        requires_grad,
        dtype=dtype,
    )


# Files of `torch.save` with such tensors load without more: their classes hold numbers and names alone.
DTensor.__module__ = DTensor.__module__.removesuffix("._api")
add_safe_globals(
    [
        DTensor,
        DTensorSpec,
        TensorMeta,
        ShardOrderEntry,
        DeviceMesh,
        _MeshLayout,
        _FlatLayout,
        Shard,
        Replicate,
        Partial,
        _StridedShard,
    ]
)
