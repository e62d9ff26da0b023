"""`torchrun`: start the workers of a job on this machine, and begin anew after a failure.

    torchrun --standalone --nproc-per-node 4 train.py --epochs 3
    python -m rushlight.distributed.run --nnodes 4 --node-rank 0 --nproc-per-node 8 --master-addr node0 train.py

Each worker is `python -m rushlight train.py`: its `import torch` finds rushlight, and it learns its place from `RANK`,
`LOCAL_RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`. `--help` lists the options; the environment variable
`PET_NNODES` is what `--nnodes` is when it is not given, and so on for all of them.
"""

from __future__ import annotations

import os
import runpy
import sys
import uuid
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._interface.base import LazyModule
from rushlight.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from rushlight.distributed.elastic.multiprocessing.errors import ChildFailedError
from rushlight.distributed.elastic.rendezvous import RendezvousError
from rushlight.distributed.launcher.api import LaunchConfig, elastic_launch

torch: Any = LazyModule("rushlight")

__all__ = ["config_from_args", "get_args_parser", "main", "parse_args", "run", "run_script_path"]

_PORT = 29500
_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
# Options with a value: names, default, type, help.
_VALUES: tuple[tuple[tuple[str, ...], Any, type, str], ...] = (
    (("--nnodes",), "1:1", str, "machines: how many, or at least and at most (2:4)"),
    (("--nproc-per-node", "--nproc_per_node"), "1", str, "workers on each machine: a number, auto, cpu or gpu"),
    (
        ("--rdzv-backend", "--rdzv_backend"),
        "static",
        str,
        "how machines meet: static (numbered by --node-rank) or c10d",
    ),
    (("--rdzv-endpoint", "--rdzv_endpoint"), "", str, "where machines meet: host:port"),
    (("--rdzv-id", "--rdzv_id"), "none", str, "name of the job"),
    (("--rdzv-conf", "--rdzv_conf"), "", str, "settings: join_timeout=600,last_call_timeout=30,is_host=true"),
    (("--max-restarts", "--max_restarts"), 0, int, "how often all workers start again after one has failed"),
    (("--monitor-interval", "--monitor_interval"), 0.1, float, "seconds between two looks at workers and machines"),
    (("--start-method", "--start_method"), "spawn", str, "how processes of functions start: spawn, fork, forkserver"),
    (("--event-log-handler", "--event_log_handler"), "null", str, "accepted; events are not logged"),
    (("--role",), "default", str, "name of the workers"),
    (("--log-dir", "--log_dir"), None, str, "folder for log files"),
    (("-r", "--redirects"), "0", str, "write to log files: 1 output, 2 errors, 3 both; or by local rank (0:1,1:3)"),
    (("-t", "--tee"), "0", str, "the same, and show them too, with the worker's name before each line"),
    (("--local-ranks-filter", "--local_ranks_filter"), "", str, "show the output of these local ranks alone: 0,1"),
    (("--node-rank", "--node_rank"), 0, int, "number of this machine"),
    (("--master-addr", "--master_addr"), "127.0.0.1", str, "name or address of machine 0"),
    (("--master-port", "--master_port"), _PORT, int, "port on machine 0"),
    (("--local-addr", "--local_addr"), None, str, "accepted; the way to the endpoint says this machine's address"),
    (("--signals-to-handle", "--signals_to_handle"), _SIGNALS, str, "signals that are handed on to the workers"),
    (("--shutdown-timeout", "--shutdown_timeout"), None, int, "seconds for workers to end before they are killed"),
)
_FLAGS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("--standalone",), "one machine: a store on a free port"),
    (("-m", "--module"), "the script is a module, as of `python -m`"),
    (("--no-python", "--no_python"), "the script is a program of its own"),
    (("--run-path", "--run_path"), "run the script within the process that starts it (runpy.run_path)"),
    (("--virtual-local-rank", "--virtual_local_rank"), "LOCAL_RANK is 0 in each worker, which sees one GPU"),
)


def _given(names: tuple[str, ...], default: Any) -> Any:
    """The value of an option that is not given: the environment's, or the default."""
    long = next(name for name in names if name.startswith("--"))
    return os.environ.get("PET_" + long[2:].replace("-", "_").upper(), default)


def get_args_parser() -> ArgumentParser:
    """The parser of the command line."""
    parser = ArgumentParser(prog="torchrun", description="Start the workers of a job on this machine.")
    for names, default, kind, text in _VALUES:
        parser.add_argument(*names, default=_given(names, default), type=kind, help=text)
    for names, text in _FLAGS:
        given = str(_given(names, "0")) not in ("0", "", "false", "False")
        parser.add_argument(*names, action="store_true", default=given, help=text)
    parser.add_argument("training_script", help="the program, or with -m a module")
    parser.add_argument("training_script_args", nargs=REMAINDER, help="its arguments")
    return parser


