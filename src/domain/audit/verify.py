"""Verifies an export of the log line by line, with nothing but the file and the public key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from domain.audit.export import FORMAT
from domain.audit.seals import SEAL_TYPE, ChainHeads, heads_of
from domain.events.hash_chain import CHAIN_START, EventChainHead, digest_of, link
from domain.kernel.canonical_json import canonical_json

CheckSignature = Callable[[str, str, bytes], bool]
"""Public key and signature in hexadecimal, and what was signed."""


class AuditVerificationError(Exception):
    """The export does not prove what it shows. The message names the first bad record or seal."""


@dataclass(slots=True)
class AuditVerificationReport:
    """What a verified export holds. Times are Unix ms; `anchor` and `last_seal` are numbers of seals."""

    account_id: str = ""
    selection: dict[str, Any] | None = None
    records: int = 0
    elided: int = 0
    seals: int = 0
    unsealed: int = 0
    """Records after the last seal: linked, but not signed yet."""
    anchor: int | None = None
    """The seal after which the export begins, because retention deleted what was before, or somebody asked for that."""
    anchor_ms: int | None = None
    last_seal: int = 0
    last_sealed_ms: int = 0
    last_seal_hash: str = ""


@dataclass(frozen=True, slots=True)
class _VerifiedRecordHash:
    line: int
    name: str
    digest: bytes
    hash: str


class AuditVerifier:
    """`public_keys`: the trusted ones, in hexadecimal; one of them must have signed the newest seal. `expected_seals`: numbers
    and hashes of seals that the export must contain, remembered from earlier."""

    def __init__(
        self, check: CheckSignature, public_keys: Collection[str], expected_seals: Iterable[tuple[int, str]] = ()
    ) -> None:
        self._check = check
        self._public_keys = {key.lower() for key in public_keys}
        self._expected = dict(expected_seals)
        self._report = AuditVerificationReport()
        self._heads: ChainHeads = {}
        self._links: dict[tuple[int, int], _VerifiedRecordHash] = {}
        """Since the last seal, by writer and sequence."""
        self._newest: dict[int, int] = {}
        self._seal_number: int | None = None
        self._seal_hash = ""
        self._seal_key = ""
        self._has_ended = False

    def verify(self, lines: Iterable[str]) -> AuditVerificationReport:
        """Raises AuditVerificationError."""
        number = 0
        for number, line in enumerate(lines, 1):
            try:
                self._read_line(number, _decode(line))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise AuditVerificationError(f"line {number} is no line of an audit export ({error!r})") from error
        if not self._has_ended:
            raise AuditVerificationError(f"the export is cut off after line {number}: its last line is missing")
        self._finish()
        return self._report

    def _read_line(self, number: int, line: dict[str, Any]) -> None:
        if self._has_ended:
            raise AuditVerificationError(f"line {number} follows the end of the export")
        if number == 1:
            self._read_header(line["audit"])
        elif "record" in line:
            self._read_record(number, line["record"], line["hash"])
        elif "elided" in line:
            self._read_elided(number, line["elided"], line["hash"])
        elif "seal" in line:
            self._read_seal(number, line["seal"], line["signature"])
        else:
            self._read_end(number, line["end"]["records"])

    def _read_header(self, header: dict[str, Any]) -> None:
        if header["format"] != FORMAT:
            raise AuditVerificationError(f"the format is {header['format']}, not {FORMAT}")
        self._report.account_id, self._report.selection = header["accountId"], header["selection"]

    def _read_record(self, line: int, record: dict[str, Any], linked: str) -> None:
        if record["accountId"] != self._report.account_id:
            raise AuditVerificationError(f"line {line}: record {record['id']} is of account {record['accountId']}")
        self._report.records += 1
        self._add(
            record["writer"],
            record["sequence"],
            _VerifiedRecordHash(line, record["id"], digest_of(canonical_json(record)), linked),
        )

    def _read_elided(self, line: int, elided: dict[str, Any], linked: str) -> None:
        if self._report.selection is None:
            raise AuditVerificationError(f"line {line}: a record is left out of an export that claims to be complete")
        self._report.elided += 1
        digest = bytes.fromhex(elided["digest"])
        self._add(elided["writer"], elided["sequence"], _VerifiedRecordHash(line, "(not shown)", digest, linked))

    def _add(self, writer: int, sequence: int, found: _VerifiedRecordHash) -> None:
        if sequence <= self._newest.get(writer, 0):
            raise AuditVerificationError(f"line {found.line}: {_name(found, writer, sequence)} is out of order or there twice")
        self._newest[writer] = sequence
        self._links[writer, sequence] = found

    def _read_seal(self, line: int, content: dict[str, Any], signature: str) -> None:
        report = self._report
        signed = canonical_json(content).encode()
        number, hashed, heads = content["number"], hashlib.sha256(signed).hexdigest(), heads_of(content)
        if content["type"] != SEAL_TYPE or content["accountId"] != report.account_id:
            raise AuditVerificationError(f"line {line}: this is no seal of account {report.account_id}")
        if not self._check(content["publicKey"], signature, signed):
            raise AuditVerificationError(f"line {line}: seal {number} was altered: its signature does not match")
        if self._seal_number is None and not self._links:
            report.anchor, report.anchor_ms = number, content["sealedAt"]
        else:
            self._require_next_seal(line, content)
            self._follow(heads, f"seal {number}")
        if self._expected.pop(number, hashed) != hashed:
            raise AuditVerificationError(
                f"line {line}: seal {number} is not the one you expected: the log was rewritten or set back"
            )
        self._heads, self._seal_number, self._seal_hash, self._seal_key = heads, number, hashed, content["publicKey"].lower()
        report.seals += 1
        report.last_seal, report.last_sealed_ms, report.last_seal_hash = number, content["sealedAt"], hashed

    def _require_next_seal(self, line: int, content: dict[str, Any]) -> None:
        number, last = content["number"], self._seal_number
        if number != (last or 0) + 1:
            raise AuditVerificationError(f"line {line}: seal {(last or 0) + 1} is missing before seal {number}")
        if last is not None and content["previous"] != self._seal_hash:
            raise AuditVerificationError(f"line {line}: seal {number} does not follow seal {last}: one of them was replaced")

    def _follow(self, end: ChainHeads, until: str) -> None:
        """Check the chains from the last seal to `end`."""
        begin, links = self._heads, self._links
        for writer in sorted({*begin, *end}):
            first, last = begin.get(writer, CHAIN_START), end.get(writer, CHAIN_START)
            if last.sequence < first.sequence:
                raise AuditVerificationError(f"{until} has fewer records of writer {writer} than the seal before")
        if self._report.selection is not None and not any(_is_within(key, end) for key in links):
            return  # an excerpt leaves out this part of the log
        for writer, last in sorted(end.items()):
            self._follow_chain(writer, begin.get(writer, CHAIN_START), last, until)

    def _follow_chain(self, writer: int, head: EventChainHead, last: EventChainHead, until: str) -> None:
        hashed = head.hash
        for sequence in range(head.sequence + 1, last.sequence + 1):
            found = self._links.pop((writer, sequence), None)
            if found is None:
                raise AuditVerificationError(f"the record with sequence {sequence} of writer {writer} is missing before {until}")
            if link(hashed, found.digest) != found.hash:
                raise AuditVerificationError(f"line {found.line}: {_name(found, writer, sequence)} was altered")
            hashed = found.hash
        if hashed != last.hash:
            raise AuditVerificationError(
                f"the record with sequence {last.sequence} of writer {writer}, or one before it, was replaced: {until} was "
                "signed over another hash"
            )

    def _read_end(self, line: int, records: int) -> None:
        if records != self._report.records + self._report.elided:
            raise AuditVerificationError(
                f"line {line}: the export had {records} records and has {self._report.records + self._report.elided}"
            )
        self._has_ended = True

    def _finish(self) -> None:
        """The records after the last seal, and what the whole export must have."""
        report = self._report
        report.unsealed = len(self._links)
        if self._seal_number is None:
            raise AuditVerificationError("no seal: nothing is signed. Run `latchboard audit seal`, then export again")
        if self._seal_key not in self._public_keys:
            raise AuditVerificationError(
                f"the newest seal, {self._seal_number}, is signed with a key you did not name: {self._seal_key}"
            )
        if self._expected:
            raise AuditVerificationError(f"seal {min(self._expected)} is missing: the log was cut off or set back")
        for writer in sorted({writer for writer, _ in self._links}):
            newest = max(sequence for other, sequence in self._links if other == writer)
            begin = self._heads.get(writer, CHAIN_START)
            self._follow_chain(writer, begin, EventChainHead(newest, self._links[writer, newest].hash), "the end")


def _is_within(key: tuple[int, int], end: ChainHeads) -> bool:
    writer, sequence = key
    return sequence <= end.get(writer, CHAIN_START).sequence


def _name(found: _VerifiedRecordHash, writer: int, sequence: int) -> str:
    return f"record {found.name} (sequence {sequence} of writer {writer})"


def _decode(line: str) -> dict[str, Any]:
    return json.loads(line, object_pairs_hook=_without_duplicates, parse_constant=_refuse)  # type: ignore[no-any-return]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found
