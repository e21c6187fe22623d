//! Webhook signatures: HMAC-SHA256 (RFC 2104) with the key's two pad blocks hashed once. Defined by `domain/webhooks/reference.py`.
//!
//! sha2 picks the processor's SHA instructions at run time where it has them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::digest::generic_array::GenericArray;
use sha2::{Digest, Sha256, compress256};

const BLOCK: usize = 64;
/// First words of SHA-256 (FIPS 180-4, 5.3.3).
const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];
const PREFIX: &str = "whsec_";

/// A secret that is not `whsec_` + base64.
#[derive(Debug, PartialEq, Eq)]
pub struct BadSecret;

struct Key {
    inner: [u32; 8],
    outer: [u32; 8],
}

impl Key {
    fn new(key: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        if key.len() > BLOCK {
            block[..32].copy_from_slice(&Sha256::digest(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        Self {
            inner: padded(&block, 0x36),
            outer: padded(&block, 0x5c),
        }
    }

    fn sign(&self, content: &[u8]) -> [u8; 32] {
        let inner = finish(self.inner, content);
        finish(self.outer, &inner)
    }
}

fn padded(key: &[u8; BLOCK], pad: u8) -> [u32; 8] {
    let mut state = INITIAL;
    compress(&mut state, &key.map(|byte| byte ^ pad));
    state
}

fn compress(state: &mut [u32; 8], block: &[u8]) {
    compress256(state, std::slice::from_ref(GenericArray::from_slice(block)));
}

/// The digest of a message whose first block led to `state` and whose rest is `tail`.
fn finish(mut state: [u32; 8], tail: &[u8]) -> [u8; 32] {
    let mut blocks = tail.chunks_exact(BLOCK);
    for block in &mut blocks {
        compress(&mut state, block);
    }
    let rest = blocks.remainder();
    let mut last = [0; BLOCK * 2];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    // The length takes eight bytes; with the mark that makes nine.
    let size = if rest.len() + 9 > BLOCK {
        BLOCK * 2
    } else {
        BLOCK
    };
    let bits = (BLOCK + tail.len()) as u64 * 8;
    last[size - 8..size].copy_from_slice(&bits.to_be_bytes());
    for block in last[..size].chunks_exact(BLOCK) {
        compress(&mut state, block);
    }
    let mut digest = [0; 32];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

pub struct Signer {
    whole: Key,
    decoded: Key,
}

impl Signer {
    pub fn new(secret: &str) -> Result<Self, BadSecret> {
        let decoded = secret
            .strip_prefix(PREFIX)
            .and_then(|rest| STANDARD.decode(rest).ok());
        let decoded = decoded.filter(|key| !key.is_empty()).ok_or(BadSecret)?;
        Ok(Self {
            whole: Key::new(secret.as_bytes()),
            decoded: Key::new(&decoded),
        })
    }

    /// `sha256=<hex>` over the body, keyed with the whole secret.
    pub fn service(&self, body: &[u8]) -> [u8; 71] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = *b"sha256=0000000000000000000000000000000000000000000000000000000000000000";
        for (pair, byte) in text[7..].chunks_exact_mut(2).zip(self.whole.sign(body)) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        text
    }

    /// `v1,<base64>` over `id.timestamp.body`, keyed with the decoded secret.
    pub fn standard(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut content = Vec::with_capacity(id.len() + 24 + body.len());
        content.extend_from_slice(id.as_bytes());
        content.push(b'.');
        content.extend_from_slice(timestamp.to_string().as_bytes());
        content.push(b'.');
        content.extend_from_slice(body);
        let mut text = String::with_capacity(47);
        text.push_str("v1,");
        STANDARD.encode_string(self.decoded.sign(&content), &mut text);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Signer};

    #[test]
    fn hmac_equals_rfc_4231() {
        let digest = Key::new(b"Jefe").sign(b"what do ya want for nothing?");
        assert_eq!(digest[..4], [0x5b, 0xdc, 0xc1, 0x46]);
        let digest =
            Key::new(&[0xaa; 131]).sign(b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(digest[..4], [0x60, 0xe4, 0x31, 0x59]);
    }

    #[test]
    fn a_secret_without_its_prefix_or_base64_is_refused() {
        for secret in ["", "whsec_", "abcd", "whsec_%%%%"] {
            assert!(Signer::new(secret).is_err(), "{secret}");
        }
    }
}
