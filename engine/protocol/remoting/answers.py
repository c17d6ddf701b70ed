"""What every remoting server does with a request: find its handler, refuse what is unknown or incomplete, answer.

Implements: NettyRemotingAbstract.processRequestCommand, RemotingCommand.decodeCommandCustomHeader
spec: remoting, 3 server behaviour, 4 response codes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import MalformedFrame, RemotingCommand, Serialize
from store.compat import Line, line_of
from store.errors import StoreError
from store.tables import fastjson

REMOTING_EXCEPTION = "org.apache.rocketmq.remoting.exception.RemotingCommandException"
NULL_POINTER = "java.lang.NullPointerException"
FAILED = "the broker failed to serve this request; its log says why"
NO_REMARK = "not set any response code"  # what RocketMQ leaves where it forgets to set a code

Json = dict[str, Any]
Handler = Callable[[RemotingCommand, int, int], RemotingCommand]


class Refused(Exception):
    """Raised inside of a request that is answered with a code and a remark."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code, self.remark = code, remark


class Thrown(Refused):
    """Raised where RocketMQ's handler throws: answered with code 1, always with a JSON header."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


class Answerer:
    """Handlers by request code; a handler gets the request, its connection's number and the time."""

    handlers: dict[int, Handler]
    REFUSALS = (Refused, MalformedFrame, StoreError)  # what a handler may raise

    def __init__(self, compat: str) -> None:
        self.line = line_of(compat)
        self.version = self.line.remoting.version
        self._ahead: object = None

    def work_ahead(self, _request: RemotingCommand) -> object:
        """Return the part of a request's work that takes long and touches no table.

        Any thread may do it; `answer` takes its result.
        """
        return None

    def answer(
        self, request: RemotingCommand, connection: int, now_ms: int, ahead: object = None
    ) -> RemotingCommand | None:
        """The answer to a request; None to a oneway one, and to an answer that nobody asked for."""
        if request.is_response:
            return None
        handler = self.handlers.get(request.code)
        self._ahead = ahead
        try:
            if handler is None:
                raise Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")
            answer = handler(request, connection, now_ms)
        except self.REFUSALS as refused:
            answer = self.refusal(request, refused)
        return None if request.is_oneway else answer

    def refusal(self, request: RemotingCommand, error: Exception) -> RemotingCommand:
        """The answer to a request at which one of REFUSALS was raised."""
        if isinstance(error, Refused) and not isinstance(error, Thrown):
            return self.answered(request, error.code, error.remark)
        remark = error.remark if isinstance(error, Thrown) else f"{getattr(error, 'code', '')}: {error}"
        return request.answer(ResponseCode.SYSTEM_ERROR, remark, version=self.version, serialize=Serialize.JSON)

    def answered(
        self,
        request: RemotingCommand,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """An answer in this version's form: the request's, or always JSON."""
        form = Serialize.JSON if self.line.remoting.answers_in_json else None
        return request.answer(code, remark, ext_fields, body, version=self.version, serialize=form)

    def with_json(self, request: RemotingCommand, value: Json) -> RemotingCommand:
        """An answer with that value as its body."""
        return self.answered(request, body=body_of(value))


def body_of(value: Json, *, bare_keys: bool = True) -> bytes:
    """A value as fastjson writes it."""
    return fastjson.dumps(value, bare_keys=bare_keys).encode("utf-8", "replace")


def required(request: RemotingCommand, name: str) -> str:
    """A field that the request must have. Raises Refused."""
    value = (request.ext_fields or {}).get(name)
    if value is None:
        raise Thrown(f"{REMOTING_EXCEPTION}: the custom field <{name}> is null")
    return value


def null_pointer(call: str, what: str) -> str:
    """Return what Java says when it finds nothing where it calls something."""
    return f'Cannot invoke "{call}" because {what} is null'


def no_value(line: Line, header: str, getter: str, call: str) -> NoReturn:
    """Raise Thrown with what Java says where a handler unboxes a number that the request lacks."""
    what = f'the return value of "{line.remoting.java_package}.header.{header}.{getter}()"'
    raise Thrown(f"{NULL_POINTER}: {null_pointer(call, what)}")


def given(request: RemotingCommand, name: str) -> str | None:
    """A field, if it is there: RocketMQ leaves out the check of what its headers call required."""
    return (request.ext_fields or {}).get(name)


def shown(text: str | None) -> str:
    """A field in a remark, as Java writes it."""
    return "null" if text is None else text


def whole_number(
    request: RemotingCommand, name: str, low: int = fastjson.INT64_MIN, high: int = fastjson.INT64_MAX
) -> int | None:
    """A number, if it is there and one of Java's: Java logs what it cannot parse, and goes on without it."""
    try:
        return fastjson.whole_number(given(request, name), low, high)
    except ValueError:
        return None
