"""The emulated driver: memory and kernels, beside the work of streams."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rushlight._backends.cuda.driver.api import Extent
from rushlight._backends.cuda.driver.attributes import DEVICE, FUNCTION, LAUNCH, POINTER
from rushlight._backends.cuda.driver.emulated.captures import Graph, Node
from rushlight._backends.cuda.driver.emulated.machine import ATTRIBUTES
from rushlight._backends.cuda.driver.emulated.mappings import Physical
from rushlight._backends.cuda.driver.emulated.memory import GRANULARITY
from rushlight._backends.cuda.driver.emulated.modules import Context, Function, Module
from rushlight._backends.cuda.driver.emulated.tensor_maps import Modes, encoded, encoded_windows
from rushlight._backends.cuda.driver.emulated.work import IPC, EmulatedWork, one_at_a_time
from rushlight._backends.cuda.driver.errors import CudaError, fail
from rushlight._codegen.threads.tile_maps import Corners

__all__ = ["EmulatedDriver"]


@one_at_a_time
class EmulatedDriver(EmulatedWork):
    """So many pretended H200s with so many bytes each; `seed` draws the order of work."""

    # ***** memory *****

    def cuMemGetInfo(self) -> tuple[int, int]:
        part = self.region.devices[self._current("cuMemGetInfo")]
        return part.nbytes - part.held, part.nbytes

    def cuMemAlloc(self, nbytes: int) -> int:
        device = self._current("cuMemAlloc")
        self._not_while_captured("cuMemAlloc")
        return self._take(device, nbytes, "cuMemAlloc")

    def _take(self, device: int, nbytes: int, call: str) -> int:
        if nbytes <= 0:
            fail("CUDA_ERROR_INVALID_VALUE", call, f"{nbytes} bytes")
        part = self.region.devices[device]
        address = part.take(nbytes)
        if address is None:  # some may be freed by work that did not run yet
            self._wait_for_device(device, call)
            address = part.take(nbytes)
        if address is None:
            fail("CUDA_ERROR_OUT_OF_MEMORY", call)
        return address

    def cuMemFree(self, address: int) -> None:
        self._current("cuMemFree")
        self._not_while_captured("cuMemFree")
        device = self._owner(address, "cuMemFree")
        self._wait_for_device(device, "cuMemFree")
        self._release(device, address)

    def _owner(self, address: int, call: str) -> int:
        device = self.region.device_of(address)
        if device is None or address not in self.region.devices[device].sizes:
            fail("CUDA_ERROR_INVALID_VALUE", call, f"{address:#x} is no allocation")
        return device

    def _release(self, device: int, address: int) -> None:
        self.region.release_pages(address, self.region.devices[device].give_back(address))

    def cuMemAllocAsync(self, nbytes: int, stream: int) -> int:
        device = self._current("cuMemAllocAsync")
        if self._capture_of(self._stream(stream, device, "cuMemAllocAsync")) is not None:
            self._lacks("cuMemAllocAsync in a capture")
        return self._take(device, nbytes, "cuMemAllocAsync")

    def cuMemFreeAsync(self, address: int, stream: int) -> None:
        device = self._owner(address, "cuMemFreeAsync")
        self._submit(stream, "cuMemFreeAsync", lambda: self._release(device, address))

    def cuMemGetAllocationGranularity(self, device: int) -> int:
        return GRANULARITY

    def cuMemAddressReserve(self, nbytes: int, alignment: int = 0) -> int:
        call = "cuMemAddressReserve"
        if nbytes <= 0 or nbytes % GRANULARITY:
            fail("CUDA_ERROR_INVALID_VALUE", call, f"{nbytes} bytes are no multiple of {GRANULARITY}")
        address = self.region.reserved.take(nbytes)
        if address is None:
            fail("CUDA_ERROR_OUT_OF_MEMORY", call)
        return address

    def cuMemAddressFree(self, address: int, nbytes: int) -> None:
        call, shown = "cuMemAddressFree", self.region.mappings.shown
        if self.region.reserved.sizes.get(address) != nbytes or any(address <= a < address + nbytes for a in shown):
            fail("CUDA_ERROR_INVALID_VALUE", call, f"{address:#x} is no reservation, or some of it is mapped")
        self.region.reserved.give_back(address)

    def cuMemCreate(self, nbytes: int, device: int) -> int:
        call = "cuMemCreate"
        self._current(call)
        handle = next(self._numbers)
        self._handles[handle] = self.region.mappings.create(self._device(device, call), nbytes, GRANULARITY, call)
        return handle

    def cuMemRelease(self, handle: int) -> None:
        memory: Physical = self._of_kind(handle, Physical, "cuMemRelease")
        memory.released = True
        del self._handles[handle]
        self.region.mappings.give_back(memory)

    def cuMemMap(self, address: int, nbytes: int, handle: int) -> None:
        self.region.mappings.map(address, nbytes, self._of_kind(handle, Physical, "cuMemMap"), "cuMemMap")

    def cuMemSetAccess(self, address: int, nbytes: int, devices: Sequence[int]) -> None:
        mappings = self.region.mappings
        named = [
            start for start, p in mappings.shown.items() if address <= start and start + p.nbytes <= address + nbytes
        ]
        if sum(mappings.shown[start].nbytes for start in named) != nbytes:
            fail("CUDA_ERROR_INVALID_VALUE", "cuMemSetAccess", f"{nbytes} bytes at {address:#x} are not mapped")
        mappings.open.update(named)

    def cuMemUnmap(self, address: int, nbytes: int) -> None:
        call = "cuMemUnmap"
        device = self.region.device_of(address)
        if device is not None:
            self._wait_for_device(device, call)
        self.region.mappings.unmap(address, nbytes, call)

    def cuMemHostAlloc(self, nbytes: int, flags: int = 0) -> int:
        self._current("cuMemHostAlloc")
        self._not_while_captured("cuMemHostAlloc")
        address = self.region.pinned.take(nbytes)
        if address is None:
            fail("CUDA_ERROR_OUT_OF_MEMORY", "cuMemHostAlloc")
        return address

    def cuMemFreeHost(self, address: int) -> None:
        self._current("cuMemFreeHost")
        self._not_while_captured("cuMemFreeHost")
        if address not in self.region.pinned.sizes:
            fail("CUDA_ERROR_INVALID_VALUE", "cuMemFreeHost", f"{address:#x} is no pinned allocation")
        self.region.release_pages(address, self.region.pinned.give_back(address))

    def cuMemHostRegister(self, address: int, nbytes: int, flags: int = 0) -> None:
        self._current("cuMemHostRegister")
        self._not_while_captured("cuMemHostRegister")
        if address in self._registered:
            fail("CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "cuMemHostRegister")
        self._registered[address] = nbytes

    def cuMemHostUnregister(self, address: int) -> None:
        self._current("cuMemHostUnregister")
        self._not_while_captured("cuMemHostUnregister")
        if self._registered.pop(address, None) is None:
            fail("CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "cuMemHostUnregister")

    def _is_pinned(self, address: int) -> bool:
        return self.region.is_pinned(address) or any(a <= address < a + n for a, n in self._registered.items())

    def _check_host(self, address: int, call: str) -> None:
        if self.region.device_of(address) is not None:
            fail("CUDA_ERROR_INVALID_VALUE", call, f"{address:#x} is no address of the host")

    def cuMemcpyHtoDAsync(self, address: int, source: int, nbytes: int, stream: int) -> None:
        call = "cuMemcpyHtoDAsync"
        self._check_host(source, call)
        self.region.check(address, nbytes, call)
        target, captured = (
            address + self.region.delta,
            self._captures and self._capture_of(self._stream(stream, self._current(call), call)),
        )
        if self._is_pinned(source) or captured:
            run = lambda: ctypes.memmove(target, source, nbytes)
        else:
            data = ctypes.string_at(source, nbytes)
            run = lambda: ctypes.memmove(target, data, nbytes)
        self._submit(stream, call, run, (address, source))

    def cuMemcpyDtoHAsync(self, address: int, source: int, nbytes: int, stream: int) -> None:
        call = "cuMemcpyDtoHAsync"
        self._check_host(address, call)
        self.region.check(source, nbytes, call)
        alias = source + self.region.delta
        into, addresses = self._stream(stream, self._current(call), call), (source, address)
        if self._is_pinned(address) or self._capture_of(into) is not None:
            self._submit(stream, call, lambda: ctypes.memmove(address, alias, nbytes), addresses)
            return
        # Pageable memory is written here and never by the work: who is interrupted while waiting frees the memory, and
        # the work, which stays in the stream, runs later.
        arrived: list[bytes] = []
        self._wait_for(
            self._submit(stream, call, lambda: arrived.append(ctypes.string_at(alias, nbytes)), addresses), call
        )
        ctypes.memmove(address, arrived[0], nbytes)

    def cuMemcpyDtoDAsync(self, address: int, source: int, nbytes: int, stream: int) -> None:
        self._copy("cuMemcpyDtoDAsync", address, source, nbytes, stream)

    def cuMemcpyPeerAsync(
        self, address: int, context: int, source: int, source_context: int, nbytes: int, stream: int
    ) -> None:  # fmt: skip
        self._copy("cuMemcpyPeerAsync", address, source, nbytes, stream)

    def _copy(self, call: str, address: int, source: int, nbytes: int, stream: int) -> None:
        self.region.check(address, nbytes, call)
        self.region.check(source, nbytes, call)
        delta = self.region.delta
        self._submit(stream, call, lambda: ctypes.memmove(address + delta, source + delta, nbytes), (address, source))

    def cuMemsetD8Async(self, address: int, value: int, count: int, stream: int) -> None:
        self._fill("cuMemsetD8Async", address, value, 1, count, stream)

    def cuMemsetD16Async(self, address: int, value: int, count: int, stream: int) -> None:
        self._fill("cuMemsetD16Async", address, value, 2, count, stream)

    def cuMemsetD32Async(self, address: int, value: int, count: int, stream: int) -> None:
        self._fill("cuMemsetD32Async", address, value, 4, count, stream)

    def _fill(self, call: str, address: int, value: int, size: int, count: int, stream: int) -> None:
        self.region.check(address, size * count, call)
        word, target = value.to_bytes(size, "little"), address + self.region.delta
        if size == 1:
            run: Callable[[], Any] = lambda: ctypes.memset(target, value, count)
        else:
            run = lambda: ctypes.memmove(target, word * count, size * count)
        self._submit(stream, call, run, (address,))

    def cuPointerGetAttribute(self, attribute: int, address: int) -> int:
        self._current("cuPointerGetAttribute")
        part, device = self.region.part_of(address), self.region.device_of(address)
        found = None if part is None else part.range_of(address)
        if found is None:
            fail("CUDA_ERROR_INVALID_VALUE", "cuPointerGetAttribute", f"{address:#x} is unknown")
        known = {
            POINTER["memory_type"]: 1 if part is self.region.pinned else 2,
            POINTER["device_ordinal"]: device or 0,
            POINTER["range_start"]: found[0],
            POINTER["range_size"]: found[1],
        }
        if attribute not in known:
            self._lacks(f"cuPointerGetAttribute {attribute}")
        return known[attribute]

    def cuIpcGetMemHandle(self, address: int) -> bytes:
        device = self._owner(address, "cuIpcGetMemHandle")
        size = self.region.devices[device].sizes[address]
        return IPC.pack(os.getpid(), self.region.fd, address - self.region.base, size, device).ljust(64, b"\0")

    def cuIpcOpenMemHandle(self, handle: bytes, flags: int = 1) -> int:
        process, fd, offset, size, _ = IPC.unpack_from(handle)
        if process == os.getpid():
            fail("CUDA_ERROR_INVALID_CONTEXT", "cuIpcOpenMemHandle", "the memory is of this process")
        try:
            return self.region.show(f"/proc/{process}/fd/{fd}", offset, size)
        except OSError as error:
            fail("CUDA_ERROR_INVALID_VALUE", "cuIpcOpenMemHandle", f"the process that has the memory: {error}")

    def cuIpcCloseMemHandle(self, address: int) -> None:
        for device in range(len(self.region.devices)):
            self._wait_for_device(device, "cuIpcCloseMemHandle")
        self.region.hide(address)

    # ***** kernels *****

    def cuModuleLoadData(self, image: bytes) -> int:
        self._current("cuModuleLoadData")
        self._not_while_captured("cuModuleLoadData")
        made = Module(bytes(image))
        handle = next(self._numbers)
        self._handles[handle] = made
        return handle

    def cuModuleUnload(self, module: int) -> None:
        self._current("cuModuleUnload")
        self._not_while_captured("cuModuleUnload")
        found = self._of_kind(module, Module, "cuModuleUnload")
        for device in range(len(self.region.devices)):
            self._wait_for_device(device, "cuModuleUnload")
        gone = [h for h, f in self._handles.items() if isinstance(f, Function) and f.module is found]
        for handle in (*gone, module):
            del self._handles[handle]

    def cuModuleGetFunction(self, module: int, name: str) -> int:
        function = self._of_kind(module, Module, "cuModuleGetFunction").function(name)
        self._handles[function.handle] = function
        handle: int = function.handle
        return handle

    def cuFuncGetAttribute(self, attribute: int, function: int) -> int:
        found: int = self._of_kind(function, Function, "cuFuncGetAttribute").attributes[attribute]
        return found

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
        if (
            attribute == FUNCTION["max_dynamic_shared_bytes"]
            and value > ATTRIBUTES[DEVICE["max_shared_memory_per_block_optin"]]
        ):
            fail("CUDA_ERROR_INVALID_VALUE", "cuFuncSetAttribute", f"a block has no {value} bytes of shared memory")
        self._of_kind(function, Function, "cuFuncSetAttribute").attributes[attribute] = value

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: int, threads: int, shared_bytes: int) -> int:
        self._of_kind(function, Function, "cuOccupancyMaxActiveBlocksPerMultiprocessor")
        shared = 233472 // (shared_bytes + 1024)
        return min(32, 2048 // max(threads, 1), shared)

    def cuLaunchKernel(
        self, function: int, grid: Extent, block: Extent, shared_bytes: int, stream: int, parameters: Any, maps: int = 0
    ) -> None:  # fmt: skip
        self._launch(function, grid, block, shared_bytes, stream, parameters)

    def cuTensorMapEncodeTiled(
        self, kind: int, address: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int],
        steps: Sequence[int], interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> bytes:  # fmt: skip
        return encoded(kind, address, sizes, strides, box, steps, Modes(interleave, swizzle, promotion, fill))

    def cuTensorMapEncodeIm2col(
        self, kind: int, address: int, sizes: Sequence[int], strides: Sequence[int], lower: Sequence[int], upper: Sequence[int],
        channels: int, pixels: int, steps: Sequence[int], interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> bytes:  # fmt: skip
        return encoded_windows(
            kind,
            address,
            sizes,
            strides,
            Corners([*lower], [*upper], [*steps]),
            (channels, pixels),
            Modes(interleave, swizzle, promotion, fill),
        )

    def cuLaunchKernelEx(
        self,
        function: int,
        grid: Extent,
        block: Extent,
        shared_bytes: int,
        stream: int,
        parameters: Any,
        attributes: Sequence[tuple[int, Any]],
    ) -> None:
        for attribute, _ in attributes:
            if attribute not in (LAUNCH["programmatic_serialization"], LAUNCH["priority"]):
                self._lacks(f"launch attribute {attribute}")
        self._launch(function, grid, block, shared_bytes, stream, parameters)

    def declare_parameters(self, function: int, count: int, maps: int) -> None:
        """How many parameters and tensor maps a kernel has, which a twin does not say: C callers give addresses of them
        alone.
        """
        self._of_kind(function, Function, "declare_parameters").record[1:3] = (count, maps)

    def _launch(
        self, function: int, grid: Extent, block: Extent, shared_bytes: int, stream: int, parameters: Any
    ) -> None:
        words, device = (ctypes.c_int64 * len(parameters))(*parameters), self._current("cuLaunchKernel")
        self._launch_on(device, function, grid, block, shared_bytes, stream, words, self.launch)

    def memset_row(self, device: int, row: list[int]) -> None:
        call, (address, value, count, stream) = "cuMemsetD8Async", row[3:]
        self.region.check(address, count, call)
        target = address + self.region.delta
        self._submit_on(device, stream, call, lambda: ctypes.memset(target, value, count), (address,))

    def cuGraphAddKernelNode(
        self, graph: int, after: Sequence[int], function: int, grid: Extent, block: Extent, shared_bytes: int, parameters: Any,
        maps: int = 0,
    ) -> int:  # fmt: skip
        call = "cuGraphAddKernelNode"
        words = (ctypes.c_int64 * len(parameters))(*parameters)
        found = self._of_kind(graph, Graph, call)
        return found.add(
            self._kernel_node(call, function, grid, block, shared_bytes, words), after, next(self._numbers)
        )

    def node_row(self, row: list[int]) -> None:
        call, words = "cuGraphExecKernelNodeSetParams", (ctypes.c_int64 * row[12])(*row[13:])
        node = self._kernel_node(call, row[4], (row[5], row[6], row[7]), (row[8], row[9], row[10]), row[11], words)
        self._of_kind(row[2], Graph, call).replace(row[3], node)

    def _kernel_node(
        self, call: str, function: int, grid: Extent, block: Extent, shared_bytes: int, words: Any
    ) -> Node:  # fmt: skip
        kernel, run, addresses = self._kernel_work(call, function, grid, block, shared_bytes, words)
        return Node(kernel.name, run, frozenset(), addresses, True)

    def launch_row(self, device: int, row: list[int]) -> None:
        grid, block = (row[5], row[6], row[7]), (row[8], row[9], row[10])
        words = (ctypes.c_int64 * row[13])(*row[14:])
        self._launch_on(device, row[4], grid, block, row[11], row[12], words, self.note_of(row[3]))

    def _launch_on(
        self, device: int, function: int, grid: Extent, block: Extent, shared_bytes: int, stream: int, words: Any,
        note: Any,
    ) -> None:  # fmt: skip
        kernel, run, addresses = self._kernel_work("cuLaunchKernel", function, grid, block, shared_bytes, words)
        self._submit_on(device, stream, kernel.name, partial(run, note), addresses)

    def _kernel_work(
        self, call: str, function: int, grid: Extent, block: Extent, shared_bytes: int, words: Any
    ) -> tuple[Function, Callable[[Any], None], tuple[int, ...]]:
        """A kernel, what runs it for somebody who launched it, and the addresses that it is given."""
        kernel: Function = self._of_kind(function, Function, call)
        _check_extents(grid, block)
        if shared_bytes > kernel.attributes[FUNCTION["max_dynamic_shared_bytes"]]:
            fail(
                "CUDA_ERROR_INVALID_VALUE",
                call,
                f"{kernel.name} may use less than {shared_bytes} bytes of shared memory",
            )
        region, scheduler, programs = self.region, self.scheduler, grid[0] * grid[1] * grid[2]

        def run(note: Any) -> None:
            shared = ctypes.create_string_buffer(max(shared_bytes, 1))
            context = Context(
                region.delta, grid, 0, ctypes.addressof(shared), shared_bytes, None, region.base, region.total, None
            )
            try:
                kernel.run(context, words, scheduler.shuffled(programs))
            except CudaError as error:
                error.launch = note
                raise

        return kernel, run, tuple(word for word in words if region.base <= word < region.base + region.total)


def _check_extents(grid: Extent, block: Extent) -> None:
    call = "cuLaunchKernel"
    for word, extent in (("grid", grid), ("block", block)):
        most = [ATTRIBUTES[DEVICE[f"max_{word}_dim_{axis}"]] for axis in "xyz"]
        if any(not 1 <= n <= m for n, m in zip(extent, most, strict=True)):
            fail("CUDA_ERROR_INVALID_VALUE", call, f"a {word} of {extent}; the most is {tuple(most)}")
    threads = block[0] * block[1] * block[2]
    if threads > ATTRIBUTES[DEVICE["max_threads_per_block"]]:
        fail("CUDA_ERROR_INVALID_VALUE", call, f"a block of {threads} threads; the most is 1024")
