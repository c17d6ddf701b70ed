"""Certificates for a test, made by the openssl command: authorities, what they issue, and what has expired."""

from __future__ import annotations

import subprocess
from pathlib import Path

SUBJECT_NAMES = "IP:127.0.0.1,IP:::1,DNS:localhost"
PURPOSES = "serverAuth,clientAuth"  # one pair of files serves both ends of a connection
LONG_PAST = ("-startdate", "20200101000000Z", "-enddate", "20210101000000Z")
REGISTER = """[ca]
default_ca = only
[only]
database = {directory}/index
new_certs_dir = {directory}
default_md = sha256
rand_serial = yes
policy = any
[any]
commonName = supplied
"""


def openssl(*arguments: object) -> None:
    """Run it; its words where it fails."""
    done = subprocess.run(["openssl", *map(str, arguments)], check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


class Issued:
    """A certificate and its key, in PEM, the key as Java takes it (PKCS #8)."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.certificate, self.key = certificate, key

    def replace(self, other: Issued) -> None:
        """Be what another one is, as a renewal does it: file by file, each at once."""
        for mine, new in ((self.certificate, other.certificate), (self.key, other.key)):
            arriving = mine.with_suffix(".new")
            arriving.write_bytes(new.read_bytes())
            arriving.replace(mine)


class Authority:
    """A certificate authority in a directory of its own; `certificate` is what its friends trust."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        directory.mkdir(parents=True)
        self._directory, self.certificate = directory, directory / "ca.pem"
        self._key = _key(directory / "ca.key")
        openssl(
            "req",
            "-x509",
            "-new",
            "-key",
            self._key,
            "-subj",
            f"/CN={name}",
            "-days",
            "2",
            "-out",
            self.certificate,
            "-addext",
            "keyUsage=critical,keyCertSign",
        )

    def issue(self, name: str, *, names: str = SUBJECT_NAMES, is_expired: bool = False) -> Issued:
        """A certificate for a host."""
        key, request = _key(self._directory / f"{name}.key"), self._directory / f"{name}.csr"
        certificate, extensions = self._directory / f"{name}.pem", self._directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\nextendedKeyUsage={PURPOSES}\n")
        openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
        signed = ("-in", request, "-out", certificate, "-extfile", extensions)
        if is_expired:
            (self._directory / "index").write_text("")  # it remembers nothing
            register = self._directory / "register.cnf"
            register.write_text(REGISTER.format(directory=self._directory))
            own = ("-cert", self.certificate, "-keyfile", self._key)
            openssl("ca", "-config", register, "-batch", "-notext", *own, *LONG_PAST, *signed)
        else:
            openssl("x509", "-req", "-CA", self.certificate, "-CAkey", self._key, "-days", "2", *signed)
        return Issued(certificate, key)


def _key(path: Path) -> Path:
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)
    return path


def tls_file(path: Path, **settings: object) -> Path:
    """A tls.properties file; `server_certPath` is tls.server.certPath."""
    path.write_text("".join(f"tls.{key.replace('_', '.')}={value}\n" for key, value in settings.items()))
    return path


def server_file(path: Path, own: Issued, **more: object) -> Path:
    """That of a server which shows `own`."""
    return tls_file(path, server_certPath=own.certificate, server_keyPath=own.key, **more)
