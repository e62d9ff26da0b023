"""`python -m torch.distributed.launch`: the older name of `torchrun`, with its older options."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from rushlight.distributed.run import get_args_parser, run
from rushlight.distributed.run import main as run_main

__all__ = ["launch", "main", "parse_args", "run"]


def _older(args: Sequence[str] | None) -> list[str]:
    """The command line without the option that is always on by now."""
    return [word for word in (sys.argv[1:] if args is None else args) if word not in ("--use-env", "--use_env")]


def parse_args(args: Sequence[str] | None) -> Namespace:
    """Options, program and its arguments."""
    return get_args_parser().parse_args(_older(args))


def launch(args: Namespace) -> None:
    """Start the workers and wait for them."""
    run(args)


def main(args: Sequence[str] | None = None) -> None:
    """The command; workers read `LOCAL_RANK`, for which no option is passed to them."""
    run_main(_older(args))


if __name__ == "__main__":
    main()
