"""Memory of the emulated driver: closed to the host, given and taken back, copied, shown to other processes."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cuda.driver.machines import FAILING, Machine

from rushlight._backends.cuda.driver.attributes import POINTER
from rushlight._backends.cuda.driver.errors import CudaError


@pytest.fixture
def machine() -> Machine:
    return Machine(devices=2)


def refused(name: str, call: Any, *args: Any) -> CudaError:
    with pytest.raises(CudaError) as met:
        call(*args)
    assert met.value.name == name, met.value
    return met.value


def test_the_host_cannot_read_what_the_device_has() -> None:
    """The processor stops it at once: a child dies of a segmentation fault."""
    program = (
        "import ctypes\n"
        "from tests.cuda.driver.machines import Machine\n"
        "m = Machine()\n"
        "print(m.read(m.array([1.0, 2.0]), 2), flush=True)\n"
        "ctypes.c_float.from_address(m.array([1.0])).value\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root)
    assert done.stdout == "[1.0, 2.0]\n" and done.returncode == -11, done.stderr


def test_one_constant_leads_from_addresses_to_bytes(machine: Machine) -> None:
    driver = machine.driver
    for device, value in ((0, 7.0), (1, 3.0)):
        machine.devices.enter(device)
        address = machine.array([value])
        driver.cuCtxSynchronize()
        assert driver.region.device_of(address) == device
        assert ctypes.c_float.from_address(address + driver.region.delta).value == value


def test_memory_is_given_once_and_merged_when_it_is_back(machine: Machine) -> None:
    driver = machine.driver
    total = driver.cuMemGetInfo()[1]
    taken = [driver.cuMemAlloc(1000) for _ in range(20)]
    assert len(set(taken)) == 20 and all(a % 256 == 0 for a in taken)
    assert driver.cuMemGetInfo()[0] == total - 20 * 1024
    for address in taken[::2] + taken[1::2]:
        driver.cuMemFree(address)
    assert driver.cuMemGetInfo() == (total, total)
    whole = driver.cuMemAlloc(total)
    assert "out of memory" in str(refused("CUDA_ERROR_OUT_OF_MEMORY", driver.cuMemAlloc, 1))
    driver.cuMemFree(whole)
    refused("CUDA_ERROR_INVALID_VALUE", driver.cuMemFree, whole)
    refused("CUDA_ERROR_INVALID_VALUE", driver.cuMemAlloc, 0)


def test_freed_memory_in_stream_order_is_there_again_for_who_needs_it(machine: Machine) -> None:
    driver, stream = machine.driver, machine.stream()
    total = driver.cuMemGetInfo()[1]
    first = driver.cuMemAllocAsync(total, stream)
    driver.cuMemFreeAsync(first, stream)
    assert driver.cuMemGetInfo()[0] == 0  # the work that frees it did not run
    assert driver.cuMemAlloc(total) == first


def test_copies_are_checked(machine: Machine) -> None:
    driver, address = machine.driver, machine.array([1.0, 2.0, 3.0])
    host = ctypes.create_string_buffer(4096)
    at = ctypes.addressof(host)
    refused("CUDA_ERROR_INVALID_VALUE", driver.cuMemcpyHtoDAsync, address, at, 4096, 0)  # beyond the end
    refused("CUDA_ERROR_INVALID_VALUE", driver.cuMemcpyHtoDAsync, at, at, 4, 0)  # no address of a device
    refused("CUDA_ERROR_INVALID_VALUE", driver.cuMemcpyHtoDAsync, address, address, 4, 0)  # no address of the host
    refused("CUDA_ERROR_INVALID_VALUE", driver.cuMemsetD8Async, at, 0, 1, 0)
    driver.cuMemFree(address)
    refused("CUDA_ERROR_INVALID_VALUE", driver.cuMemcpyDtoHAsync, at, address, 4, 0)


def test_fills_and_copies_between_devices(machine: Machine) -> None:
    driver = machine.driver
    address = driver.cuMemAlloc(16)
    driver.cuMemsetD32Async(address, 0x3F800000, 4, 0)
    assert machine.read(address, 4) == [1.0] * 4
    driver.cuMemsetD8Async(address, 0, 8, 0)
    driver.cuMemsetD16Async(address + 2, 0x4000, 1, 0)
    assert machine.read(address, 4) == [2.0, 0.0, 1.0, 1.0]
    machine.devices.enter(1)
    other = driver.cuMemAlloc(16)
    contexts = machine.devices.context
    driver.cuMemcpyPeerAsync(other, contexts(1), address, contexts(0), 16, 0)
    assert machine.read(other, 4) == [2.0, 0.0, 1.0, 1.0]
    assert driver.cuDeviceCanAccessPeer(0, 1) and not driver.cuDeviceCanAccessPeer(1, 1)


def test_pageable_memory_is_read_at_once_and_pinned_memory_when_its_turn_comes(machine: Machine) -> None:
    driver, stream = machine.driver, machine.stream()
    target = driver.cuMemAlloc(8)
    pageable, pinned = (ctypes.c_float * 1)(1.0), driver.cuMemHostAlloc(4)
    shown = ctypes.c_float.from_address(pinned)
    shown.value = 1.0
    driver.cuMemcpyHtoDAsync(target, ctypes.addressof(pageable), 4, stream)
    driver.cuMemcpyHtoDAsync(target + 4, pinned, 4, stream)
    pageable[0] = shown.value = 9.0
    assert machine.read(target, 2, stream) == [1.0, 9.0]
    driver.cuMemcpyDtoHAsync(pinned, target, 4, stream)
    assert shown.value == 9.0  # not yet
    driver.cuStreamSynchronize(stream)
    assert shown.value == 1.0
    assert driver.cuPointerGetAttribute(POINTER["memory_type"], pinned) == 1
    driver.cuMemFreeHost(pinned)
    refused("CUDA_ERROR_INVALID_VALUE", driver.cuMemFreeHost, pinned)


def stopped() -> None:
    raise KeyboardInterrupt


def test_an_interrupted_copy_to_pageable_memory_writes_nothing_later(machine: Machine) -> None:
    """Who waited frees the memory, so that a late write would be into somebody else's."""
    driver, source = machine.driver, machine.array([1.0, 2.0])
    held = (ctypes.c_float * 2)()
    driver.cuLaunchHostFunc(0, stopped)
    with pytest.raises(KeyboardInterrupt):
        driver.cuMemcpyDtoHAsync(ctypes.addressof(held), source, 8, 0)
    driver.cuCtxSynchronize()
    assert list(held) == [0.0, 0.0]
    assert machine.read(source, 2) == [1.0, 2.0]


