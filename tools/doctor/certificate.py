"""The certificate that a node shows: whether ours accept it, and for how long it is good."""

from __future__ import annotations

import socket
import ssl
import time

from engine.net.tls import words_of
from tools.common.moments import time_text
from tools.doctor.node import Asking, Node
from tools.doctor.rows import Code, Row, ok, unknown, wrong

CHECK = "certificate"
DAYS_MIN, DAY_SECONDS = 7, 86_400
RENEW = "replace the files that tls.config.file names: new connections use them without a restart"


def rows(node: Node, asking: Asking) -> list[Row]:
    """Check the certificate of listenPort, if it is asked over TLS."""
    if asking.how is None:
        return []
    try:
        with (
            socket.create_connection((node.host, node.port), asking.timeout) as plain,
            asking.how.current().wrap_socket(plain, server_hostname=node.host) as wrapped,
        ):
            shown = wrapped.getpeercert() or {}
    except (OSError, EOFError) as error:
        return [wrong(CHECK, Code.CERTIFICATE, words_of(error), RENEW)]
    return [judged(str(shown.get("notAfter", "")))]


def judged(not_after: str) -> Row:
    """Judge a certificate by its end in the ssl module's form; empty where it was not verified."""
    if not not_after:
        return unknown(CHECK, "it is not verified, so its validity is unknown", "write tls.client.trustCertPath")
    until = ssl.cert_time_to_seconds(not_after)
    days = (until - time.time()) / DAY_SECONDS
    what = f"good until {time_text(until * 1000)}, for {days:.1f} days"
    return wrong(CHECK, Code.CERTIFICATE, what, RENEW) if days < DAYS_MIN else ok(CHECK, what)
