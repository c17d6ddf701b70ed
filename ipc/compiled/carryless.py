"""CRC-32 by carry-less multiplication: the compiled piece that folds a whole run of bytes, 16 or 64 a step.

The code has both steps. When it runs first it asks the CPU whether that multiplies 64 bytes at once: so one library is
as fast as any machine on which it runs.

A CRC is the remainder of the bytes, read as a polynomial over GF(2). `clmul` multiplies such polynomials, so a block
moves over the blocks behind it in one multiplication by x^distance mod P, and only the last 128 bits need a division
(Barrett's). After "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel, 2009; bits are reflected.

Zeros before the first byte change nothing once CRC-32's starting value has become part of the data. So the blocks are
counted from the end, and the first is loaded with a mask: there is no remainder to be done byte by byte.
"""

# mypy: disable-error-code="no-any-return,no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

POLYNOMIAL = 0x104C11DB7
ACCUMULATORS = 4
LANES, WIDE_LANES = 1, 4  # of 16 bytes, that an instruction multiplies: of every CPU that code is made for, of some
WIDE = ('"target-cpu"="x86-64-v4"', '"target-features"="+vpclmulqdq,+pclmul"')  # of the function for these
# What CPUID says of them, Intel's manual, volume 2A: registers of leaf 1 and of leaf 7; and which of XCR0's bits say
# that the system keeps the registers of AVX-512 from one process to the next.
XSAVE_OF_1_ECX = 1 << 27
AVX512_OF_7_EBX, VPCLMUL_OF_7_ECX = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31, 1 << 10  # F, DQ, CD, BW, VL
KEPT_OF_XCR0 = 0b1110_0110
BYTE, INT32, INT64, INT128 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.IntType(128)
LANE = ir.VectorType(INT64, 2)


def reflected(value: int, bits: int) -> int:
    """The bits in the other order."""
    return int(f"{value:0{bits}b}"[::-1], 2)


def power_of_x(exponent: int) -> int:
    """x^exponent mod P, reflected, as a factor of a carry-less multiplication."""
    value = 1
    for _ in range(exponent):
        value <<= 1
        if value >> 32:
            value ^= POLYNOMIAL
    return reflected(value, 32) << 1


def _quotient() -> int:
    """floor(x^64 / P): what Barrett's division multiplies with."""
    rest, quotient = 1 << 64, 0
    for bit in reversed(range(33)):
        if rest >> (bit + 32) & 1:
            rest ^= POLYNOMIAL << bit
            quotient |= 1 << bit
    return quotient


def _pair(low: int, high: int, lanes: int = 1) -> ir.Constant:
    return ir.Constant(ir.VectorType(INT64, 2 * lanes), [ir.Constant(INT64, low), ir.Constant(INT64, high)] * lanes)


def _distance(bits: int, lanes: int) -> ir.Constant:
    """The factors that move a lane `bits` ahead."""
    return _pair(power_of_x(bits + 32), power_of_x(bits - 32), lanes)


