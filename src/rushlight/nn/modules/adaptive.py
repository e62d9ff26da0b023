"""`AdaptiveLogSoftmaxWithLoss`: softmax over many classes, of which few are frequent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import rushlight
from rushlight.nn import functional as F
from rushlight.nn.modules.container import ModuleList, Sequential
from rushlight.nn.modules.linear import Linear
from rushlight.nn.modules.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    output: Any
    loss: Any


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log softmax in two steps (Grave et al., Efficient softmax approximation for GPUs, 2017): a head for the frequent
    classes and one entry for each cluster of rare ones, whose classes are told apart by a smaller projection.

    Classes are sorted by frequency, the most frequent first. `cutoffs` are the first classes of the clusters; cluster i
    projects to `in_features // div_value ** (i + 1)` features. ValueError for cutoffs that do not rise between 1 and
    n_classes - 1.

    Example: `nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10])(torch.randn(4, 8), torch.tensor([1, 6, 15, 19])).loss`
    """

    in_features: int
    n_classes: int
    cutoffs: list[int]
    div_value: float
    head_bias: bool

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        found = list(cutoffs)
        if not found:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if found != sorted(set(found)) or found[0] <= 0 or found[-1] > n_classes - 1 or any(int(c) != c for c in found):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is "
                "between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*found, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(found)
        self.head_size = self.shortlist_size + self.n_clusters
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **made)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(self._ranges()):
            hidden = int(in_features // (div_value ** (i + 1)))
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, **made), Linear(hidden, high - low, bias=False, **made)
                )
            )

    def _ranges(self) -> list[tuple[int, int]]:
        """First and last + 1 class of each cluster."""
        return list(zip(self.cutoffs[:-1], self.cutoffs[1:], strict=True))

    def reset_parameters(self) -> None:
        """Initialise head and clusters anew."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Any, target_: Any) -> _ASMoutput:
        """(log probability of each target's class, mean negative log-likelihood) for `input_` (N, in_features) or
        (in_features).
        """
        if target_.dim() == 1:
            if input_.shape[:1] != target_.shape:
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
            if input_.dim() != 2:
                raise RuntimeError(
                    f"1D target tensor expects 2D input tensors, but found inputs with size {tuple(input_.shape)}"
                )
        elif target_.dim() == 0:
            if input_.dim() != 1:
                raise RuntimeError(
                    f"0D target tensor expects 1D input tensors, but found inputs with size {tuple(input_.shape)}"
                )
        else:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        batched = target_.dim() > 0
        x, target = (input_, target_) if batched else (input_.unsqueeze(0), target_.unsqueeze(0))
        self._check_range(target)
        output = self._of_targets(x, target)
        return _ASMoutput((output if batched else output.squeeze(0)), (-output).mean())

    def _check_range(self, target: Any) -> None:
        low, high = (int(target.min()), int(target.max())) if target.numel() else (0, 0)
        if low < 0 or high >= self.n_classes:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range [{low}, {high}] were found. "
            )

    def _of_targets(self, x: Any, target: Any) -> Any:
        """Log probability of each row's own class: only the clusters that occur are computed, on the rows that need
        them.
        """
        place, output = target, x.new_zeros(target.shape)
        for i, (low, high) in enumerate(self._ranges()):
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            inner = F.log_softmax(self.tail[i](x.index_select(0, rows)), dim=1)
            own = inner.gather(1, (target.index_select(0, rows) - low).unsqueeze(1)).squeeze(1)
            output = output.index_copy(0, rows, own.to(output.dtype))
            place = place.index_fill(0, rows, self.shortlist_size + i)
        head = F.log_softmax(self.head(x), dim=1)
        return output + head.gather(1, place.unsqueeze(1)).squeeze(1)

    def _full(self, input: Any, head: Any) -> Any:
        """All log probabilities, given the head's output."""
        outer = F.log_softmax(head, dim=1)
        parts = [outer[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            at = self.shortlist_size + i
            parts.append(F.log_softmax(cluster(input), dim=1) + outer[:, at : at + 1])
        return rushlight.cat(parts, 1)

    def log_prob(self, input: Any) -> Any:
        """Log probabilities (N, n_classes) of all classes."""
        return self._full(input, self.head(input))

    def predict(self, input: Any) -> Any:
        """The likeliest class of each row; clusters are computed only for the rows whose head points at one."""
        head = self.head(input)
        best = head.argmax(dim=1)
        rows = (best >= self.shortlist_size).nonzero().squeeze(1)
        if rows.numel() == 0:
            return best
        chosen = self._full(input.index_select(0, rows), head.index_select(0, rows)).argmax(dim=1)
        return best.index_copy(0, rows, chosen)
