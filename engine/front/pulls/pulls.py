"""Pulls: served out of the log in place, or held until there is a message that they want.

Implements: PullMessageProcessor (spec: remoting, 7), the fronts' half of ConsumerOffsetManager.commitPullOffset
Publishes:  pulls, pulled_messages, pulled_bytes of its front
A pull that this way has served takes the fast path: the next of its kind is answered by compiled code
(`CompiledPulls`). What groups took of topics and how far they pulled is said to the clients role once a second.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from time import monotonic_ns
from typing import Any

from engine.front.connections.log_body import LogAnswer
from engine.front.connections.peer import Peer
from engine.front.connections.relay import Relay
from engine.front.connections.service import FrontContext
from engine.front.connections.tables import SUBSCRIPTIONS
from engine.front.pulls.compiled_pulls import KEY_NAMES, Asked, HeldRow, Noted, ServedPull, key_of
from engine.front.pulls.log_view import LogView, Queue
from engine.front.pulls.pull_words import HeadValues, PullBlock, forms_of
from engine.front.pulls.resets import Resets
from engine.front.pulls.waiting_pulls import HeldPulls, NotifiedPull
from engine.protocol.pulling.checks import Checks, Pull, PullRefused
from engine.protocol.pulling.decision import (
    CODES,
    Catch,
    PullBroker,
    QueueExtent,
    Status,
    answer_fields,
    head_in_json,
    verdict,
)
from engine.protocol.pulling.header import PullFlag, pull_header
from engine.protocol.remoting.answers import Answerer, Thrown
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand, Serialize, encode, encode_head
from engine.protocol.sending.answers import TIMED_OUT
from engine.settings.config import BrokerRole
from ipc import waiting
from ipc.clock import monotonic_ms
from store.put.events import MovedOffset

SAID_EACH_MS = 1000
KEYS_MAX = 1000  # between two; what comes beyond them is said at the next chance
AGAIN_MS = 30_000  # to a clients role that may be another process by now
KNOWN_MAX = 100_000


class PullCounts:
    """The counts of what groups took through one front since the last report."""

    def __init__(self, relay: Relay) -> None:
        self._relay, self._said_at_ms, self._forget_at_ms = relay, 0, 0
        self._taken: dict[str, list[int]] = {}  # by topic@group: messages, bytes, pulls
        self._offsets: dict[tuple[str, str, int], tuple[int, int]] = {}  # topic, group, queue id: and how far behind
        self._known: dict[tuple[str, str, int], int] = {}  # what was said

    def add(self, topic: str, group: str, messages: int, size: int, pulls: int = 1) -> None:
        """Count answered pulls of a group: messages, bytes and pulls."""
        counts = self._taken.get(key := f"{topic}@{group}")
        if counts is None:
            if len(self._taken) >= KEYS_MAX:
                self._say()
            counts = self._taken[key] = [0, 0, 0]
        counts[0] += messages
        counts[1] += size
        counts[2] += pulls

    def pulled(self, topic: str, group: str, queue_id: int, next_offset: int, behind_bytes: int) -> None:
        """Note the offset at which a group continues and how many bytes it is behind the log's end."""
        key = topic, group, queue_id
        if self._known.get(key) == next_offset:
            return
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[key], self._offsets[key] = next_offset, (next_offset, behind_bytes)
        if len(self._offsets) >= KEYS_MAX:
            self._say()

    def turn(self, now_ms: int) -> None:
        """Send the counts to the clients role when they are due, and forget known offsets now and then."""
        if now_ms >= self._forget_at_ms:
            self._forget_at_ms = now_ms + AGAIN_MS
            self._known.clear()
        if (self._taken or self._offsets) and now_ms - self._said_at_ms >= SAID_EACH_MS:
            self._said_at_ms = now_ms
            self._say()

    def _say(self) -> None:
        taken, self._taken = self._taken, {}
        offsets, self._offsets = self._offsets, {}
        said = [[*key, *where] for key, where in offsets.items()]
        self._relay.tell("pulled", {"pulled": taken, "offsets": said})


COMMITTED_MAX = 100_000
EARLY_MAX, EARLY_BYTES_MAX = 10_000, 32 << 20  # pulls that came before the tables, or before their group
NS_PER_MS = 1_000_000
LONG_MAX = (1 << 62) - 1
PULL_CODES = int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)
REQUESTS = {code: RemotingCommand(code, 0) for code in PULL_CODES}  # all that a count asks of one
OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
Json = dict[str, Any]


