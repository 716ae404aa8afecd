"""A self-signed certificate for localhost, so that `holdfast up` serves TLS without any setup."""

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast.errors import ConfigurationError

LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
CLOCK_SKEW = timedelta(days=1)
ADDRESSES = ("127.0.0.1", "::1")


class OwnCertificate(NamedTuple):
    """`with_key` is for the server alone; `certificate` is for clients that should trust it."""

    with_key: Path
    certificate: Path


def own_certificate(directory: Path) -> OwnCertificate:
    """Returns the certificate in this directory. Creates it if it is missing or expires soon."""
    own = OwnCertificate(directory / "localhost.pem", directory / "localhost.crt")
    try:
        if not _is_good(own.with_key):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(own)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write a certificate to {directory}: {error.strerror}",
            hint="Set HOLDFAST_HOME to a directory that you may write to.",
        ) from error
    return own


def _is_good(path: Path) -> bool:
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return found.not_valid_after_utc - RENEW_BEFORE > datetime.now(UTC)


def _make(own: OwnCertificate) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _signed(key).public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(own.with_key, secret + certificate, 0o600)
    _write(own.certificate, certificate, 0o644)


def _signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Holdfast on this machine")])
    names = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(one)) for one in ADDRESSES)]
    now = datetime.now(UTC)
    unused = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "key_cert_sign",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        # Not a CA: clients that trust it trust this server only, not what its key might sign.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, **unused), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    """Writes to a temporary name first, so that concurrent starts never read half a file."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    unfinished.replace(path)