def parse_args(args: Sequence[str] | None) -> Namespace:
    """Options, program and its arguments; SystemExit for what is no option."""
    return get_args_parser().parse_args(args)


def _nodes(text: str) -> tuple[int, int]:
    least, _, most = text.partition(":")
    try:
        found = int(least), int(most or least)
    except ValueError:
        raise RuntimeError(f'nnodes={text} is not in "MIN:MAX" format') from None
    if not 0 < found[0] <= found[1]:
        raise RuntimeError(f"nnodes={text}: the least number is positive and not above the greatest")
    return found


def _local_world_size(text: str) -> int:
    """How many workers: a number, or as many as there are GPUs or cores."""
    if text.isdigit():
        return int(text)
    if text == "gpu" and not torch.cuda.is_available():
        raise ValueError("Cuda is not available.")
    if text not in ("auto", "cpu", "gpu"):
        raise ValueError(f"Unsupported nproc_per_node value: {text}")
    if text in ("auto", "gpu") and torch.cuda.is_available():
        return int(torch.cuda.device_count())
    return os.cpu_count() or 1


def _settings(text: str) -> dict[str, str]:
    """`a=1,b=2` as a dict."""
    found = {}
    for pair in filter(None, text.split(",")):
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--rdzv-conf: {pair!r} is not in the form name=value")
        found[name.strip()] = value.strip()
    return found


def config_from_args(args: Namespace) -> tuple[LaunchConfig, Callable[..., Any] | str, list[str]]:
    """The meaning of the options: the configuration, the entrypoint and its arguments."""
    least, most = _nodes(args.nnodes)
    settings: dict[str, Any] = _settings(args.rdzv_conf)
    endpoint = args.rdzv_endpoint
    if args.rdzv_backend == "static":
        settings["rank"] = args.node_rank
        endpoint = endpoint or f"{_bracketed(args.master_addr)}:{args.master_port}"
    ranks = {int(rank) for rank in args.local_ranks_filter.split(",")} if args.local_ranks_filter else None
    logs = DefaultLogsSpecs(args.log_dir, Std.from_str(args.redirects), Std.from_str(args.tee), ranks)
    config = LaunchConfig(
        min_nodes=least,
        max_nodes=most,
        nproc_per_node=_local_world_size(args.nproc_per_node),
        logs_specs=logs,
        run_id=args.rdzv_id,
        role=args.role,
        rdzv_endpoint=endpoint,
        rdzv_backend=args.rdzv_backend,
        rdzv_configs=settings,
        max_restarts=args.max_restarts,
        monitor_interval=args.monitor_interval,
        start_method=args.start_method,
        signals_to_handle=args.signals_to_handle,
        virtual_local_rank=args.virtual_local_rank,
        shutdown_timeout=args.shutdown_timeout,
    )
    return (config, *_command(args))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _command(args: Namespace) -> tuple[Callable[..., Any] | str, list[str]]:
    """The command of a worker."""
    rest = list(args.training_script_args)
    if args.run_path:
        return run_script_path, [args.training_script, *rest]
    if args.no_python:
        if args.module:
            raise ValueError("Don't use both the '--no-python' flag and the '--module' flag at the same time.")
        return args.training_script, rest
    run_as = ["-m", args.training_script] if args.module else [args.training_script]
    return sys.executable, ["-u", "-m", "rushlight", *run_as, *rest]


def run_script_path(training_script: str, *training_script_args: str) -> None:
    """Run a script in this process, under the name `torch`."""
    torch.install_as_torch()
    sys.argv = [training_script, *training_script_args]
    runpy.run_path(training_script, run_name="__main__")


def run(args: Namespace) -> None:
    """Start the workers and wait for them; ChildFailedError when they fail for good."""
    if args.standalone:
        args.rdzv_backend, args.rdzv_endpoint, args.rdzv_id = "c10d", "localhost:0", str(uuid.uuid4())
    config, command, arguments = config_from_args(args)
    elastic_launch(config, command)(*arguments)


def main(args: Sequence[str] | None = None) -> None:
    """The command: exit status 0 when all workers ended well, 1 when they failed, 128 and the signal's number."""
    try:
        run(parse_args(args))
    except ChildFailedError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except RendezvousError as error:
        print(f"torchrun: {error}", file=sys.stderr)
        sys.exit(1)
    except SignalException as error:
        print(f"torchrun: {error}", file=sys.stderr)
        sys.exit(128 + error.sigval)


if __name__ == "__main__":
    main()
