"""Launchers: agents that start workers, and what they report."""

from __future__ import annotations

from rushlight._distributed.launch.agent import Agent, Job

__all__ = [
    "Agent",  # runs a job on this machine
    "Job",  # what it is to do
]
