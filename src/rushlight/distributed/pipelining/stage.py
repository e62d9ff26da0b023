"""One stage of a pipeline: a module, its forward and backward on micro-batches, and what it exchanges with its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.fsdp import FSDPModule
from rushlight.distributed.pipelining._backward import stage_backward, stage_backward_input
from rushlight.distributed.pipelining.headers import Meta, Spread, joined, local_of, meta_of, packed, settled, unpacked
from rushlight.distributed.tensor import DTensor
from rushlight.nn.parallel import DistributedDataParallel
from rushlight.utils._pytree import tree_flatten, tree_map

__all__ = ["PipelineStage", "build_stage"]

_TAG = 1 << 15  # the tags of pipelines' messages begin here


class PipeliningMetadataError(RuntimeError):
    """Tensors of other shapes or dtypes than a stage was told to expect."""


class _PipelineStageBase:
    """Interface of a stage for schedules."""

    def __init__(
        self,
        submodule: Any,
        stage_index: int,
        num_stages: int,
        device: Any,
        group: Any = None,
        dw_builder: Callable[[], Callable[..., None]] | None = None,
    ) -> None:
        if stage_index >= num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.device, self.group, self.dw_builder = rushlight.device(device), group, dw_builder
        self.group_rank, self.group_size = dist.get_rank(group), dist.get_world_size(group)
        if self.group_size > num_stages:
            raise RuntimeError(
                f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}"
            )
        self._has_backward = False
        self.stage_index_to_group_rank = {k: k % self.group_size for k in range(num_stages)}
        self.expected_inputs: tuple[Meta, ...] | None = None
        self.expected_outputs: tuple[Meta, ...] | None = None
        self._find_mesh: Callable[..., Any] | None = None
        self._meshes: dict[tuple[Any, ...], Any] = {}  # by names and sizes of their dims
        self.clear_runtime_states()

    # ***** where it stands *****

    @property
    def has_backward(self) -> bool:
        """Whether forwards are followed by backwards."""
        return self._has_backward

    @has_backward.setter
    def has_backward(self, has_backward: bool) -> None:
        self._has_backward = has_backward

    @property
    def is_first(self) -> bool:
        """Whether the pipeline begins here."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether the pipeline ends here."""
        return self.stage_index == self.num_stages - 1

    def _is_here(self, stage: int) -> bool:
        return self.stage_index_to_group_rank[stage] == self.group_rank

    def clear_runtime_states(self) -> None:
        """Forget all micro-batches."""
        self.fwd_cache: dict[int, tuple[tuple[Tensor, ...], tuple[Tensor, ...]]] = {}
        self.bwd_cache: dict[int, tuple[Tensor | None, ...]] = {}
        self.output_chunks: list[Any] = []
        self.dw_runner: dict[int, dict[str, Any]] = {}
        self._divided: list[Any] | None = None
        self._inputs: tuple[Meta, ...] | None = None  # of the running step's activations
        self._outputs: tuple[Meta, ...] | None = None
        self._arrived: dict[int, list[Tensor]] = {}
        self._arrived_grads: dict[int, list[Tensor | None]] = {}

    # ***** messages *****

    def _message(self, op: Any, tensor: Tensor, stage: int, back: bool) -> Any:
        """A message between this stage and another: its tag is the later stage's, and the direction."""
        tag = _TAG + 2 * max(stage, self.stage_index) + back
        return dist.P2POp(op, tensor, group=self.group, group_peer=self.stage_index_to_group_rank[stage], tag=tag)

    def _messages(self, op: Any, tensors: Sequence[Tensor], stage: int, back: bool) -> list[Any]:
        return [self._message(op, tensor, stage, back) for tensor in tensors]

    def header_send_ops(self) -> list[Any]:
        """The message that tells the next stage which tensors it gets in this step."""
        assert self._outputs is not None
        return self._messages(dist.isend, [packed(self._outputs)], self.stage_index + 1, False)

    def receive_header(self) -> None:
        """Learn from the stage before which tensors come in this step; waits for it."""
        found = rushlight.zeros_like(packed(()))
        for work in dist.batch_isend_irecv(self._messages(dist.irecv, [found], self.stage_index - 1, False)):
            work.wait()
        self._inputs = unpacked(found)
        self._check("inputs", self.expected_inputs, self._inputs)

    def knows_inputs(self) -> bool:
        """Whether `receive_header` was called in this step."""
        return self._inputs is not None

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[Any]:
        """Receives of a micro-batch's activations; they belong to the stage from then on."""
        if self.is_first or self._is_here(self.stage_index - 1):
            return []
        if self._inputs is None:
            self.receive_header()
        assert self._inputs is not None
        made = [rushlight.empty(m.shape, dtype=m.dtype, device=self.device) for m in self._inputs]
        self._arrived[fwd_chunk_id] = made
        return self._messages(dist.irecv, made, self.stage_index - 1, False)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[Any]:
        """Sends of a micro-batch's outputs to the next stage."""
        if self.is_last or self._is_here(self.stage_index + 1):
            return []
        outputs = [local_of(x) for x in self.fwd_cache[fwd_chunk_id][0]]
        if not self.has_backward:
            del self.fwd_cache[fwd_chunk_id]
        return self._messages(dist.isend, outputs, self.stage_index + 1, False)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[Any]:
        """Receives of the gradients of a micro-batch's outputs."""
        if not self.has_backward or self.is_last or self._is_here(self.stage_index + 1):
            return []
        outputs = self.fwd_cache[bwd_chunk_id][0]
        made: list[Tensor | None] = []
        for x in outputs:  # a gradient's part has the shape of the tensor's own
            shape = x._local_tensor.shape if isinstance(x, DTensor) else x.shape
            made.append(rushlight.empty(shape, dtype=x.dtype, device=self.device) if x.requires_grad else None)
        self._arrived_grads[bwd_chunk_id] = made
        return self._messages(dist.irecv, [g for g in made if g is not None], self.stage_index + 1, True)

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[Any]:
        """Sends of the gradients of a micro-batch's inputs to the stage before: zeros for inputs that had no effect."""
        if not self.has_backward or self.is_first or self._is_here(self.stage_index - 1):
            return []
        return self._messages(dist.isend, self._grads_to_send(bwd_chunk_id), self.stage_index - 1, True)

    def _grads_to_send(self, m: int) -> list[Tensor]:
        assert self._inputs is not None
        grads = self.bwd_cache.pop(m)
        return [
            rushlight.zeros(meta.shape, dtype=meta.dtype, device=self.device)
            if grad is None
            else local_of(_as_input(grad, meta))
            for meta, grad in zip(self._inputs, grads, strict=True)
            if meta.requires_grad
        ]

    def _mesh_of(self, spread: Spread | None) -> Any:
        """The mesh of this stage over which an input lies: `get_mesh`'s, or one of its parameters with the same dims."""
        if spread is None:
            return None
        key = spread.names, spread.sizes
        if key not in self._meshes and self._find_mesh is not None:
            self._meshes[key] = self._find_mesh(spread.names, None)
        if key not in self._meshes:
            for x in (*self.submod.parameters(), *self.submod.buffers()):
                if isinstance(x, DTensor):
                    mesh = x.device_mesh
                    self._meshes.setdefault((mesh.mesh_dim_names or ("",) * mesh.ndim, tuple(mesh.shape)), mesh)
        found = self._meshes.get(key)
        if found is None or tuple(found.shape) != spread.sizes:
            raise PipeliningMetadataError(
                f"[Stage {self.stage_index}] the stage before sends a DTensor{spread}, and no mesh with these dims is known here: give "
                "PipelineStage get_mesh=lambda names, layout: mesh[names]"
            )
        return found

    # ***** neighbours on the same rank *****

    def set_local_fwd_input(self, prev_stage_outputs: Any, mb_index: int) -> None:
        """Take the outputs of the stage before, which is on this rank."""
        outputs = _as_tuple(prev_stage_outputs)
        self._inputs = tuple(meta_of(x) for x in outputs)
        self._arrived[mb_index] = [x.detach() for x in outputs]

    def get_local_bwd_output(self, mb_index: int) -> tuple[Tensor | None, ...]:
        """The gradients of a micro-batch's inputs, for the stage before on this rank."""
        if self.is_first:
            raise AssertionError("can't get bwd output if this stage is first")
        return self.bwd_cache.pop(mb_index)

    def set_local_bwd_input(self, next_stage_bwd_outputs: tuple[Tensor | None, ...], mb_index: int) -> None:
        """Take the gradients of the outputs from the next stage, which is on this rank."""
        if not self.has_backward:
            raise AssertionError("can't set bwd input if this stage doesn't have backward")
        if self.is_last:
            raise AssertionError("can't set bwd input if this stage is last")
        self._arrived_grads[mb_index] = list(next_stage_bwd_outputs)

    # ***** computing *****

    def _ddp(self) -> Any:
        return self.submod if isinstance(self.submod, DistributedDataParallel) else None

    def forward_maybe_with_nosync(self, *args: Any, **kwargs: Any) -> Any:
        """The module's outputs; gradients of micro-batches are added up before they are reduced."""
        ddp = self._ddp()
        if ddp is None or not self.has_backward:
            return self.submod(*args, **kwargs)
        with ddp.no_sync():
            return self.submod(*args, **kwargs)

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> tuple[tuple[Tensor | None, ...], Callable[[], None] | None]:
        """Gradients of the inputs, and for `backward_type` "input" the second half; "weight" runs `bwd_kwargs["second"]`.

        Gradients are reduced over data parallel ranks in the last backward.
        """
        ddp = self._ddp()
        if ddp is not None and backward_type != "input":
            ddp.reducer.sync = last_backward
            if last_backward:
                ddp.reducer.prepare()
                ddp.reducer.arm(list(bwd_kwargs.get("stage_output", ())))
        for part in self._sharded():
            part.set_requires_gradient_sync(last_backward, recurse=False)
        if backward_type == "full":
            return stage_backward(**bwd_kwargs), None
        if backward_type == "input":
            return stage_backward_input(**bwd_kwargs)
        if backward_type == "weight":
            bwd_kwargs["second"]()
            return (), None
        raise RuntimeError(f"Unknown backward type: {backward_type}")

    @property
    def at_once(self) -> bool:
        """Whether a backward is never in two halves: parameters that `fully_shard` divides are given back when a backward
        ends, so the first half computes all.
        """
        return self.dw_builder is None and bool(self._sharded())

    def _sharded(self) -> list[Any]:
        """The parts of the module that are divided by `fully_shard`; found once in a step."""
        if self._divided is None:
            self._divided = [part for part in self.submod.modules() if isinstance(part, FSDPModule)]
        return self._divided

    def forward_one_chunk(
        self,
        fwd_chunk_id: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        save_forward_output: bool = True,
    ) -> Any:
        """Forward of a micro-batch, on `args` at the first stage, else on what has arrived."""
        if self.is_first:
            inputs = tuple(args)
        else:
            assert self._inputs is not None
            arrived = zip(self._arrived.pop(fwd_chunk_id), self._inputs, strict=True)
            inputs = tuple(
                x if isinstance(x, DTensor) else joined(x, meta.spread, self._mesh_of(meta.spread))
                for x, meta in arrived
            )
            if self.has_backward:
                for x, meta in zip(inputs, self._inputs, strict=True):
                    x.requires_grad_(meta.requires_grad)
        try:
            output = self.forward_maybe_with_nosync(*inputs, **(kwargs or {}))
        except Exception as error:
            raise RuntimeError(
                f"[Stage {self.stage_index}] failed to run forward of micro-batch {fwd_chunk_id}: {error}"
            ) from error
        outputs = _as_tuple(output)
        if self.is_last:
            if save_forward_output:
                # The graph belongs to the backward that follows, and is gone when the caller gets the outputs.
                keep = output if self.is_first or not self.has_backward else tree_map(_detached, output)
                self.output_chunks.append(keep)
        else:
            self._keep_to(outputs, fwd_chunk_id)
        if self.has_backward or not self.is_last:
            # What the module was given is no leaf of ours at the first stage: backward goes through to its own leaves.
            leaves = () if self.is_first else inputs
            self.fwd_cache[fwd_chunk_id] = outputs, leaves
        return output

    def _keep_to(self, outputs: tuple[Any, ...], m: int) -> None:
        """Check that outputs are what the next stage was told to expect."""
        for x in outputs:
            if not isinstance(x, Tensor):
                raise TypeError(
                    f"[Stage {self.stage_index}] a stage that is not the last returns a tensor or a tuple of tensors, got {type(x).__name__}"
                )
        metas = tuple(meta_of(x) for x in outputs)
        if self._outputs is None:
            self._outputs = metas
            self._check("outputs", self.expected_outputs, metas)
        self._check(f"outputs of micro-batch {m}", self._outputs, metas)

    def _check(self, what: str, expected: tuple[Meta, ...] | None, found: tuple[Meta, ...]) -> None:
        if expected is not None and [_known(m) for m in expected] != [_known(m) for m in found]:
            raise PipeliningMetadataError(
                f"[Stage {self.stage_index}] {what}: {', '.join(map(str, found))}, expected {', '.join(map(str, expected))};"
                " all micro-batches of a step must give the same shapes and dtypes"
            )

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Tensor | None = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """Backward of a micro-batch, from `loss` at the last stage, else from the gradients that have arrived.

        Without `full_backward` the gradients of parameters are left to `backward_weight_one_chunk`.
        """
        outputs, inputs = self.fwd_cache.pop(bwd_chunk_id)
        if self.is_last:
            roots, grads = (loss,) if loss is not None else tuple(x for x in outputs if isinstance(x, Tensor)), None
        else:
            roots = outputs
            grads = [_as_output(g, x) for g, x in zip(self._arrived_grads.pop(bwd_chunk_id), outputs, strict=True)]
        call = {"stage_output": roots, "output_grads": grads, "input_values": inputs}
        if self.dw_builder is not None:
            found, _ = self.backward_maybe_with_nosync("full", call, last_backward)
            runner: Callable[..., None] | None = self.dw_builder()
            if full_backward:
                assert runner is not None
                runner()
        elif full_backward:
            found, runner = self.backward_maybe_with_nosync("full", call, last_backward)
        else:
            found, runner = self.backward_maybe_with_nosync("input", call)
        if not full_backward:
            assert runner is not None
            self.dw_runner[bwd_chunk_id] = {"second": runner, "stage_output": roots}
        if not self.is_first:
            self.bwd_cache[bwd_chunk_id] = found

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """The second half of a micro-batch's backward: the gradients of the parameters.

        RuntimeError unless the first half has run.
        """
        runner = self.dw_runner.pop(bwd_chunk_id, None)
        if runner is None:
            raise AssertionError(
                f"[Stage {self.stage_index}] no first half of a backward of micro-batch {bwd_chunk_id} has run:"
                " backward_weight_one_chunk follows backward_one_chunk(full_backward=False)"
            )
        if self.dw_builder is not None:
            runner["second"]()
        else:
            self.backward_maybe_with_nosync("weight", runner, last_backward)

    def scale_grads(self, grad_scale_factor: int) -> None:
        """Divide the gradients of the parameters."""
        if grad_scale_factor != 1:
            for parameter in self.submod.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(grad_scale_factor)

    def perform_reduce_grad(self, grad_scale_factor: int) -> None:
        """After the last backward of a step: gradients, reduced by then, are divided."""
        self.scale_grads(grad_scale_factor)


