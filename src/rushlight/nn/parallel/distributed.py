"""One module in several processes: `DistributedDataParallel`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import rushlight
import rushlight.distributed as dist
from rushlight import Tensor, no_grad
from rushlight._interface.base import trace_marks, tree_map, warn_user
from rushlight.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, compressed, fp16_compress_hook
from rushlight.distributed.algorithms.join import Join, Joinable, JoinHook
from rushlight.func import functional_call
from rushlight.nn.modules.module import Module
from rushlight.nn.parallel.buckets import GradBucket
from rushlight.nn.parallel.delayed import Delayed
from rushlight.nn.parallel.reducer import Reducer

__all__ = ["DistributedDataParallel"]

MEGABYTE = FIRST_BUCKET = 1 << 20
BUCKET_MB = 25


@dataclass
class _MixedPrecision:
    """Dtypes of `DistributedDataParallel(mixed_precision=...)`.

    Forward and backward compute with copies of the parameters in `param_dtype`; gradients travel in `reduce_dtype`
    (`param_dtype` where none is named), and arrive in the dtype of the parameters; buffers become `buffer_dtype`.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None


class DistributedDataParallel(Module, Joinable):
    """A module whose gradients are averaged over the processes of a group, while backward computes.

    Every process makes the same module and wraps it; parameters and buffers of the group's first process are sent to the
    others.  Each process then works on its own part of the data: after `backward()` all have the same gradients, the means
    of theirs, so that equal optimizers keep equal parameters.

    `bucket_cap_mb`: gradients are reduced in buckets of about so many megabytes (25); `bucket_cap_mb_list` says it for each
    bucket, and for those behind the last.
    `find_unused_parameters`: forward looks for parameters that the outputs do not depend on, which get no gradient.
    `gradient_as_bucket_view`: gradients lie in the buckets, which saves their memory and a copy.
    `static_graph`: all calls use the same parameters; allows checkpoints that compute parts again.
    `mixed_precision`: a `_MixedPrecision` of dtypes to compute and to reduce in.
    `forward_sync_buffers`: buffers of the first process are sent to the others before each forward call (`broadcast_buffers` is
    its older name, and says it for the first time, too).
    `skip_all_reduce_unused_params`: buckets of parameters that no process uses are not sent; what is unused must be so on all
    processes at all times.
    `delay_all_reduce_named_params`: parameters, with their names, whose gradients are averaged together when the gradient of
    `param_to_hook_all_reduce` comes.
    `batched_grad_copy`: as always, the gradients of a bucket are copied together.

    RuntimeError for a module without parameters that want gradients, or where the parameters of the processes differ; and
    at the next forward call, by their names, if parameters got no gradient.

        >>> import rushlight as torch
        >>> import rushlight.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
        >>> model(torch.ones(4, 3)).sum().backward()
        >>> list(model.state_dict()), model.module.bias.grad
        (['module.weight', 'module.bias'], tensor([4., 4.]))
        >>> dist.destroy_process_group()
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0, broadcast_buffers: bool | None = None,
        init_sync: bool = True, process_group: Any = None, bucket_cap_mb: float | None = None, find_unused_parameters: bool = False,
        check_reduction: bool = False, gradient_as_bucket_view: bool = False, static_graph: bool = False,
        delay_all_reduce_named_params: Any = None, param_to_hook_all_reduce: Any = None, mixed_precision: Any = None,
        device_mesh: Any = None, skip_all_reduce_unused_params: bool = False, bucket_cap_mb_list: Sequence[float] | None = None,
        batched_grad_copy: bool = False, forward_sync_buffers: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if (delay_all_reduce_named_params is None) != (param_to_hook_all_reduce is None):
            raise ValueError(
                "delay_all_reduce_named_params and param_to_hook_all_reduce need to be set at the same time."
            )
        if device_mesh is not None:
            process_group = _group_of(device_mesh, process_group)
        self.process_group = dist._get_default_group() if process_group is None else process_group
        delayed = dict(delay_all_reduce_named_params or ())
        ignored = {*getattr(module, "_ddp_params_and_buffers_to_ignore", ()), *delayed}
        named = [(name, p) for name, p in module.named_parameters() if name not in ignored]
        wanted = [(name, p) for name, p in named if p.requires_grad]
        if not wanted and not delayed:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient."
            )
        if any(hasattr(p, "_in_backward_optimizers") for _, p in wanted):
            raise NotImplementedError(
                "DistributedDataParallel over optimizers in backward is not built: they would step before gradients are averaged"
            )
        devices = {p.device for _, p in named} or {p.device for p in delayed.values()}
        alone = len(device_ids or ()) == len(devices) == 1 and next(iter(devices)).index is not None
        if (device_ids or output_device is not None) and not alone:
            raise ValueError(
                "DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device GPU modules or CPU "
                f"modules, but got device_ids {device_ids}, output_device {output_device}, and module parameters {devices}."
            )
        self.module, self.dim = module, dim
        self.device = next(iter(devices))
        self.device_ids = _indices(device_ids or (), self.device) if alone else None
        self.output_device = self.device_ids[0] if self.device_ids else None
        self.device_type = self.device.type
        self.forward_sync_buffers, first_buffers = _buffer_settings(broadcast_buffers, forward_sync_buffers)
        self.find_unused_parameters, self.skip_all_reduce_unused_params = (
            find_unused_parameters,
            skip_all_reduce_unused_params,
        )
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.parameters_to_ignore = ignored
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._join_config: Any = None
        self._divides_by_all = True
        caps = _caps_of(bucket_cap_mb, bucket_cap_mb_list)
        self.bucket_bytes_cap = max(caps)
        self.bucket_bytes_cap_list = list(caps) if bucket_cap_mb_list else []
        if init_sync:
            self._check_parameters(named)
            self._send_state(named, first_buffers)
        settings = {
            "find_unused": find_unused_parameters, "as_views": gradient_as_bucket_view, "static": static_graph,
            "skips_unused": skip_all_reduce_unused_params,
        }  # fmt: skip
        self.mixed_precision = mixed_precision
        names = [name for name, _ in wanted]
        self.reducer = Reducer([p for _, p in wanted], names, self.process_group, caps, **settings)
        self.delayed = Delayed([*delayed.values()], param_to_hook_all_reduce, self.process_group) if delayed else None
        self._set_precision()
        compiled = getattr(module, "dynamo_ctx", None)
        if compiled is not None:
            self._before_compiling(compiled)

    def _before_compiling(self, context: Any) -> None:
        """Let compiled programs end where the parameters of another bucket begin, where that is asked for.

        Backward then runs program by program, and the gradients of a bucket travel while the next program computes.
        """
        if not getattr(context, "ends_at_buckets", False):
            return
        buckets = {id(p): number for p, (number, _) in zip(self.reducer.parameters, self.reducer.places, strict=True)}
        last: int | None = None
        for module in self.module.modules():
            own = [buckets[id(p)] for p in module.parameters(recurse=False) if id(p) in buckets]
            if not own:
                continue
            if last is not None and own[0] != last and _at_bucket not in module._forward_pre_hooks.values():
                module.register_forward_pre_hook(_at_bucket)
            last = own[-1]

    # ***** states of all processes *****

    def _check_parameters(self, named: list[tuple[str, Tensor]]) -> None:
        """RuntimeError that names the first parameter which differs from the first process's."""
        own = [(name, tuple(p.shape), str(p.dtype)) for name, p in named]
        first = [own]
        dist.broadcast_object_list(first, group=self.process_group, group_src=0)
        if own == first[0]:
            differs: Any = None
        else:
            differs = next(((a, b) for a, b in zip(own, first[0], strict=False) if a != b), (len(own), len(first[0])))
        found: list[Any] = [None] * self.process_group.size()
        dist.all_gather_object(found, differs, group=self.process_group)
        for rank, what in zip(dist.get_process_group_ranks(self.process_group), found, strict=True):
            if what is not None:
                raise RuntimeError(
                    f"DDP expects same model across all ranks, but rank {rank} has {what[0]} where the first rank has {what[1]} (name, shape and "
                    "dtype of a parameter, or their number)"
                )

    @property
    def broadcast_buffers(self) -> bool:
        """The older name of `forward_sync_buffers`."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    def will_sync_module_buffers(self) -> bool:
        """Whether the next forward call sends buffers."""
        return self.require_forward_param_sync and self.forward_sync_buffers and any(True for _ in self._sent_buffers())

    def _sent_buffers(self) -> Iterator[Tensor]:
        """The buffers that processes share."""
        return (x for name, x in self.module.named_buffers() if name not in self.parameters_to_ignore)

    def _send_state(self, named: list[tuple[str, Tensor]], buffers: bool) -> None:
        with no_grad():
            for _, parameter in named:
                dist.broadcast(parameter.detach(), group=self.process_group, group_src=0)
        if buffers:
            self._send_buffers()

    def _send_buffers(self, source: int = 0) -> None:
        works = [
            dist.broadcast(buffer.detach(), group=self.process_group, group_src=source, async_op=True)
            for buffer in self._sent_buffers()
        ]
        for work in works:
            work.wait()

    # ***** calls *****

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The result of `module`."""
        reduces = rushlight.is_grad_enabled() and self.require_backward_grad_sync
        self.reducer.sync = self.require_backward_grad_sync
        joining = self._join_config is not None and self._join_config.enable
        if joining and rushlight.is_grad_enabled():
            self._begin_among_joined()
        if reduces:
            self.reducer.prepare()
        if self.broadcast_buffers and self.require_forward_param_sync and self.process_group.size() > 1:
            self._send_buffers(self._common_rank(True) if joining else 0)
        if joining and rushlight.is_grad_enabled():
            self._share_whether(reduces)
        if self.device_ids:
            inputs, kwargs = tree_map(self._moved, (inputs, kwargs))
        outputs = self._computed(inputs, kwargs)
        if reduces:
            self.reducer.arm(outputs)
        if self.delayed is not None and rushlight.is_grad_enabled():
            self.delayed.prepare()
        self.require_forward_param_sync = reduces or not rushlight.is_grad_enabled()
        return outputs

    def _moved(self, x: Any) -> Any:
        """An input on the module's device, where `device_ids` names it."""
        return x.to(self.device) if isinstance(x, Tensor) else x

    def _computed(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The module's outputs, in mixed precision by copies of its parameters."""
        dtype = None if self.mixed_precision is None else self.mixed_precision.param_dtype
        if dtype is None:
            return self.module(*inputs, **kwargs)

        def lower(x: Any) -> Any:
            return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x

        copies = {name: lower(parameter) for name, parameter in self.module.named_parameters()}
        return functional_call(self.module, copies, tree_map(lower, inputs), tree_map(lower, kwargs))

    def _set_precision(self) -> None:
        """Buffers in their dtype, and a hook that reduces gradients in theirs."""
        asked = self.mixed_precision
        if asked is None:
            return
        if asked.buffer_dtype is not None:
            for buffer in self.module.buffers():
                if buffer.is_floating_point():
                    buffer.data = buffer.to(asked.buffer_dtype)
        dtype = asked.reduce_dtype or asked.param_dtype
        if dtype is not None:
            self.reducer.hook = lambda bucket: compressed(self.process_group, bucket, dtype)

    # ***** uneven inputs *****

    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False
    ) -> Join:
        """A context for loops whose number of batches differs among the processes.

        A process without more batches answers the reductions of the others with zeros; in the end all get the parameters
        of one that came last.  Gradients are divided by the number of processes, or of those that still have batches.
        """
        return Join(
            [self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook of a process without more batches."""
        if self.reducer.skips_unused or self.delayed is not None:
            raise NotImplementedError(
                "join with skip_all_reduce_unused_params or delay_all_reduce_named_params: a process without batches does not know what others send"
            )
        self._divides_by_all = kwargs.get("divide_by_initial_world_size", True)
        return _AnswerReductions(self)

    @property
    def join_device(self) -> Any:
        """The device of the parameters."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """The group that averages gradients."""
        return self.process_group

    def _begin_among_joined(self) -> None:
        work = Join.notify_join_context(self)
        if work is not None:
            work.wait()
            active = int(work.result()[0].item())
            self.reducer.divisor = None if self._divides_by_all else active

    def _share_whether(self, reduces: bool) -> bool:
        """Whether the processes that still have batches reduce."""
        flag = rushlight.tensor([reduces], device=self.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX, group=self.process_group)
        return bool(flag.item())

    def _common_rank(self, here: bool) -> int:
        """The highest place in the group of a process that says it may be the source."""
        place = rushlight.tensor([self.process_group.rank() if here else -1], device=self.device)
        dist.all_reduce(place, dist.ReduceOp.MAX, group=self.process_group)
        return int(place.item())

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Forward calls inside add gradients up on each process; the first backward after it reduces the sums."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: object, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Reduce buckets by a function: `hook(state, bucket)` gives a future of the averaged buffer.

        `torch.distributed.algorithms.ddp_comm_hooks` has some.  RuntimeError where there is one already.
        """
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self.reducer.hook = lambda bucket: hook(state, bucket)

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        """`allreduce_hook` or `fp16_compress_hook`, by `dist.BuiltinCommHookType`."""
        halves = comm_hook_type is dist.BuiltinCommHookType.FP16_COMPRESS
        self.register_comm_hook(self.process_group, fp16_compress_hook if halves else allreduce_hook)

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """Facts about the buckets."""
        sizes = [bucket.flat.numel() * bucket.flat.element_size() for bucket in self.reducer.buckets]
        return {
            "world_size": self.process_group.size(), "rank": self.process_group.rank(), "backend_name": self.process_group.name(),
            "bucket_cap_bytes": self.bucket_bytes_cap, "bucket_sizes": ", ".join(map(str, sizes)), "has_rebuilt_buckets": self.reducer.rebuilt,
            "find_unused_parameters": self.find_unused_parameters, "gradient_as_bucket_view": self.gradient_as_bucket_view,
            "static_graph": self.static_graph, "module_name": type(self.module).__name__,
        }  # fmt: skip

    def _set_static_graph(self) -> None:
        """As `static_graph=True`."""
        self.static_graph = self.reducer.static = True

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, params_and_buffers_to_ignore: Any) -> None:
        """Leave parameters and buffers, by their names, to each process."""
        module._ddp_params_and_buffers_to_ignore = params_and_buffers_to_ignore

    def __getstate__(self) -> dict[str, Any]:
        raise RuntimeError("a DistributedDataParallel module cannot be pickled: pickle `.module`, or its state_dict()")


def _at_bucket(module: Module, args: Any) -> None:
    """The hook of a module whose parameters are in another bucket than those before it."""
    _end_program()


@trace_marks.runs_apart("a bucket of DistributedDataParallel begins")
def _end_program() -> None:
    """Nothing: a trace ends before it, and the next one begins behind it."""


class _AnswerReductions(JoinHook):
    """Join hook of a process without more batches, called for every batch of the others."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.model, self.synced = model, True
        model.reducer.armed = False

    def main_hook(self) -> None:
        model = self.model
        if self.synced:
            model.reducer.rebuild_once()
        if model.broadcast_buffers and self.synced and model.process_group.size() > 1:
            model._send_buffers(model._common_rank(False))
        self.synced = model._share_whether(False)
        if self.synced:
            model.reducer.answer()

    def post_hook(self, is_last_joiner: bool) -> None:
        model = self.model
        source = model._common_rank(is_last_joiner)
        with no_grad():
            for parameter in model.module.parameters():
                dist.broadcast(parameter.detach(), group=model.process_group, group_src=source)
        model._send_buffers(source)
        model.reducer.divisor = None


def _indices(device_ids: Sequence[Any], device: Any) -> list[Any]:
    """The numbers of devices that `device_ids` names; ValueError for another device than the module's."""
    found = [one if isinstance(one, int) else rushlight.device(one).index for one in device_ids]
    if found != [device.index]:
        raise ValueError(
            f"DistributedDataParallel device_ids must name the device of the module, {device}, but got {device_ids}"
        )
    return found


def _group_of(device_mesh: Any, process_group: Any) -> Any:
    """The group of a mesh of one axis."""
    if process_group is not None:
        raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
    if device_mesh.ndim != 1:
        raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
    return device_mesh.get_group(mesh_dim=0)


def _caps_of(cap: float | None, listed: Sequence[float] | None) -> list[int]:
    """Bytes at which buckets are full: the first one is small by default, so that its reduction begins early."""
    if listed:
        return [int(MEGABYTE * each) for each in listed]
    return [FIRST_BUCKET, MEGABYTE * BUCKET_MB] if cap is None else [int(MEGABYTE * cap)]


def _buffer_settings(broadcast: bool | None, forward: bool | None) -> tuple[bool, bool]:
    """Whether buffers are sent before forward calls, and at first."""
    if broadcast is not None:
        warn_user(
            "Both `broadcast_buffers` and `forward_sync_buffers` were specified: the first one, which is deprecated, is ignored."
            if forward is not None
            else "`broadcast_buffers` is deprecated, use `forward_sync_buffers`, which leaves it to `init_sync` whether buffers are sent at first.",
            FutureWarning,
        )
    if forward is not None:
        return forward, True
    return (True, True) if broadcast is None else (broadcast, broadcast)
