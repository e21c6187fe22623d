//! The hash chain of the event log. Defined by `domain/events/hash_chain.py`.

use sha2::{Digest, Sha256};

use crate::canonical_json::{write_integer, write_string};

pub type EventHash = [u8; 32];

/// An event as it is hashed, without its data.
pub struct EventHashInput<'a> {
    pub account_id: &'a str,
    pub address: &'a str,
    pub description: &'a str,
    pub device_id: &'a str,
    pub device_name: &'a str,
    pub kind: &'a str,
    pub event_id: &'a str,
    pub position: i64,
    pub sequence: i64,
    pub source: &'a str,
    pub at_ms: i64,
    pub writer: i64,
}

impl EventHashInput<'_> {
    /// In canonical JSON. `write_data` writes the event's data where it belongs.
    pub fn write<E>(&self, out: &mut Vec<u8>, write_data: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        text(out, "{\"accountId\":", self.account_id);
        text(out, ",\"address\":", self.address);
        out.extend_from_slice(b",\"data\":");
        write_data(out)?;
        text(out, ",\"description\":", self.description);
        text(out, ",\"deviceId\":", self.device_id);
        text(out, ",\"deviceName\":", self.device_name);
        text(out, ",\"eventType\":", self.kind);
        text(out, ",\"id\":", self.event_id);
        number(out, ",\"position\":", self.position);
        number(out, ",\"sequence\":", self.sequence);
        text(out, ",\"source\":", self.source);
        number(out, ",\"timestamp\":", self.at_ms);
        number(out, ",\"writer\":", self.writer);
        out.push(b'}');
        Ok(())
    }
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    write_string(out, value);
}

fn number(out: &mut Vec<u8>, name: &str, value: i64) {
    out.extend_from_slice(name.as_bytes());
    write_integer(out, value);
}

/// The hash of a record in canonical JSON: SHA-256 of the hash before it and of the record's digest.
pub fn link(previous: &EventHash, record: &[u8]) -> EventHash {
    let mut both = [0; 64];
    both[..32].copy_from_slice(previous);
    both[32..].copy_from_slice(&Sha256::digest(record));
    Sha256::digest(both).into()
}

#[cfg(test)]
mod tests {
    use super::link;

    /// Of `hashlib.sha256(bytes(32) + hashlib.sha256(b"{}").digest())`.
    #[test]
    fn a_link_covers_the_hash_before_and_the_digest() {
        let linked = link(&[0; 32], b"{}");
        assert_eq!(linked[..4], LINK_OF_EMPTY);
        assert_ne!(linked, link(&[1; 32], b"{}"));
    }

    const LINK_OF_EMPTY: [u8; 4] = [0x96, 0x1a, 0xf6, 0x72];
}
