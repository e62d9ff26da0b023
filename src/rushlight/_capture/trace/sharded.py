"""Modules whose parameters are sharded (`fully_shard`): in a trace the whole ones are computed from the parts.

Their hooks wait, count and put parameters in place.  A trace does not follow them: before a module it gathers, by
functions of tensors that have a derivative, and after it the parts are back in their places.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rushlight._capture.trace import process_groups
from rushlight._capture.trace.outside import ABSENT
from rushlight._capture.trace.reports.events import Break, Unbuildable

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["Sharded", "after", "before", "placed"]

Places = list[tuple[dict[str, Any], str, Any]]  # tables of parameters, names, and what is or was there


class Sharded:
    """The sharded modules whose calls have begun in a trace, and what was gathered in the outermost of these."""

    def __init__(self) -> None:
        self.open: list[tuple[Any, Places]] = []
        self.whole: dict[tuple[int, int], tuple[Any, ...]] = {}

    def gathered(self) -> Places:
        """The whole parameters of the modules whose calls have begun, and where they are."""
        return [(held, key, held[key]) for _, replaced in self.open for held, key, _ in replaced]

    def check_closed(self) -> None:
        """Unbuildable where a trace ends between the hooks of a module: these then run as they are."""
        if self.open:
            raise Unbuildable("a trace that ends inside of a sharded module's call", self.open[0][1])


@contextmanager
def placed(parameters: Places) -> Iterator[None]:
    """Inside, these parameters are in their places, as in eager calls when backward computes something again."""
    before = [(held, key, held[key]) for held, key, _ in parameters]
    for held, key, whole in parameters:
        held[key] = whole
    try:
        yield
    finally:
        for held, key, part in before:
            held[key] = part


def before(tracer: Tracer, state: Any, module: Any, args: Any, kwargs: Any) -> Any:
    """The hook before a module's forward."""
    source = tracer.constant_source(state)
    form = state.form()
    if form[0]:
        raise Break(form[0])
    process_groups.depends(tracer)
    tracer.reads.check(source, f"{{}}.form() == {tracer.constants.name(form)}")
    replaced: Places = []
    tracer.made_at[id(replaced)] = tracer.place
    for number, group in enumerate(state.groups):
        place = tracer.reads.source(f"{{}}.groups[{number}]", source)
        sources = [tracer.reads.source(f"{{}}.managed[{k}]", place) for k in range(len(group.managed))]
        known = tracer.sharded.whole.get((id(state), number))
        if known is None:
            wrap = tracer.outside.wrap
            given = [
                wrap(m.sharded, tracer.reads.source("{}.sharded", s))
                for m, s in zip(group.managed, sources, strict=True)
            ]
            known = tracer.sharded.whole[id(state), number] = tracer.native(state.gathered, number, given)
        for managed, whole, held in zip(group.managed, known, sources, strict=True):
            for k, (part, key) in enumerate(managed.places):
                owner = tracer.outside.wrap(part, tracer.reads.source(f"{{}}.places[{k}][0]", held))
                parameters = tracer.real(tracer.finished(tracer.load_attr(owner, "_parameters")))
                replaced.append((parameters, key, parameters[key]))
                parameters[key] = whole
    tracer.sharded.open.append((state, replaced))
    return tracer.native(state.cast_inputs, args, kwargs)


def after(tracer: Tracer, state: Any, module: Any, args: Any, outputs: Any) -> Any:
    """The hook after a module's forward."""
    if not tracer.sharded.open or tracer.sharded.open[-1][0] is not state:
        return ABSENT
    _, replaced = tracer.sharded.open.pop()
    for parameters, key, part in reversed(replaced):
        parameters[key] = part
    if not tracer.sharded.open:
        tracer.sharded.whole.clear()
    return tracer.native(state.cast_outputs, outputs)
