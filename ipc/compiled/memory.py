"""Compiled moves of bytes: memcpy between byte arrays, big-endian words at any alignment. The caller checks bounds."""

from __future__ import annotations

from typing import Any

from ipc.compiled.kernels import cgutils, function_of_numba, instruction, ir, types

EQUAL_BYTES = 64
carray: Any = function_of_numba("carray")  # an array over a pointer, given its shape


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


@instruction
def copy_bytes(_typing: Any, target: Any, target_at: Any, source: Any, source_at: Any, count: Any) -> Any:
    """memcpy of `count` bytes between two uint8 arrays."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = _address(context, builder, signature.args[0], arguments[0], arguments[1])
        source_address = _address(context, builder, signature.args[2], arguments[2], arguments[3])
        cgutils.raw_memcpy(builder, to, source_address, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


@instruction
def address_of_bytes(_typing: Any, value: Any) -> Any:
    """Return where the content of a `bytes` object lies."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        proxy = cgutils.create_struct_proxy(signature.args[0])
        return builder.ptrtoint(proxy(context, builder, arguments[0]).data, ir.IntType(64))

    return types.int64(value), generate


def _pointer(element: str, bits: int, what: str) -> Any:
    def pointer(_typing: Any, address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())

        return types.CPointer(getattr(types, element))(types.int64), generate

    pointer.__doc__ = what
    return instruction(pointer)


bytes_at = _pointer("uint8", 8, "A pointer to the bytes at an address, for `carray`.")
words_at = _pointer("int64", 64, "A pointer to the 64-bit words at an address, for `carray`.")


def _big_endian_store(bits: int) -> Any:
    def store(_typing: Any, array: Any, index: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = ir.IntType(bits)
            address = _address(context, builder, signature.args[0], arguments[0], arguments[1])
            narrow = arguments[2] if bits == 64 else builder.trunc(arguments[2], word)
            builder.store(builder.bswap(narrow), builder.bitcast(address, word.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(array, types.intp, types.int64), generate

    return instruction(store)


def _big_endian_load(bits: int) -> Any:
    def load(_typing: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = ir.IntType(bits)
            address = _address(context, builder, signature.args[0], arguments[0], arguments[1])
            value = builder.bswap(builder.load(builder.bitcast(address, word.as_pointer()), align=1))
            return value if bits == 64 else builder.sext(value, ir.IntType(64))

        return types.int64(array, types.intp), generate

    return instruction(load)


def _big_endian_load_from(bits: int) -> Any:
    def load(_typing: Any, address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            word = ir.IntType(bits)
            value = builder.bswap(builder.load(builder.inttoptr(arguments[0], word.as_pointer()), align=1))
            return value if bits == 64 else builder.sext(value, ir.IntType(64))

        return types.int64(types.int64), generate

    return instruction(load)


@instruction
def equal_bytes(_typing: Any, array: Any, at: Any, value: Any) -> Any:
    """Return which of the EQUAL_BYTES bytes from `at` equal `value`: the first one is the lowest bit."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, vector = ir.IntType(8), ir.VectorType(ir.IntType(8), EQUAL_BYTES)
        address = _address(context, builder, signature.args[0], arguments[0], arguments[1])
        loaded = builder.load(builder.bitcast(address, vector.as_pointer()), align=1)
        index = ir.Constant(ir.IntType(32), 0)
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), builder.trunc(arguments[2], byte), index)
        wanted = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), EQUAL_BYTES), None))
        return builder.bitcast(builder.icmp_unsigned("==", loaded, wanted), ir.IntType(64))

    return types.int64(array, types.intp, types.int64), generate


@instruction
def prefetch(_typing: Any, address: Any) -> Any:
    """Ask for the cache line at an address; any address will do."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0i8")
        read, keep, data = (ir.Constant(flag, value) for value in (0, 3, 1))
        builder.call(function, [builder.inttoptr(arguments[0], pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@instruction
def trailing_zeros(_typing: Any, word: Any) -> Any:
    """The number of the lowest bit that is set, 64 without any."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


store_be16 = _big_endian_store(16)
store_be32 = _big_endian_store(32)
store_be64 = _big_endian_store(64)
load_be16 = _big_endian_load(16)
load_be32 = _big_endian_load(32)
load_be64 = _big_endian_load(64)
load_be32_from = _big_endian_load_from(32)  # from an address instead of an array
load_be64_from = _big_endian_load_from(64)
