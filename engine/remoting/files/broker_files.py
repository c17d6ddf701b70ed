"""A broker's config files as its remoting role has them: read at the start, watched, saved.

Implements: ConfigManager.load and persist for the tables of engine.protocol.tables.metadata
Follows:    topics.json, which the writer adds new topics to; the topic table, for messages of deleted topics
A file that is damaged is kept under another name, and its table begins with what is sound (`store.tables.mending`).
A file that cannot be written is logged when the reason changes, at most once a minute, and tried again. Files are
written beside the role (`FileWrites`): until then a table's changes are neither `changed` nor in the file.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from engine.protocol.clients.locks import RebalanceLockManager
from engine.protocol.tables.defaults import Identity
from engine.protocol.tables.metadata import FILES, Metadata, Served, Unsaved
from engine.protocol.tables.timer_state import FILE_BYTES, TimerCheckpoint
from engine.remoting.files.saves import Saves
from engine.remoting.loop.slices import in_slices
from engine.settings.config import BrokerConfig, BrokerRole
from engine.shared_memory.clients.client_table import ClientJournal, ClientTable
from engine.shared_memory.topic_table import TopicTable
from ipc.errors import IpcError
from store.compat import line_of
from store.errors import MalformedConfig, StoreError
from store.files import file_io
from store.files.directory import StoreDirectory
from store.files.file_state import FileState, state_of
from store.names import CONSUMER_OFFSETS, DELAY_OFFSETS, DELETED_TOPICS, LIGHT_OFFSETS, TIMER_CHECKPOINT, TOPICS
from store.tables import json_files, mending
from store.tables.mending import Mended
from store.tables.offset_texts import GROUP_TOPICS
from store.tables.offset_texts import Written as TableTexts
from store.tables.served_topics import CLIENT_QUEUE_NUMS, ServedTopics
from store.tables.steps import at_once
from store.tables.tables import LIGHT_TABLE, OFFSET_TABLE, VERSION

# consumerOffset.json where shared memory says what it did and more: of the file only its version is read.

HEAD_BYTES = 1024
HEAD = re.compile(
    rf'\{{\s*+"{VERSION}":(\{{[^{{}}"]*+(?:"\w++"[^{{}}"]*+)*+\}}),\s*+"(?:{GROUP_TOPICS}|{OFFSET_TABLE})":\{{'
)
HEADLESS = re.compile(rf'\{{\s*+"{OFFSET_TABLE}":\{{')


def without_offsets(path: Path) -> dict[Any, Any] | None:
    """Return what a sound file says, as an object without offsets.

    None where it does not begin as it is usually written.
    """
    with suppress(OSError, ValueError), path.open("rb") as file:
        begins = file.read(HEAD_BYTES).decode(errors="replace")
        if HEADLESS.match(begins):
            return {OFFSET_TABLE: {}}
        if head := HEAD.match(begins):
            return {VERSION: json_files.parse(head[1].encode(), str(path)), OFFSET_TABLE: {}}
    return None


# Replaces config files on a thread: a disk that takes its time holds up no client.
#
# Implements: the threads of ConfigManager.persist
# The owner of the tables makes what is written; the thread sees bytes, or joins texts that do not change any more. One
# round runs at a time.
class Draft(NamedTuple):
    """The future content of a table's file. `over`: only if the file's state is one of these; None: whatever it is."""

    name: str
    content: bytes | Callable[[], bytes]
    over: tuple[FileState | None] | None = None
    first: tuple[tuple[str, bytes | Callable[[], bytes]], ...] = ()  # files that are replaced before it
    is_json: bool = True  # what the file said is kept as its backup


class Written(NamedTuple):
    """The fate of a draft. `is_outdated`: somebody else wrote the file meanwhile, it stays as it is."""

    name: str
    state: FileState | None = None
    is_outdated: bool = False
    error: OSError | StoreError | None = None


class FileWrites:
    """Writes to one directory; `is_beside`: on a thread, else `begin` itself writes."""

    def __init__(self, directory: Path, *, is_beside: bool) -> None:
        self._directory = directory
        self.on_done: Callable[[], None] = lambda: None  # called on the thread once a round is through
        self._thread = ThreadPoolExecutor(1, "files") if is_beside else None
        self._under_way: Future[list[Written]] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a round was begun whose outcome was not taken."""
        return self._under_way is not None

    def begin(self, drafts: Sequence[Draft]) -> None:
        """Write the drafts in turn, on the thread if there is one."""
        if self._thread is not None:
            self._under_way = self._thread.submit(self._write_all, drafts)
            self._under_way.add_done_callback(lambda _done: self.on_done())
            return
        self._under_way = Future()
        self._under_way.set_result(self._write_all(drafts))

    def take(self, *, waits: bool) -> list[Written]:
        """Return what became of the round, once it is through.

        `waits`: wait for that, however long the disk takes.
        """
        if self._under_way is None or not (waits or self._under_way.done()):
            return []
        written, self._under_way = self._under_way.result(), None
        return written

    def _write_all(self, drafts: Sequence[Draft]) -> list[Written]:
        return [self._write(draft) for draft in drafts]

    def _write(self, draft: Draft) -> Written:
        path = self._directory / draft.name
        try:
            with json_files.exclusive(self._directory):
                if draft.over is not None and state_of(path) not in draft.over:
                    return Written(draft.name, is_outdated=True)
                for name, content in draft.first:
                    json_files.write_text(self._directory / name, _made(content))
                (json_files.write_text if draft.is_json else file_io.replace_file)(path, _made(draft.content))
                return Written(draft.name, state_of(path))
        except (OSError, StoreError) as error:
            return Written(draft.name, error=error)

    def close(self) -> None:
        """End the thread; nothing is under way."""
        if self._thread is not None:
            self._thread.shutdown()


