"""The loss of connectionist temporal classification: all alignments of a short sequence with a long one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.operators import casts, function_of, only_tensors, refuse_dtype
from rushlight._interface.tensors import as_ints

__all__ = ["ctc_loss"]

# Stands for log(0), as in the operator: sums of a few of them stay finite, so that no gradient becomes NaN.
NEVER = -1e30


@casts("single", None)
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the log-probability that `log_probs` spells `targets`, over all ways of repeating labels and adding blanks.

    `log_probs` is (time, batch, classes), or (time, classes) for one sequence, and comes from `log_softmax`; `targets`
    is (batch, length), or all targets one after another. "mean" divides each loss by the length of its target first.  A
    target that does not fit has an infinite loss, whose gradient is NaN over the steps of its sequence; `zero_infinity`
    makes both zero.

    Example: `F.ctc_loss(torch.randn(5, 1, 3).log_softmax(2), torch.tensor([[1, 2]]), (5,), (2,))`
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    only_tensors("ctc_loss", log_probs=log_probs, targets=targets)
    refuse_dtype("ctc_loss", "buich", log_probs._spec.dtype)
    single = log_probs.dim() == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
    if targets.is_complex() or targets.is_floating_point():
        targets = targets.long()
    if isinstance(input_lengths, Tensor) is not isinstance(target_lengths, Tensor):
        raise TypeError(
            "ctc_loss() received an invalid combination of arguments: input_lengths and target_lengths must both be tensors, or both be tuples"
        )
    steps, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    spans, sizes = _lengths(input_lengths, "input_lengths", batch), _lengths(target_lengths, "target_lengths", batch)
    if max(spans) > steps:
        raise RuntimeError(f"Expected input_lengths to have value at most {steps}, but got value {max(spans)}")
    losses = _losses(log_probs, _split(targets, sizes), spans, blank, zero_infinity)
    if reduction == "mean":
        return (losses / losses.new_tensor([max(size, 1) for size in sizes])).mean()
    if reduction == "sum":
        return losses.sum()
    return losses[0] if single else losses


def _lengths(given: Any, name: str, batch: int) -> list[int]:
    if isinstance(given, rushlight.Tensor):
        if not given.dtype.is_integer:
            raise RuntimeError(f"{name} must be integral")
        values = given.reshape(-1).tolist()
    else:
        values = list(as_ints("ctc_loss", name, given))
    if len(values) != batch:
        raise RuntimeError(f"{name} must be of size batch_size")
    if min(values) < 0:
        raise RuntimeError(f"Expected {name} to have value at least 0, but got value {min(values)}")
    return values


def _split(targets: Any, sizes: list[int]) -> list[list[int]]:
    """The labels of each sequence."""
    if targets.dim() == 2:
        if targets.size(0) != len(sizes) or targets.size(1) < max(sizes):
            raise RuntimeError(
                f"Expected targets to have size at least {max(sizes)} at dimension 1 and {len(sizes)} at dimension 0, "
                f"but got sizes {list(targets.shape)}"
            )
        return [row[:size] for row, size in zip(targets.tolist(), sizes, strict=True)]
    labels = iter(targets.reshape(-1).tolist())
    if targets.numel() != sum(sizes):
        raise RuntimeError(f"Expected targets of {sum(sizes)} labels in all, but got {targets.numel()}")
    return [[next(labels) for _ in range(size)] for size in sizes]


def _losses(log_probs: Any, targets: list[list[int]], spans: list[int], blank: int, zero_infinity: bool) -> Any:
    if any(not 0 <= label < log_probs.size(2) for target in targets for label in target):
        raise IndexError(f"ctc_loss(): labels must be between 0 and {log_probs.size(2) - 1}")
    # Every label with blanks around it; a step may stay, go on by one, or skip a blank between different labels.
    width = 2 * max(map(len, targets)) + 1
    paths = [[blank] * width for _ in targets]
    for path, target in zip(paths, targets, strict=True):
        path[1 : 2 * len(target) : 2] = target
    skips = [[s > 1 and s % 2 == 1 and path[s] != path[s - 2] for s in range(width)] for path in paths]
    device = log_probs.device
    scores = (
        log_probs.gather(2, rushlight.tensor(paths, device=device).unsqueeze(0).expand(log_probs.size(0), -1, -1))
        .clamp(min=NEVER)
        .unbind(0)
    )
    barred = ~rushlight.tensor(skips, device=device)
    # Before the first step: one place left of the path, from which a path begins at its first blank or label.
    seen = [log_probs.new_tensor([[0.0 if not target else NEVER] + [NEVER] * (width - 1) for target in targets])]
    if scores:
        seen.append(rushlight.nn.functional.pad(scores[0][:, :2], (0, max(width - 2, 0)), value=NEVER))
    step = function_of("ctc_step")
    for score in scores[1 : max(spans)]:
        seen.append(step(seen[-1], score, barred))
    # a path ends at its last label or at the blank behind it
    lasts = rushlight.tensor([[max(2 * len(target) - 1, 0), 2 * len(target)] for target in targets], device=device)
    doubled = rushlight.tensor([[not target, False] for target in targets], device=device)
    found, order = [], []
    for span in sorted(set(spans)):
        rows = [n for n, other in enumerate(spans) if other == span]
        at = seen[span] if len(rows) == len(spans) else seen[span][rows]
        places, twice = (lasts, doubled) if len(rows) == len(spans) else (lasts[rows], doubled[rows])
        found.append(at.gather(1, places).masked_fill(twice, NEVER).logsumexp(1))
        order += rows
    total = found[0] if len(found) == 1 else rushlight.cat(found)[[order.index(n) for n in range(len(order))]]
    # PyTorch's gradient is the one behind a log_softmax, which has exp(log_probs) added; the value stays as it is.
    counted = rushlight.arange(log_probs.size(0), device=device).unsqueeze(1) < rushlight.tensor(spans, device=device)
    mass = log_probs.exp().masked_fill(~counted.unsqueeze(2), 0.0).sum((0, 2))
    misfit = total < NEVER / 10
    losses = (mass - mass.detach() - total).masked_fill(misfit, 0.0)
    # -log(0) is infinite, and 0 * mass makes its derivative infinity times zero; -log(1) is nothing.
    return losses if zero_infinity else losses - rushlight.where(misfit, mass * 0.0, 1.0).log()
