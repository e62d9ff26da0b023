"""CPython's C interface as the native code uses it, and small things that are read from objects directly."""

from __future__ import annotations

from rushlight._native import extern, extern_data, i64, native, select, stack, u32, u64
from rushlight._native.objects import DIGIT_BITS, IMMORTAL_FROM, NEW_INTS, TUPLE_ITEMS

PyBool_FromLong = extern("PyBool_FromLong", "ptr(i64)")
PyBuffer_FillInfo = extern("PyBuffer_FillInfo", "i32(ptr, ptr, ptr, i64, i32, i32)")
PyBytes_AsString = extern("PyBytes_AsString", "ptr(ptr)")
PyBytes_FromStringAndSize = extern("PyBytes_FromStringAndSize", "ptr(ptr, i64)")
PyCFunction_NewEx = extern("PyCFunction_NewEx", "ptr(ptr, ptr, ptr)")
PyDict_GetItemWithError = extern("PyDict_GetItemWithError", "ptr(ptr, ptr)")
PyDict_SetItem = extern("PyDict_SetItem", "i32(ptr, ptr, ptr)")
PyErr_Clear = extern("PyErr_Clear", "void()")
PyErr_ExceptionMatches = extern("PyErr_ExceptionMatches", "i32(ptr)")
PyErr_Fetch = extern("PyErr_Fetch", "void(ptr, ptr, ptr)")
PyErr_Format = extern("PyErr_Format", "ptr(ptr, ptr, ...)")
PyErr_NoMemory = extern("PyErr_NoMemory", "ptr()")
PyErr_NormalizeException = extern("PyErr_NormalizeException", "void(ptr, ptr, ptr)")
PyErr_Occurred = extern("PyErr_Occurred", "ptr()")
PyErr_Restore = extern("PyErr_Restore", "void(ptr, ptr, ptr)")
PyEval_GetFrame = extern("PyEval_GetFrame", "ptr()")
PyEval_RestoreThread = extern("PyEval_RestoreThread", "void(ptr)")
PyEval_SaveThread = extern("PyEval_SaveThread", "ptr()")
PyException_GetTraceback = extern("PyException_GetTraceback", "ptr(ptr)")
PyException_SetTraceback = extern("PyException_SetTraceback", "i32(ptr, ptr)")
PyFloat_AsDouble = extern("PyFloat_AsDouble", "f64(ptr)")
PyFloat_FromDouble = extern("PyFloat_FromDouble", "ptr(f64)")
PyFrame_GetBack = extern("PyFrame_GetBack", "ptr(ptr)")
PyFrame_GetCode = extern("PyFrame_GetCode", "ptr(ptr)")
PyFrame_GetLasti = extern("PyFrame_GetLasti", "i32(ptr)")
PyGILState_Ensure = extern("PyGILState_Ensure", "i32()")
PyGILState_Release = extern("PyGILState_Release", "void(i32)")
PyIter_Next = extern("PyIter_Next", "ptr(ptr)")
PyList_Append = extern("PyList_Append", "i32(ptr, ptr)")
PyList_AsTuple = extern("PyList_AsTuple", "ptr(ptr)")
PyList_New = extern("PyList_New", "ptr(i64)")
PyList_SetItem = extern("PyList_SetItem", "i32(ptr, i64, ptr)")
PyLong_AsLongLong = extern("PyLong_AsLongLong", "i64(ptr)")
PyLong_AsLongLongAndOverflow = extern("PyLong_AsLongLongAndOverflow", "i64(ptr, ptr)")
PyLong_AsUnsignedLongLong = extern("PyLong_AsUnsignedLongLong", "u64(ptr)")
PyLong_FromLongLong = extern("PyLong_FromLongLong", "ptr(i64)")
PyLong_FromUnsignedLongLong = extern("PyLong_FromUnsignedLongLong", "ptr(u64)")
PyMethod_New = extern("PyMethod_New", "ptr(ptr, ptr)")
PyNumber_Index = extern("PyNumber_Index", "ptr(ptr)")
PyObject_ClearWeakRefs = extern("PyObject_ClearWeakRefs", "void(ptr)")
PyObject_Free = extern("PyObject_Free", "void(ptr)")
PyObject_GetAttr = extern("PyObject_GetAttr", "ptr(ptr, ptr)")
PyObject_New = extern("_PyObject_New", "ptr(ptr)")
PyObject_Vectorcall = extern("PyObject_Vectorcall", "ptr(ptr, ptr, u64, ptr)")
PyThreadState_Get = extern("PyThreadState_Get", "ptr()")
PyThreadState_GetID = extern("PyThreadState_GetID", "u64(ptr)")
PyTuple_New = extern("PyTuple_New", "ptr(i64)")
PyTuple_SetItem = extern("PyTuple_SetItem", "i32(ptr, i64, ptr)")
PyType_GenericAlloc = extern("PyType_GenericAlloc", "ptr(ptr, i64)")
PyType_IsSubtype = extern("PyType_IsSubtype", "i32(ptr, ptr)")
PyUnicode_Tailmatch = extern("PyUnicode_Tailmatch", "i64(ptr, ptr, i64, i64, i32)")
PyWeakref_NewRef = extern("PyWeakref_NewRef", "ptr(ptr, ptr)")
Py_DecRef = extern("Py_DecRef", "void(ptr)")
Py_IncRef = extern("Py_IncRef", "void(ptr)")
free = extern("free", "void(ptr)")
malloc = extern("malloc", "ptr(i64)")

