"""What the address at the other end of a remoting connection may ask for, and in which words it is refused.

Implements: nothing of RocketMQ's, which answers every client that reaches it unless its ACL is on
By default every address may connect, register and ask for a master's tables, as an unmodified cluster needs it.
Requests that change something or read settings are answered to this host alone.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.protocol.access.allow_list import AllowList, is_this_host, plain
from engine.protocol.remoting.codes import KINDS, RequestCode, RequestKind

CONNECT_KEY, ADMIN_KEY, REGISTER_KEY = "remotingAllowList", "adminAllowList", "registerAllowList"
FOLLOW_KEY = "haAllowList"


class Rights(NamedTuple):
    """Rights of one connection, whose other end is at `peer`."""

    peer: str = "this host"
    may_connect: bool = True
    may_administer: bool = True
    may_register: bool = True
    may_follow: bool = True


ALL = Rights()


class Rules(NamedTuple):
    """The lists of one remoting server; without one everybody may, but administer: that is this host's alone."""

    connect: AllowList | None = None
    administer: AllowList | None = None
    register: AllowList | None = None
    follow: AllowList | None = None

    def rights_of(self, peer: str, own: str) -> Rights:
        """Return the rights of a connection from `peer` to this server's address `own`."""
        address = plain(peer)
        if is_this_host(address, plain(own)):
            return ALL
        return Rights(
            str(address),
            may_connect=self.connect is None or self.connect.has(address),
            may_administer=self.administer is not None and self.administer.has(address),
            may_register=self.register is None or self.register.has(address),
            may_follow=self.follow is None or self.follow.has(address),
        )


def refusal(code: int, rights: Rights) -> str | None:
    """Return why a request with this code is refused on such a connection; None where it is not."""
    match KINDS.get(code):
        case RequestKind.CHANGE | RequestKind.SETTINGS if not rights.may_administer:
            key = ADMIN_KEY
        case RequestKind.REGISTRATION if not rights.may_register:
            key = REGISTER_KEY
        case RequestKind.LOG if not rights.may_follow:
            key = FOLLOW_KEY
        case _:
            return None
    name = RequestCode(code).name
    return f"{name} is not allowed from {rights.peer}: add it to {key} of this server, or use the server's host"
