"""The self-signed certificate: reused, renewed in time, and valid for this machine only."""

import socket
import ssl
import stat
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from holdfast.errors import ConfigurationError
from holdfast.server import certificate
from holdfast.server.certificate import own_certificate


def shake_hands(with_key: Path, trusted: Path, name: str) -> str | None:
    """The TLS version that the server and a client that trusts only this certificate negotiate."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(with_key)
    client = ssl.create_default_context(cafile=trusted)
    here, there = socket.socketpair()
    here.settimeout(10)
    there.settimeout(10)

    def answer() -> None:
        try:
            server.wrap_socket(there, server_side=True).close()
        except OSError:
            there.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=name) as agreed:
            return agreed.version()
    finally:
        here.close()
        thread.join()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_a_client_that_trusts_it_connects_under_the_names_of_this_machine(tmp_path: Path, name: str) -> None:
    own = own_certificate(tmp_path / "tls")
    assert shake_hands(own.with_key, own.certificate, name) == "TLSv1.3"


def test_it_is_valid_for_no_other_name_and_signs_nothing(tmp_path: Path) -> None:
    own = own_certificate(tmp_path / "tls")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(own.with_key, own.certificate, "example.com")
    found = x509.load_pem_x509_certificate(own.certificate.read_bytes())
    assert found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False


def test_only_its_owner_may_read_the_key(tmp_path: Path) -> None:
    own = own_certificate(tmp_path / "tls")
    assert stat.S_IMODE(own.with_key.stat().st_mode) == 0o600
    assert stat.S_IMODE(own.with_key.parent.stat().st_mode) == 0o700
    assert b"PRIVATE KEY" in own.with_key.read_bytes()
    assert b"PRIVATE KEY" not in own.certificate.read_bytes()


def test_it_is_reused(tmp_path: Path) -> None:
    before = own_certificate(tmp_path).with_key.read_bytes()
    assert own_certificate(tmp_path).with_key.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["localhost.crt", "localhost.pem"]


@pytest.mark.parametrize("left", ["soon over", "broken"])
def test_it_is_replaced_if_it_expires_soon_or_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    with monkeypatch.context() as then:
        then.setattr(certificate, "LIFETIME", timedelta(days=29))
        before = own_certificate(tmp_path).with_key.read_bytes()
    if left == "broken":
        (tmp_path / "localhost.pem").write_text("-----BEGIN CERTIFICATE-----\nhalf")
    own = own_certificate(tmp_path)
    assert own.with_key.read_bytes() != before
    assert shake_hands(own.with_key, own.certificate, "localhost") == "TLSv1.3"


def test_a_directory_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot write a certificate"):
        own_certificate(tmp_path / "file" / "tls")
