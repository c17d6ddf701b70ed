"""The access key and the secret of a command: where they come from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.clients.access import Credentials
from engine.clients.names import ClientError
from tools.common.access_keys import SECRET_BYTES_MAX, SECRET_KEY, credentials_of

LINE = "the secret must be one line of UTF-8 text, of at most 4096 bytes"


@pytest.fixture(autouse=True)
def no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_KEY, raising=False)


def test_a_command_without_keys_signs_nothing() -> None:
    assert credentials_of(None, None) is None


def test_the_secret_comes_from_a_file_or_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_KEY, "of the environment")
    assert credentials_of("key", None) == Credentials("key", "of the environment")
    file = tmp_path / "secret"
    file.write_text("of the file, €\n")
    assert credentials_of("key", str(file)) == Credentials("key", "of the file, €")


@pytest.mark.parametrize(
    ("access_key", "secret", "words"),
    [
        ("key", None, r"access key 'key' is given without its secret key; give --secret-key-file FILE, or set \$"),
        (None, "secret", r"a secret key is given without an access key; give --access-key KEY, or set \$"),
        ("", "secret", "a secret key is given without an access key"),
        ("key", "", "access key 'key' is given without its secret key"),
    ],
)
def test_one_key_without_the_other_is_refused(
    monkeypatch: pytest.MonkeyPatch, access_key: str | None, secret: str | None, words: str
) -> None:
    if secret is not None:
        monkeypatch.setenv(SECRET_KEY, secret)
    with pytest.raises(ClientError, match=words) as refused:
        credentials_of(access_key, None)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b" \n", b"two\nlines\n", b"\xff\xfe", b"x" * (SECRET_BYTES_MAX + 1)])
def test_a_file_that_is_not_one_line_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(ClientError, match=LINE) as refused:
        credentials_of("key", str(file))
    assert "lines" not in str(refused.value)
