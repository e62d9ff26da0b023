"""`torch.distributed.launcher`: start the processes of a job from a program or a notebook."""

from __future__ import annotations

from rushlight.distributed.launcher.api import LaunchConfig as LaunchConfig
from rushlight.distributed.launcher.api import elastic_launch as elastic_launch
from rushlight.distributed.launcher.api import launch_agent as launch_agent

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]