def _made(content: bytes | Callable[[], bytes]) -> bytes:
    return content if isinstance(content, bytes) else content()


log = logging.getLogger("slipstream.remoting")

TELL_AGAIN_MS, RETRY_MS, NEVER_MS = 60_000, 1000, 1 << 40
AWAITED_MS = 5  # between two turns while a change waits for what makes its file's text
REST = 5  # times as long as it took to say what is to be written, before the next round
ROUNDS_MAX = 3  # where somebody else writes the same file


class OffsetWriting:
    """Texts of one broker's offsets, made one at a time: each finds complete what the one before wrote.

    They are made beside the role's other work, for the file and for slaves that ask.
    Implements: ConsumerOffsetManager.encode, AdminBrokerProcessor.getAllConsumerOffset
    """

    def __init__(self, metadata: Metadata) -> None:
        self._metadata, self._lock = metadata, asyncio.Lock()

    async def compact(self) -> bytes:
        """Return the offsets' JSON as a slave receives it."""
        return await asyncio.to_thread((await self.texts()).compact)

    async def texts(self) -> TableTexts:
        """Return the offsets' texts, which are still to be put together."""
        async with self._lock:
            return await in_slices(self._metadata.offsets_in_steps())


class BrokerFiles:
    """The files below config/, and the tables they say. `is_beside`: `save` does not wait for the disk.

    `kept` are offsets in shared memory: where they stand for consumerOffset.json, none is read from there.
    """

    def __init__(
        self,
        config: BrokerConfig,
        now_ms: int,
        region_directory: Path,
        *,
        is_beside: bool = False,
        kept: ClientTable | None = None,
    ) -> None:
        directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
        self.directory, self._queues = directory.config, directory.consumequeue
        self._topics_path = self.directory / TOPICS
        self._writes = FileWrites(self.directory, is_beside=is_beside)
        self._unsaved: dict[str, tuple[int, Unsaved]] = {}  # of what is being written: the writing's number first
        self.saves = Saves()
        self._is_beside = is_beside
        self._offsets: tuple[int, TableTexts] | None = None  # consumerOffset.json, to be put together
        self._deleted_before = b""  # what the file of deleted topics says, as far as it was written here
        self._is_slave, self._region_directory = config.broker_role is BrokerRole.SLAVE, region_directory
        self._identity = Identity(
            line_of(config.compat),
            config.broker_cluster_name,
            config.broker_name,
            config.default_topic_queue_nums,
            config.auto_create_topic_enable,
            config.timer_wheel_enable,
            config.msg_trace_topic_name if config.trace_topic_enable else "",
            config.enable_lmq,
        )
        self._queue_nums = min(CLIENT_QUEUE_NUMS, config.default_topic_queue_nums)
        self._write_errors: dict[str, tuple[str, int]] = {}  # name: why it cannot be written, and when that was said
        self._errnos: dict[str, int] = {}  # the same, as numbers
        self._save_at_ms = 0
        self._seen: dict[str, FileState] = {}
        self._counts: dict[str, int] = {}  # of deleted topics: their messages when they went
        self._reader = ThreadPoolExecutor(1, TOPICS) if is_beside else None
        self._reading: tuple[FileState, Future[Served]] | None = None
        self._has_grown = False  # there are topics of others that `look` has not said
        self.on_written: Callable[[str, FileState | None], None] = lambda _name, _state: None  # hears of every file
        self.read_states = {name: state_of(self.directory / name) for name in FILES}
        self._kept = kept
        self.metadata = self._load(now_ms)
        if not self._is_slave:
            self.metadata.forget_given()

    def _load(self, now_ms: int) -> Metadata:
        """Return all tables. Raises MalformedConfig where a damaged file cannot be replaced."""
        values = {name: self._read(name, mending.read) for name in FILES}
        try:
            metadata = Metadata(self._identity, values, now_ms)
        except MalformedConfig:  # in one of them an entry is of a wrong kind
            values = {name: self._read(name, mending.mend) for name in FILES}
            metadata = Metadata(self._identity, values, now_ms)
        try:
            with (self.directory / TIMER_CHECKPOINT).open("rb") as file:
                metadata.timer_checkpoint = TimerCheckpoint.decode(file.read(FILE_BYTES))
        except FileNotFoundError:
            pass
        except OSError as error:
            log.error("%s: cannot be read: %s", self.directory / TIMER_CHECKPOINT, error.strerror)
        return metadata

    def _read(self, name: str, read: Callable[[Path], Mended]) -> dict[str, Any]:
        """Return what a file says at the start. Raises MalformedConfig."""
        path, kept = self.directory / name, self._kept
        if name == CONSUMER_OFFSETS and kept is not None and kept.stands_for(self.read_states[name]):
            value = without_offsets(path)
            if value is not None:
                return value
        mended = read(path)
        if mended.is_mended:
            self.read_states[name] = state_of(path)
        if name == CONSUMER_OFFSETS and self._identity.has_light_queues:
            return self._with_light_offsets(mended.value, read)
        return mended.value

    def _with_light_offsets(self, value: dict[str, Any], read: Callable[[Path], Mended]) -> dict[str, Any]:
        """With enableLmq RocketMQ reads and writes lmqConsumerOffset.json alone: where that is newer, it counts."""
        path = self.directory / LIGHT_OFFSETS
        theirs, ours = state_of(path), state_of(self.directory / CONSUMER_OFFSETS)
        if theirs is None:
            return value
        said = read(path).value
        return said if ours is None or theirs[0] > ours[0] else {**value, LIGHT_TABLE: said.get(LIGHT_TABLE)}

    def look(self, now_ms: int, dispatched: bool) -> bool:
        """Take what others wrote; whether topics are to be registered again. `dispatched`: every message is counted.

        `now_ms` is wall time, which versions have.
        """
        if not self._is_slave and self.metadata.gone_topics and dispatched:
            self._make_again(now_ms)
        if TOPICS in self._unsaved:
            return False
        try:
            grown = self._take_topics() or self._has_grown
            self._has_grown = False
            return grown
        except MalformedConfig:  # damaged while we ran: what we know is sound, and is written in its place
            with suppress(MalformedConfig):
                mending.mend(self._topics_path)
            self._seen[TOPICS] = state_of(self._topics_path) or (0, 0, 0)
            self.metadata.changed.add(TOPICS)
            return False

    def _take_topics(self, *, waits: bool = False) -> bool:
        """Topics that others added to the file; whether there are any. Raises MalformedConfig.

        They are read on a thread, if there is one, and taken by a later look, unless it `waits`.
        """
        state = state_of(self._topics_path)
        if state is None or state == self._seen.get(TOPICS):
            return False
        if self._reader is None or waits:
            return self._take_served(state, self._read_topics())
        if self._reading is None:
            self._reading = state, self._reader.submit(self._read_topics)
            self._reading[1].add_done_callback(lambda _read: self._writes.on_done())
        begun_at, reading = self._reading
        if not reading.done():
            return False
        self._reading = None  # of a file that changed since, too: it is read again
        return begun_at == state and self._take_served(state, reading.result())

    @property
    def has_read(self) -> bool:
        """Whether topics of others wait for the next look."""
        return self._reading is not None and self._reading[1].done()

    def _read_topics(self) -> Served:
        return self.metadata.served_topics(json_files.read(self._topics_path, beside=True))

    def _take_served(self, state: FileState, served: Served) -> bool:
        self._seen[TOPICS] = state
        return self.metadata.take_served_topics(served)

    def _make_again(self, now_ms: int) -> None:
        """A topic that was deleted and got messages since is a topic again, as in RocketMQ."""
        try:
            table = TopicTable.attach(self._region_directory)
        except IpcError:
            return  # the broker is starting or stopping
        counts = {count.topic: count.messages for count in table.read()}
        table.close()
        for topic in sorted(self.metadata.gone_topics):
            before = self._counts.setdefault(topic, counts.get(topic, 0))
            if counts.get(topic, 0) > before:
                served = ServedTopics(self._topics_path, line=self._identity.line, queue_nums=self._queue_nums)
                numbers = [int(name) for name in _names(self._queues / topic) if name.isdecimal()]
                served.note([(topic, max(numbers, default=0))], in_use=True)
                served.save(now_ms)
                log.info("topic %s was deleted and is created again: messages arrived for it", topic)
        for topic in [topic for topic in self._counts if topic not in self.metadata.gone_topics]:
            del self._counts[topic]

    def save(self, now_ms: int, *, is_last: bool = False) -> None:
        """Have what changed written; a file that cannot be written is tried again later. `now_ms` is monotonic.

        What is under way goes first. With `is_last` all is written afterwards.
        """
        for _ in range(ROUNDS_MAX):
            is_outdated = self._take_written(now_ms, waits=is_last)
            if self._writes.is_busy or (now_ms < self._save_at_ms and not (is_last or is_outdated)):
                break
            begun = time.monotonic()
            names = self._due(is_last=is_last)
            if not names:
                break
            self._writes.begin(list(self._drafts(names, now_ms)))
            took_ms = int((time.monotonic() - begun) * 1000)
            self._save_at_ms = max(self._save_at_ms, now_ms + REST * took_ms)  # others have their turns meanwhile
        self._take_written(now_ms, waits=is_last)

    def _due(self, *, is_last: bool) -> list[str]:
        """Return the files to write now.

        The file of offsets is due once `save_offsets` has its text, or at last; files with much to write anew, once
        `write_tables` has done so.
        """
        names = set(self.metadata.changed)
        if self._is_beside and not is_last:
            names -= {CONSUMER_OFFSETS, *self.metadata.many_unwritten}
            if TOPICS in names and not self._is_slave and not self._knows_topics():
                names.discard(TOPICS)
        if self._offsets is not None:
            names |= {CONSUMER_OFFSETS}
        if is_last:
            self._offsets = None
        return sorted(names)

    def _knows_topics(self) -> bool:
        """Whether what others wrote into topics.json is taken in, so that it can be written."""
        with suppress(MalformedConfig):  # the draft says so
            self._has_grown |= self._take_topics()
            return self._reading is None
        return True

    def are_offsets_due(self, now_ms: int) -> bool:
        """Whether they changed, and nothing keeps their file from being written."""
        is_wanted = CONSUMER_OFFSETS in self.metadata.changed
        return is_wanted and self._offsets is None and now_ms >= self._save_at_ms

    def take_journal(self, journal: ClientJournal, locks: RebalanceLockManager) -> None:
        """Take offsets and locks as the clients role before us left them; at a broker's start, offsets of the file."""
        offsets, self.on_written = self.metadata.consumer_offsets, journal.note_file
        for name, state in self.read_states.items():
            journal.note_file(name, state)
        if journal.is_filled:
            of_file = offsets.table if journal.is_overfull else {}
            offsets.restore({**of_file, **journal.offsets()})
            self.metadata.changed.add(CONSUMER_OFFSETS)
            locks.restore(journal.locks())
        else:
            journal.fill(offsets.table)
        offsets.journal = locks.journal = journal

    async def save_offsets(self, writing: OffsetWriting, now_ms: int) -> None:
        """Have consumerOffset.json written: with very many queues its text is made a part at a time."""
        self.metadata.changed.discard(CONSUMER_OFFSETS)
        number = self.saves.begin(CONSUMER_OFFSETS)
        try:
            self._offsets = number, await writing.texts()
        finally:
            if self._offsets is None:
                self.metadata.changed.add(CONSUMER_OFFSETS)
        self.save(now_ms)

    async def write_tables(self) -> None:
        """Have topics and groups ready as texts, a part at a time: after a start, all of them are new."""
        while names := self.metadata.many_unwritten:
            for name in names:
                await in_slices(self.metadata.texts[name].steps())

    def is_saved(self, name: str) -> bool:
        """Whether the file says what the table does."""
        return name not in self.metadata.changed and name not in self._unsaved

    def saved(self, names: Sequence[str]) -> asyncio.Future[None] | None:
        """Return what is done once these files say what their tables do; None where they do.

        Raises NotSaved when awaited.
        """
        return self.saves.wait(names, self.metadata.changed)

    @property
    def write_errno(self) -> int:
        """Return the errno of a table that cannot be written; 0 where all can, -1 without a number."""
        return next(iter(self._errnos.values()), 0)

    def due_in_ms(self, now_ms: int) -> int:
        """Return how long until the next round may begin that a change waits for; NEVER_MS where none waits."""
        if self._writes.is_busy or not self.saves.is_awaited:
            return NEVER_MS
        return max(AWAITED_MS, self._save_at_ms - now_ms)

    def on_round(self, call: Callable[[], None]) -> None:
        """Have `call` called on the writing thread each time a round is through."""
        self._writes.on_done = call

    def _drafts(self, names: Sequence[str], now_ms: int) -> Iterator[Draft]:
        for name in names:
            try:
                yield self._draft(name)
            except MalformedConfig as error:
                self._failed(Written(name, error=error), now_ms, self.saves.begin(name))

    def _draft(self, name: str) -> Draft:
        """Return what a file is to say from now on. Raises MalformedConfig."""
        metadata = self.metadata
        if name == TOPICS and not self._is_slave:
            self._has_grown |= self._take_topics(waits=True)
        if name == CONSUMER_OFFSETS:
            return self._draft_of_offsets()
        self._unsaved[name] = self.saves.begin(name), metadata.begin_saving(name)
        if name == TIMER_CHECKPOINT:
            return Draft(name, metadata.timer_checkpoint.file(), is_json=False)
        if name == DELAY_OFFSETS and metadata.delay_offsets_text is not None:
            return Draft(name, metadata.delay_offsets_text)
        content = metadata.written(name) if name in metadata.texts else metadata.file_text(name)
        if name != TOPICS:
            return Draft(name, content)
        deleted = json_files.encode(metadata.value(DELETED_TOPICS))
        # first, so that nobody makes them again from their queues
        first = ((DELETED_TOPICS, deleted),) if deleted != self._deleted_before else ()
        self._deleted_before = deleted
        return Draft(name, content, None if self._is_slave else (self._seen.get(TOPICS),), first)

    def _draft_of_offsets(self) -> Draft:
        """Return the draft of the offsets' file; what changed since its text was made stays `changed`."""
        made, self._offsets = self._offsets, None
        is_changed = made is not None and CONSUMER_OFFSETS in self.metadata.changed
        unsaved = self.metadata.begin_saving(CONSUMER_OFFSETS)
        if is_changed:
            self.metadata.changed.add(CONSUMER_OFFSETS)
        number, texts = made or (self.saves.begin(CONSUMER_OFFSETS), at_once(self.metadata.offsets_in_steps()))
        self._unsaved[CONSUMER_OFFSETS] = number, unsaved
        first = ((LIGHT_OFFSETS, texts.pretty_light),) if self._identity.has_light_queues else ()
        return Draft(CONSUMER_OFFSETS, texts.pretty, first=first)

    def _take_written(self, now_ms: int, *, waits: bool) -> bool:
        """See what became of the last round; whether others wrote a file of it before us."""
        is_outdated = False
        for written in self._writes.take(waits=waits):
            name, (number, unsaved) = written.name, self._unsaved.pop(written.name)
            if written.error is None and not written.is_outdated:
                self._write_errors.pop(name, None)
                self._errnos.pop(name, None)
                self.on_written(name, written.state)
                if name == TOPICS:
                    self._seen[TOPICS] = written.state or (0, 0, 0)  # ours: what an administrator made smaller stays so
                self.saves.end(name, number)
                continue
            self.metadata.not_saved(name, unsaved)
            self._deleted_before = b""
            is_outdated |= written.is_outdated
            if written.error is not None:
                self._failed(written, now_ms, number)
        return is_outdated

    def _failed(self, written: Written, now_ms: int, number: int) -> None:
        self._save_at_ms = now_ms + RETRY_MS
        error = written.error
        self._errnos[written.name] = getattr(error, "errno", None) or -1
        self.saves.fail(written.name, number, (error.strerror if isinstance(error, OSError) else "") or str(error))
        said, (reason, told_ms) = str(written.error), self._write_errors.get(written.name, ("", 0))
        if said != reason or now_ms - told_ms >= TELL_AGAIN_MS:
            self._write_errors[written.name] = said, now_ms
            log.error("%s: cannot be written: %s; will retry", self.directory / written.name, said)

    def close(self) -> None:
        """Stop the threads; call it after the last `save`."""
        self._writes.close()
        if self._reader is not None:
            self._reader.shutdown()

    def state_of_topics(self) -> FileState | None:
        """Tells one content of topics.json from another."""
        return state_of(self._topics_path)


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
