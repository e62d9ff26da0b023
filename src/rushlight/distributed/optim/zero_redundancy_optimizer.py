"""`ZeroRedundancyOptimizer`: every process keeps the optimizer's state of a part of the parameters (ZeRO, stage 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
import rushlight.distributed as dist
from rushlight import Tensor, no_grad
from rushlight.distributed.algorithms.join import Join, Joinable, JoinHook
from rushlight.optim import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class _Steps(JoinHook):
    """Join hook of a process without more input: steps for its part of the parameters."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self.optimizer = optimizer

    def main_hook(self) -> None:
        self.optimizer.step()


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimizer whose state is divided among the processes of a group.

    Each process updates its part of the parameters by an `optimizer_class(**defaults)`, and sends it to the others: they
    need equal gradients, as `DistributedDataParallel` gives.  The parts have about equal numbers of elements.
    `consolidate_state_dict(to)` brings all state to one process, whose `state_dict()` then is that of one optimizer.

    Example: `ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)`
    """

    def __init__(
        self, params: Any, optimizer_class: type[Optimizer], process_group: Any = None, parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False, **defaults: Any,
    ) -> None:  # fmt: skip
        if overlap_with_ddp:
            raise NotImplementedError("rushlight has no ZeroRedundancyOptimizer(overlap_with_ddp=True) yet")
        self.process_group = dist._get_default_group() if process_group is None else process_group
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._optimizer_class, self._defaults = optimizer_class, defaults
        self._ready = False
        super().__init__(params, dict(defaults))
        self._ready = True
        self._gathered: list[Any] | None = None
        self._divide()

    def _divide(self) -> None:
        """Give each parameter, the largest first, to the process that has the fewest elements."""
        sizes = [0] * self.world_size
        self._owner: dict[int, int] = {}
        for group in self.param_groups:
            for parameter in sorted(group["params"], key=lambda p: -p.numel()):
                owner = sizes.index(min(sizes))
                self._owner[id(parameter)] = owner
                sizes[owner] += parameter.numel()
        own = [
            {
                **{k: v for k, v in group.items() if k != "params"},
                "params": [p for p in group["params"] if self._owner[id(p)] == self.rank],
            }
            for group in self.param_groups
        ]
        empty = not any(group["params"] for group in own)
        if empty:  # optimizers refuse an empty list
            own[0] = {**own[0], "params": [rushlight.zeros(0, requires_grad=True)]}
        self.optim = self._optimizer_class(own, **self._defaults)
        for ours, theirs in zip(self.param_groups, self.optim.param_groups, strict=True):
            for key, value in theirs.items():
                if key != "params":
                    ours.setdefault(key, value)

    def _parts(self) -> list[list[Tensor]]:
        """The parameters of each process, in one order for all."""
        parts: list[list[Tensor]] = [[] for _ in range(self.world_size)]
        for group in self.param_groups:
            for parameter in group["params"]:
                parts[self._owner[id(parameter)]].append(parameter)
        return parts

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook of a process without more input in `Join`: it steps as well, since it has a part of the state.

        Name the model before the optimizer: `Join([model, optimizer])`.
        """
        return _Steps(self)

    @property
    def join_device(self) -> Any:
        """The device of the parameters."""
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Any:
        """The group that exchanges them."""
        return self.process_group

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Update this process's part, and exchange the parts; the loss where there is a closure."""
        Join.notify_join_context(self)
        for ours, theirs in zip(self.param_groups, self.optim.param_groups, strict=True):
            theirs.update({key: value for key, value in ours.items() if key != "params"})  # learning rates that changed
        loss = self.optim.step(**kwargs) if closure is None else self.optim.step(closure=closure, **kwargs)
        for ours, theirs in zip(self.param_groups, self.optim.param_groups, strict=True):
            ours.update({key: value for key, value in theirs.items() if key != "params"})
        self._exchange()
        return loss

    def _exchange(self) -> None:
        works = []
        with no_grad():
            for rank, part in enumerate(self._parts()):
                works += [
                    dist.broadcast(parameter.detach(), group=self.process_group, group_src=rank, async_op=True)
                    for parameter in part
                ]
        for work in works:
            work.wait()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """More parameters; the parts of those before stay as they are."""
        super().add_param_group(param_group)
        if not self._ready:
            return
        sizes = [sum(p.numel() for p in part) for part in self._parts_before()]
        group = self.param_groups[-1]
        for parameter in sorted(group["params"], key=lambda p: -p.numel()):
            owner = sizes.index(min(sizes))
            self._owner[id(parameter)] = owner
            sizes[owner] += parameter.numel()
        own = [p for p in group["params"] if self._owner[id(p)] == self.rank]
        self.optim.add_param_group({**{k: v for k, v in group.items() if k != "params"}, "params": own})

    def _parts_before(self) -> list[list[Tensor]]:
        parts: list[list[Tensor]] = [[] for _ in range(self.world_size)]
        for group in self.param_groups[:-1]:
            for parameter in group["params"]:
                parts[self._owner[id(parameter)]].append(parameter)
        return parts

    # ***** states *****

    def _indices(self) -> dict[int, int]:
        """The number of each parameter, as in the state of one optimizer."""
        return {id(p): k for k, p in enumerate(p for group in self.param_groups for p in group["params"])}

    def _own_state(self) -> dict[int, Any]:
        numbers = self._indices()
        return {numbers[id(p)]: state for p, state in self.optim.state.items() if id(p) in numbers}

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the state of all processes to rank `to` of the group; all processes call it."""
        found: list[Any] | None = [None] * self.world_size if self.rank == to else None
        dist.gather_object(self._own_state(), found, group=self.process_group, group_dst=to)
        self._gathered = found

    def state_dict(self) -> dict[str, Any]:
        """The state as that of one optimizer; RuntimeError on a process to which it was not brought."""
        if self._gathered is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to save the global state."
            )
        numbers = self._indices()
        groups = [{**group, "params": [numbers[id(p)] for p in group["params"]]} for group in self.param_groups]
        state = {number: one for part in self._gathered for number, one in part.items()}
        return {"state": dict(sorted(state.items())), "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of one optimizer: each process keeps its part."""
        numbers = self._indices()
        own_numbers = [[numbers.get(id(p), -1) for p in group["params"]] for group in self.optim.param_groups]
        places: dict[int, int] = {}
        for row in own_numbers:
            for number in row:
                places[number] = len(places)
        groups = [
            {**{k: v for k, v in saved.items() if k != "params"}, "params": [places[number] for number in row]}
            for saved, row in zip(state_dict["param_groups"], own_numbers, strict=True)
        ]
        state = {places[number]: one for number, one in state_dict["state"].items() if number in places}
        self.optim.load_state_dict({"state": state, "param_groups": groups})
        for ours, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            ours.update({key: value for key, value in saved.items() if key != "params"})
        self._gathered = None