def _known(meta: Meta) -> tuple[Any, ...]:
    """Metadata that must be the same for all micro-batches."""
    return meta.shape, meta.dtype, meta.spread


def _as_input(grad: Tensor, meta: Meta) -> Tensor:
    """The gradient of an input, as the stage before expects it."""
    if meta.spread is None or not isinstance(grad, DTensor):
        return grad
    placed = settled(meta.spread.placements)
    return grad if grad.placements == placed else grad.redistribute(placements=placed)


def _as_output(grad: Tensor | None, x: Tensor) -> Tensor | None:
    """The gradient of an output, of which a part has come."""
    if grad is None or isinstance(grad, DTensor) or not isinstance(x, DTensor):
        return grad
    return DTensor._wrapped(grad, x.device_mesh, settled(x.placements), x.shape, x.stride())


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, Tensor) else x


def _as_tuple(output: Any) -> tuple[Any, ...]:
    """A module's output as the tuple of its tensors."""
    if isinstance(output, (tuple, list)):
        return tuple(output)
    return tuple(tree_flatten(output)[0]) if isinstance(output, dict) else (output,)


def _metas(tensors: Any) -> tuple[Meta, ...] | None:
    if tensors is None:
        return None
    return tuple(meta_of(x) for x in ((tensors,) if isinstance(tensors, Tensor) else tensors))


