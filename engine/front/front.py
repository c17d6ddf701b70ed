"""A front: owns clients' connections, serves sends and pulls, hands everything else to the clients role.

Implements: NettyRemotingServer and its processors of sends and pulls (spec: remoting, 3 server behaviour)
Publishes:  listen_port (front 0), its counters; `serving` as soon as it is so, a start waits for that
One event loop. Where there are several fronts, all listen at the same ports, and the kernel deals connections out. A
port that cannot be bound is tried again: the log does not need it.

A client's send, call by call (modules of engine/front, where no other folder is named):
  fast      connections/peer.py: buffer_updated, _serve_buffer, _take; here: take_compiled, _take_sends;
            sends/compiled_sends.py: CompiledSends.take, SendKernels.take; sends/send_kernel.py: take_sends, _put, then
            put_batch or put_single; take_sends then stores the ring's tail, which shows all of them to the writer.
            CompiledSends.take calls sends/front_ring.py: FrontRing.published; at the end of the loop's turn
            FrontRing._wait calls CompiledSends.end_turn, which rings the writer's bell for what take_sends has not:
            that rings from RINGS_FROM bytes on, and at once while one connection sends alone
  the rest  here: received, _begin; sends/sends.py: begin; sends/put_tasks.py: admit; sends/topic_checks.py: check;
            sends/sends.py: _checked, _put, _drafted; sends/put_tasks.py: put; sends/front_ring.py: FrontRing.put;
            engine/producer/pipeline.py: put, _publish; engine/rings/encode_kernel.py: put_payload, rings the bell.
            Also the first send to a queue takes this way; _begin then calls CompiledSends.learn, and the next is fast
  answer    sends/front_ring.py: FrontRing.collect; fast: CompiledSends.note_done, frames/answer_kernel.py:
            look_at_log, then CompiledSends.answer, write_answers; the rest: sends/sends.py: _put_done;
            connections/peer.py: write, flush

A client's pull:
  fast      as a send up to take_compiled; here: _take_pulls; pulls/compiled_pulls.py: CompiledPulls.take;
            pulls/pull_kernel.py: take_pulls, _pull, _served, then select_messages, answer; hold where the queue ends
  the rest  here: received, _begin; pulls/pulls.py: begin, _serve; engine/protocol/pulling/checks.py: check;
            pulls.py: _pull; pulls/log_view.py: catch; engine/protocol/pulling/decision.py: verdict; pulls.py: _learn,
            so that the next one is fast; pulls/waiting_pulls.py: HeldPulls.hold, or connections/peer.py: write_log
  held      waiting_pulls.py: HeldPulls.wake_moved, once the dispatcher has moved reput_from_offset; fast:
            _notify_compiled, CompiledPulls.wake, pull_kernel.py: notify_held; the rest: NotifiedPulls.go_on, pulls.py:
            serve, _serve
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import numpy as np

from engine.front.connections.front_counts import FrontCounts
from engine.front.connections.late_heartbeats import LateHeartbeats
from engine.front.connections.pace import TURN_MS, Pace
from engine.front.connections.peer import Peer
from engine.front.connections.reception import Reception
from engine.front.connections.relay import Json, Relay
from engine.front.connections.service import FrontContext, Service, frame_of
from engine.front.connections.shares import Shares
from engine.front.connections.tables import Tables
from engine.front.pulls.pulls import Pulls
from engine.front.sends.sends import Sends
from engine.monitoring.counted import NS_PER_MS
from engine.net import tls
from engine.net.listeners import bind_address
from engine.net.log_lines import Seldom
from engine.net.tls import BrokerTls
from engine.protocol.access import rights
from engine.protocol.access.rights import Rules
from engine.protocol.remoting.answers import FAILED
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import LENGTH_BYTES, MalformedFrame, RemotingCommand, decode
from engine.remoting.links.exchange import Bells
from engine.remoting.loop.role_loop import RoleLoop
from engine.role import IDLE_MS_MAX
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters, Serving, TlsOutcome
from ipc import waiting
from ipc.clock import monotonic_ms, wall_ms
from store.compat import line_of

log = logging.getLogger("slipstream.front")

BUFFER_BYTES = 256 * 1024  # of what is received at a time
BIND_RETRY_MS, SWEEP_MS, SWEEP_RESTED_MS = 1000, 2000, 3000
FAST_BELOW = 2  # the port for all but pulls: listenPort - 2
BUSY = "[REJECTREQUEST]system busy, start flow control for a while"


class Front:
    """The role of front `number`."""

    def __init__(
        self,
        config: BrokerConfig,
        counters: BrokerCounters,
        number: int,
        bells: Bells,
        how: BrokerTls | None,
    ) -> None:
        self.name = f"front.{number}"
        self._config, self._counters, self._number = config, counters, number
        self._turns = RoleLoop()
        self._loop, self._pace = self._turns.loop, Pace(self._wake)
        self._words = counters.fronts[number]
        rules = Rules(config.remoting_allow_list, config.admin_allow_list, follow=config.ha_allow_list)
        how = how or tls.of_broker(config)
        connections = config.remoting_connections_max
        self._reception = Reception(self._loop, self, rules, how.server, self._count_tls, connections)
        self._tables = Tables(line_of(config.compat) if config.enable_lmq else None)
        limit_ms = config.wait_in_heartbeat_queue_ms if config.broker_fast_failure_enable else None
        late = LateHeartbeats(limit_ms, line_of(config.compat).remoting.version)
        self._relay = Relay(
            counters.directory, number, bells, self._reception.peers, self._tables, late, self._before_more, self._asked
        )
        self._counts = FrontCounts(self._relay)
        received = np.zeros(BUFFER_BYTES, np.uint8)
        self.buffer = memoryview(received)  # type: ignore[arg-type]
        context = FrontContext(
            config,
            counters,
            self._words,
            self._loop,
            self._tables,
            self._relay,
            self._reception.peers,
            number,
            self._counts,
            received,
        )
        self._sends, self._pulls = Sends(context), Pulls(context)
        self._services: tuple[Service, ...] = self._sends, self._pulls
        self._by_code = {code: service for service in self._services for code in service.codes}
        self._version = line_of(config.compat).remoting.version
        waiting.publish(self._words.serving, Serving.NOTHING)  # whatever the one before us did
        self._tables.follow(lambda _table, _name: self._note_serving())
        self._unbound: dict[int, str] = {}  # port: why not, as it was logged
        self._written: list[Peer] = []  # those with answers in this turn
        self._shares = Shares(self._loop.call_soon)
        self._bind_at_ms = self._sweep_at_ms = 0
        self._seldom = Seldom(log)
        self._compiled_sends, self._compiled_pulls = self._sends.compiled, self._pulls.compiled
        self._loop.add_reader(self._relay.bell, self._relay.receive)

    # turns

    def do_work(self, now_ms: int) -> int:
        """Look at the clock; the event loop does the work between turns."""
        if now_ms >= self._bind_at_ms and len(self._reception.ports) < len(self._ports()):
            self._bind_at_ms = now_ms + BIND_RETRY_MS
            self._bind()
        if now_ms >= self._sweep_at_ms:
            self._sweep_at_ms = now_ms + SWEEP_MS
            self._reception.sweep()
        for service in self._services:
            service.turn(now_ms)
        self._relay.turn(now_ms)
        self._counts.turn(now_ms)
        waiting.note(self._words.connections, len(self._reception.peers))
        return 0

    def serve(self, turn: Callable[[], int], stopping: Callable[[], bool]) -> None:
        """Serve clients between the turns, until the stop."""
        self._turns.serve(turn, stopping, self._wait_ms)

    def idle(self, timeout_ms: int) -> None:
        """Serve until the clock is to be looked at, `timeout_ms` at most."""
        self._turns.idle(min(timeout_ms, self._wait_ms()))

    def _wait_ms(self) -> int:
        most_ms = SWEEP_RESTED_MS if self._reception.peers else IDLE_MS_MAX
        return min(most_ms, self._pace.wait_ms(self._rest_ms(monotonic_ms())))

    def _rest_ms(self, now_ms: int) -> int:
        """Return for how long nothing is due, unless something arrives."""
        if not self._tables.is_complete or len(self._reception.ports) < len(self._ports()):
            return 0
        return min(service.rest_ms(now_ms) for service in self._services)

    def _wake(self) -> None:
        """A rest is over: the clock is looked at soon."""
        self._loop.call_later(TURN_MS / 1000, self._turns.end_turn)

    def close(self) -> None:
        """Hang up on everybody, after what was written."""
        self._turns.run(self._leave())
        for service in self._services:
            service.close()
        self._relay.close()
        self._turns.close()

    async def _leave(self) -> None:
        self._flush()
        self._reception.stop()
        await asyncio.sleep(0)

    def _ports(self) -> list[int]:
        port = self._config.listen_port
        return [port, port - FAST_BELOW] if port > FAST_BELOW else [port]

    def _bind(self) -> None:
        """Listen at the port of everybody, and the one two below it, where nobody pulls."""
        address = bind_address(self._config.bind_address, self._config.broker_ip1)
        for port in self._ports():
            if port in self._reception.ports:
                continue
            is_without_pulls, is_shared = port != self._config.listen_port, self._config.front_processes > 1
            try:
                bound = self._reception.listen(address, port, is_without_pulls=is_without_pulls, is_shared=is_shared)
            except OSError as error:
                if self._unbound.get(port) != error.strerror:
                    log.error("cannot listen at %s (listenPort, bindAddress); will retry", error.strerror)
                self._unbound[port] = str(error.strerror)
                waiting.publish(self._words.listen_errno, error.errno or -1)
                continue
            if not is_without_pulls and self._number == 0:
                waiting.publish(self._counters.listen_port, bound)
        if len(self._reception.ports) == len(self._ports()):
            waiting.publish(self._words.listen_errno, 0)
        self._note_serving()

    def _note_serving(self) -> None:
        """Publish that the ports serve, or that the tables are complete, too; a starting command waits for this."""
        if self._words.serving.read() < Serving.ALL and len(self._reception.ports) == len(self._ports()):
            waiting.publish(self._words.serving, Serving.ALL if self._tables.is_complete else Serving.PORTS)

    def _count_tls(self, outcome: TlsOutcome) -> None:
        waiting.add(self._words.tls_outcomes[outcome], 1)

    # what the relay calls

    def _before_more(self) -> None:
        """Say what fast pulls brought before anything else that a client says."""
        self._pulls.say_noted()

    def _asked(self, fields: Json) -> None:
        """Answer what the clients role wants to know."""
        self._counts.say(fields)

    # what peers call

    def open_peer(self, peer: Peer, first: int) -> bool:
        """Let a connection take the fast paths, unless its first byte is a TLS hello and TLS is not served."""
        self._pace.stir()
        is_admitted = peer.is_tls or not self._reception.opening.refuses_hello(bytes((first,)), peer.connection.peer)
        if is_admitted and self._compiled_sends is not None:
            self._compiled_sends.add_connection(peer)
        refused = (rights.refusal(code, peer.connection.rights) for code in Pulls.codes)
        peer.pulls = is_admitted and not (peer.is_without_pulls or any(refused))
        return is_admitted

    def take_compiled(self, peer: Peer, at: int, end: int) -> int:
        """Sends and pulls that are nothing special, from `at` on: where the first frame begins that is neither."""
        kinds = (self._take_pulls, self._take_sends) if peer.is_pulling else (self._take_sends, self._take_pulls)
        before = -1
        while at != before and end - at > LENGTH_BYTES:
            before = at
            for take in kinds:
                at = take(peer, at, end)
                if end - at <= LENGTH_BYTES:
                    break
        return at

    def _take_sends(self, peer: Peer, at: int, end: int) -> int:
        if self._compiled_sends is None or peer.slot < 0:
            return at
        if self._pace.rests:  # what a turn says to compiled code may be old
            self._compiled_sends.turn(wall_ms())
        taken_to = self._compiled_sends.take(peer, at, end)
        if taken_to > at:
            peer.is_pulling = False
            if not self._pace.is_stirred:
                self._pace.stir()
        return taken_to

    def _take_pulls(self, peer: Peer, at: int, end: int) -> int:
        if not peer.pulls:
            return at
        shares = self._shares
        if peer.is_crowded or (peer.is_pulling and shares.is_over):
            peer.is_crowded = True
            return at
        began_ns, room = time.monotonic_ns(), shares.room
        taken_to = self._compiled_pulls.take(peer, at, end, room)
        peer.is_crowded = room is not None and taken_to > at  # else Python's frame is next, which must not wait
        taken_ns = time.monotonic_ns() - began_ns
        shares.spend(taken_ns)
        if taken_ns > NS_PER_MS:
            self._pulls.was_slow(began_ns)
        if taken_to > at:
            peer.is_pulling = True
            if not self._pace.is_stirred and self._compiled_pulls.has_news:
                self._pace.stir()
        return taken_to

    def received(self, peer: Peer, data: memoryview, start: int, length: int) -> None:
        """Serve one frame: refuse it, give it to its service, or hand it on. Raises MalformedFrame."""
        frame = bytes(data[start : start + length])
        request = decode(frame)
        if not request.is_response:
            refusal = rights.refusal(request.code, peer.connection.rights)
            if refusal is not None:
                self._seldom.tell("%s", refusal)
                self._refuse(peer, request, ResponseCode.NO_PERMISSION, refusal)
                return
            service = self._by_code.get(request.code)
            if service is not None:
                self._begin(service, request, peer)
                return
        if not self._relay.forward(peer, request, frame) and not request.is_response:
            self._refuse(peer, request, ResponseCode.SYSTEM_BUSY, BUSY)

    def _begin(self, service: Service, request: RemotingCommand, peer: Peer) -> None:
        self._pace.stir()
        try:
            answer = service.begin(request, peer, wall_ms())
            if self._compiled_sends is not None:
                self._compiled_sends.learn(request)
        except Exception:  # ours, of which its connection must not die, nor a log be filled
            self._seldom.tell("a request failed: code %d", request.code, level=logging.ERROR, error=True)
            self._refuse(peer, request, ResponseCode.SYSTEM_ERROR, FAILED)
            return
        if answer is not None and not request.is_oneway:
            peer.write(frame_of(request, answer))

    def _refuse(self, peer: Peer, request: RemotingCommand, code: int, remark: str) -> None:
        if not request.is_oneway:
            peer.write(frame_of(request, request.answer(code, remark, version=self._version)))

    def spoke(self, peer: Peer) -> None:
        """Note that a peer sent a frame: at the limit, those silent longest are closed first."""
        self._reception.connections.spoke(peer.connection)

    def holds(self, peer: Peer, count: int) -> None:
        """Count bytes kept for a connection; above the limit, the one that keeps most for longest is closed."""
        self._reception.connections.hold(peer.connection, count, for_peer=True)

    def wrote(self, peer: Peer) -> None:
        """Note that a peer has answers: all of a turn leaves in one write."""
        if not self._written:
            self._loop.call_soon(self._flush)
        self._written.append(peer)

    def had_turn(self, peer: Peer) -> None:
        """Put a peer behind the others, after its answers were written."""
        self._shares.wait(peer)

    def _flush(self) -> None:
        written, self._written = self._written, []
        for peer in written:
            peer.flush()

    def broke(self, peer: Peer, malformed: MalformedFrame) -> None:
        """Log a malformed frame; nothing behind it can be trusted."""
        self._seldom.tell("%s: %s: %s", peer.connection.peer, malformed.code, malformed)

    def peer_gone(self, peer: Peer) -> None:
        """Remove a closed connection from every service."""
        self._pace.stir()
        self._reception.peer_gone(peer)
        for service in self._services:
            service.peer_gone(peer)
        self._relay.peer_gone(peer)
        if self._compiled_sends is not None:
            self._compiled_sends.remove_connection(peer)


def open_role(
    config: BrokerConfig, counters: BrokerCounters, number: int, bells: Bells, how: BrokerTls | None = None
) -> Front:
    """Front `number` of a broker; `how` are its certificates, read now where they are not given."""
    return Front(config, counters, number, bells, how)
