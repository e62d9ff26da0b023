"""`torch.distributed.argparse_util`: options of a command whose defaults come from variables `PET_<OPTION>`."""

from __future__ import annotations

import os
from argparse import Action, ArgumentParser, Namespace
from typing import Any

__all__ = ["check_env", "env"]


class env(Action):
    """`add_argument("--foo", action=env)`: its value, else that of PET_FOO, else `default`."""

    def __init__(self, dest: str, default: Any = None, required: bool = False, **kwargs: Any) -> None:
        default = os.environ.get(f"PET_{dest.upper()}", default)
        super().__init__(dest=dest, default=default, required=required and not default, **kwargs)

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, values)


class check_env(Action):
    """`add_argument("--foo", action=check_env)`: whether it is given, or PET_FOO is a number other than 0."""

    def __init__(self, dest: str, default: bool = False, **kwargs: Any) -> None:
        default = bool(int(os.environ.get(f"PET_{dest.upper()}", int(default))))
        super().__init__(dest=dest, const=True, default=default, nargs=0, **kwargs)

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, self.const)
