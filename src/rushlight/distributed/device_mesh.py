"""`DeviceMesh`: the processes of a job as a grid, with a group for each row and column.

>>> import rushlight as torch
>>> import rushlight.distributed as dist
>>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
>>> mesh = dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
>>> mesh, mesh["tp"], mesh.get_coordinate()
(DeviceMesh((dp=1, tp=1), 'cpu', stride=((), ())), DeviceMesh((tp=1), 'cpu', stride=((),)), (0, 0))
>>> dist.destroy_process_group()
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import rushlight
import rushlight.distributed as dist
from rushlight import Tensor
from rushlight.distributed._mesh_layout import grid_of, layout_of
from rushlight.distributed.c10d.world import WORLD

__all__ = ["DeviceMesh", "current_mesh", "init_device_mesh"]


class DeviceMesh:
    """Ranks as a grid: `mesh` is a tensor (or nested list) of ranks, `mesh_dim_names` names its dims.

    Each process gets a group for each dim, of the ranks that differ from it in that dim alone: its members make it by
    themselves.  `mesh["tp"]` is the part with the dims of these names to which this process belongs.
    """

    _restored = False  # whether it comes from a pickle, so that its groups are still to be found

    def __init__(
        self, device_type: str, mesh: Any = None, *, mesh_dim_names: Sequence[str] | None = None, backend_override: Any = None,
        _init_backend: bool = True, _rank: int | None = None, _groups: list[Any] | None = None, _root: DeviceMesh | None = None,
    ) -> None:  # fmt: skip
        self._device_type = device_type
        ranks = mesh.tolist() if isinstance(mesh, Tensor) else mesh
        self._mesh = rushlight.tensor(ranks, dtype=rushlight.int32, device="cpu")
        self._mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names else None
        self._root_mesh = _root
        self._flattened: dict[str, DeviceMesh] = {}
        self._rank = (dist.get_rank() if dist.is_initialized() else 0) if _rank is None else _rank
        flat = self.mesh.reshape(-1).tolist()
        if len(set(flat)) != len(flat):
            raise RuntimeError(f"a rank is in a mesh once, got {flat}")
        self._ranks, self._shape = tuple(flat), tuple(self.mesh.shape)
        self._coordinate = _place_of(flat.index(self._rank), self.shape) if self._rank in flat else None
        self._groups = _groups
        self._known_calls: dict[Any, Any] = {}  # how calls on tensors of this mesh run, see `tensor._known_calls`
        if _groups is None and _init_backend:
            self._make_groups(flat)
        self._hash = hash(self._key())

    @property
    def device_type(self) -> str:
        """The type of the processes' devices."""
        return self._device_type

    @property
    def mesh(self) -> Tensor:
        """The ranks, as a tensor."""
        return self._mesh

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None:
        """The names of the dims."""
        return self._mesh_dim_names

    def __getstate__(self) -> dict[str, Any]:
        """As PyTorch writes it, without groups: a process finds or makes its own when it asks for them."""
        return {
            "_device_type": self._device_type,
            "_layout": layout_of(self.shape),
            "_rank_map": rushlight.tensor(self._ranks, dtype=rushlight.int32),
            "_mesh_dim_names": self._mesh_dim_names,
            "_root_mesh": None,
            "_flatten_rank_map": self._ranks,
            "_thread_id": None,
            "_flatten_mapping": {},
            "_dim_group_names": [group.group_name for group in self._groups or ()],
            "_rank": self._rank,
            "_coordinate_on_dim": self._coordinate,
            "_hash": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        rank = dist.get_rank() if dist.is_initialized() else int(state["_rank"])
        ranks, shape = grid_of(state["_layout"], state["_rank_map"].tolist(), rank)
        mesh = rushlight.tensor(ranks, dtype=rushlight.int32).view(shape)
        self.__init__(  # type: ignore[misc]
            state["_device_type"], mesh, mesh_dim_names=state["_mesh_dim_names"], _init_backend=False, _rank=rank
        )
        self._restored = True

    def _make_groups(self, flat: list[int]) -> None:
        if not dist.is_initialized():
            dist.init_process_group()
            self._rank = dist.get_rank()
            self._coordinate = _place_of(flat.index(self._rank), self.shape) if self._rank in flat else None
        if len(flat) > dist.get_world_size():
            raise RuntimeError(
                f"Mesh should not be bigger than default world size {dist.get_world_size()}, but found {len(flat)} ranks!"
            )
        self._groups = []
        if self._coordinate is None:
            return
        self._groups = [self._group_along(dim) for dim in range(self.ndim)]

    def _group_along(self, dim: int, backend: Any = None) -> Any:
        """The group of the ranks that differ from this one in a dim alone."""
        assert self._coordinate is not None
        index = [slice(None) if k == dim else place for k, place in enumerate(self._coordinate)]
        ranks = self.mesh[tuple(index)].tolist()
        name = backend[0] if isinstance(backend, tuple) else backend
        asked = name if isinstance(name, str) else None
        if ranks == list(range(dist.get_world_size())) and asked is None:
            return dist.group.WORLD
        if self._restored:
            for group in WORLD.groups:
                if list(group._group.ranks) == ranks:
                    return group
        return dist.new_group(ranks, backend=asked, use_local_synchronization=True, sort_ranks=False)

    # ***** what it is *****

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dims."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self._shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks, or the size of a dim."""
        return math.prod(self.shape) if mesh_dim is None else self.shape[mesh_dim]

    def get_rank(self) -> int:
        """This process's rank in the job."""
        return self._rank

    def get_coordinate(self) -> tuple[int, ...] | None:
        """This process's place in the grid; None where it is not in it."""
        return self._coordinate

    def _dim(self, mesh_dim: int | str | None, more: tuple[str, ...] = ()) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(
                    f"Found the DeviceMesh have {self.ndim} dimensions",
                    "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.",
                    *more,
                )
            return 0
        if isinstance(mesh_dim, str):
            if self.mesh_dim_names is None or mesh_dim not in self.mesh_dim_names:
                raise KeyError(
                    f"Mesh dimension '{mesh_dim}' does not exist.",
                    f"Available mesh dimensions are: mesh_dim_names={self.mesh_dim_names}",
                )
            return self.mesh_dim_names.index(mesh_dim)
        return mesh_dim

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This process's place along a dim."""
        dim = self._dim(mesh_dim)
        if self._coordinate is None:
            raise AssertionError(f"rank {self._rank} is not in {self!r}")
        return self._coordinate[dim]

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The group of the ranks along a dim."""
        advice = "If you want to get the list of all the ProcessGroups in the DeviceMesh,please use `get_all_groups()` instead."
        dim = self._dim(mesh_dim, (advice,))
        if self._groups is None and self._restored and dist.is_initialized():
            self._groups = [self._group_along(k) for k in range(self.ndim)] if self._coordinate is not None else []
        if not self._groups:
            raise RuntimeError("DeviceMesh process groups not initialized!")
        return self._groups[dim]

    def get_all_groups(self) -> list[Any]:
        """The groups of all dims."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def _get_root_mesh(self) -> DeviceMesh:
        return self if self._root_mesh is None else self._root_mesh

    def _get_mesh_dim_by_name(self, name: str) -> int:
        return self._dim(name)

    # ***** parts *****

    def __getitem__(self, mesh_dim_names: str | Sequence[str]) -> DeviceMesh:
        """The part with these dims to which this process belongs."""
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if names == self.mesh_dim_names:
            return self
        root = self._get_root_mesh()
        if len(names) == 1 and names[0] in root._flattened:
            return root._flattened[names[0]]
        if any(name not in self.mesh_dim_names for name in names):
            raise KeyError(
                f"Invalid mesh_dim_names {names} specified. Valid mesh_dim_names are {list(self.mesh_dim_names)}."
            )
        dims = [self.mesh_dim_names.index(name) for name in names]
        others = [dim for dim in range(self.ndim) if dim not in dims]
        moved = self.mesh.permute([*others, *dims])
        place = tuple((self._coordinate or (0,) * self.ndim)[dim] for dim in others)
        groups = [self._groups[dim] for dim in dims] if self._groups else []
        return DeviceMesh(
            self.device_type, moved[place], mesh_dim_names=names, _rank=self._rank, _groups=groups, _root=root
        )

    def _flatten(self, mesh_dim_name: str | None = None, backend_override: Any = None) -> DeviceMesh:
        """The same ranks along one dim, which the whole mesh then knows by its name."""
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ())
        root = self._get_root_mesh()
        if self.ndim == 1 and self.mesh_dim_names == (name,):
            return self
        if name not in root._flattened:
            made = DeviceMesh(
                self.device_type, self.mesh.reshape(-1), mesh_dim_names=(name,), _rank=self._rank, _root=root
            )
            root._flattened[name] = made
        return root._flattened[name]

    def _unflatten(
        self,
        dim: int | str,
        mesh_sizes: Sequence[int],
        mesh_dim_names: Sequence[str],
        backend_override: dict[str | int, Any] | None = None,
    ) -> DeviceMesh:
        """The same ranks with one dim as several, which have groups of their own.

        - `mesh_sizes`, `mesh_dim_names`: of the new dims, the last one fastest
        - `backend_override`: the backend of a new dim's groups by its name or number; "fake" for groups that are never
          used

        ValueError for a dim that is not there, RuntimeError for sizes that do not give the dim's.

        >>> import rushlight.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> world = dist.init_device_mesh("cpu", (1,), mesh_dim_names=("world",))
        >>> world._unflatten(0, (1, 1), ("dp", "tp"))
        DeviceMesh((dp=1, tp=1), 'cpu', stride=((), ()))
        >>> dist.destroy_process_group()
        """
        at = self._unflattened(dim, mesh_sizes, mesh_dim_names)
        names = self.mesh_dim_names or tuple(f"dim_{k}" for k in range(self.ndim))
        shape = (*self.shape[:at], *mesh_sizes, *self.shape[at + 1 :])
        made = DeviceMesh(
            self.device_type, self.mesh.reshape(shape), mesh_dim_names=(*names[:at], *mesh_dim_names, *names[at + 1 :]),
            _rank=self._rank, _groups=[], _root=self._get_root_mesh(),
        )  # fmt: skip
        if self._groups and made._coordinate is not None:
            asked = backend_override or {}
            made._groups = [
                *self._groups[:at],
                *(made._group_along(at + k, asked.get(name, asked.get(k))) for k, name in enumerate(mesh_dim_names)),
                *self._groups[at + 1 :],
            ]
        return made

    def _unflattened(self, dim: int | str, sizes: Sequence[int], names: Sequence[str]) -> int:
        """The number of the dim that becomes several, checked."""
        if isinstance(dim, str) and dim not in (self.mesh_dim_names or ()):
            raise ValueError(f"dim {dim} specified in `_unflatten` is not in {self.mesh_dim_names}")
        at = self._dim(dim)
        if at >= self.ndim:
            raise ValueError(f"dim {dim} specified in `_unflatten` is out of range {self.ndim}")
        if len(sizes) != len(names):
            raise RuntimeError("mesh_dim_names must have same length as mesh_sizes in _unflatten!")
        if math.prod(sizes) != self.shape[at]:
            raise RuntimeError(f"a dim of {self.shape[at]} ranks cannot become {tuple(sizes)}")
        return at

    @staticmethod
    def _concatenate(device_mesh_list: Sequence[DeviceMesh]) -> DeviceMesh:
        """The mesh with the dims of all of these, which are parts of one that hold this rank.

        RuntimeError for parts of different meshes, or that share more than one rank.
        """
        first, *others = device_mesh_list
        root = first._get_root_mesh()
        if any(other._get_root_mesh() != root for other in others):
            raise RuntimeError("Cannot concatenate DeviceMeshes derived from different device meshs")
        names = tuple(name for mesh in device_mesh_list for name in mesh.mesh_dim_names or ())
        if set(names) <= set(root.mesh_dim_names or ()):
            return root if names == root.mesh_dim_names else root[names]
        # Parts are grids in the order of the whole: a rank's place is the sum of how far each dim moves it.
        place = {rank: k for k, rank in enumerate(root._ranks)}
        moved = [0]
        for mesh in device_mesh_list:
            moved = [far + place[rank] - place[first._rank] for far in moved for rank in mesh._ranks]
        found = [far + place[first._rank] for far in moved]
        if len(set(found)) != len(found) or not 0 <= min(found) <= max(found) < len(place):
            raise RuntimeError(f"Cannot concatenate overlapping meshes: {list(device_mesh_list)}")
        ranks = rushlight.tensor([root._ranks[k] for k in found], dtype=rushlight.int32, device="cpu")
        return DeviceMesh(
            first.device_type, ranks.view([n for mesh in device_mesh_list for n in mesh.shape]), mesh_dim_names=names,
            _rank=first._rank, _groups=[g for mesh in device_mesh_list for g in mesh._groups or ()], _root=root,
        )  # fmt: skip

    @staticmethod
    def from_group(
        group: Any, device_type: str, mesh: Any = None, *, mesh_dim_names: Sequence[str] | None = None
    ) -> DeviceMesh:
        """A mesh over groups that exist: one, or one for each dim of `mesh`."""
        if isinstance(group, dist.ProcessGroup):
            ranks = dist.get_process_group_ranks(group)
            if mesh is not None and list(mesh.tolist() if isinstance(mesh, Tensor) else mesh) != ranks:
                raise ValueError(f"Invalid mesh {mesh} for ProcessGroup with ranks {ranks}")
            return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names, _groups=[group])
        groups = list(group)
        if not groups:
            raise ValueError("Expects at least one ProcessGroup to be passed")
        if len(groups) == 1:
            return DeviceMesh.from_group(groups[0], device_type, mesh, mesh_dim_names=mesh_dim_names)
        if mesh is None:
            raise ValueError("Must pass mesh if passing multiple ProcessGroups")
        made = DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _groups=groups)
        if made.ndim != len(groups):
            raise ValueError(
                f"Expects mesh with ndim equal to number of ProcessGroups but got mesh {mesh} and {len(groups)} ProcessGroups"
            )
        return made

    # ***** as a value *****

    def _key(self) -> tuple[Any, ...]:
        # The rank too: ranks that are threads of one process have parts of their own.
        return self.device_type, self.shape, self._ranks, self.mesh_dim_names, self._rank

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeviceMesh) and self._key() == other._key())

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        names = self.mesh_dim_names
        sizes = ", ".join(f"{names[k]}={n}" if names else str(n) for k, n in enumerate(self.shape))
        if not names and self.ndim == 1:
            sizes += ","
        strides = tuple(_stride(self.mesh, dim) for dim in range(self.ndim))
        return f"DeviceMesh(({sizes}), '{self.device_type}', stride={strides})"

    def __enter__(self) -> DeviceMesh:
        _entered().append(self)
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        _entered().pop()


