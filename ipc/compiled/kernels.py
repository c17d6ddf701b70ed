"""How compiled functions are declared, and where their code comes from: carried with the package, else from numba.

Where carried code is there (`ipc.compiled.carried`), a kernel that Python calls is a function of it, and numba is not
imported: it takes half a second and 100 MB. What carried code lacks is compiled when it is called, by numba. Without
carried code and without numba everything can be imported, and the first call of a kernel raises CompilerMissing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType
from typing import Any

from ipc.compiled import carried
from ipc.errors import CompilerMissing
from ipc.module_names import named

COMPILER = named("ipc.compiled.compiler")


class CompilingStopped(BaseException):
    """Raised out of a call of a kernel that was not compiled to the end; numba handles every Exception as its own."""


class Late:
    """What numba makes when it is first needed; `make` is called once then, with numba there."""

    def __init__(self, make: Callable[[], Any], function: Callable[..., Any] | None = None) -> None:
        self._make, self.py_func, self._made = make, function, None

    @property
    def made(self) -> Any:
        """Return what numba made of it."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def __call__(self, *arguments: Any) -> Any:
        return self.made(*arguments)


class _Module:
    """A module of the compiler's that is imported when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


types: Any = _Module("numba.types")
ir: Any = _Module("llvmlite.ir")
cgutils: Any = _Module("numba.core.cgutils")
_late: dict[int, Late] = {}  # by the id of a carried function, or of a piece of kernels that Python may call as it is


def late_form_of(declared: Any) -> Any:
    """Return what numba is to use where a kernel names this; None for what was not declared here."""
    late = declared if isinstance(declared, Late) else _late.get(id(declared))
    return late.made if late is not None else None


def python_of(kernel: Any) -> Any:
    """Return the Python function that a kernel was made of."""
    late = _late.get(id(kernel))
    return (kernel if late is None else late).py_func


def is_carried() -> bool:
    """Return whether this process runs carried code."""
    return carried.library() is not None


@cache
def compiles() -> bool:
    """Whether numba compiles what is declared here."""
    return not is_carried() and find_spec("numba") is not None


def _compiler() -> Any:
    try:
        return import_module(COMPILER)
    except ModuleNotFoundError as error:
        if error.name not in ("numba", "llvmlite"):
            raise
        raise CompilerMissing(carried.why_not()) from error


def _declared(function: FunctionType, how: str) -> Any:
    if compiles():
        return getattr(_compiler(), how)(function)
    late, library = Late(lambda: getattr(_compiler(), how)(function), function), carried.library()
    carried_function = None if library is None else library.function_of(function, late)
    if carried_function is None:
        return late
    _late[id(carried_function)] = late
    return carried_function


def kernel(function: Any) -> Any:
    """Declare a compiled function that runs without the interpreter's lock."""
    return _declared(function, "kernel")


def bare_kernel(function: Any) -> Any:
    """A kernel that makes no arrays and becomes part of those that call it.

    References to arrays are not counted, which saves atomic adds at every use, and none is passed on the stack.
    """
    return _declared(function, "bare_kernel")


def inlined(function: Any) -> Any:
    """A piece of a kernel, inlined where it is called."""
    if compiles():
        return _compiler().inlined(function)
    _late[id(function)] = Late(lambda: _compiler().inlined(function), function)
    return function


def instruction(function: Any) -> Any:
    """Declare one machine-level operation for kernels."""
    return _unless_carried(lambda: _compiler().instruction(function))


def external(name: str, result: str, *arguments: str) -> Any:
    """Declare a function of libc or libz for kernels, by the names of numba's types; found when code is loaded."""

    def make() -> Any:
        numbers = [getattr(types, each) for each in arguments]
        return types.ExternalFunction(name, getattr(types, result)(*numbers))

    return _unless_carried(make)


def function_of_numba(name: str) -> Any:
    """Declare a function of numba's own for kernels."""
    return _unless_carried(lambda: getattr(import_module("numba"), name))


def _unless_carried(make: Callable[[], Any]) -> Any:
    return make() if compiles() else Late(make)


def tell_progress_to(tell: Callable[[str], None]) -> None:
    """Set the function that hears every few seconds what is being compiled; on a terminal that is shown anyway."""
    if compiles():
        _compiler().tell_progress_to(tell)


@contextmanager
def stopped_by(asked: Callable[[], bool]) -> Iterator[None]:
    """Have a kernel that is not compiled yet raise CompilingStopped in the block once `asked()`: it takes minutes."""
    with _compiler().stopped_by(asked) if compiles() else nullcontext():
        yield
