"""How our compiled code is made: numba, kept on disk, without the interpreter's lock.

Decorators of our own, because numba's are untyped: a `kernel` is a compiled function, an `inlined` one a piece of a
kernel, an `instruction` writes LLVM itself.

numba keeps a kernel as long as its own file is unchanged, although code of other files is compiled into it. So the
kernels of a module lie in a folder that is named by what this module and all that it imports say: a kernel of other
sources is never taken for these ones'.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numba
from llvmlite import binding
from numba import njit, types
from numba.core import caching, event, sigutils
from numba.core.registry import cpu_target
from numba.core.typing.typeof import typeof_impl
from numba.extending import intrinsic

from ipc.compiled import carried
from ipc.compiled.kernel_folders import folder_of
from ipc.compiled.kernels import CompilingStopped, Late, late_form_of
from ipc.errors import CompilerOff
from ipc.machine import baseline

# A kernel's place on disk, such that of all processes that need it at once one compiles and the others wait for it.
#
# After a change of the sources the processes of a test run, or two brokers on one machine, ask for the same kernels at
# the same time. Who finds one missing locks the folder of its module, looks again, and holds the lock until the kernel
# is saved. Modules do not import each other in circles and neither do kernels call, so nobody waits for one who waits.
LONGEST_WAIT_SECONDS = 600.0  # then it is compiled here, too: only time is lost
LOOK_EACH_SECONDS = 0.02

cache_class: Any = caching.FunctionCache  # untyped


class Folders:
    """The folders that this process has locked; numba compiles in one thread at a time."""

    def __init__(self, waiting: Callable[[], None]) -> None:
        self._waiting = waiting  # called again and again while another process compiles; may raise
        self._held: dict[str, list[int]] = {}  # path: descriptor, how many kernels of it are being compiled

    def lock(self, path: str) -> None:
        """Wait for the folder; without one that can be locked everybody compiles for himself."""
        if held := self._held.get(path):
            held[1] += 1
            return
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            self._wait(fd)
        except BaseException:
            os.close(fd)
            raise
        self._held[path] = [fd, 1]

    def unlock(self, path: str) -> None:
        """The kernel is saved, or could not be made."""
        if held := self._held.get(path):
            held[1] -= 1
            if not held[1]:
                os.close(held[0])
                del self._held[path]

    def _wait(self, fd: int) -> None:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while time.monotonic() < deadline:
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._waiting()
                time.sleep(LOOK_EACH_SECONDS)
            except OSError:  # a file system without locks
                return None
        return None


class KernelCache(cache_class):  # type: ignore[misc]
    """numba's, which leaves its lock with the compiler between a miss and what is saved then."""

    def __init__(self, function: Callable[..., Any], folders: Folders) -> None:
        super().__init__(function)
        self._folders = folders
        self._compiles = 0  # forms of this kernel that are being compiled here: one may need another

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel from disk; None where it is to be compiled, with the lock held."""
        overload = super().load_overload(sig, target_context)
        if overload is not None:
            return overload
        self._folders.lock(self.cache_path)
        try:
            overload = super().load_overload(sig, target_context)
        finally:
            if overload is not None:
                self._folders.unlock(self.cache_path)
        self._compiles += overload is None
        return overload

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the kernel to disk, for the processes that wait."""
        try:
            super().save_overload(sig, data)
        finally:
            self.given_up()

    def given_up(self) -> None:
        """End the wait of others: it was saved, or compiling raised an exception."""
        if self._compiles:
            self._compiles -= 1
            self._folders.unlock(self.cache_path)


config: Any = numba.config  # untyped
numba_event: Any = event
signatures: Any = sigutils
binding.initialize_native_asmparser()  # for the assembly in `ipc.compiled.carryless`; numba itself has none
if config.DISABLE_JIT:
    raise CompilerOff
is_native = os.environ.get(carried.ASKED) == carried.NATIVE or {config.CPU_NAME, config.CPU_FEATURES} != {None}
if not is_native and (compiled_for := baseline()) is not None:
    config.CPU_NAME = compiled_for.name
    config.CPU_FEATURES = compiled_for.features

_given_folder: str = config.CACHE_DIR  # what NUMBA_CACHE_DIR says
TOLD_EACH_SECONDS = 3.0
COMPILING = "numba:compile"  # the event: a function was found neither in memory nor on disk
_kernels: list[Any] = []  # all that were declared so far, compiled or not
STEP = "numba:run_pass"  # the event: one of the many steps of compiling a function


