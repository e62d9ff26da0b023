"""Launchers: agents that start workers, and what they report."""

from __future__ import annotations

from rushlight._distributed.launch.agent import Agent, Job
from rushlight._distributed.launch.failures import ERROR_FILE
from rushlight._distributed.launch.rounds import Meeting
from rushlight._distributed.launch.workers import Start, Streams, Workers

__all__ = [
    "Agent",  # runs a job on this machine
    "Job",  # what it is to do
    "ERROR_FILE",  # the variable that names a worker's error file
    "Meeting",  # where agents of several machines meet
    "Start",  # how one worker starts
    "Streams",  # where its output goes
    "Workers",  # processes that are started and watched together
]
