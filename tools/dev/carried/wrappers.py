"""The functions of the interpreter's around compiled kernels, as C: one a kernel, with a case for each form of it.

A kernel is called as numba calls it (its module numba.core.callconv): where its result goes, where its exception goes,
then its arguments in their smallest parts. An array's are seven or nine: two that only numba's runtime needs, its
size, its data, its shape and strides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numba.types

types: Any = numba.types  # untyped
C_TYPES = {"i1": "uint8_t", "i8": "uint8_t", "i32": "int32_t", "i64": "int64_t", "double": "double"}
ARRAY_TYPES = {"uint8": "NPY_UINT8", "int32": "NPY_INT32", "int64": "NPY_LONG"}


class NoWrapper(Exception):
    """Raised for a kernel with an argument or a result of a kind that no kernel had before."""


@dataclass(frozen=True)
class Form:
    """A kernel compiled for one kind of arguments: the name of its code, numba's types, those of LLVM as text."""

    symbol: str
    arguments: tuple[Any, ...]
    result: Any
    argument_parts: tuple[str, ...]


@dataclass
class Entry:
    """A kernel that Python calls, by its module and name."""

    name: str
    forms: list[Form] = field(default_factory=list)

    @property
    def classes(self) -> list[str]:
        """Return the enumerations of its result, as `module:name`."""
        members = [each for each in _members_of(self.forms[0].result) if isinstance(each, types.EnumMember)]
        return [f"{each.instance_class.__module__}:{each.instance_class.__name__}" for each in members]


def check(arguments: Sequence[Any], result: Any) -> None:
    """Raise NoWrapper for kinds of arguments or results that Python cannot hand over, or no kernel had before."""
    taking = _Taking()
    for number, kind in enumerate(arguments):
        taking.take(kind, f"arguments[{number}]")
    list(_returned(result, _members_of(result)))


def text_of(entries: Sequence[Entry]) -> str:
    """Return the C text of all entries, which follows `carried.c`."""
    parts = [f"static Kernel kernels[{len(entries)}] = {{"]
    parts += [f'    {{"{entry.name}", {{NULL}}}},' for entry in entries]
    parts += ["};", ""]
    for number, entry in enumerate(entries):
        parts += _function(number, entry)
    parts += ["static PyMethodDef methods[] = {"]
    parts += [
        f'    {{"{entry.name.rpartition(".")[2]}", (PyCFunction)(void (*)(void))kernel_{number}, METH_FASTCALL, NULL}},'
        for number, entry in enumerate(entries)
    ]
    parts += ["    {NULL, NULL, 0, NULL}", "};", ""]
    return "\n".join(parts)


def _function(number: int, entry: Entry) -> Iterator[str]:
    for form in entry.forms:
        declared = ", ".join(["void *", "void **", *(_c_type(part) for part in form.argument_parts)])
        yield f'extern int form_{_mark(form)}({declared}) __asm__("{form.symbol}");'
    yield f"static PyObject *kernel_{number}(PyObject *self, PyObject *const *arguments, Py_ssize_t count)"
    yield "{"
    yield f"    Kernel *kernel = &kernels[{number}];"
    for form in entry.forms:
        yield from _case(form)
    yield "    return missed(kernel, arguments, count);"
    yield "}"
    yield ""


def _mark(form: Form) -> str:
    return f"{crc32(form.symbol.encode()):08x}"


def _c_type(part: str) -> str:
    return "void *" if part.endswith("*") or part == "ptr" else C_TYPES[part]


