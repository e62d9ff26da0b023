"""Schedules for the tests; the same lines run with rushlight and with PyTorch.

`python tests/optim/schedules.py` writes PyTorch's runs to `schedules.json`.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

SCHEDULES: dict[str, Any] = {
    "StepLR": lambda l, o: l.StepLR(o, 3),
    "MultiStepLR": lambda l, o: l.MultiStepLR(o, [3, 5, 5]),
    "ExponentialLR": lambda l, o: l.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda l, o: l.CosineAnnealingLR(o, 7, 0.01),
    "LambdaLR": lambda l, o: l.LambdaLR(o, lambda e: 0.9**e),
    "MultiplicativeLR": lambda l, o: l.MultiplicativeLR(o, [lambda e: 0.9, lambda e: 0.8]),
    "LinearLR": lambda l, o: l.LinearLR(o),
    "ConstantLR": lambda l, o: l.ConstantLR(o),
    "PolynomialLR": lambda l, o: l.PolynomialLR(o, 6, 2.0),
    "CosineAnnealingWarmRestarts": lambda l, o: l.CosineAnnealingWarmRestarts(o, 3, 2),
    "OneCycleLR": lambda l, o: l.OneCycleLR(o, 1.0, 30),
    "OneCycleLR three phases": lambda l, o: l.OneCycleLR(
        o, [1.0, 2.0], epochs=5, steps_per_epoch=6, three_phase=True, anneal_strategy="linear"
    ),
    "CyclicLR": lambda l, o: l.CyclicLR(o, 0.1, [0.5, 1.0], step_size_up=4, step_size_down=3),
    "CyclicLR halving": lambda l, o: l.CyclicLR(o, 0.1, 1.0, step_size_up=3, mode="triangular2"),
    "CyclicLR exp": lambda l, o: l.CyclicLR(
        o, 0.1, 1.0, step_size_up=3, mode="exp_range", gamma=0.9, cycle_momentum=False
    ),
    "SequentialLR": lambda l, o: l.SequentialLR(o, [l.LinearLR(o, total_iters=4), l.CosineAnnealingLR(o, 10)], [4]),
    "ChainedScheduler": lambda l, o: l.ChainedScheduler([l.LinearLR(o, total_iters=4), l.ExponentialLR(o, 0.9)]),
    "ReduceLROnPlateau": lambda l, o: l.ReduceLROnPlateau(o, patience=2, cooldown=1),
    "ReduceLROnPlateau max": lambda l, o: l.ReduceLROnPlateau(o, "max", patience=2, threshold_mode="abs"),
}


def run(t: Any, name: str, steps: int = 25) -> list[list[float]]:
    """The rates and the momentum after each step."""
    a, b = t.nn.Parameter(t.ones(1)), t.nn.Parameter(t.ones(1))
    groups = [{"params": [a], "lr": 0.1}, {"params": [b], "lr": 0.3}]
    optimizer = t.optim.SGD(groups, lr=0.1, momentum=0.9)
    schedule = SCHEDULES[name](t.optim.lr_scheduler, optimizer)
    found = []
    for i in range(steps):
        optimizer.step()
        if "Plateau" in name:
            schedule.step(abs(10 - i) / 3)
        else:
            schedule.step()
        found.append([*map(float, schedule.get_last_lr()), optimizer.param_groups[0]["momentum"]])
    return found


if __name__ == "__main__":
    import torch

    path = pathlib.Path(__file__).with_name("schedules.json")
    path.write_text(
        "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(run(torch, name))}" for name in SCHEDULES) + "\n}\n"
    )