class _Fold:
    """Writes the code into `builder`, for blocks of `lanes` lanes."""

    def __init__(self, builder: Any, data: Any, lanes: int) -> None:
        self.builder, self.data, self.lanes = builder, data, lanes
        self.block_bytes = 16 * lanes
        self.block = ir.VectorType(INT64, 2 * lanes)

    def multiply(self, value: Any, factor: Any, halves: int) -> Any:
        """Carry-less product of a half of each lane with a half of the factor's."""
        name = "llvm.x86.pclmulqdq" + ("" if value.type == LANE else f".{128 * self.lanes}")
        shape = ir.FunctionType(value.type, [value.type, value.type, BYTE])
        function = self.builder.module.declare_intrinsic(name, (), shape)
        return self.builder.call(function, [value, factor, ir.Constant(BYTE, halves)])

    def move(self, value: Any, factor: Any, onto: Any) -> Any:
        """`value` moved ahead by the factor's distance, where `onto` lies."""
        moved = self.builder.xor(self.multiply(value, factor, 0x00), self.multiply(value, factor, 0x11))
        return self.builder.xor(moved, onto)

    def load(self, at: Any, blocks_ahead: int = 0) -> Any:
        """The block at that index."""
        index = self.builder.add(at, ir.Constant(INT64, blocks_ahead * self.block_bytes))
        return self._load_from(self.builder.gep(self.data, [index]))

    def _load_from(self, address: Any) -> Any:
        return self.builder.load(self.builder.bitcast(address, self.block.as_pointer()), align=1)

    def load_end(self, at: Any, missing: Any) -> Any:
        """The block at that index whose first `missing` bytes are not there: zeros."""
        b, size = self.builder, self.block_bytes
        bytes_type = ir.VectorType(BYTE, size)
        numbers = ir.Constant(bytes_type, [ir.Constant(BYTE, i) for i in range(size)])
        first = b.insert_element(ir.Constant(bytes_type, ir.Undefined), b.trunc(missing, BYTE), ir.Constant(INT32, 0))
        zeros = ir.Constant(ir.VectorType(INT32, size), None)
        wanted = b.icmp_unsigned(">=", numbers, b.shuffle_vector(first, first, zeros))
        pointer = b.bitcast(b.gep(self.data, [at]), bytes_type.as_pointer())
        arguments = [pointer, ir.Constant(INT32, 1), wanted, ir.Constant(bytes_type, None)]
        shape = ir.FunctionType(bytes_type, [argument.type for argument in arguments])
        name = f"llvm.masked.load.v{size}i8.p0v{size}i8"
        function = b.module.globals.get(name) or ir.Function(b.module, shape, name)
        return b.bitcast(b.call(function, arguments), self.block)

    def starting_value(self, missing: Any, block: int) -> Any:
        """CRC-32's starting value as it lies over the first or second block when `missing` bytes come before it."""
        b, size = self.builder, self.block_bytes
        content = bytes(size) + b"\xff" * 4 + bytes(2 * size)
        kind = ir.ArrayType(BYTE, len(content))
        name = f"slipstream.crc.start.{size}"
        table = b.module.globals.get(name)
        if table is None:
            table = ir.GlobalVariable(b.module, kind, name)
            table.linkage, table.global_constant = "internal", True
            table.initializer = ir.Constant(kind, bytearray(content))
        index = b.sub(ir.Constant(INT64, size * (1 + block)), missing)
        return self._load_from(b.gep(table, [ir.Constant(INT64, 0), index]))

    def loop(self, at: Any, values: list[Any], end: Any, step: int, body: Callable[[Any, list[Any]], list[Any]]) -> Any:
        """Repeat `body` while `step` bytes are left before `end`; the index and values then."""
        b, entry = self.builder, self.builder.block
        head, inside, behind = (b.append_basic_block(name) for name in ("head", "inside", "behind"))
        b.branch(head)
        b.position_at_end(head)
        states = [b.phi(value.type) for value in (at, *values)]
        for state, value in zip(states, (at, *values), strict=True):
            state.add_incoming(value, entry)
        left = b.sub(end, states[0])
        b.cbranch(b.icmp_signed(">=", left, ir.Constant(INT64, step)), inside, behind)
        b.position_at_end(inside)
        following = [b.add(states[0], ir.Constant(INT64, step)), *body(states[0], states[1:])]
        for state, value in zip(states, following, strict=True):
            state.add_incoming(value, b.block)
        b.branch(head)
        b.position_at_end(behind)
        return states[0], states[1:]

    def lanes_together(self, block: Any) -> Any:
        """The block's lanes folded into one."""
        b, factor = self.builder, _distance(128, 1)
        parts = []
        for lane in range(self.lanes):
            pair = [ir.Constant(INT32, 2 * lane + i) for i in range(2)]
            mask = ir.Constant(ir.VectorType(INT32, 2), pair)
            parts.append(b.shuffle_vector(block, block, mask))
        value = parts[0]
        for part in parts[1:]:
            value = self.move(value, factor, part)
        return value

    def remainder(self, value: Any) -> Any:
        """Return one lane modulo P: 32 bits, not yet inverted."""
        b, low = self.builder, _pair(0xFFFFFFFF, 0xFFFFFFFF)

        def right(vector: Any, bits: int) -> Any:
            return b.bitcast(b.lshr(b.bitcast(vector, INT128), ir.Constant(INT128, bits)), LANE)

        value = b.xor(right(value, 64), self.multiply(value, _distance(128, 1), 0x10))
        value = b.xor(self.multiply(b.and_(value, low), _pair(power_of_x(64), 0), 0x00), right(value, 32))
        barrett = _pair(reflected(POLYNOMIAL, 33), reflected(_quotient(), 33))
        part = self.multiply(b.and_(value, low), barrett, 0x10)
        value = b.xor(value, self.multiply(b.and_(part, low), barrett, 0x00))
        return b.lshr(b.extract_element(value, ir.Constant(INT32, 0)), ir.Constant(INT64, 32))

    def crc(self, start: Any, count: Any) -> Any:
        """CRC-32 of at least four bytes."""
        b, size = self.builder, self.block_bytes
        last = ir.Constant(INT64, size - 1)
        missing = b.and_(b.sub(ir.Constant(INT64, 0), count), last)
        end = b.add(start, count)
        at = b.sub(start, missing)
        first = b.xor(self.load_end(at, missing), self.starting_value(missing, 0))
        after = b.add(at, ir.Constant(INT64, size))
        single = b.icmp_signed("<=", count, ir.Constant(INT64, size))
        entry = b.block
        more, done = b.append_basic_block("more"), b.append_basic_block("done")
        b.cbranch(single, done, more)
        b.position_at_end(more)
        value = self._blocks(first, after, end, missing)
        several = b.block
        b.branch(done)
        b.position_at_end(done)
        result = b.phi(self.block)
        result.add_incoming(first, entry)
        result.add_incoming(value, several)
        return b.xor(self.remainder(self.lanes_together(result)), ir.Constant(INT64, 0xFFFFFFFF))

    def _blocks(self, first: Any, at: Any, end: Any, missing: Any) -> Any:
        """The first block with all that follow: four side by side as long as they last, then one by one."""
        size, b = self.block_bytes, self.builder
        near, far = (_distance(8 * size * blocks, self.lanes) for blocks in (1, ACCUMULATORS))
        second = b.xor(self.load(at), self.starting_value(missing, 1))
        at = b.add(at, ir.Constant(INT64, size))
        none = ir.Constant(self.block, None)
        # two blocks of zeros come first, so that the four begin with what there is
        four = [none, none, first, second]

        def step(index: Any, values: list[Any]) -> list[Any]:
            return [self.move(value, far, self.load(index, i)) for i, value in enumerate(values)]

        at, four = self.loop(at, four, end, ACCUMULATORS * size, step)
        value = four[0]
        for other in four[1:]:
            value = self.move(value, near, other)

        def single_step(index: Any, values: list[Any]) -> list[Any]:
            return [self.move(values[0], near, self.load(index))]

        return self.loop(at, [value], end, size, single_step)[1][0]


