"""The planners that `save` and `load` use: all that is in a state dict, each thing once.

Names of nested dicts are joined by dots.  What several processes have is written by one of them: by the one with the
least to write.
"""

from __future__ import annotations

import dataclasses
import io
import logging
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.distributed.checkpoint._nested_dict import FLATTEN_MAPPING, flatten_state_dict, set_element
from rushlight.distributed.checkpoint.metadata import (
    STATE_DICT_TYPE,
    STORAGE_TYPES,
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from rushlight.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from rushlight.distributed.checkpoint.planner_helpers import (
    _compare_save_plans,
    _create_read_items,
    _create_write_items,
    _init_state_dict,
    find_state_dict_object,
    is_elsewhere,
)
from rushlight.distributed.checkpoint.resharding import check_boxes

__all__ = [
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "create_default_global_load_plan",
    "create_default_global_save_plan",
    "create_default_local_load_plan",
    "create_default_local_save_plan",
]

_log = logging.getLogger(__name__)
_LONGEST_REPORT = 500


class DefaultSavePlanner(SavePlanner):
    """Saves a state dict.

    `flatten_state_dict` names the values in nested dicts by their paths.  `dedup_save_to_lowest_rank` lets the lowest rank
    write what several have.  `enable_plan_caching` sends plans only where they differ from those of the last save.
    """

    mappings: FLATTEN_MAPPING

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        if dedup_replicated_tensors is not None:
            _log.warning(
                "DefaultSavePlanner's `dedup_replicated_tensors` argument is being deprecated, and no longer has any effect. Please remove this "
                "argument from your call."
            )
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.mappings = {}
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        self._cached_plans_key = type(self).__name__
        self._enable_plan_caching = enable_plan_caching
        self._pending: SavePlan | None = None

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = state_dict
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> SavePlan:
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        if self.flatten_state_dict:
            plan = dataclasses.replace(plan, planner_data=self.mappings)
        self.plan = plan
        if self._enable_plan_caching:
            last = SavePlanner._cached_save_plan.get(self._cached_plans_key)
            if last is not None and _compare_save_plans(plan, last):
                return SavePlan([], usable=False)
            self._pending = plan
        return plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        if self._enable_plan_caching:
            sent, self.global_plan, self.metadata = self._changed_plans(all_plans)
            return sent, self.metadata
        self.global_plan, self.metadata = self._planned(all_plans)
        return self.global_plan, self.metadata

    def _planned(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans = self._dedup_save_plans(all_plans)
        plans, metadata = create_default_global_save_plan(plans)
        if self.flatten_state_dict:
            paths: FLATTEN_MAPPING = {}
            for plan in reversed(plans):
                paths.update(plan.planner_data or {})
            metadata = dataclasses.replace(metadata, planner_data=paths)
        errors = _validate_global_plan(plans, metadata)
        if errors:
            report = "; ".join(errors)
            if len(report) > _LONGEST_REPORT:
                report = report[:_LONGEST_REPORT] + "... (truncated)"
            raise ValueError(f"Failed to validate global plan: {report}")
        return plans, metadata

    def _dedup_save_plans(self, all_plans: list[SavePlan]) -> list[SavePlan]:
        return _without_repeats(all_plans, self.dedup_save_to_lowest_rank)

    def _changed_plans(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], list[SavePlan], Metadata]:
        """The plan to send to each process, all plans, and the metadata."""
        key, unchanged = self._cached_plans_key, SavePlan([], usable=False)
        before = SavePlanner._cached_global_plan.get(key)
        locals_before = SavePlanner._cached_all_plans.get(key, all_plans)
        if before is not None and not any(plan.usable for plan in all_plans):
            return [unchanged] * len(all_plans), before, SavePlanner._cached_metadata[key]
        merged = [new if new.usable else old for new, old in zip(all_plans, locals_before, strict=True)]
        plans, metadata = self._planned(merged)
        sent = [
            unchanged if before is not None and _compare_save_plans(plan, before[k]) else plan
            for k, plan in enumerate(plans)
        ]
        SavePlanner._cached_all_plans[key] = merged
        SavePlanner._cached_global_plan[key] = plans
        SavePlanner._cached_metadata[key] = metadata
        return sent, plans, metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        key = self._cached_plans_key
        if self._enable_plan_caching:
            if new_plan.usable:
                SavePlanner._cached_final_save_plan[key] = new_plan
            # Where the storage notes something in a plan, it does so in every save.
            kept = SavePlanner._cached_final_save_plan[key]
            new_plan = kept if new_plan.usable else dataclasses.replace(kept, storage_data=new_plan.storage_data)
            if self._pending is not None:  # kept only now: the coordinator has accepted it
                SavePlanner._cached_save_plan[key], self._pending = self._pending, None
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The object of a key; a place to change in planners of one's own."""
        return find_state_dict_object(self.state_dict, index)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """The written form of an object: a tensor, or the bytes of what is none."""
        if write_item.type != WriteItemType.BYTE_IO:
            return object
        out = io.BytesIO()
        rushlight.save(object, out)
        return out


def _without_repeats(all_plans: list[SavePlan], to_lowest: bool) -> list[SavePlan]:
    """Plans in which every key is once: in the one that has the fewest bytes so far, or in the first."""
    holders: dict[MetadataIndex, list[int]] = {}
    items: dict[MetadataIndex, WriteItem] = {}
    for number, plan in enumerate(all_plans):
        for item in plan.items:
            if number not in holders.setdefault(item.index, []):
                holders[item.index].append(number)
            items[item.index] = item
    sizes, chosen = [0] * len(all_plans), {}
    for index, numbers in holders.items():
        chosen[index] = numbers[0] if to_lowest else min(numbers, key=lambda number: sizes[number])
        sizes[chosen[index]] += items[index].tensor_storage_size() or 1
    return [
        dataclasses.replace(plan, items=[item for item in plan.items if chosen[item.index] == number])
        for number, plan in enumerate(all_plans)
    ]


class DefaultLoadPlanner(LoadPlanner):
    """Fills a state dict.  Tensors are filled in place, other objects replaced.

    With `allow_partial_load` names that the checkpoint lacks are left as they are; else they are RuntimeErrors.
    Objects that are no tensors are read as `torch.load` does by default: no code of the checkpoint runs, and classes of
    one's own must be allowed by `torch.serialization.add_safe_globals`.
    """

    original_state_dict: STATE_DICT_TYPE
    mappings: FLATTEN_MAPPING

    def __init__(
        self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.original_state_dict = {}
        self.mappings = {}
        self.allow_partial_load = allow_partial_load

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        _init_state_dict(state_dict)
        self.original_state_dict = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = state_dict
        self.metadata = metadata
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> LoadPlan:
        if self.metadata is None:
            raise AssertionError("self.metadata is not None")
        if self.flatten_state_dict:
            # PyTorch up to 2.3 kept dicts without tensors whole.
            absent = self.metadata.state_dict_metadata.keys() - self.state_dict.keys()
            if absent:
                older, paths = flatten_state_dict(self.original_state_dict, into_mappings=False)
                if absent & older.keys():
                    self.state_dict, self.mappings = older, paths
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        return new_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        name, found = read_item.dest_index.fqn, rushlight.load(value)
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[name], found)
        else:
            self.state_dict[name] = found

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Nothing: `resolve_tensor` gave a view, which was filled."""

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """The tensor of a key; a place to change in planners of one's own."""
        return find_state_dict_object(self.state_dict, index)

    def transform_tensor(self, read_item: ReadItem, tensor: Tensor) -> Tensor:
        """The part of a tensor that an item fills."""
        return narrowed(tensor.detach(), read_item.dest_offsets, read_item.lengths)


def narrowed(tensor: Tensor, offsets: Any, lengths: Any) -> Tensor:
    """A box of a tensor, as a view."""
    for dim, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        if length < tensor.shape[dim]:
            tensor = tensor.narrow(dim, offset, length)
    return tensor


def paths_of(metadata: Metadata) -> FLATTEN_MAPPING:
    """The paths that a planner noted; those of one's own may have noted something else."""
    return metadata.planner_data if isinstance(metadata.planner_data, dict) else {}


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Fills an empty dict with all of a checkpoint, or with what `keys` name: whole names, or the first parts of paths."""

    def __init__(self, keys: set[str] | None = None, *args: Any, **kwargs: Any) -> None:
        self.keys = keys
        super().__init__(*args, **kwargs)

    def _should_include_key(self, key: str, metadata: Metadata) -> bool:
        if self.keys is None or key in self.keys:
            return True
        path = paths_of(metadata).get(key, ())
        return any(".".join(map(str, path[:k])) in self.keys for k in range(1, len(path) + 1))

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        if state_dict:
            raise AssertionError("not state_dict")
        if metadata is None:
            raise AssertionError("metadata is not None")
        paths = paths_of(metadata)
        for name, held in metadata.state_dict_metadata.items():
            if not self._should_include_key(name, metadata):
                continue
            value: Any = held
            if isinstance(held, TensorStorageMetadata):
                value = rushlight.empty(held.size, dtype=held.properties.dtype)
            set_element(state_dict, paths.get(name, (name,)), value)
        super().set_up_planner(state_dict, metadata, is_coordinator)


def create_default_local_save_plan(state_dict: dict[str, Any], is_coordinator: bool) -> SavePlan:
    """All that this process has; the coordinator decides later who writes what several have."""
    return SavePlan(
        [item for name, obj in state_dict.items() if not is_elsewhere(obj) for item in _create_write_items(name, obj)]
    )


def create_default_global_save_plan(
    all_plans: list[SavePlan], rewrite_index_hints: bool = True
) -> tuple[list[SavePlan], Metadata]:
    """The plans with the places of boxes in the metadata noted, and the metadata."""
    found: dict[str, STORAGE_TYPES] = {}
    plans = []
    for plan in all_plans:
        items = []
        for item in plan.items:
            name = item.index.fqn
            if item.type != WriteItemType.SHARD and name in found:
                raise AssertionError(f"{name!r} is written twice")
            if item.type == WriteItemType.BYTE_IO:
                found[name] = BytesStorageMetadata()
                items.append(item)
                continue
            data = item.tensor_data
            if data is None:
                raise AssertionError("item.tensor_data is not None")
            held = found.setdefault(name, TensorStorageMetadata(data.properties, data.size, []))
            if not isinstance(held, TensorStorageMetadata):
                raise AssertionError(f"{name!r} is a tensor on one process and something else on another")
            if rewrite_index_hints:
                item = dataclasses.replace(item, index=MetadataIndex(name, item.index.offset, len(held.chunks)))
            items.append(item)
            held.chunks.append(data.chunk)
        plans.append(dataclasses.replace(plan, items=items))
    return plans, Metadata(found)


def _validate_global_plan(global_plan: list[SavePlan], metadata: Metadata) -> list[str]:
    """Errors in the boxes of all tensors."""
    errors: list[str] = []
    for name, held in metadata.state_dict_metadata.items():
        if isinstance(held, TensorStorageMetadata):
            errors += check_boxes(name, held.size, held.chunks, whole=len(global_plan) > 1)
    for text in errors:
        _log.warning("%s", text)
    return errors


def create_default_local_load_plan(state_dict: dict[str, Any], metadata: Metadata, strict: bool = True) -> LoadPlan:
    """The plan that fills a state dict.

    RuntimeError for a name that the checkpoint lacks (with `strict`), ValueError for a tensor of another shape.
    """
    items = []
    for name, obj in state_dict.items():
        held = metadata.state_dict_metadata.get(name)
        if held is None:
            if strict:
                raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
            continue
        if isinstance(held, TensorStorageMetadata) and isinstance(obj, Tensor) and held.size != obj.size():
            raise ValueError(f"Size mismatch between saved {held.size} and current: {obj.size()} for {name}")
        if not is_elsewhere(obj):
            items += _create_read_items(name, held, obj)
    return LoadPlan(items)


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    """Every process reads what it planned."""
    return all_plans
