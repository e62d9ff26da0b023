"""Data races between streams, and the trace of GPUs on which finding them stands; programs in processes of their own."""

from __future__ import annotations

import pytest
from tests.cuda.emulated import outcomes_of

import rushlight as torch
from rushlight.cuda._sanitizer import CUDASanitizerErrors, EventHandler, StreamSynchronizations

pytestmark = pytest.mark.cuda

PRELUDE = """
import rushlight as torch
from rushlight.cuda._sanitizer import CUDASanitizerErrors, cuda_sanitizer

cuda_sanitizer.enable()
side = torch.cuda.Stream()
x = torch.ones(1000, device="cuda")
torch.cuda.synchronize()


def races(work):
    try:
        work()
    except CUDASanitizerErrors as error:
        return len(error.errors)
    finally:
        torch.cuda.synchronize()
    return 0


def beside(function):
    with torch.cuda.stream(side):
        function()
"""
CASES = {
    "a write beside a write": "assert races(lambda: (x.mul_(2), beside(lambda: x.add_(1)))) == 1",
    "a read beside a write": "assert races(lambda: (x.mul_(2), beside(lambda: x.exp()))) == 1",
    "a write beside a read": "assert races(lambda: (x.exp(), beside(lambda: x.add_(1)))) == 1",
    "reads beside reads": "assert races(lambda: (x.exp(), beside(lambda: x.sin()))) == 0",
    "one stream": "assert races(lambda: (x.mul_(2), x.add_(1), x.exp())) == 0",
    "a stream that waits": "assert races(lambda: (x.mul_(2), side.wait_stream(torch.cuda.current_stream()), beside(lambda: x.add_(1)))) == 0",
    "an event": """
def work():
    x.mul_(2)
    event = torch.cuda.Event()
    event.record()
    side.wait_event(event)
    beside(lambda: x.add_(1))
assert races(work) == 0
""",
    "the host waits": "assert races(lambda: (x.mul_(2), torch.cuda.synchronize(), beside(lambda: x.add_(1)))) == 0",
    "out=": "assert races(lambda: (x.sin(), beside(lambda: torch.mul(x, 5, out=x)))) == 1",
    "a view": "assert races(lambda: (x.mul_(2), beside(lambda: x.view(10, 100)))) == 0",
    "memory that was freed and lent again": """
def work():
    y = x * 2
    del y
    beside(lambda: torch.zeros(1000, device="cuda").add_(1))
assert races(work) == 0
""",
    "the message": """
import contextlib, io
said = io.StringIO()
with contextlib.redirect_stderr(said):
    assert races(lambda: (x.mul_(2), beside(lambda: torch.mul(x, 5, out=x)))) == 1
text = said.getvalue()
assert f"CSAN detected a possible data race on tensor with data pointer {x.data_ptr()}" in text, text
assert f"Access by stream {side.cuda_stream} during kernel:" in text and "Previous access by stream 0 during kernel:" in text
assert "writing to argument(s) self, out, and to the output" in text and "Tensor was allocated with stack trace:" in text, text
""",
    "the trace": """
told = []
trace = torch.cuda._gpu_trace
trace.register_callback_for_event_record(lambda event, stream: told.append((event, stream)))
trace.register_callback_for_event_creation(lambda event: told.append(event))
trace.register_callback_for_memory_allocation(lambda address: told.append(address))
trace.register_callback_for_event_record(lambda *args: 1 / 0)  # logged, no more
event = torch.cuda.Event()
event.record(side)
y = torch.empty(5000, device="cuda")
assert told[:2] == [event.cuda_event, (event.cuda_event, side.cuda_stream)], told
assert y.data_ptr() in told
""",
    "what selects elements waits for the device once": """
cuda_sanitizer.disable()
waits = []
torch.cuda._gpu_trace.register_callback_for_stream_synchronization(waits.append)
for select in (torch.nonzero, lambda x: x[x > 0], torch.unique, lambda x: torch.masked_select(x, x > 0)):
    waits.clear()
    select(x)
    assert waits == [0], waits
""",
}


def test_programs() -> None:
    found = outcomes_of(PRELUDE, CASES)
    assert not {name: text for name, text in found.items() if text}


def test_the_variable_enables_it() -> None:
    program = "x = torch.ones(3, device='cuda').mul_(2); assert torch.cuda._sanitizer.cuda_sanitizer.enabled"
    assert outcomes_of("import rushlight as torch\n", {"": program}, TORCH_CUDA_SANITIZER="1") == {"": ""}


def test_orders_of_streams() -> None:
    syncs = StreamSynchronizations()
    syncs.update_seq_num(1, 1)
    assert syncs.is_ordered_after(1, 1, 1) and not syncs.is_ordered_after(2, 1, 1)
    syncs.create_event(7)
    syncs.record_state(7, 1)
    syncs.update_seq_num(1, 2)
    syncs.stream_wait_for_event(2, 7)
    assert syncs.is_ordered_after(2, 1, 1) and not syncs.is_ordered_after(2, 2, 1)
    syncs.all_streams_wait_for_stream(1)
    assert syncs.is_ordered_after(3, 2, 1)


def test_what_is_known_goes_from_stream_to_stream() -> None:
    handler, names = EventHandler(), {5: ["self"]}
    assert not handler._handle_kernel_launch(1, set(), {5}, set(), "first", names)
    for event, (source, target) in enumerate([(1, 2), (2, 3)]):
        handler.syncs.create_event(event)
        handler.syncs.record_state(event, source)
        handler.syncs.stream_wait_for_event(target, event)
    assert not handler._handle_kernel_launch(3, set(), {5}, set(), "third", names)
    (error,) = handler._handle_kernel_launch(2, {5}, set(), set(), "second", names)
    assert "third" in str(error) and "Trace for tensor allocation not found." in str(error)


def test_errors_are_counted() -> None:
    assert str(CUDASanitizerErrors([])) == "detected 0 errors"
    assert torch.cuda._sanitizer.cuda_sanitizer.enabled is False
