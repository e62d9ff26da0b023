"""Where the tasks of a Slurm step meet, from what `srun` tells each of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["first_host", "meeting_place"]

_FIRST_PORT, _PORTS = 20000, 10000  # below those that systems give out by themselves
_NODES = ("SLURM_STEP_NUM_NODES", "SLURM_NNODES")
_LISTS = ("SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST")


def first_host(nodes: str) -> str:
    """The first name of a list of nodes.

    >>> first_host("tux[007-009,12],other"), first_host("a,b"), first_host("rack[1-2]-node[3,5]")
    ('tux007', 'a', 'rack1-node3')
    """
    first = re.split(r",(?![^\[]*\])", nodes.strip())[0]
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first)


def meeting_place(environment: Mapping[str, str]) -> dict[str, str]:
    """Host and port for those of a step's tasks that were told none: the first node, and a port by the numbers of job
    and step.  Nothing where the process is no task of a step.
    """
    if not environment.get("SLURM_PROCID"):
        return {}
    found = {}
    if not environment.get("MASTER_ADDR"):
        nodes = next((environment[name] for name in _NODES if environment.get(name)), "")
        host = next((first_host(environment[name]) for name in _LISTS if environment.get(name)), "")
        if nodes == "1" or host:
            found["host"] = "localhost" if nodes == "1" else host
    job = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID")
    if job and job.isdigit() and not environment.get("MASTER_PORT"):
        step = environment.get("SLURM_STEP_ID", "0")
        number = int(job) * 16 + (int(step) if step.isdigit() else 0) % 16
        found["port"] = str(_FIRST_PORT + number % _PORTS)
    return found