_LOCAL = threading.local()


def _entered() -> list[DeviceMesh]:
    """The meshes whose `with` blocks this thread is in."""
    found: list[DeviceMesh] | None = getattr(_LOCAL, "meshes", None)
    if found is None:
        found = _LOCAL.meshes = []
    return found


def current_mesh() -> DeviceMesh | None:
    """The mesh of the innermost `with` block; None outside of them."""
    found = _entered()
    return found[-1] if found else None


def _stride(mesh: Tensor, dim: int) -> int | tuple[()]:
    """How far ranks are apart along a dim; nothing where there is one."""
    if mesh.shape[dim] == 1:
        return ()
    first, second = (mesh.select(dim, k).reshape(-1)[0].item() for k in range(2))
    return int(second - first)


def _place_of(index: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The place of a row-major index."""
    place = []
    for size in reversed(shape):
        place.append(index % size)
        index //= size
    return tuple(reversed(place))


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """The ranks 0, 1, ... of the job as a grid, the last dim fastest; begins the default group where there is none.

    RuntimeError for names of another number or that repeat, or a grid that is larger than the job.
    """
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(
                "Each mesh_dim_name must be unique.", f"Found repeated mesh_dim_name in mesh_dim_names {mesh_dim_names}"
            )
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError(
                "mesh_shape and mesh_dim_names should have same length!",
                f"Found len(mesh_dim_names): {len(mesh_dim_names)} and len(mesh_shape):{len(mesh_shape)}.",
            )
    if device_type and not device_type.isalpha():
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. ",
            "If you maintained a 'torch.device' object, it's recommended to pass in 'device.type'.",
        )
    ranks = rushlight.arange(math.prod(mesh_shape), dtype=rushlight.int32, device="cpu").view(tuple(mesh_shape))
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)
