"""A small certificate authority for one installation: it certifies the MQTT server and the devices.

It is for a home or a plant that has no authority. Keys are of the curve P-256, which every device with TLS can use, except
Tasmota: it knows public authorities only, and checks a server of any other by the fingerprint of its key, which has to be an RSA
key. So the server may have one; it stays the same when the certificate is renewed, and with it the fingerprint.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from domain.kernel.dataclasses import service

CLOCK_SKEW = datetime.timedelta(days=1)
"""A device whose clock is late accepts a new certificate too."""
AUTHORITY_DAYS = 3_650
RSA_BITS = 2_048

ServerKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class PemCertificateAndKey:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


def find_authority(chain: bytes, candidate: bytes) -> str | None:
    """`candidate` as PEM if it certified the first certificate of `chain`, both PEM; else None. Raises ValueError for another
    format."""
    server, authority = x509.load_pem_x509_certificate(chain), x509.load_pem_x509_certificate(candidate)
    try:
        server.verify_directly_issued_by(authority)
    except (InvalidSignature, TypeError, ValueError):
        return None
    return authority.public_bytes(serialization.Encoding.PEM).decode()


def tasmota_fingerprint(chain: bytes) -> str | None:
    """What Tasmota's `MqttFingerprint1` takes for the first certificate of `chain` (PEM): SHA-1 over the RSA key, each part with
    its length before it, as 20 hexadecimal bytes. None for a key of another kind. Raises ValueError for another format."""
    key = x509.load_pem_x509_certificate(chain).public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        return None
    numbers = key.public_numbers()
    digest = hashlib.sha1(usedforsecurity=False)  # Tasmota's choice
    for part in (b"ssh-rsa", _big_endian(numbers.e), _big_endian(numbers.n)):
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest().hex(" ").upper()


def _big_endian(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def make_rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=RSA_BITS)


def load_rsa_key(pem: bytes) -> rsa.RSAPrivateKey | None:
    """None for a key of another kind. Raises ValueError for another format."""
    key = serialization.load_pem_private_key(pem, password=None)
    return key if isinstance(key, rsa.RSAPrivateKey) else None


@service
class CertificateAuthority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, name: str, now: datetime.datetime) -> CertificateAuthority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = _builder(subject, subject, key.public_key(), now, AUTHORITY_DAYS, is_authority=True)
        return cls(certificate=builder.sign(key, hashes.SHA256()), key=key)

    @classmethod
    def load(cls, pair: PemCertificateAndKey) -> CertificateAuthority:
        """Raises ValueError when one of the two is not what it should be, or they do not belong together."""
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
            raise ValueError("the key does not belong to the certificate")
        return cls(certificate=certificate, key=key)

    def to_pem(self) -> PemCertificateAndKey:
        return _pem(self.certificate, self.key)

    def issue_server(
        self, names: Sequence[str], now: datetime.datetime, days: int, key: ServerKey | None = None
    ) -> PemCertificateAndKey:
        """`names`: host names and addresses by which clients reach the server; the first is also the common name. `key`: that of
        the server; without it, a new one."""
        general = [_general_name(name) for name in names]
        return self._issue(names[0], general, ExtendedKeyUsageOID.SERVER_AUTH, now, days, key)

    def issue_device(self, device_id: str, now: datetime.datetime, days: int) -> PemCertificateAndKey:
        """The common name is the device id."""
        return self._issue(device_id, [], ExtendedKeyUsageOID.CLIENT_AUTH, now, days)

    def _issue(
        self,
        common_name: str,
        names: Sequence[x509.GeneralName],
        usage: x509.ObjectIdentifier,
        now: datetime.datetime,
        days: int,
        key: ServerKey | None = None,
    ) -> PemCertificateAndKey:
        key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
        builder = _builder(_name(common_name), self.certificate.subject, key.public_key(), now, days, is_authority=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return _pem(builder.sign(self.key, hashes.SHA256()), key)


def expiry(certificate: bytes) -> datetime.datetime:
    """When the first certificate of a PEM file expires. Raises ValueError."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    now: datetime.datetime,
    days: int,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(_key_usage(signs_certificates=is_authority), critical=True)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate, key: ServerKey) -> PemCertificateAndKey:
    return PemCertificateAndKey(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
