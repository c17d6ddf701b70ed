/* The module: what `ipc.compiled.carried.Library` calls of it. */

#define KERNELS ((Py_ssize_t)(sizeof kernels / sizeof *kernels))

static PyObject *functions(PyObject *self, PyObject *none)
{
    PyObject *all = PyDict_New();
    for (Py_ssize_t n = 0; all != NULL && n < KERNELS; n++) {
        PyObject *function = PyCFunction_New(&methods[n], NULL);
        if (function == NULL || PyDict_SetItemString(all, kernels[n].name, function) < 0)
            Py_CLEAR(all);
        Py_XDECREF(function);
    }
    return all;
}

static PyObject *on_missed(PyObject *self, PyObject *hook)
{
    Py_IncRef(hook);
    Py_XDECREF(missed_hook);
    missed_hook = hook;
    Py_IncRef(Py_None);
    return Py_None;
}

static PyObject *on_result(PyObject *self, PyObject *arguments)
{
    const char *name;
    PyObject *classes;
    if (!PyArg_ParseTuple(arguments, "sO!", &name, &PyTuple_Type, &classes))
        return NULL;
    for (Py_ssize_t n = 0; n < KERNELS; n++) {
        if (strcmp(kernels[n].name, name) != 0)
            continue;
        for (Py_ssize_t m = 0; m < PyTuple_Size(classes) && m < CLASSES_MAX; m++) {
            kernels[n].classes[m] = PyTuple_GetItem(classes, m);
            Py_IncRef(kernels[n].classes[m]);
        }
        Py_IncRef(Py_None);
        return Py_None;
    }
    return PyErr_Format(PyExc_KeyError, "no kernel %s", name);
}

static PyMethodDef of_module[] = {
    {"functions", functions, METH_NOARGS, "The kernels: module and name, function."},
    {"on_missed", on_missed, METH_O, "Set what is called with a kernel's name and arguments that no form takes."},
    {"on_result", on_result, METH_VARARGS, "Set the enumerations of a kernel's result."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "carried", NULL, -1, of_module, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_carried(void)
{
    import_array();
    return PyModule_Create(&module);
}