class PipelineStage(_PipelineStageBase):
    """A stage of a pipeline whose stages form a line: each takes what the one before returns.

    - `submodule`: the stage's module; it returns a tensor or a tuple of tensors
    - `stage_index`, `num_stages`: its place, and how many there are
    - `device`: where its activations lie
    - `input_args`, `output_args`: examples of its inputs and outputs for one micro-batch; they are only checked, since
      stages tell each other in each step what comes
    - `group`: the ranks of the pipeline, by default all; `num_stages` is a multiple of their number
    - `get_mesh`: where stages exchange DTensors, gives this stage's mesh for the names of its dims (and None); without it
      the meshes of its parameters are searched
    - `dw_builder`: for modules that compute the gradients of their parameters by themselves: after a backward it gives
      the function that does it

        >>> import rushlight as torch
        >>> import rushlight.distributed as dist
        >>> from rushlight.distributed.pipelining import PipelineStage, ScheduleGPipe
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> stage = PipelineStage(torch.nn.Linear(4, 2), 0, 1, torch.device("cpu"))
        >>> schedule = ScheduleGPipe(stage, 2, loss_fn=torch.nn.MSELoss())
        >>> losses = []
        >>> schedule.step(torch.ones(6, 4), target=torch.zeros(6, 2), losses=losses).shape, len(losses)
        (torch.Size([6, 2]), 2)
        >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        submodule: Any,
        stage_index: int,
        num_stages: int,
        device: Any,
        input_args: Any = None,
        output_args: Any = None,
        output_grads: Any = None,
        input_grads: Any = None,
        group: Any = None,
        dw_builder: Callable[[], Callable[..., None]] | None = None,
        get_mesh: Any = None,
    ) -> None:
        super().__init__(submodule, stage_index, num_stages, device, group, dw_builder)
        self.expected_inputs, self.expected_outputs = _metas(input_args), _metas(output_args)
        self._find_mesh = get_mesh


class _PipelineStage(_PipelineStageBase):
    """A stage of a `Pipe`."""

    def __init__(self, stage_module: Any, stage_index: int, pipe_info: Any, device: Any, group: Any = None) -> None:
        super().__init__(stage_module.to(device), stage_index, pipe_info.num_stages, device, group)
        self.pipe_info = pipe_info


def build_stage(stage_module: Any, stage_index: int, pipe_info: Any, device: Any, group: Any = None) -> _PipelineStage:
    """A stage from the module of one, which may have been changed since (by DDP, `torch.compile`), and `Pipe.info()`."""
    return _PipelineStage(stage_module, stage_index, pipe_info, device, group)
