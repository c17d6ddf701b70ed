"""A name server's settings as administrators see them, and change those that may change while it runs.

Implements: DefaultRequestProcessor.getConfig, updateConfig (318, 319)
RocketMQ takes whatever it knows, most of it without effect until it is started again: what cannot change here is
refused by name. What it does not know it passes over; so do we.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.protocol.remoting.answers import Refused
from engine.protocol.remoting.codes import ResponseCode
from store.compat import NamingRules

BODY_BYTES_MAX = 64 * 1024
SET_ASIDE = "kvConfigSetAside"  # shown only where there is such a file
TRUTHS = {"true": True, "false": False}


class LiveSettings:
    """`shown`: what cannot change; `changeable`: what can, by key, with what is called with its new value."""

    def __init__(
        self,
        rules: NamingRules,
        shown: Mapping[str, str],
        values: Mapping[str, bool],
        changeable: Mapping[str, Callable[[bool], None]],
    ) -> None:
        self._rules, self._shown, self._changeable = rules, dict(shown), changeable
        self._values = dict(values)
        self.changed: dict[str, bool] = {}  # by a request: the shell's to take
        self.set_aside: Callable[[], str] = str  # the shell's to say: files of the key-value config that were damaged

    def text(self) -> str:
        """Return all settings, a line each, sorted."""
        every = {**self._shown, **{name: str(value).lower() for name, value in self._values.items()}}
        if aside := self.set_aside():
            every[SET_ASIDE] = aside
        return "".join(f"{name}={every[name]}\n" for name in sorted(every))

    def change(self, body: bytes) -> None:
        """Set what an administrator wants: all of it, or nothing. Raises Refused."""
        if len(body) > BODY_BYTES_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the settings have more than {BODY_BYTES_MAX} bytes")
        lines = [line.partition("=") for line in body.decode(errors="replace").splitlines() if "=" in line]
        wanted = {name.strip(): text.strip() for name, _is, text in lines if not name.lstrip().startswith(("#", "!"))}
        if wanted.keys() & self._rules.fixed_settings:
            raise Refused(ResponseCode.NO_PERMISSION, self._rules.fixed_settings_remark)
        changed = {}
        for name, text in wanted.items():
            if name in self._changeable:
                if text.lower() not in TRUTHS:
                    raise Refused(ResponseCode.SYSTEM_ERROR, f"{name}: allowed: true or false")
                changed[name] = TRUTHS[text.lower()]
            elif name in self._shown:
                remark = f"{name} cannot change while the name server runs; set it in its file"
                raise Refused(ResponseCode.NO_PERMISSION, remark)
            else:  # RocketMQ says SUCCESS to any name
                remark = f"{name}: this name server has no such setting; nothing was changed"
                raise Refused(ResponseCode.NO_PERMISSION, remark)
        self.set(changed)
        self.changed |= changed

    def values(self) -> dict[str, bool]:
        """Return the settings that can change, as they are now."""
        return dict(self._values)

    def set(self, values: Mapping[str, bool]) -> None:
        """Apply an administrator's request; the values were checked before."""
        for name, value in values.items():
            self._values[name] = value
            self._changeable[name](value)
