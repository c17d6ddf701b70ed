"""Who is in a group: the one thing here that only the broker itself can say."""

from __future__ import annotations

from engine.protocol.remoting.codes import RequestCode
from engine.remoting.sockets.client import RemotingClient
from store.errors import StoreError
from store.tables import fastjson
from tools.common.tls import tls_of

ANSWER_SECONDS = 5.0


def members_of(address: str, group: str) -> list[str]:
    """The clients of a group, or why the broker does not say."""
    try:
        with RemotingClient(address, ANSWER_SECONDS, tls_of()) as client:
            answer = client.ask(RequestCode.GET_CLIENTS, {"group": group})
        said = fastjson.loads(answer.body, "the broker's clients")
    except Exception as error:
        is_said = isinstance(error, OSError | StoreError) or isinstance(getattr(error, "code", None), str)
        if not is_said:
            raise
        return [f"not known: {' '.join(str(error).split())}"]
    groups = said.get("groups", []) if isinstance(said, dict) else []
    return [str(member) for one in groups if one.get("group") == group for member in one.get("members", [])]
