"""Groups that pretend to be of several processes: operations are done as soon as they are asked for."""

from __future__ import annotations

from rushlight._distributed.groups.group import Group
from rushlight._distributed.groups.operation import Operation

__all__ = ["FakeGroup"]


class FakeGroup(Group):
    """A group over a `FakeCommunicator`: nobody is waited for."""

    CALLS_MPI = False

    def run(self, operation: Operation) -> None:
        """Run an operation to its end."""
        self._number(operation)
        self._run_here(operation)

    def start(self, operation: Operation) -> Operation:
        """Run an operation to its end."""
        operation.make_waitable()
        self.run(operation)
        operation.finish()
        return operation

    def start_message(self, operation: Operation) -> Operation:
        """Nothing is sent or received."""
        operation.make_waitable()
        self.run_message(operation)
        operation.finish()
        return operation

    def run_message(self, operation: Operation) -> None:
        """Nothing is sent or received."""
        self._check()
        for step in operation.steps:
            step()
        operation.settle()
        operation.done = True

    def compare_calls(self) -> None:
        """There is nobody to compare with."""
