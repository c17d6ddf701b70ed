"""Runs a producer's compiled code once, before the time of a first call begins: to compile it may take minutes.

Code that a put calls is compiled, or loaded from disk, when it is first called with its types of arguments.
"""

from __future__ import annotations

import numpy as np

from engine.producer.columns import as_bytes, column_of_parts
from engine.producer.put_kernel import block_of, follow, form_of, put
from engine.rings import encode_kernel
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.latencies import BLOCK_WORDS, record
from ipc.arrays import Words
from ipc.clock import monotonic_ms
from ipc.compiled import atomics
from ipc.ring import DESCRIPTOR_WORDS, WORDS_PER_RING, ControlWord, LocalWord, Outlet
from store.message import properties
from store.message.host import Host
from store.message.record import encode
from store.message.topics import SELF_TEST_TOPIC

DATA_BYTES, DESCRIPTORS = 4096, 16
LOCALHOST = Host("127.0.0.1", 10911)
_ran: set[str] = set()  # in this process, or the one that it was forked from


def make_ready(counters: BrokerCounters) -> None:
    """Compile what single messages need, by putting one into a ring that nobody reads."""
    if "one" not in _ran:
        run_once(_outlet(counters), counters, np.zeros(BLOCK_WORDS, np.int64))
        _ran.add("one")


def make_batches_ready(counters: BrokerCounters) -> None:
    """Compile what a batch needs, once. Apart from `make_ready`: it takes longest, and few producers send batches."""
    if "batch" not in _ran:
        run_batch_once(_outlet(counters))
        _ran.add("batch")


def run_once(outlet: Outlet, counters: BrokerCounters, latencies: Words) -> None:
    """Put a message with a key into the ring, and look for its answer without waiting."""
    block = block_of(outlet, counters, counters.confirm_offset.index, latencies)
    put(block, form_of(_template()).words, b"body", b"", 0)
    keys = properties.format({properties.KEYS: "key"})
    whole = encode(topic=SELF_TEST_TOPIC, body=b"body", store_host=LOCALHOST, properties=keys)
    encode_kernel.put_payload(*outlet, as_bytes(encode_kernel.hidden(whole)), 0)
    control, head = outlet.control, int(ControlWord.HEAD)
    atomics.publish(control, int(ControlWord.ASKED), int(control[ControlWord.ASKED]))
    atomics.await_change(control, head, int(control[head]), 0)
    atomics.ring(outlet.bell, outlet.bell_index)
    record(latencies, 0, 0)
    follow(block, 0, 1, 0, 0)


def run_batch_once(outlet: Outlet) -> None:
    """Put a batch of two."""
    bodies, nothing = column_of_parts([b"body", b"another"]), column_of_parts([b""])
    encode_kernel.put_many(outlet, _template(), encode_kernel.Batch(bodies, nothing, True, -1, 0), 0, 2, monotonic_ms())


def _template() -> encode_kernel.Template:
    return encode_kernel.template_of(SELF_TEST_TOPIC, 0, 0, LOCALHOST, LOCALHOST)


def _outlet(counters: BrokerCounters) -> Outlet:
    words, control = np.zeros(DESCRIPTORS * DESCRIPTOR_WORDS, np.int64), np.zeros(WORDS_PER_RING, np.int64)
    local, bell = np.zeros(len(LocalWord), np.int64), counters.writer_bell
    return Outlet(np.zeros(DATA_BYTES, np.uint8), words, control, local, counters.region.words, bell.index)
