"""What `srun` does for the tasks of a step, on this machine alone: their variables, their output, their exit status.

    python srun.py TASKS NODES COMMAND ...

Names and values are those of Slurm 23's manual ("OUTPUT ENVIRONMENT VARIABLES"); tasks are dealt out to nodes in blocks.
"""

from __future__ import annotations

import os
import subprocess
import sys


def variables(task: int, tasks: int, nodes: int, job: int = 4242) -> dict[str, str]:
    """What one task finds in its environment."""
    each = -(-tasks // nodes)
    node, counts = task // each, [min(each, tasks - each * k) for k in range(nodes)]
    names = f"n[1-{nodes}]" if nodes > 1 else "n1"
    step = {
        "NODELIST": names,
        "NUM_NODES": nodes,
        "NUM_TASKS": tasks,
        "TASKS_PER_NODE": ",".join(map(str, counts)),
        "ID": 0,
    }
    found = {
        "PROCID": task, "LOCALID": task - each * node, "NODEID": node, "NTASKS": tasks, "NPROCS": tasks, "NNODES": nodes, "JOB_NUM_NODES": nodes,
        "JOB_ID": job, "JOBID": job, "STEPID": 0, "NODELIST": names, "JOB_NODELIST": names, "CPUS_ON_NODE": 1,
        "LAUNCH_NODE_IPADDR": "127.0.0.1", "SRUN_COMM_HOST": "127.0.0.1", "GTIDS": ",".join(str(each * node + k) for k in range(counts[node])),
        **{f"STEP_{name}": value for name, value in step.items()},
    }  # fmt: skip
    return {**{f"SLURM_{name}": str(value) for name, value in found.items()}, "SLURMD_NODENAME": f"n{node + 1}"}


def main(tasks: int, nodes: int, *command: str) -> int:
    """Run the tasks; the greatest of their exit statuses."""
    started = []
    for task in range(tasks):
        env = {**os.environ, **variables(task, tasks, nodes)}
        if nodes > 1:
            env["RUSHLIGHT_NODE"] = env["SLURMD_NODENAME"]
        started.append(subprocess.Popen(command, env=env))
    return max(process.wait() for process in started)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
