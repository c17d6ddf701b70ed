/* What every carried kernel is called through: arguments of Python as kernels take them, and their results.

   The forms of the kernels follow this text; `tools.dev.carried.wrappers` writes them. A form takes its arguments one
   by one. Where one is of another kind, the next form is tried, and after the last one Python is asked (`on_missed`).
*/
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RESULT_NONE (-2) /* numba.core.callconv.RETCODE_NONE */
#define CLASSES_MAX 3

typedef struct {
    void *data;
    int64_t items, shape[2], strides[2];
} Array;

typedef struct {
    const char *name;
    PyObject *classes[CLASSES_MAX]; /* of the enumerations in its result */
} Kernel;

static PyObject *missed_hook;

/* numba's runtime, as far as kernels use it: arrays that a kernel makes for itself. */

typedef struct {
    size_t references;
    void *destructor, *destructor_info, *data;
    size_t size;
    void *allocator;
} MemInfo; /* numba/core/runtime/nrt.cpp */

MemInfo *NRT_MemInfo_alloc_aligned(size_t size, uint32_t align)
{
    char *block = malloc(sizeof(MemInfo) + size + align);
    if (block == NULL)
        return NULL;
    MemInfo *info = (MemInfo *)block;
    uintptr_t data = (uintptr_t)(block + sizeof(MemInfo));
    info->references = 1;
    info->data = (void *)((data + align - 1) / align * align);
    info->size = size;
    return info;
}

void NRT_MemInfo_call_dtor(MemInfo *info) { free(info); }

void NRT_Free(void *block) { free(block); }

/* Arguments: 1 where it is taken, 0 where it is of another kind or an exception is set. */

static int take_array(PyObject *given, Array *array, int type, int dimensions, int is_written)
{
    if (!PyArray_Check(given))
        return 0;
    PyArrayObject *object = (PyArrayObject *)given;
    int wanted = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | (is_written ? NPY_ARRAY_WRITEABLE : 0);
    int found = PyArray_TYPE(object) == NPY_LONGLONG ? NPY_LONG : PyArray_TYPE(object);
    if (found != type || PyArray_NDIM(object) != dimensions || (PyArray_FLAGS(object) & wanted) != wanted)
        return 0;
    if (PyArray_ISBYTESWAPPED(object))
        return 0;
    array->data = PyArray_DATA(object);
    array->items = 1;
    for (int n = 0; n < dimensions; n++) {
        array->shape[n] = PyArray_DIM(object, n);
        array->strides[n] = PyArray_STRIDE(object, n);
        array->items *= array->shape[n];
    }
    return 1;
}

static int take_bytes(PyObject *given, Array *array)
{
    char *data;
    Py_ssize_t length;
    if (!PyBytes_Check(given) || PyBytes_AsStringAndSize(given, &data, &length) < 0)
        return 0;
    array->data = data;
    array->items = array->shape[0] = length;
    array->strides[0] = 1;
    return 1;
}

static int take_int(PyObject *given, int64_t *number)
{
    if (PyLong_Check(given)) {
        *number = PyLong_AsLongLong(given);
    } else if (PyIndex_Check(given)) {
        PyObject *whole = PyNumber_Index(given);
        if (whole == NULL)
            return 0;
        *number = PyLong_AsLongLong(whole);
        Py_DecRef(whole);
    } else {
        return 0;
    }
    return *number != -1 || !PyErr_Occurred();
}

static int take_bool(PyObject *given, uint8_t *flag)
{
    int is_true = PyBool_Check(given) || PyArray_IsScalar(given, Bool) ? PyObject_IsTrue(given) : -1;
    *flag = is_true > 0;
    return is_true >= 0;
}

static int take_tuple(PyObject *given, Py_ssize_t members)
{
    return PyTuple_Check(given) && PyTuple_Size(given) == members;
}

/* Results. */

static PyObject *boxed_member(const Kernel *kernel, int number, int64_t value)
{
    PyObject *whole = PyLong_FromLongLong(value);
    if (whole == NULL || kernel->classes[number] == NULL)
        return whole;
    PyObject *member = PyObject_CallFunctionObjArgs(kernel->classes[number], whole, NULL);
    Py_DecRef(whole);
    return member;
}

static PyObject *boxed_tuple(Py_ssize_t members, PyObject **values)
{
    PyObject *tuple = PyTuple_New(members);
    for (Py_ssize_t n = 0; n < members; n++) {
        if (tuple == NULL || values[n] == NULL) {
            for (; n < members; n++)
                Py_XDECREF(values[n]);
            Py_XDECREF(tuple);
            return NULL;
        }
        PyTuple_SetItem(tuple, n, values[n]);
    }
    return tuple;
}

static PyObject *failed(const Kernel *kernel, int status)
{
    return PyErr_Format(PyExc_RuntimeError, "compiled code failed: %s raised an exception (status %d)", kernel->name,
                        status);
}

static PyObject *missed(const Kernel *kernel, PyObject *const *arguments, Py_ssize_t count)
{
    if (PyErr_Occurred())
        return NULL;
    if (missed_hook == NULL)
        return PyErr_Format(PyExc_TypeError, "%s: no carried form takes these arguments", kernel->name);
    PyObject *all = PyTuple_New(count);
    if (all == NULL)
        return NULL;
    for (Py_ssize_t n = 0; n < count; n++) {
        Py_IncRef(arguments[n]);
        PyTuple_SetItem(all, n, arguments[n]);
    }
    PyObject *result = PyObject_CallFunction(missed_hook, "sO", kernel->name, all);
    Py_DecRef(all);
    return result;
}

