"""What an exported program says of itself, without the lines of users: as text."""

from __future__ import annotations

import re
import warnings
from typing import Any


def exported(torch: Any, make: Any) -> Any:
    """The program."""
    mod, args, *rest = make(torch)
    kwargs, shapes = [*rest, None, None][:2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(mod, args, kwargs, dynamic_shapes=shapes)


def said(program: Any) -> str:
    """The printed form without comments, and the names of what is held."""
    lines = [line.rstrip() for line in str(program).split("\n") if not line.strip().startswith("# File")]
    lines = [line for line in lines if line and "No stacktrace" not in line]
    text = re.sub(r"_[0-9a-f]{8,}", "", "\n".join(lines))
    return f"{text}\nstate: {list(program.state_dict)}\nconstants: {list(program.constants)}\nranges: {program.range_constraints}\n"


def text_of(torch: Any, make: Any, decomposed: bool = False) -> str:
    """`said` of a program; the error where there is one."""
    try:
        program = exported(torch, make)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return said(program.run_decompositions() if decomposed else program)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}\n"
