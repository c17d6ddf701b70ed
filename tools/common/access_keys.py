"""The keys by which a broker with access control knows a command. The secret is never an argument: others see those."""

from __future__ import annotations

import os
from pathlib import Path

from engine.clients.access import Credentials
from engine.clients.names import ClientError

ACCESS_KEY, SECRET_KEY = "SLIPSTREAM_ACCESS_KEY", "SLIPSTREAM_SECRET_KEY"
SECRET_BYTES_MAX = 4096
ACCESS_KEY_HELP = (
    f"Sign requests with this access key, for brokers with ACLs. Default: ${ACCESS_KEY}, else no signature."
)
SECRET_FILE_HELP = f"File with the secret of the access key. Default: the secret is in ${SECRET_KEY}."


def credentials_of(access_key: str | None, secret_key_file: str | None) -> Credentials | None:
    """Return the keys of a command; None without any.

    Raises ClientError if only one of the two keys is given, or if the file is not one line of text, and OSError.
    """
    secret = os.environ.get(SECRET_KEY) if secret_key_file is None else _line_of(Path(secret_key_file))
    if not access_key and not secret:
        return None
    if not access_key:
        raise ClientError(f"a secret key is given without an access key; give --access-key KEY, or set ${ACCESS_KEY}")
    if not secret:
        missing = f"give --secret-key-file FILE, or set ${SECRET_KEY}"
        raise ClientError(f"access key {access_key!r} is given without its secret key; {missing}")
    return Credentials(access_key, secret)


def _line_of(file: Path) -> str:
    with file.open("rb") as opened:
        content = opened.read(SECRET_BYTES_MAX + 1)
    try:
        text = content.decode().strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(content) > SECRET_BYTES_MAX or len(text.splitlines()) > 1:
        raise ClientError(f"{file}: the secret must be one line of UTF-8 text, of at most {SECRET_BYTES_MAX} bytes")
    return text
