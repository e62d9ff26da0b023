"""`ShardedTensor`: a tensor in boxes, each of which one process has.  What `DTensor` took the place of.

It says where its parts are, gathers and saves them; operators are those that are registered for it, and few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import rushlight
from rushlight import Size, Tensor
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed._shard.owners import owner_of
from rushlight.distributed._shard.sharded_tensor.checking import agreed, check_parts, metadata_of
from rushlight.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
from rushlight.distributed._shard.sharded_tensor.shard import Shard
from rushlight.distributed._shard.sharding_spec import ShardingSpec, _infer_sharding_spec_from_shards_metadata
from rushlight.distributed._shard.sharding_spec.api import custom_op
from rushlight.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from rushlight.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

__all__ = ["Shard", "ShardedTensor", "ShardedTensorBase", "ShardedTensorMetadata", "TensorProperties"]

# Functions of tensors -> implementations: those of programs, and our own.
_CUSTOM_SHARDED_OPS: dict[Any, Callable[..., Any]] = {}
_SHARDED_OPS: dict[Any, Callable[..., Any]] = {}
LOADING: list[Any] = []  # the groups of `load_with_process_group`

# Methods that ask for what every process knows.
_KNOWN = (
    "__get__",
    "size",
    "dim",
    "numel",
    "nelement",
    "element_size",
    "is_floating_point",
    "is_complex",
    "__len__",
    "stride",
)


def _shape_of(size: Sequence[Any]) -> Size:
    dims = list(size[0]) if len(size) == 1 and isinstance(size[0], (list, tuple)) else list(size)
    if not all(isinstance(n, int) for n in dims):
        raise TypeError(f"size has to be a sequence of ints, found: {dims}")
    return Size(dims)


class ShardedTensorBase(Tensor):
    """A tensor in parts: how it is cut, and this process's parts."""

    _sharding_spec: ShardingSpec
    _metadata: ShardedTensorMetadata
    _local_shards: list[Shard]

    @staticmethod
    def __new__(cls: Any, sharding_spec: ShardingSpec, *size: Any, **kwargs: Any) -> Any:
        """ValueError for what is no `ShardingSpec`."""
        if not isinstance(sharding_spec, ShardingSpec):
            raise ValueError(f"Expecting ShardingSpec but got: {type(sharding_spec)}")
        shape, dtype = _shape_of(size), kwargs.get("dtype") or rushlight.get_default_dtype()
        requires_grad, pinned = kwargs.get("requires_grad", False), kwargs.get("pin_memory", False)
        layout = kwargs.get("layout", rushlight.strided)
        properties = TensorProperties(dtype, layout, requires_grad, pin_memory=pinned)
        wrapper: Any = Tensor
        made = wrapper._make_wrapper_subclass(cls, tuple(shape), dtype=dtype, requires_grad=requires_grad)
        made._sharding_spec, made._local_shards = sharding_spec, []
        made._metadata = sharding_spec.build_metadata(shape, tensor_properties=properties)
        return made

    def metadata(self) -> ShardedTensorMetadata:
        """All parts, the whole shape and the properties."""
        return self._metadata

    def local_shards(self) -> list[Shard]:
        """The parts that this process has."""
        return self._local_shards

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} has no implementation for a {cls.__name__}, which has no memory of its own")


