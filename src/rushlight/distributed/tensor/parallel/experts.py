"""Expert parallel: the experts of a mixture are divided among processes, and tokens travel to theirs and back."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.nn.functional import all_to_all_single
from rushlight.distributed.tensor._modules import distribute_module
from rushlight.distributed.tensor.parallel.style import ParallelStyle, divide_parameter
from rushlight.distributed.tensor.placement_types import Shard
from rushlight.nn import Module

__all__ = ["ExpertParallel"]


class ExpertParallel(ParallelStyle):
    """A module of experts of which each process has an equal part, in the order of the processes.

    The module's parameters have the experts along dim 0.  Its forward takes `tokens` (N, D), grouped by expert, and
    `counts` (experts,), how many each gets, and returns a row for each token.  Divided, it is called with the same
    arguments: `tokens` and `counts` of all experts.  Tokens are sent to the processes of their experts, computed there
    together with those of all processes, and sent back; gradients go the same ways.  Inside, the parameters are
    `DTensor`s: forward takes `parameter.to_local()`, and sees the counts of its own experts.

    Gradients of experts are sums over the losses of all processes.  Where these are means over batches of equal size,
    divide them by the number of processes, as other parameters' gradients are averaged.

    ValueError for experts that do not divide equally, or counts that do not add up.  PyTorch has no such class; that of
    torchtitan has the same interface.

    >>> import rushlight as torch
    >>> import rushlight.distributed as dist
    >>> from rushlight.distributed.tensor.parallel import ExpertParallel, parallelize_module
    >>> class Experts(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = torch.nn.Parameter(torch.ones(2, 4, 4))
    ...     def forward(self, tokens, counts):
    ...         weights = getattr(self.weight, "to_local", lambda: self.weight)()
    ...         return torch.cat([x @ w for x, w in zip(tokens.split(counts.tolist()), weights)])
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> experts = parallelize_module(Experts(), dist.init_device_mesh("cpu", (1,)), ExpertParallel())
    >>> experts(torch.ones(3, 4), torch.tensor([1, 2])).shape
    torch.Size([3, 4])
    >>> dist.destroy_process_group()
    """

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        ways: list[_Way] = []

        def divide(name: str, part: Module, mesh: DeviceMesh) -> None:
            for key, parameter in list(part._parameters.items()):
                if parameter is not None and parameter.shape[0] % mesh.size():
                    raise ValueError(
                        f"ExpertParallel: {parameter.shape[0]} experts ({key}) do not divide equally among {mesh.size()} processes"
                    )
                divide_parameter(part, key, mesh, Shard(0), self.src_data_rank)

        def dispatch(part: Module, inputs: Any, mesh: DeviceMesh) -> Any:
            tokens, counts, *others = inputs
            ways.append(_Way(counts, mesh.get_group()))
            return (*ways[-1].there(tokens), *others)

        def combine(part: Module, output: Any, mesh: DeviceMesh) -> Any:
            return ways.pop().back(output)

        return distribute_module(module, device_mesh, divide, dispatch, combine)


class _Way:
    """How the tokens of one call travel."""

    def __init__(self, counts: Tensor, group: Any) -> None:
        self.group, self.size = group, dist.get_world_size(group)
        if counts.ndim != 1 or counts.shape[0] % self.size:
            raise ValueError(
                f"ExpertParallel: counts has shape {list(counts.shape)}, expected one count for each of the experts of {self.size} processes"
            )
        sent = counts.detach().to(rushlight.int64).reshape(self.size, -1)
        got = rushlight.empty_like(sent)
        dist.all_to_all_single(got, sent.contiguous(), group=group)
        self.sent: list[int] = sent.sum(1).tolist()
        self.got: list[int] = got.sum(1).tolist()
        self.counts = got.sum(0).to(counts.dtype)
        self.order = self._by_expert(got)

    def _by_expert(self, got: Tensor) -> Tensor:
        """The rows that arrive are grouped by process, then by expert: their places grouped by expert, then process."""
        size, experts = got.shape
        expert = rushlight.arange(experts).repeat(size).repeat_interleave(got.reshape(-1))
        return expert.argsort(stable=True)

    def there(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens of this process's experts, and their counts."""
        if tokens.shape[0] != sum(self.sent):
            raise ValueError(f"ExpertParallel: {tokens.shape[0]} tokens, but counts add up to {sum(self.sent)}")
        made = tokens.new_empty((sum(self.got), *tokens.shape[1:]))
        arrived = all_to_all_single(made, tokens, self.got, self.sent, self.group)
        return arrived[self.order], self.counts

    def back(self, results: Tensor) -> Tensor:
        """A row for each token that this process has sent."""
        if results.shape[0] != sum(self.got):
            raise ValueError(
                f"ExpertParallel: the experts got {sum(self.got)} tokens and return {results.shape[0]} rows"
            )
        restored = results[self.order.argsort()]
        made = results.new_empty((sum(self.sent), *results.shape[1:]))
        return all_to_all_single(made, restored, self.sent, self.got, self.group)