def _cpuid(builder: Any, leaf: int) -> tuple[Any, Any]:
    """Return what CPUID says of a leaf: EBX and ECX."""
    shape = ir.FunctionType(ir.LiteralStructType([INT32] * 4), [INT32, INT32])
    places = "={ax},={bx},={cx},={dx},{ax},{cx}"
    said = builder.asm(shape, "cpuid", places, [ir.Constant(INT32, leaf), ir.Constant(INT32, 0)], side_effect=True)
    return builder.extract_value(said, 1), builder.extract_value(said, 2)


def _has(builder: Any, word: Any, bits: int) -> Any:
    wanted = ir.Constant(INT32, bits)
    return builder.icmp_unsigned("==", builder.and_(word, wanted), wanted)


def _function(module: Any, name: str, result: Any, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return a function of the module's own, and what writes its code; None instead if that is written."""
    there = module.globals.get(name)
    if there is not None:
        return there, None
    function = ir.Function(module, ir.FunctionType(result, arguments), name)
    function.linkage = "internal"
    return function, ir.IRBuilder(function.append_basic_block())


def _crc_of(module: Any, lanes: int) -> Any:
    """Return the function (data, start, count) that multiplies so many lanes at once."""
    function, builder = _function(module, f"slipstream.crc.{lanes}", INT64, (BYTE.as_pointer(), INT64, INT64))
    if builder is not None:
        if lanes == WIDE_LANES:
            for attribute in WIDE:
                set.add(function.attributes, attribute)  # llvmlite's own `add` takes attributes without a value only
        builder.ret(_Fold(builder, function.args[0], lanes).crc(*function.args[1:]))
    return function


def _lanes_here(module: Any) -> Any:
    """Return the function that asks the CPU, and notes in a word of the module's how many lanes it multiplies."""
    function, builder = _function(module, "slipstream.crc.lanes", BYTE, ())
    if builder is None:
        return function
    function.attributes.add("noinline")
    (_, saves), (extended, more) = _cpuid(builder, 1), _cpuid(builder, 7)
    is_wide = builder.and_(_has(builder, extended, AVX512_OF_7_EBX), _has(builder, more, VPCLMUL_OF_7_ECX))
    is_wide = builder.and_(is_wide, _has(builder, saves, XSAVE_OF_1_ECX))
    lanes = builder.alloca(BYTE)
    builder.store(ir.Constant(BYTE, LANES), lanes)
    with builder.if_then(is_wide):  # without XSAVE there is no such instruction
        shape = ir.FunctionType(ir.LiteralStructType([INT32] * 2), [INT32])
        kept = builder.asm(shape, "xgetbv", "={ax},={dx},{cx}", [ir.Constant(INT32, 0)], side_effect=True)
        with builder.if_then(_has(builder, builder.extract_value(kept, 0), KEPT_OF_XCR0)):
            builder.store(ir.Constant(BYTE, WIDE_LANES), lanes)
    said = builder.load(lanes)
    builder.store(said, _noted(module))
    builder.ret(said)
    return function


def _noted(module: Any) -> Any:
    """Return the word of the module's that says how many lanes the CPU multiplies; 0: it was not asked yet."""
    name = "slipstream.crc.noted"
    there = module.globals.get(name)
    if there is not None:
        return there
    word = ir.GlobalVariable(module, BYTE, name)
    word.linkage, word.initializer = "internal", ir.Constant(BYTE, 0)
    return word


def fold(context: Any, builder: Any, signature: Any, arguments: Any, lanes: int | None = None) -> Any:
    """CRC-32 of (array, start, count), count >= 4: as many `lanes` at once as the CPU multiplies, or as are given."""
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    given, module = (data, arguments[1], arguments[2]), builder.module
    if lanes is not None:
        return builder.call(_crc_of(module, lanes), given)
    noted = builder.load(_noted(module))
    with builder.if_then(builder.icmp_unsigned("==", noted, ir.Constant(BYTE, 0)), likely=False):
        builder.call(_lanes_here(module), ())
    is_wide = builder.icmp_unsigned("==", builder.load(_noted(module)), ir.Constant(BYTE, WIDE_LANES))
    results = []
    with builder.if_else(is_wide) as branches:
        for branch, chosen in zip(branches, (WIDE_LANES, LANES), strict=True):
            with branch:
                results.append((builder.call(_crc_of(module, chosen), given), builder.block))
    result = builder.phi(INT64)
    for value, block in results:
        result.add_incoming(value, block)
    return result