def test_a_copy_that_another_device_stops_writes_nothing_later(machine: Machine) -> None:
    driver, source = machine.driver, machine.array([1.0])
    held = (ctypes.c_float * 1)()
    for _ in range(40):
        driver.cuLaunchHostFunc(0, lambda: None)
    machine.devices.enter(1)
    machine.launch(machine.function(FAILING, "failing"), (700,))
    machine.devices.enter(0)
    with pytest.raises(CudaError, match="out of luck"):
        driver.cuMemcpyDtoHAsync(ctypes.addressof(held), source, 4, 0)
    driver.cuCtxSynchronize()
    assert list(held) == [0.0]


def test_what_is_known_of_an_address(machine: Machine) -> None:
    driver = machine.driver
    machine.devices.enter(1)
    address = driver.cuMemAlloc(1000)
    asked = {name: driver.cuPointerGetAttribute(POINTER[name], address + 10) for name in POINTER}
    assert asked == {"memory_type": 2, "device_ordinal": 1, "range_start": address, "range_size": 1024}
    refused("CUDA_ERROR_INVALID_VALUE", driver.cuPointerGetAttribute, POINTER["memory_type"], id(driver))


def test_another_process_opens_memory(machine: Machine) -> None:
    """The child reads it and writes to it, by a handle of 64 bytes."""
    driver = machine.driver
    machine.array([0.0])
    address = machine.array([4.0, 5.0])
    driver.cuCtxSynchronize()
    handle = driver.cuIpcGetMemHandle(address)
    assert len(handle) == 64
    refused("CUDA_ERROR_INVALID_CONTEXT", driver.cuIpcOpenMemHandle, handle)
    program = (
        "import sys\n"
        "from tests.cuda.driver.machines import Machine\n"
        "m = Machine()\n"
        "at = m.driver.cuIpcOpenMemHandle(bytes.fromhex(sys.argv[1]))\n"
        "print(m.read(at, 2))\n"
        "m.driver.cuMemsetD32Async(at, 0x40000000, 1, 0)\n"
        "m.driver.cuIpcCloseMemHandle(at)\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program, handle.hex()], capture_output=True, text=True, cwd=root)
    assert done.stdout == "[4.0, 5.0]\n", done.stderr
    assert machine.read(address, 2) == [2.0, 5.0]
    gone = bytearray(handle)
    gone[:4] = (2**22 + os.getpid()).to_bytes(4, "little")
    refused("CUDA_ERROR_INVALID_VALUE", driver.cuIpcOpenMemHandle, bytes(gone))
