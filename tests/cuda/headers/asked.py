"""What rushlight asks of NVIDIA's headers, by their names: functions with parameters, numbers, structures.

All of it is read from the modules that call the libraries; a table beside this file has what the headers of several
versions say (`tools/cuda_headers.py` writes it).  A parameter is a letter and its bytes: `p8` a pointer, `i4` a signed
and `u4` an unsigned integer, `e4` an enumeration, `f4` a float, `s64` a structure by value.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rushlight._backends.cuda import tile_maps
from rushlight._backends.cuda.driver import attributes, library, management, nvtx
from rushlight._backends.cuda.driver.errors import CODES
from rushlight._backends.cuda.libraries import cublaslt, cudnn, cusolver
from rushlight._backends.cuda.native import parameters_native
from rushlight._backends.cuda.reports import cupti
from rushlight._distributed.engines import nccl_library

__all__ = ["LIBRARIES", "Asked", "Structure", "parameter"]


class Structure(NamedTuple):
    """A structure of ours, and where its fields are in the header's: by our name, the header's."""

    ours: Any
    fields: Mapping[str, str]


class Asked(NamedTuple):
    """What is asked of one library: `functions` are symbols with our parameters, `names` what `cuda.h` calls them."""

    headers: tuple[str, ...]
    functions: Mapping[str, tuple[Any, ...]]
    constants: Mapping[str, int]
    structures: Mapping[str, Structure]
    file: str  # a pattern of how the library's file begins
    names: Mapping[str, str] = {}


def parameter(kind: Any) -> str:
    """The letter and the bytes of a type of ctypes."""
    size = ctypes.sizeof(kind)
    if issubclass(kind, ctypes.Structure):
        return f"s{size}"
    if kind in (ctypes.c_void_p, ctypes.c_char_p) or issubclass(kind, ctypes._CFuncPtr):
        return f"p{size}"
    if kind in (ctypes.c_float, ctypes.c_double):
        return f"f{size}"
    return f"{'i' if kind(-1).value < 0 else 'u'}{size}"


def _prefixed(prefix: str, numbers: Mapping[str, int], names: Mapping[str, str] = {}) -> Iterator[tuple[str, int]]:
    for name, number in numbers.items():
        yield prefix + names.get(name, name.upper()), number


# ***** the driver *****

_FUNCTION_NAMES = {
    "shared_bytes": "SHARED_SIZE_BYTES", "constant_bytes": "CONST_SIZE_BYTES", "local_bytes": "LOCAL_SIZE_BYTES", "registers": "NUM_REGS",
    "max_dynamic_shared_bytes": "MAX_DYNAMIC_SHARED_SIZE_BYTES", "preferred_shared_carveout": "PREFERRED_SHARED_MEMORY_CARVEOUT",
    "non_portable_cluster_size": "NON_PORTABLE_CLUSTER_SIZE_ALLOWED",
}  # fmt: skip
_LAUNCH_NAMES = {"cluster": "CLUSTER_DIMENSION", "programmatic_serialization": "PROGRAMMATIC_STREAM_SERIALIZATION"}
_CONFIG = {
    "grid": "gridDimX", "block": "blockDimX", "shared": "sharedMemBytes", "stream": "hStream", "attributes": "attrs", "count": "numAttrs",
}  # fmt: skip
_PROPERTIES = {
    "kind": "type", "handles": "requestedHandleTypes", "place": "location", "metadata": "win32HandleMetaData", "flags": "allocFlags",
}  # fmt: skip
_NODE = {
    "function": "func", "grid": "gridDimX", "block": "blockDimX", "shared": "sharedMemBytes", "parameters": "kernelParams", "extra": "extra",
}  # fmt: skip


def _driver() -> Asked:
    letters = {name: tuple(library._LETTERS[x] for x in given) for _, (name, given) in library._FUNCTIONS.items()}
    letters |= library.MORE
    constants = {name: code for name, (code, _) in CODES.items()} | {
        "CU_STREAM_NON_BLOCKING": attributes.STREAM_NON_BLOCKING, "CU_EVENT_BLOCKING_SYNC": attributes.EVENT_BLOCKING,
        "CU_EVENT_DISABLE_TIMING": attributes.EVENT_WITHOUT_TIMING, "CU_EVENT_INTERPROCESS": attributes.EVENT_INTERPROCESS,
        "CUDA_ERROR_NOT_READY": library._NOT_READY, "CU_JIT_ERROR_LOG_BUFFER": library._ERROR_LOG,
        "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES": library._ERROR_LOG_BYTES, "CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS": library.LAZY_PEER_ACCESS,
        "CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE": library.VERBOSE, "CU_STREAM_CAPTURE_STATUS_NONE": 0, "CU_STREAM_CAPTURE_STATUS_ACTIVE": 1,
        "CU_MEM_LOCATION_TYPE_DEVICE": 1, "CU_MEM_ALLOCATION_TYPE_PINNED": 1, "CU_MEM_ACCESS_FLAGS_PROT_READWRITE": 3,
        "CU_MEM_ALLOC_GRANULARITY_MINIMUM": 0, "CU_STREAM_CAPTURE_STATUS_INVALIDATED": 2, "CU_TENSOR_MAP_INTERLEAVE_NONE": tile_maps._PLAIN,
        "CU_TENSOR_MAP_SWIZZLE_128B": tile_maps._SWIZZLE_128, "CU_TENSOR_MAP_L2_PROMOTION_L2_256B": tile_maps._L2_256,
        "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE": tile_maps._ZEROS, "CU_TENSOR_MAP_DATA_TYPE_UINT8": tile_maps._BYTES,
    }  # fmt: skip
    assert (parameters_native.SWIZZLE_128, parameters_native.L2_256) == (tile_maps._SWIZZLE_128, tile_maps._L2_256)
    for prefix, numbers, names in (
        ("CU_DEVICE_ATTRIBUTE_", attributes.DEVICE, {}),
        ("CU_FUNC_ATTRIBUTE_", attributes.FUNCTION, _FUNCTION_NAMES),
        ("CU_LAUNCH_ATTRIBUTE_", attributes.LAUNCH, _LAUNCH_NAMES),
        ("CU_POINTER_ATTRIBUTE_", attributes.POINTER, {"range_start": "RANGE_START_ADDR"}),
        ("CU_STREAM_CAPTURE_MODE_", attributes.CAPTURE_MODES, {}),
        ("CU_TENSOR_MAP_DATA_TYPE_", tile_maps.KINDS, {}),
    ):
        constants |= dict(_prefixed(prefix, numbers, names))
    structures = {
        "CUipcMemHandle": Structure(library._Handle, {}),
        "CUipcEventHandle": Structure(library._Handle, {}),
        "CUlaunchAttribute": Structure(library._Attribute, {"id": "id", "value": "value"}),
        "CUlaunchConfig": Structure(library._Config, _CONFIG),
        "CUDA_KERNEL_NODE_PARAMS_v1": Structure(library._Node, _NODE),
        "CUmemLocation": Structure(library._Place, {"kind": "type", "number": "id"}),
        "CUmemAllocationProp": Structure(library._Properties, _PROPERTIES),
        "CUmemAccessDesc": Structure(library._Access, {"place": "location", "flags": "flags"}),
        "CUtensorMap": Structure(ctypes.c_char * 128, {}),
        "CUuuid": Structure(ctypes.c_char * 16, {}),
    }
    names = {symbol: name for name, (symbol, _) in library._FUNCTIONS.items()}
    names |= {symbol: symbol.removesuffix("_v2") for symbol in library.MORE}
    return Asked(("cuda.h", "cudaProfiler.h"), letters, constants, structures, r"libcuda\.so", names)


# ***** libraries *****


def _cublaslt() -> Asked:
    types = {
        "float32": "R_32F", "float64": "R_64F", "float16": "R_16F", "int8": "R_8I", "int32": "R_32I", "bfloat16": "R_16BF",
        "float8_e4m3fn": "R_8F_E4M3", "float8_e5m2": "R_8F_E5M2",
    }  # fmt: skip
    sums = {"float32": "32F", "float64": "64F", "int32": "32I", "tf32": "32F_FAST_TF32"}
    constants = dict(_prefixed("CUDA_", cublaslt._TYPES, types))
    constants |= dict(_prefixed("CUBLAS_COMPUTE_", cublaslt._COMPUTE, sums))
    constants |= {
        "CUBLASLT_MATMUL_DESC_TRANSA": cublaslt._TRANSPOSE_A, "CUBLASLT_MATMUL_DESC_TRANSB": cublaslt._TRANSPOSE_B,
        "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT": cublaslt._BATCH, "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET": cublaslt._BATCH_STRIDE,
        "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": cublaslt._MOST_WORKSPACE, "CUBLAS_OP_N": 0, "CUBLAS_OP_T": 1,
    }  # fmt: skip
    constants |= {
        f"CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{x}_BYTES": n for x, n in zip("ABCD", cublaslt._ALIGNMENTS, strict=True)
    }
    fields = {
        "algorithm": "algo",
        "workspace": "workspaceSize",
        "state": "state",
        "waves": "wavesCount",
        "reserved": "reserved",
    }
    results = {"cublasLtMatmulHeuristicResult_t": Structure(cublaslt.Heuristic, fields)}
    return Asked(("cublasLt.h",), cublaslt._SIGNATURES, constants, results, r"libcublasLt\.so")


def _cusolver() -> Asked:
    constants = {
        "CUBLAS_FILL_MODE_LOWER": cusolver.LOWER, "CUSOLVER_EIG_MODE_NOVECTOR": cusolver.VECTORS[0],
        "CUSOLVER_EIG_MODE_VECTOR": cusolver.VECTORS[1],
    }  # fmt: skip
    return Asked(("cusolverDn.h",), cusolver._SIGNATURES, constants, {}, r"libcusolver\.so")


def _cudnn() -> Asked:
    types = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "bfloat16": "BFLOAT16"}
    constants = dict(_prefixed("CUDNN_DATA_", cudnn.TYPES, types)) | {
        "CUDNN_TENSOR_NCHW": cudnn.ROWS_INNER, "CUDNN_TENSOR_NHWC": cudnn.CHANNELS_INNER, "CUDNN_CONVOLUTION": cudnn.FLIPPED,
        "CUDNN_CROSS_CORRELATION": cudnn.NOT_FLIPPED, "CUDNN_DEFAULT_MATH": cudnn.DEFAULT_MATH, "CUDNN_TENSOR_OP_MATH": cudnn.TENSOR_MATH,
        "CUDNN_FMA_MATH": cudnn.EXACT_MATH, "CUDNN_DETERMINISTIC": cudnn.DETERMINISTIC,
    }  # fmt: skip
    fields = {
        "algorithm": "algo", "status": "status", "milliseconds": "time", "workspace": "memory", "deterministic": "determinism",
        "math": "mathType", "reserved": "reserved",
    }  # fmt: skip
    names = ("Fwd", "BwdData", "BwdFilter")
    structures = {f"cudnnConvolution{name}AlgoPerf_t": Structure(cudnn.Performance, fields) for name in names}
    return Asked(("cudnn.h",), cudnn._SIGNATURES, constants, structures, r"libcudnn\.so")


def _cupti() -> Asked:
    kinds = {
        "MEMCPY": cupti.MEMCPY, "MEMSET": cupti.MEMSET, "KERNEL": cupti.KERNEL, "DRIVER": cupti.DRIVER,
        "CONCURRENT_KERNEL": cupti.CONCURRENT_KERNEL, "MEMCPY2": cupti.MEMCPY_BETWEEN, "EXTERNAL_CORRELATION": cupti.CORRELATION,
    }  # fmt: skip
    constants = dict(_prefixed("CUPTI_ACTIVITY_KIND_", kinds))
    constants |= {f"CUPTI_ACTIVITY_MEMCPY_KIND_{text.upper()}": n for n, text in cupti._COPIES.items()}
    constants |= {f"CUPTI_ACTIVITY_MEMORY_KIND_{text.upper()}": n for n, text in cupti._MEMORIES.items()}
    constants |= {
        "CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0": cupti._OURS, "CUPTI_ERROR_MAX_LIMIT_REACHED": cupti._NO_MORE,
        "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES": cupti.NO_PRIVILEGE, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED": cupti.ANOTHER,
        "CUPTI_ACTIVITY_FLAG_FLUSH_FORCED": cupti.FORCED,
    }  # fmt: skip
    times = {name: name for name in ("kind", "start", "end")} | {
        "device": "deviceId",
        "stream": "streamId",
        "context": "contextId",
    }
    kernel = times | {
        "registers": "registersPerThread", "completed": "completed", "grid": "gridX", "block": "blockX", "static_shared": "staticSharedMemory",
        "dynamic_shared": "dynamicSharedMemory", "correlation": "correlationId", "grid_id": "gridId", "name": "name",
    }  # fmt: skip
    copy = times | {
        "copy": "copyKind",
        "source": "srcKind",
        "target": "dstKind",
        "bytes": "bytes",
        "correlation": "correlationId",
    }
    fill = times | {"value": "value", "bytes": "bytes", "correlation": "correlationId"}
    tie = {"kind": "kind", "of": "externalKind", "id": "externalId", "correlation": "correlationId"}
    structures = {
        "CUpti_ActivityKernel*": Structure(cupti._Kernel, kernel), "CUpti_ActivityMemcpy*": Structure(cupti._Copy, copy),
        "CUpti_ActivityMemcpyPtoP*": Structure(cupti._CopyBetween, copy), "CUpti_ActivityMemset*": Structure(cupti._Fill, fill),
        "CUpti_ActivityExternalCorrelation": Structure(cupti._Correlation, tie),
    }  # fmt: skip
    return Asked(("cupti.h",), cupti._SIGNATURES, constants, structures, r"libcupti\.so")


def _nvml() -> Asked:
    constants = {
        "NVML_CLOCK_SM": management._SM_CLOCK, "NVML_TEMPERATURE_GPU": management._TEMPERATURE_GPU,
    }  # fmt: skip
    process = {"pid": "pid", "used": "usedGpuMemory", "instance": "gpuInstanceId", "compute": "computeInstanceId"}
    structures = {
        "nvmlUtilization_t": Structure(management._Rates, {"gpu": "gpu", "memory": "memory"}),
        "nvmlMemory_t": Structure(management._MemoryUse, {"total": "total", "free": "free", "used": "used"}),
        "nvmlProcessInfo_t": Structure(management._Process, process),
    }
    return Asked(("nvml.h",), management._SIGNATURES, constants, structures, r"libnvidia-ml\.so")


def _nvtx() -> Asked:
    return Asked(("nvToolsExt.h",), nvtx._SIGNATURES, {}, {}, r"lib(?:nvToolsExt|nvtx3interop)\.so")


def _nccl() -> Asked:
    types = {"bool": "Uint8"} | {name: name.capitalize() for name in nccl_library.DTYPES if name != "bool"}
    constants = dict(_prefixed("nccl", nccl_library.DTYPES, types))
    constants |= dict(
        _prefixed("nccl", nccl_library.OPERATIONS, {name: name.capitalize() for name in nccl_library.OPERATIONS})
    )
    constants |= {
        "ncclSuccess": nccl_library.SUCCESS, "ncclInProgress": nccl_library.IN_PROGRESS, "NCCL_SPLIT_NOCOLOR": nccl_library.NO_COLOR,
    }  # fmt: skip
    fields = {
        name: name
        for name in (
            "size",
            "magic",
            "version",
            "blocking",
            "cgaClusterSize",
            "minCTAs",
            "maxCTAs",
            "netName",
            "splitShare",
        )
    }
    structures = {
        "ncclUniqueId": Structure(nccl_library.UniqueId, {}),
        "ncclConfig_t": Structure(nccl_library.Config, fields),
    }
    return Asked(("nccl.h",), nccl_library._SIGNATURES, constants, structures, r"libnccl\.so")


LIBRARIES = {
    "driver": _driver(), "cublaslt": _cublaslt(), "cupti": _cupti(), "nvml": _nvml(), "nvtx": _nvtx(), "nccl": _nccl(),
    "cusolver": _cusolver(), "cudnn": _cudnn(),
}  # fmt: skip
