"""Ways to divide a module: which of its parameters each process has a part of, and how its inputs and outputs lie.

Megatron's pair (Shoeybi et al., 2019) is `ColwiseParallel` followed by `RowwiseParallel`: the first divides what comes
out, the second what goes in, so that one reduction is left for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

from rushlight import Tensor
from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.tensor._api import DTensor, distribute_tensor
from rushlight.distributed.tensor._modules import distribute_module
from rushlight.distributed.tensor.placement_types import Placement, Replicate, Shard
from rushlight.nn import Embedding, Linear, Module, Parameter

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput", "RowwiseParallel",
    "SequenceParallel", "divide_parameter",
]  # fmt: skip

Layouts = Placement | tuple[Placement | None, ...] | None


class ParallelStyle(ABC):
    """How a module is divided; `src_data_rank` says whose parameters count (None: everybody's own)."""

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """The module, divided."""


def _spread(value: Any, mesh: DeviceMesh, layout: Placement | None, wanted: Placement | None) -> Any:
    """A tensor that lies as `layout` along the mesh, as one that lies as `wanted`."""
    if layout is None or not isinstance(value, Tensor):
        return value
    if not isinstance(value, DTensor):
        value = DTensor.from_local(value, mesh, (layout,), run_check=False)
    if wanted is not None and value.placements != (wanted,):
        value = value.redistribute(placements=(wanted,))
    return value


def _finished(value: Any, layout: Placement, local: bool) -> Any:
    if value.placements != (layout,):
        value = value.redistribute(placements=(layout,))
    return value.to_local() if local else value


def divide_parameter(module: Module, name: str, mesh: DeviceMesh, placement: Placement, source: int | None) -> None:
    """Let each process keep its part of a parameter, in place."""
    parameter = module._parameters.get(name)
    if parameter is not None and not isinstance(parameter, DTensor):
        placed = distribute_tensor(parameter.detach(), mesh, [placement], src_data_rank=source)
        module.register_parameter(name, Parameter(placed, parameter.requires_grad))


class _Products(ParallelStyle):
    """The common part of `ColwiseParallel` and `RowwiseParallel`."""

    def __init__(self, given: Placement, wanted: Placement, result: Placement, use_local_output: bool) -> None:
        self.input_layouts, self.desired_input_layouts, self.output_layouts = (given,), (wanted,), (result,)
        self.use_local_output = use_local_output

    def _places(self, module: Module) -> dict[str, Placement]:
        raise NotImplementedError

    def _wants(self, module: Module) -> Placement:
        return self.desired_input_layouts[0]

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        if not isinstance(module, (Linear, Embedding)):
            raise NotImplementedError(
                f"{type(self).__name__} currently only support nn.Linear and nn.Embedding, got {type(module).__name__}!"
            )
        places, wanted = self._places(module), self._wants(module)

        def divide(name: str, part: Module, mesh: DeviceMesh) -> None:
            for key, placement in places.items():
                divide_parameter(part, key, mesh, placement, self.src_data_rank)

        def prepare(part: Module, inputs: Sequence[Any], mesh: DeviceMesh) -> Any:
            return (_spread(inputs[0], mesh, self.input_layouts[0], wanted), *inputs[1:])

        def finish(part: Module, outputs: Any, mesh: DeviceMesh) -> Any:
            return _finished(outputs, self.output_layouts[0], self.use_local_output)

        return distribute_module(module, device_mesh, divide, prepare, finish)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(input_layouts={self.input_layouts}, output_layouts={self.output_layouts},"
            f" use_local_output={self.use_local_output})"
        )


class ColwiseParallel(_Products):
    """A linear layer whose output features are divided, or an embedding whose columns are.

    By default takes a replicated input and gives local tensors that are parts of the last dim.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(input_layouts or Replicate(), Replicate(), output_layouts or Shard(-1), use_local_output)

    def _places(self, module: Module) -> dict[str, Placement]:
        return {"weight": Shard(1)} if isinstance(module, Embedding) else {"weight": Shard(0), "bias": Shard(0)}


class RowwiseParallel(_Products):
    """A linear layer whose input features are divided, or an embedding whose rows are.

    By default takes parts of the last dim and gives replicated local tensors.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(input_layouts or Shard(-1), Shard(-1), output_layouts or Replicate(), use_local_output)

    def _places(self, module: Module) -> dict[str, Placement]:
        return {"weight": Shard(0)} if isinstance(module, Embedding) else {"weight": Shard(1), "bias": Replicate()}

    def _wants(self, module: Module) -> Placement:
        return Replicate() if isinstance(module, Embedding) else Shard(-1)


class SequenceParallel(ParallelStyle):
    """A module with replicated parameters (norms, dropout) on inputs that are divided along the sequence dim."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        layout = self.sequence_sharding[0]

        def divide(name: str, part: Module, mesh: DeviceMesh) -> None:
            for key in list(part._parameters):
                divide_parameter(part, key, mesh, Replicate(), None)

        def prepare(part: Module, inputs: Sequence[Any], mesh: DeviceMesh) -> Any:
            if not isinstance(inputs[0], Tensor):
                raise ValueError(f"expecting input of {part} to be a torch.Tensor or DTensor, but got {inputs[0]}")
            return (_spread(inputs[0], mesh, layout, layout), *inputs[1:])

        def finish(part: Module, outputs: Any, mesh: DeviceMesh) -> Any:
            return outputs.to_local() if self.use_local_output else outputs

        return distribute_module(module, device_mesh, divide, prepare, finish)

    def __repr__(self) -> str:
        return (
            f"SequenceParallel(sequence_dim={self.sequence_sharding[0].dim}, use_local_output={self.use_local_output})"
        )


def _tuple(layouts: Any) -> tuple[Any, ...]:
    return layouts if isinstance(layouts, tuple) else (layouts,)


class PrepareModuleInput(ParallelStyle):
    """Inputs of a module that lie as `input_layouts` become tensors that lie as `desired_input_layouts`; None leaves one."""

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = None if input_layouts is None else _tuple(input_layouts)
        self.desired_input_layouts = None if desired_input_layouts is None else _tuple(desired_input_layouts)
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        if self.input_layouts is not None:
            assert self.desired_input_layouts is not None, "desired module inputs should not be None!"
            assert len(self.input_layouts) == len(self.desired_input_layouts), (
                "input_layouts and desired_input_layouts should have same length!"
            )
        assert len(self.input_kwarg_layouts) == len(self.desired_input_kwarg_layouts), (
            "input_kwarg_layouts and desired_input_kwarg_layouts should have same length!"
        )

    def _one(self, value: Any, mesh: DeviceMesh, layout: Placement | None, wanted: Placement | None) -> Any:
        value = _spread(value, mesh, layout, wanted)
        return value.to_local() if self.use_local_output and isinstance(value, DTensor) else value

    def _prepare(self, mesh: DeviceMesh, module: Module, inputs: Any, kwargs: dict[str, Any]) -> Any:
        if self.input_layouts is not None:
            if len(inputs) != len(self.input_layouts):
                raise ValueError("module inputs and input_layouts should have same length!")
            assert self.desired_input_layouts is not None
            inputs = tuple(
                self._one(x, mesh, a, b)
                for x, a, b in zip(inputs, self.input_layouts, self.desired_input_layouts, strict=True)
            )
        for name, layout in self.input_kwarg_layouts.items():
            if name in kwargs:
                kwargs[name] = self._one(kwargs[name], mesh, layout, self.desired_input_kwarg_layouts.get(name))
        return inputs, kwargs

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        module.register_forward_pre_hook(partial(self._prepare, device_mesh), with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Outputs of a module that lie as `output_layouts` become ones that lie as `desired_output_layouts`; None leaves one."""

    def __init__(self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True) -> None:
        self.output_layouts, self.desired_output_layouts = _tuple(output_layouts), _tuple(desired_output_layouts)
        self.use_local_output = use_local_output
        assert len(self.output_layouts) == len(self.desired_output_layouts), (
            "output_layouts and desired_output_layouts should have same length!"
        )

    def _finish(self, mesh: DeviceMesh, module: Module, inputs: Any, outputs: Any) -> Any:
        given = outputs if isinstance(outputs, tuple) else (outputs,)
        if len(given) != len(self.output_layouts):
            raise ValueError("module outputs and output_layouts should have same length!")
        made = []
        for x, layout, wanted in zip(given, self.output_layouts, self.desired_output_layouts, strict=True):
            x = _spread(x, mesh, layout, wanted)
            made.append(x.to_local() if self.use_local_output and isinstance(x, DTensor) else x)
        return tuple(made) if isinstance(outputs, tuple) else made[0]

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        module.register_forward_hook(partial(self._finish, device_mesh))
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` of one module."""

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: Any,
        desired_output_layouts: Any,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)
