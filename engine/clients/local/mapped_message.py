"""A message that lies in a mapped segment: its record is decoded when more than its body is asked for."""

from __future__ import annotations

from typing import Any

from store.message.record import Message, decode

_new, _set = object.__new__, object.__setattr__


class MappedMessage(Message):
    """A message whose body is a view into the segment. The view keeps the segment mapped, also a deleted one."""

    def __getattr__(self, name: str) -> Any:
        """Decode the record, which was judged before, at the first field that is not here yet."""
        fields = self.__dict__
        place = fields.get("_place")
        if place is not None and name not in fields:
            for key, value in decode(*place, check_body_crc=False).__dict__.items():
                fields.setdefault(key, value)
            fields.pop("_place", None)  # last: another thread may be here
        if name not in fields:
            raise AttributeError(name)
        return fields[name]


def mapped_message(
    view: memoryview, queue_offset: int, position: int, body: memoryview, sys_flag: int
) -> MappedMessage:
    """The message whose record begins at `position` of a segment's bytes."""
    message = _new(MappedMessage)
    fields = {"queue_offset": queue_offset, "sys_flag": sys_flag, "body": body, "_place": (view, position)}
    _set(message, "__dict__", fields)
    return message