class _Progress(event.Listener):
    """Counts what is compiled, and tells of it after the first seconds and then every few."""

    def __init__(self, tell: Callable[[str], None] | None) -> None:
        self.tell = tell
        self._depth = 0
        self._spent = self._told_at = self._began = 0.0
        self._waited = False

    def on_start(self, event: Any) -> None:
        if not self._depth:
            self._began = time.monotonic()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        now = time.monotonic()
        spent = self._spent + now - self._began
        if not self._depth:
            self._spent = spent
        if self.tell is not None and spent >= self._told_at + TOLD_EACH_SECONDS:
            self._told_at = spent
            ready = sum(bool(one.signatures) for one in _kernels)
            what = f"{ready} of {len(_kernels)} functions are ready after {spent:.0f} s"
            why = carried.why_not()
            reason = f"; the package's compiled code is not used: {why}" if why else ""
            self.tell(f"compiling for this machine, once for each version: {what}{reason}")

    def waiting(self) -> None:
        """Say that another process compiles what is needed here."""
        if self.tell is not None and not self._waited:
            self._waited = True
            self.tell("waiting for another process that compiles for this machine")


class _Ending(event.Listener):
    """Raises CompilingStopped at the next step once that is asked for."""

    def __init__(self) -> None:
        self.asked: Callable[[], bool] | None = None

    def look(self) -> None:
        """Raise it now if it is asked for."""
        if self.asked is not None and self.asked():
            raise CompilingStopped

    def on_start(self, event: Any) -> None:
        self.look()

    def on_end(self, event: Any) -> None:
        pass


def _print(line: str) -> None:
    print(f"slipstream: {line}", file=sys.stderr, flush=True)


_progress = _Progress(_print if sys.stderr is not None and sys.stderr.isatty() else None)
numba_event.register(COMPILING, _progress)
_ending = _Ending()
numba_event.register(STEP, _ending)


def _wait() -> None:
    _progress.waiting()
    _ending.look()


_folders = Folders(_wait)


def kernels() -> list[Any]:
    """Return all kernels that were declared so far, as numba's functions."""
    return list(_kernels)


def tell_progress_to(tell: Callable[[str], None]) -> None:
    """Set the function that hears every few seconds what is being compiled; on a terminal that is shown anyway."""
    _progress.tell = tell


@contextmanager
def stopped_by(asked: Callable[[], bool]) -> Iterator[None]:
    """Have a kernel that is not compiled yet raise CompilingStopped in the block once `asked()`: it takes minutes."""
    _ending.asked = asked
    try:
        yield
    finally:
        _ending.asked = None


def _compile(function: Callable[..., Any], **options: Any) -> Any:
    compiled = _kept(function, **options)
    _kernels.append(compiled)
    compiled.compile = _taking_members_as_numbers(compiled.compile)
    return compiled


def _kept(function: Callable[..., Any], **options: Any) -> Any:
    """numba looks for its folder when a function is decorated, so each is given its own there."""
    folder = folder_of(Path(function.__code__.co_filename), _given_folder)
    if folder is None:  # nothing here may be written: compiled anew by every process
        return njit(nogil=True, **options)(function)
    config.CACHE_DIR = str(folder)
    try:
        compiled = njit(nogil=True, **options)(function)
        cache = compiled._cache = KernelCache(function, _folders)
    finally:
        config.CACHE_DIR = _given_folder
    compiled._compiler.compile = _giving_up(cache, compiled._compiler.compile)
    return compiled


def _taking_members_as_numbers(compiling: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what compiles, or finds compiled, a form of a kernel: for a member of an IntEnum that of plain numbers.

    numba would compile the kernel anew for each enumeration, in the midst of work where Python calls it.
    """

    def compile_for_numbers(signature: Any) -> Any:
        arguments, _result = signatures.normalize_signature(signature)
        return compiling(tuple(of.dtype if isinstance(of, types.IntEnumMember) else of for of in arguments))

    return compile_for_numbers


def _giving_up(cache: KernelCache, compiling: Callable[..., Any]) -> Callable[..., Any]:
    """Return what compiles, and does not leave others waiting when an exception ends it."""

    def compile_once(*arguments: Any) -> Any:
        try:
            return compiling(*arguments)
        except BaseException:
            cache.given_up()
            raise

    return compile_once


def kernel(function: Callable[..., Any]) -> Any:
    """Compile on first use, cache on disk, run without the interpreter's lock."""
    return _compile(function)


def bare_kernel(function: Callable[..., Any]) -> Any:
    """A kernel that makes no arrays and becomes part of those that call it.

    References to arrays are not counted, which saves atomic adds at every use, and none is passed on the stack.
    """
    return _compile(function, _nrt=False, forceinline=True)


def inlined(function: Callable[..., Any]) -> Any:
    """A piece of a kernel, inlined where it is called."""
    return njit(inline="always")(function)


def instruction(function: Callable[..., Any]) -> Any:
    """Declare one machine-level operation for kernels."""
    return intrinsic(function)


@typeof_impl.register(Late)
@typeof_impl.register(BuiltinFunctionType)
@typeof_impl.register(FunctionType)
def _type_of_declared(value: Any, _context: Any) -> Any:
    """What a kernel that is compiled although there is carried code means by another one's name."""
    made = late_form_of(value)
    if made is None:
        return None
    typing, target = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()  # an instruction that was just declared
    target.refresh()
    return typing.resolve_value_type(made)