PyBool_Type = extern_data("PyBool_Type")
PyExc_Exception = extern_data("PyExc_Exception")
PyExc_IndexError = extern_data("PyExc_IndexError")
PyExc_OverflowError = extern_data("PyExc_OverflowError")
PyExc_RuntimeError = extern_data("PyExc_RuntimeError")
PyExc_SystemError = extern_data("PyExc_SystemError")
PyExc_TypeError = extern_data("PyExc_TypeError")
PyExc_ValueError = extern_data("PyExc_ValueError")
PyFloat_Type = extern_data("PyFloat_Type")
PyList_Type = extern_data("PyList_Type")
PyLong_Type = extern_data("PyLong_Type")
PySlice_Type = extern_data("PySlice_Type")
PyTuple_Type = extern_data("PyTuple_Type")
PyUnicode_Type = extern_data("PyUnicode_Type")
Py_Ellipsis = extern_data("_Py_EllipsisObject")
Py_False = extern_data("_Py_FalseStruct")
Py_None = extern_data("_Py_NoneStruct")
Py_NotImplemented = extern_data("_Py_NotImplementedStruct")
Py_True = extern_data("_Py_TrueStruct")


@native("ptr(ptr)", inline=True)
def kept(obj):
    """The object with one reference more."""
    Py_IncRef(obj)
    return obj


@native("ptr(ptr)", inline=True)
def kept_inline(obj):
    """The object with one reference more, without a call."""
    if IMMORTAL_FROM == 0:
        obj.i64[0] += 1
    else:
        count = u64(obj.u32[0])
        if count < IMMORTAL_FROM:  # an immortal object's count stays
            obj.u32[0] = u32(count + 1)
    return obj


@native("i64(ptr)", inline=True)
def small_int(obj):
    """The value of an int that is exactly an int; -1 << 63 where it does not fit."""
    digits = obj.u64[2]
    if NEW_INTS:
        digits = select(digits & 3 == 0, digits >> 3, select(digits & 3 == 1, u64(0), u64(9)))
    if digits == 1:
        return i64(obj.u32[6])
    if digits == 0:
        return 0
    if digits == 2:
        return i64(u64(obj.u32[6]) | (u64(obj.u32[7]) << DIGIT_BITS))
    over = stack(8)
    value = PyLong_AsLongLongAndOverflow(obj, over)
    if over.i32[0] != 0:
        return -1 << 63
    return value


@native("ptr(ptr)", inline=True)
def sequence_items(obj):
    """The items of what has a `sequence_size`."""
    if obj.ptr[1] == PyList_Type:
        return obj.ptr[3]
    return obj + 8 * TUPLE_ITEMS
