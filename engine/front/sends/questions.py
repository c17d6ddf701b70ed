"""What tasks of a front ask the clients role: each question once, for all tasks that wait for its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from engine.front.connections.relay import Json, Relay
from engine.front.sends.task import Task
from engine.producer.pipeline import Busy

OnAnswer = Callable[[Json], None]


class Questions:
    """Questions of one front; whatever `OnAnswer` raises goes into `guarded`."""

    def __init__(self, relay: Relay, guarded: Callable[[Task], AbstractContextManager[None]]) -> None:
        self._relay, self._guarded = relay, guarded
        self._asking: dict[tuple[str, str], list[tuple[Task, OnAnswer]]] = {}

    def ask(self, task: Task, what: str, name: str, fields: Json, on_answer: OnAnswer) -> None:
        """Ask for what has that name; `on_answer` is called unless the task is answered by then. Raises Busy."""
        waiting_tasks = self._asking.get((what, name))
        if waiting_tasks is not None:
            waiting_tasks.append((task, on_answer))
            return
        self._asking[what, name] = [(task, on_answer)]

        def answered(answer: Json) -> None:
            for waiting_task, on_its_answer in self._asking.pop((what, name), []):
                with self._guarded(waiting_task):
                    if not waiting_task.is_answered:
                        on_its_answer(answer)

        if not self._relay.ask(what, fields, answered):
            del self._asking[what, name]
            raise Busy("too many requests wait for the clients role")

    def overdue(self) -> Iterator[tuple[Task, int, int]]:
        """Yield tasks that waited for too long, the milliseconds, and how many wait for the same answer."""
        for tasks in self._asking.values():
            for task, _on_answer in tasks:
                if not task.is_answered and (waited_ms := task.waited_ms) >= task.question_limit_ms:
                    yield task, waited_ms, len(tasks)