def _case(form: Form) -> Iterator[str]:
    """Return the lines that call one form if its arguments are of its kinds."""
    taking = _Taking()
    for number, kind in enumerate(form.arguments):
        taking.take(kind, f"arguments[{number}]")
    if len(taking.values) != len(form.argument_parts):
        raise NoWrapper(f"{form.symbol}: {len(taking.values)} values for {len(form.argument_parts)} parts")
    yield f"    if (count == {len(form.arguments)}) {{"
    yield from (f"        {line}" for line in taking.declared)
    yield f"        if ({' && '.join(taking.conditions) or '1'}) {{"
    members = _members_of(form.result)
    if members:
        kinds = ["uint8_t" if member == types.boolean else "int64_t" for member in members]
        yield f"            struct {{ {' '.join(f'{kind} m{n};' for n, kind in enumerate(kinds))} }} result;"
    else:
        yield "            void *result = NULL;"
    yield "            void *error = NULL;"
    yield "            PyThreadState *state = PyEval_SaveThread();"
    yield f"            int status = form_{_mark(form)}({', '.join(['&result', '&error', *taking.values])});"
    yield "            PyEval_RestoreThread(state);"
    yield "            if (status != 0 && status != RESULT_NONE)"
    yield "                return failed(kernel, status);"
    yield from (f"            {line}" for line in _returned(form.result, members))
    yield "        }"
    yield "    }"


class _Taking:
    """The C text that takes arguments: declarations, conditions, and the values that are passed on."""

    def __init__(self) -> None:
        self.declared: list[str] = []
        self.conditions: list[str] = []
        self.values: list[str] = []

    def take(self, kind: Any, given: str) -> None:
        """Add one argument, which is `given` in C."""
        name = f"a{len(self.declared)}"
        if isinstance(kind, types.BaseTuple):
            self.conditions.append(f"take_tuple({given}, {len(kind.types)})")
            for number, member in enumerate(kind.types):
                self.take(member, f"PyTuple_GetItem({given}, {number})")
        elif isinstance(kind, types.Bytes):
            self._take_array(name, f"take_bytes({given}, &{name})", 1, 1)
        elif isinstance(kind, types.Array):
            of, is_written = ARRAY_TYPES.get(str(kind.dtype)), int(kind.mutable)
            if of is None or kind.layout != "C" or not kind.aligned or kind.ndim > 2:
                raise NoWrapper(f"{kind}")
            condition = f"take_array({given}, &{name}, {of}, {kind.ndim}, {is_written})"
            self._take_array(name, condition, kind.ndim, kind.dtype.bitwidth // 8)
        elif kind == types.int64 or isinstance(kind, types.IntEnumMember):
            self._take_number(name, "int64_t", f"take_int({given}, &{name})")
        elif kind == types.boolean:
            self._take_number(name, "uint8_t", f"take_bool({given}, &{name})")
        else:
            raise NoWrapper(f"{kind}")

    def _take_array(self, name: str, condition: str, dimensions: int, item_bytes: int) -> None:
        self.declared.append(f"Array {name};")
        self.conditions.append(condition)
        self.values += ["NULL", "NULL", f"{name}.items", str(item_bytes), f"{name}.data"]
        self.values += [f"{name}.{what}[{n}]" for what in ("shape", "strides") for n in range(dimensions)]

    def _take_number(self, name: str, c_type: str, condition: str) -> None:
        self.declared.append(f"{c_type} {name};")
        self.conditions.append(condition)
        self.values.append(name)


def _members_of(result: Any) -> list[Any]:
    """Return the parts of a result, one if it is no tuple, none for None."""
    if result == types.none:
        return []
    return list(result.types) if isinstance(result, types.BaseTuple) else [result]


def _returned(result: Any, members: Sequence[Any]) -> Iterator[str]:
    if isinstance(result, types.BaseNamedTuple):
        raise NoWrapper(f"result {result}: Python would get a tuple without names")
    if not members:
        yield "Py_IncRef(Py_None);"
        yield "return Py_None;"
        return
    boxed, enumerations = [], 0
    for number, member in enumerate(members):
        value = f"result.m{number}"
        if isinstance(member, types.IntEnumMember):
            boxed.append(f"boxed_member(kernel, {enumerations}, {value})")
            enumerations += 1
        elif member == types.boolean:
            boxed.append(f"PyBool_FromLong({value})")
        elif isinstance(member, types.Integer):
            boxed.append(f"PyLong_FromLongLong({value})")
        else:
            raise NoWrapper(f"result {member}")
    if isinstance(result, types.BaseTuple):
        yield f"PyObject *values[] = {{{', '.join(boxed)}}};"
        yield f"return boxed_tuple({len(boxed)}, values);"
    else:
        yield f"return {boxed[0]};"
