"""Verifies an export of the log, or what a log server has collected of the stream, line by line, with nothing but the file and
the public key.

Law: a file never proves more than the service said. Of an export the last line is signed over all others, so it cannot be made
shorter, nor a record hidden. A stream has no last line: it proves the records up to its newest seal, and that none is missing
between its first one and that.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from domain.audit.export import END_TYPE, FORMAT
from domain.audit.seals import SEAL_TYPE, ChainHeads, heads_of
from domain.events.hash_chain import CHAIN_START, EventChainHead, digest_of, link
from domain.kernel.canonical_json import canonical_json

MAX_REPEATED = 4_096
"""A line of a stream may come again within so many records: several batches, whose delivery was not sure."""

CheckSignature = Callable[[str, str, bytes], bool]
"""Public key and signature in hexadecimal, and what was signed."""


class AuditVerificationError(Exception):
    """The export does not prove what it shows. The message names the first bad record or seal."""


@dataclass(slots=True)
class AuditVerificationReport:
    """What a verified export holds. Times are Unix ms; `anchor` and `last_seal` are numbers of seals."""

    account_id: str = ""
    is_stream: bool = False
    selection: dict[str, Any] | None = None
    records: int = 0
    hidden: int = 0
    """Of an excerpt: records in the same parts of the log, of which it has the digests only."""
    left_out: int = 0
    """Of an excerpt: records in other parts of the log."""
    repeated: int = 0
    """Lines that a stream delivered again."""
    seals: int = 0
    unproven: int = 0
    """Of a stream: records before its first seal, whose chain begins before the file."""
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
        self._digest = hashlib.sha256()
        self._header: dict[str, Any] = {}
        self._delivered: OrderedDict[tuple[int, int] | int, str] = OrderedDict()
        """Of a stream: the last lines, by writer and sequence, or number of the seal."""

    def verify(self, lines: Iterable[str]) -> AuditVerificationReport:
        """Raises AuditVerificationError."""
        number = 0
        for number, line in enumerate(lines, 1):
            try:
                self._read_line(number, line)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise AuditVerificationError(f"line {number} is no line of an audit export or stream ({error!r})") from error
            self._digest.update(line.rstrip("\r\n").encode("utf-8", "surrogateescape") + b"\n")
        if not self._has_ended and not self._report.is_stream:
            raise AuditVerificationError(f"the export is cut off after line {number}: its last line is missing")
        self._finish()
        return self._report

    def _read_line(self, number: int, text: str) -> None:
        if self._has_ended:
            raise AuditVerificationError(f"line {number} follows the end of the export")
        if number == 1 and not text.startswith('{"audit":'):
            self._report.is_stream = True
        line = _decode(text[text.index("{") :] if self._report.is_stream else text)
        if number == 1 and not self._report.is_stream:
            self._read_header(line["audit"])
        elif self._report.is_stream:
            self._read_stream_line(number, line)
        elif "record" in line:
            self._read_record(number, line["record"], line["hash"])
        elif "elided" in line:
            self._read_elided(number, line["elided"], line["hash"])
        elif "seal" in line:
            self._read_seal(number, line["seal"], line["signature"])
        else:
            self._read_end(number, line["end"], line["signature"])

    def _read_header(self, header: dict[str, Any]) -> None:
        if header["format"] != FORMAT:
            raise AuditVerificationError(f"the format is {header['format']}, not {FORMAT}")
        self._header = header
        self._report.account_id, self._report.selection = header["accountId"], header["selection"]

    def _read_stream_line(self, number: int, line: dict[str, Any]) -> None:
        """What a log server writes before the record is not looked at."""
        content = line["record"] if "record" in line else line["seal"]
        self._report.account_id = self._report.account_id or content["accountId"]
        key = (content["writer"], content["sequence"]) if "record" in line else content["number"]
        text = canonical_json(line)
        if key in self._delivered:
            if self._delivered[key] != text:
                raise AuditVerificationError(f"line {number} differs from the line that it repeats")
            self._report.repeated += 1
            return
        if "record" in line:
            self._read_record(number, content, line["hash"])
        else:
            self._read_seal(number, content, line["signature"])
        self._delivered[key] = text
        if len(self._delivered) > MAX_REPEATED:
            self._delivered.popitem(last=False)

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
        self._report.hidden += 1
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
        if self._seal_number is None and (not self._links or (report.is_stream and self._begins_later(heads))):
            report.anchor, report.anchor_ms = number, content["sealedAt"]
            for key in [key for key in self._links if _is_within(key, heads)]:
                del self._links[key]
                report.unproven += 1
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

    def _begins_later(self, heads: ChainHeads) -> bool:
        """Whether the file does not have the first records of these chains."""
        return any((writer, CHAIN_START.sequence + 1) not in self._links for writer in heads)

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

    def _read_end(self, line: int, content: dict[str, Any], signature: str) -> None:
        report, header = self._report, self._header
        if content["type"] != END_TYPE or content["accountId"] != report.account_id:
            raise AuditVerificationError(f"line {line}: this is no end of an export of account {report.account_id}")
        if not self._check(content["publicKey"], signature, canonical_json(content).encode()):
            raise AuditVerificationError(f"line {line}: the end of the export was altered: its signature does not match")
        if content["publicKey"].lower() not in self._public_keys:
            raise AuditVerificationError(f"the export is signed with a key you did not name: {content['publicKey']}")
        if (content["records"], content["hidden"]) != (report.records, report.hidden):
            raise AuditVerificationError(
                f"line {line}: the export had {content['records']} records and {content['hidden']} hidden ones, and has "
                f"{report.records} and {report.hidden}"
            )
        chosen = [content[name] == header[name] for name in ("selection", "exportedAt")]
        if not all(chosen) or content["digest"] != self._digest.hexdigest():
            raise AuditVerificationError(
                f"line {line}: the export was altered: its lines are not those that the service has signed at its end"
            )
        report.left_out = content["leftOut"]
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