class ShardedTensor(ShardedTensorBase):
    """A tensor of a shape whose parts are new memory, without elements that mean anything.

    - `sharding_spec`: how it is cut, as `ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"])`
    - `size`: the whole shape
    - `process_group`: the processes among which it is cut, by default all

    All processes make it.  ValueError for other layouts and memory formats; NotImplementedError with `init_rrefs`.

    >>> import rushlight.distributed as dist
    >>> from rushlight.distributed._shard import sharded_tensor, sharding_spec
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = sharded_tensor.full(sharding_spec.ChunkShardingSpec(0, ["rank:0/cpu"]), (2, 2), 3.0)
    >>> x.shape, x.local_tensor()
    (torch.Size([2, 2]), tensor([[3., 3.],
            [3., 3.]]))
    >>> dist.destroy_process_group()
    """

    _process_group: Any

    def __init__(
        self,
        sharding_spec: ShardingSpec,
        *size: Any,
        dtype: Any = None,
        layout: Any = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        memory_format: Any = None,
        process_group: Any = None,
        init_rrefs: bool = False,
    ) -> None:
        self._prepare(process_group, init_rrefs)
        if layout not in (None, rushlight.strided):
            raise ValueError("Only torch.strided layout is currently supported")
        if memory_format not in (None, rushlight.contiguous_format):
            raise ValueError("Only torch.contiguous_format memory_format is currently supported")
        properties = self._metadata.tensor_properties
        for part in self._metadata.shards_metadata:
            rank, device = owner_of(self._process_group, part.placement)
            if rank == dist.get_rank():
                local = rushlight.empty(
                    part.shard_sizes, dtype=properties.dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory
                )  # fmt: skip
                self._local_shards.append(Shard(local, part))

    def _prepare(self, process_group: Any, init_rrefs: bool) -> None:
        if init_rrefs:
            raise NotImplementedError(
                "ShardedTensor(init_rrefs=True) is not built: ask the other ranks by rpc yourself"
            )
        self._process_group = dist._get_default_group() if process_group is None else process_group

    @classmethod
    def _init_from_local_shards(
        cls, local_shards: list[Shard], *global_size: Any, process_group: Any = None, init_rrefs: bool = False
    ) -> ShardedTensor:
        """From each process's parts; all learn of all.  Where a dim of `global_size` is None, parts lie one behind the
        other along dim 0.
        """
        group = dist._get_default_group() if process_group is None else process_group
        rank = dist.get_rank()
        given = (
            list(global_size[0]) if len(global_size) == 1 and isinstance(global_size[0], (list, tuple)) else global_size
        )
        by_rows = any(n is None for n in given)
        shape = _shape_of([0 if n is None else n for n in given])
        own = metadata_of(local_shards, shape, rank, group) if local_shards else None
        told: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(told, own, group=group)
        data = agreed(told, by_rows)
        if by_rows:
            mine = [
                part for part in data.shards_metadata if part.placement is not None and part.placement.rank() == rank
            ]
            if len(mine) != 1 or len(local_shards) != 1:
                raise AssertionError(f"a size with None takes one part of each process, rank {rank} has {len(mine)}")
            local_shards[0].metadata = mine[0]
        return cls._made(local_shards, data, group, init_rrefs, None)

    @classmethod
    def _init_from_local_shards_and_global_metadata(
        cls,
        local_shards: list[Shard],
        sharded_tensor_metadata: ShardedTensorMetadata,
        process_group: Any = None,
        init_rrefs: bool = False,
        sharding_spec: ShardingSpec | None = None,
    ) -> ShardedTensor:
        """From this process's parts and what is known of all: nothing is sent, so nothing of others is checked."""
        group = dist._get_default_group() if process_group is None else process_group
        check_parts(local_shards, sharded_tensor_metadata, dist.get_rank(), group)
        return cls._made(local_shards, sharded_tensor_metadata, group, init_rrefs, sharding_spec)

    @classmethod
    def _made(
        cls, shards: list[Shard], data: ShardedTensorMetadata, group: Any, init_rrefs: bool, spec: ShardingSpec | None
    ) -> ShardedTensor:
        properties = data.tensor_properties
        spec = _infer_sharding_spec_from_shards_metadata(data.shards_metadata) if spec is None else spec
        made: ShardedTensor = cls.__new__(
            cls, spec, data.size, dtype=properties.dtype, requires_grad=properties.requires_grad, pin_memory=properties.pin_memory
        )  # fmt: skip
        made._prepare(group, init_rrefs)
        made._local_shards, made._metadata = shards, data
        return made

    # ***** what it is *****

    def sharding_spec(self) -> ShardingSpec:
        """How it is cut."""
        return self._sharding_spec

    def local_tensor(self) -> Tensor:
        """The only part that this process has.  NotImplementedError for another number of parts."""
        if len(self._local_shards) != 1:
            raise NotImplementedError(
                f"Only single local shard is supported. Number of shards: {len(self._local_shards)}"
            )
        return self._local_shards[0].tensor

    def remote_shards(self) -> Any:
        """RuntimeError: no process has references to the parts of others."""
        raise RuntimeError("ShardedTensor created with init_rrefs=False, no RRefs to remote shards available")

    def is_pinned(self, device: Any = None) -> bool:
        """Whether parts are in pinned memory."""
        return bool(self._metadata.tensor_properties.pin_memory)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"ShardedTensor({self._metadata})"

    # ***** parts and wholes *****

    def gather(self, dst: int = 0, out: Tensor | None = None, enforce_dtype: bool = False, dtype: Any = None) -> None:
        """Put all parts into `out` on the process at place `dst` of the group; the others give None.

        ValueError for `out` where it is not wanted, is missing, or has another shape.
        """
        group, place = self._process_group, dist.get_rank(self._process_group)
        if place == dst and out is None:
            raise ValueError(f"Argument ``dst_tensor`` must be specified on destination rank {dst}")
        if place == dst and out is not None and tuple(out.shape) != tuple(self._metadata.size):
            raise ValueError(
                f"Argument ``dst_tensor`` have size {tuple(out.shape)},but should be {tuple(self._metadata.size)}"
            )
        if place != dst and out is not None:
            raise ValueError("Argument ``dst_tensor`` must NOT be specified on non-destination ranks.")
        owners = [owner_of(group, part.placement)[0] for part in self._metadata.shards_metadata]
        counts = dict.fromkeys(owners, 0)
        for part, owner in zip(self._metadata.shards_metadata, owners, strict=True):
            counts[owner] += Size(part.shard_sizes).numel()
        kind = dtype or self._metadata.tensor_properties.dtype
        row = rushlight.zeros(max(counts.values()), dtype=kind)
        flat = [shard.tensor.detach().reshape(-1).to(kind) for shard in self._local_shards]
        if flat:
            row[: sum(x.numel() for x in flat)] = rushlight.cat(flat)
        rows = [rushlight.empty_like(row) for _ in range(dist.get_world_size(group))] if place == dst else None
        dist.gather(row, rows, dst=dist.get_global_rank(group, dst), group=group)
        if rows is not None:
            self._fill(cast("Tensor", out), {rank: rows[dist.get_group_rank(group, rank)] for rank in counts}, owners)

    def _fill(self, out: Tensor, rows: dict[int, Tensor], owners: Sequence[int]) -> None:
        """Put the elements of each process into their boxes."""
        at = dict.fromkeys(rows, 0)
        with rushlight.no_grad():
            for part, owner in zip(self._metadata.shards_metadata, owners, strict=True):
                count = Size(part.shard_sizes).numel()
                box = tuple(slice(o, o + n) for o, n in zip(part.shard_offsets, part.shard_sizes, strict=True))
                out[box] = rows[owner][at[owner] : at[owner] + count].view(part.shard_sizes).to(out.dtype)
                at[owner] += count

    def reshard(self, resharding_spec: ShardingSpec) -> ShardedTensor:
        """The same tensor, cut in another way."""
        properties = self._metadata.tensor_properties
        whole = rushlight.zeros(self._metadata.size, dtype=properties.dtype)
        self.gather(0, whole if dist.get_rank(self._process_group) == 0 else None)
        dist.broadcast(whole, dist.get_global_rank(self._process_group, 0), group=self._process_group)
        made = ShardedTensor(
            resharding_spec, self._metadata.size, dtype=properties.dtype, process_group=self._process_group
        )
        for shard in made._local_shards:
            data = shard.metadata
            shard.tensor.copy_(
                whole[tuple(slice(o, o + n) for o, n in zip(data.shard_offsets, data.shard_sizes, strict=True))]
            )
        return made

    def with_parts(self, function: Callable[[Tensor], Tensor], requires_grad: bool | None = None) -> ShardedTensor:
        """The same with other tensors as parts, of the same shapes and one dtype."""
        data = deepcopy(self._metadata)
        own = [
            part
            for part in data.shards_metadata
            if part.placement is not None and part.placement.rank() == dist.get_rank()
        ]
        shards = [Shard(function(shard.tensor), part) for shard, part in zip(self._local_shards, own, strict=True)]
        if shards:
            data.tensor_properties.dtype = shards[0].tensor.dtype
        wants = data.tensor_properties.requires_grad if requires_grad is None else requires_grad
        data.tensor_properties.requires_grad = wants
        return ShardedTensor._made(shards, data, self._process_group, False, self._sharding_spec)

    def to(self, *args: Any, **kwargs: Any) -> ShardedTensor:
        """Parts of another dtype, or itself.  NotImplementedError for another device."""
        probe = rushlight.empty(0, dtype=self._metadata.tensor_properties.dtype)
        made = probe.to(*args, **{k: v for k, v in kwargs.items() if k != "process_group"})
        if made.device != probe.device:
            raise NotImplementedError(f"ShardedTensor.to({made.device}): parts stay on their devices")
        if made.dtype is probe.dtype and not kwargs.get("copy", False):
            return self
        if made.dtype is probe.dtype:
            return self.with_parts(lambda x: x.clone())
        return self.with_parts(lambda x: x.to(made.dtype))

    def cpu(self, memory_format: Any = None, process_group: Any = None) -> ShardedTensor:
        """Itself: parts are there."""
        return self

    # ***** operators, files and checkpoints *****

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in _KNOWN:
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[misc]
        found = next((x for x in (*args, *kwargs.values()) if isinstance(x, ShardedTensor)), None)
        implementation = _CUSTOM_SHARDED_OPS.get(func)
        if implementation is None and found is not None:
            implementation = custom_op(found._sharding_spec, func) or _SHARDED_OPS.get(func)
        if implementation is None or found is None:
            raise RuntimeError(
                f"torch function '{getattr(func, '__name__', func)}', with args: {args} and kwargs: {kwargs} not supported"
                " for ShardedTensor!"
            )
        return implementation(types, args, kwargs, found._process_group)

    @dataclass
    class ProcessGroupState:
        """The place of the process that wrote a file."""

        local_rank: int
        global_rank: int
        local_world_size: int
        global_world_size: int

    def _place(self) -> ShardedTensor.ProcessGroupState:
        group = self._process_group
        return ShardedTensor.ProcessGroupState(
            dist.get_rank(group), dist.get_rank(), dist.get_world_size(group), dist.get_world_size()
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        state = (self._local_shards, self._metadata, self._place(), self._sharding_spec, False)
        return _shell, (), state

    def __setstate__(self, state: Any) -> None:
        """RuntimeError where this process has another place than the one that wrote it."""
        if not dist.is_initialized():
            raise RuntimeError(
                'Need to initialize default process group using "init_process_group" before loading ShardedTensor'
            )
        shards, data, place, spec, _ = state
        made = ShardedTensor._made(shards, data, LOADING[-1] if LOADING else dist._get_default_group(), False, spec)
        here = made._place()
        for name in ("local_rank", "global_rank", "local_world_size", "global_world_size"):
            then, now = getattr(place, name), getattr(here, name)
            if then != now:
                what = name.replace("_", " ").capitalize()
                raise RuntimeError(f"{what} at save time was {then}, but at load time was {now}")
        self.__dict__.update(made.__dict__)
        for name in ("_storage", "_ptr", "_spec", "_rg", "_node", "_autograd_meta"):
            setattr(self, name, getattr(made, name))

    def __create_write_items__(self, fqn: str, obj: Any) -> list[WriteItem]:
        properties = deepcopy(self._metadata.tensor_properties)
        return [
            WriteItem(
                MetadataIndex(fqn, Size(shard.metadata.shard_offsets)),
                WriteItemType.SHARD,
                tensor_data=TensorWriteData(_box(shard), properties, Size(self._metadata.size)),
            )
            for shard in self._local_shards
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [_box(shard) for shard in self._local_shards]

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        for shard in self._local_shards:
            if index.offset is not None and tuple(shard.metadata.shard_offsets) == tuple(index.offset):
                return shard.tensor.detach()
        raise ValueError(f"Could not find shard at '{index.offset}' for FQN: '{index.fqn}'")


def _box(shard: Shard) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(Size(shard.metadata.shard_offsets), Size(shard.metadata.shard_sizes))


def _shell() -> ShardedTensor:
    """A tensor whose state comes next, from a file."""
    made: ShardedTensor = object.__new__(ShardedTensor)
    return made