class Pulls(Answerer):
    """The service of codes 11 and 361."""

    codes = frozenset(PULL_CODES)

    def __init__(self, context: FrontContext) -> None:
        config, counters, tables = context.config, context.counters, context.tables
        super().__init__(config.compat)
        self._context, self._counters, self._words = context, counters, context.words
        rules, is_slave = self.line.pull, config.broker_role is BrokerRole.SLAVE
        self._broker = PullBroker(
            self.line, config.broker_ip1, is_slave, config.slave_read_enable, config.offset_check_in_slave
        )
        self._checks = Checks(
            self._broker,
            tables.topics,
            tables.groups,
            tables.subscriptions,
            tables.forbidden,
        )
        self._resets = Resets(tables.resets, context.relay)
        self._commits = rules.slaves_commit or not is_slave
        self._view = LogView(config, counters, corrects=self._broker.corrects)
        self._held = HeldPulls(context, self._view, forms_of(self._marked_head), self, self._commits)
        self.compiled = self._held.compiled
        self._longest_ns = self._words.pull_longest_ms.read() * NS_PER_MS  # of the front before us, too
        self._not_compiled = 0  # of the fast pulls that were not said yet, those whose time was noted
        self._committed: dict[tuple[str, str, int], int] = {}  # what was said last
        self._counts = PullCounts(context.relay)
        self._early: deque[tuple[RemotingCommand, Peer, int]] = deque()  # and when they came
        self._early_ms = config.wait_in_pull_queue_ms if config.broker_fast_failure_enable else LONG_MAX
        self._kept = self._kept_bytes = 0  # of those, and of those whose group is asked for
        tables.follow(self._on_table)

    # what a front calls

    def begin(self, request: RemotingCommand, peer: Peer, _now_ms: int) -> RemotingCommand | None:
        """Serve a pull at once or hold it; the fast port refuses pulls."""
        if peer.is_without_pulls:
            remark = f" request type {request.code} not supported"
            return self.answered(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        if request.body:  # which nobody reads, and a held one would keep
            request = replace(request, body=b"")
        return self._serve(request, peer, is_first=True)

    def turn(self, now_ms: int) -> None:
        """The sweep, and what expired."""
        self._view.turn()
        self.compiled.let_go()
        self._held.turn(now_ms)
        self._expire_early(now_ms)
        self.say_noted()
        self._counts.turn(now_ms)

    def rest_ms(self, now_ms: int) -> int:
        """Return the time until the next sweep, if pulls are held; 0 while some wait for the clients role."""
        return 0 if self._early or self._kept else self._held.rest_ms(now_ms)

    def _expire_early(self, now_ms: int) -> None:
        """Answer pulls that waited too long for the tables, as if they had waited too long for a thread."""
        while self._early and now_ms - self._early[0][2] > self._early_ms:
            size = len(self._early)
            request, peer, came_ms = self._early.popleft()
            self._let_go(request)
            remark = TIMED_OUT.format(now_ms - came_ms, size)
            self._context.answer(peer, request, self.answered(request, ResponseCode.SYSTEM_BUSY, remark))

    def peer_gone(self, peer: Peer) -> None:
        """Forget the pulls of a closed connection."""
        self._held.peer_gone(peer.number)

    def close(self) -> None:
        """Unmap; who waits is not answered, its connection ends."""
        self._held.close()
        self._view.close()

    # what wakes

    def _on_table(self, table: str, name: str | None) -> None:
        if table == SUBSCRIPTIONS:
            self._checks.forget(name)
        if name is None:
            self.say_noted()
            self._held.forget_compiled()
        else:
            self.compiled.forget(table, name)
        if self._early and self._context.tables.is_complete:
            early, self._early = self._early, deque()
            for request, peer, _came_ms in early:
                self._let_go(request)
                self._held.notified.add(NotifiedPull(Asked(peer, b"", request), is_first=True))
            self._held.notified.go_on()

    def was_held(self, came_ns: int) -> None:
        """A pull on the fast path that came then was held, and is answered."""
        self._not_compiled += 1
        self._context.counts.pulled(came_ns, was_held=True)

    def was_in_vain(self, pull: HeldRow) -> None:
        """Count a pull on the fast path that was held and is answered with PULL_NOT_FOUND."""
        waiting.add(self._words.pulls, 1)
        request = REQUESTS[self.compiled.served[pull.row].code]
        self._context.counts.answered(request, ResponseCode.PULL_NOT_FOUND, pull.came_ns, was_held=True)

    def serve(self, pull: NotifiedPull) -> None:
        """Serve a notified pull that the compiled way does not answer."""
        asked = pull.asked
        frames = None if pull.is_first else self.compiled.answer(asked)
        if frames is not None:
            self.was_held(pull.came_ns)
            asked.peer.write(frames)
            return
        request = asked.request
        answer = self._serve(request, asked.peer, is_first=pull.is_first, came_ns=pull.came_ns)
        if answer is not None:
            self._context.answer(asked.peer, request, answer)

    # one pull

    def _serve(
        self, request: RemotingCommand, peer: Peer, *, is_first: bool, came_ns: int = 0
    ) -> RemotingCommand | None:
        try:
            self._checks.of_broker(self._counters.broker_permission.read())
            header = pull_header(request.ext_fields)
            if not self._context.tables.is_complete:
                return self._wait_for_tables(request, peer)
            if not self._checks.knows(header.group) and is_first:
                return self._make_group(header.group, request, peer)
            pull = self._checks.check(header, peer.address)
        except PullRefused as refused:
            return self.answered(request, refused.code, refused.remark, self._checks.fields_of(refused))
        except Thrown as thrown:
            return request.answer(thrown.code, thrown.remark, version=self.version, serialize=Serialize.JSON)
        return self._pull(pull, request, peer, is_first=is_first, came_ns=came_ns)

    def _wait_for_tables(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        if not self._keep(request):
            return self.answered(request, ResponseCode.SYSTEM_BUSY, OVERLOAD)
        self._early.append((request, peer, monotonic_ms()))
        return None

    def _keep(self, request: RemotingCommand) -> bool:
        """Whether one more may wait that is not held yet."""
        if self._kept >= EARLY_MAX or self._kept_bytes + request.cost > EARLY_BYTES_MAX:
            return False
        self._kept += 1
        self._kept_bytes += request.cost
        return True

    def _let_go(self, request: RemotingCommand) -> None:
        self._kept -= 1
        self._kept_bytes -= request.cost

    def _make_group(self, group: str, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        """A group that is unknown may be one that is made when it is asked for."""

        if not self._keep(request):
            return self.answered(request, ResponseCode.SYSTEM_BUSY, OVERLOAD)

        def made(answer: Json) -> None:
            self._let_go(request)
            config = answer.get("config")
            if config is not None:
                self._context.tables.groups.setdefault(group, config)
            if peer.is_open:
                again = self._serve(request, peer, is_first=config is not None)
                if again is not None:
                    self._context.answer(peer, request, again)

        if not self._context.relay.ask("ensure_group", {"group": group}, made):
            self._let_go(request)
            return self.answered(request, ResponseCode.SYSTEM_BUSY, OVERLOAD)
        return None

    def _pull(
        self, pull: Pull, request: RemotingCommand, peer: Peer, *, is_first: bool, came_ns: int
    ) -> RemotingCommand | None:
        self.say_noted()
        header = pull.header
        queue = header.topic, header.queue_id
        reset = self._resets.take(header, self._view.extent) if self._resets.table else None
        began_ns = monotonic_ns()
        caught, ranges = reset or self._view.catch(queue, header.queue_offset, header.max_messages, pull.tags)
        self._note_longest(began_ns)
        said = verdict(caught, header.queue_offset, self._broker, pull.group)
        if said.is_moved and self.line.pull.moved_events:
            where = header.group, header.topic, header.queue_id
            self._context.moved.append(MovedOffset(*where, header.queue_offset, caught.next_offset))
        self._counts.pulled(header.topic, header.group, header.queue_id, caught.next_offset, caught.behind_bytes)
        if is_first and header.flags & PullFlag.COMMIT_OFFSET and self._commits:
            self._commit(header.group, queue, header.commit_offset, peer)
        may_hold = said.code == ResponseCode.PULL_NOT_FOUND and is_first and header.flags & PullFlag.SUSPEND
        if is_first and peer.pulls and (caught.status is Status.FOUND or may_hold):
            self._learn(pull, request)
        if may_hold:
            asked, end = Asked(peer, b"", request), caught.extent.max_offset
            if not self._held.hold(queue, pull.tags, header.queue_offset, end, header.suspend_ms, asked):
                return self.answered(request, ResponseCode.SYSTEM_BUSY, OVERLOAD)
            return None
        in_json = self.line.remoting.answers_in_json or request.serialize is Serialize.JSON
        fields = answer_fields(caught, said.suggested_broker, self.line.pull, pull.topic, pull.group, in_json=in_json)
        waiting.add(self._words.pulls, 1)
        self._context.counts.answered(request, said.code, came_ns or began_ns, was_held=not is_first)
        if caught.status is not Status.FOUND:
            return self.answered(request, said.code, caught.status.name, fields)
        self._counts.add(header.topic, header.group, caught.messages, caught.bytes)
        waiting.add(self._words.pulled_messages, caught.messages)
        waiting.add(self._words.pulled_bytes, caught.bytes)
        if not request.is_oneway:
            peer.write_log(LogAnswer(self._head(request, fields, caught.bytes, in_json=in_json), ranges))
        return None

    def _head(self, request: RemotingCommand, fields: dict[str, str], body_bytes: int, *, in_json: bool) -> bytes:
        """The frame of messages, up to them."""
        if in_json:
            return head_in_json(fields, request.opaque, self.version, body_bytes)
        return encode_head(self.answered(request, ResponseCode.SUCCESS, Status.FOUND.name, fields), body_bytes)

    def _marked_head(self, request: RemotingCommand, caught: Catch, values: HeadValues) -> bytes:
        """Return the head of an answer with these values."""
        in_json = self.line.remoting.answers_in_json or request.serialize is Serialize.JSON
        flags = {"topicSysFlag": values.topic_flag}, {"groupSysFlag": values.group_flag}
        fields = answer_fields(caught, values.suggested, self.line.pull, *flags, in_json=in_json)
        if caught.status is Status.FOUND:
            return self._head(request, fields, 0, in_json=in_json)
        return encode(self.answered(request, CODES[caught.status], caught.status.name, fields))

    # the fast path

    def _learn(self, pull: Pull, request: RemotingCommand) -> None:
        """The next of its kind is answered without Python, if the last one was not for want of knowledge."""
        header, queue = pull.header, (pull.header.topic, pull.header.queue_id)
        if not self.compiled.is_to_learn or self._resets.has(header.topic, header.group):
            return
        key, where = key_of(request.code, request.ext_fields or {}), self._view.file_of(queue, header.queue_offset)
        if key is None or where is None:
            return
        nothing = QueueExtent(0, 0)
        near, far = (
            verdict(Catch(Status.FOUND, 0, nothing, is_behind=is_behind), 0, self._broker, pull.group).suggested_broker
            for is_behind in (False, True)
        )
        flags = pull.group.get("groupSysFlag", 0), pull.topic.get("topicSysFlag", 0)
        fields = {name: text for name, text in (request.ext_fields or {}).items() if name in KEY_NAMES}
        if self.compiled.is_full:
            self.say_noted()
            self._held.forget_compiled()
        self.compiled.learn(
            key,
            ServedPull(request.code, fields, header.group, queue, pull.tags, header.flags, where, (near, far), *flags),
        )

    # what other processes hear

    def was_slow(self, began_ns: int) -> None:
        """A call that answers fast pulls took more than a millisecond: one of them did, at least."""
        if self.compiled.block[PullBlock.PULLS]:
            self._not_compiled += 1
            self._context.counts.pulled(began_ns, was_held=False)
            self._note_longest(began_ns)

    def _note_longest(self, began_ns: int) -> None:
        if monotonic_ns() - began_ns > self._longest_ns:
            self._longest_ns = monotonic_ns() - began_ns
            waiting.note(self._words.pull_longest_ms, self._longest_ns // NS_PER_MS)

    def say_noted(self) -> None:
        """Report pulls that were answered without Python, and the offsets that they brought."""
        commits: list[Noted] = []
        for noted in self.compiled.noted():
            served = noted.served
            if noted.is_pulled:
                self._counts.pulled(
                    served.queue[0], served.group, served.queue[1], noted.next_offset, noted.behind_bytes
                )
            if noted.pulls:
                self._counts.add(served.queue[0], served.group, noted.messages, noted.bytes, noted.pulls)
            if noted.commit.number:
                commits.append(noted)
        for noted in sorted(commits, key=lambda one: one.commit.number):
            peer = self._context.peers.get(noted.commit.peer)
            self._commit(noted.served.group, noted.served.queue, noted.commit.offset, peer)
        pulls, messages, size = self.compiled.totals()
        if pulls:
            self._context.counts.pulled_at_once(pulls - self._not_compiled)
            self._not_compiled = 0
            waiting.add(self._words.pulls, pulls)
            waiting.add(self._words.pulled_messages, messages)
            waiting.add(self._words.pulled_bytes, size)

    def _commit(self, group: str, queue: Queue, offset: int, peer: Peer | None) -> None:
        """Commit an offset once: a consumer repeats it with every pull until it has consumed more."""
        key = group, *queue
        if self._committed.get(key) == offset:
            return
        if len(self._committed) >= COMMITTED_MAX:
            self._committed.clear()
        self._committed[key] = offset
        host = "one that has left" if peer is None else f"{peer.address.ip}:{peer.address.port}"
        self._context.relay.tell("commit_offset", {
            "group": group, "topic": queue[0], "queueId": queue[1], "offset": offset, "host": host,
        })  # fmt: skip
