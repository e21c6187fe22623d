//! Webhook signatures: HMAC-SHA256 (RFC 2104), with the key's two padded blocks hashed once per key. Defined by
//! `domain/webhooks/signature_reference.py`. sha2 uses the processor's SHA instructions where it has them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::digest::generic_array::GenericArray;
use sha2::{Digest, Sha256, compress256};

use crate::event_chain::write_hex;

const BLOCK_BYTES: usize = 64;
/// Initial hash value of SHA-256 (FIPS 180-4, 5.3.3).
#[rustfmt::skip]
const INITIAL_STATE: [u32; 8] = [
    0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19,
];
const SECRET_PREFIX: &str = "whsec_";

/// The secret is not `whsec_` followed by base64.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidWebhookSecret;

struct HmacKey {
    inner: [u32; 8],
    outer: [u32; 8],
}

impl HmacKey {
    fn new(key: &[u8]) -> Self {
        let mut block = [0; BLOCK_BYTES];
        if key.len() > BLOCK_BYTES {
            block[..32].copy_from_slice(&Sha256::digest(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        Self {
            inner: pad_state(&block, 0x36),
            outer: pad_state(&block, 0x5c),
        }
    }

    fn sign(&self, content: &[u8]) -> [u8; 32] {
        let inner = finish(self.inner, content);
        finish(self.outer, &inner)
    }
}

fn pad_state(key: &[u8; BLOCK_BYTES], pad: u8) -> [u32; 8] {
    let mut state = INITIAL_STATE;
    compress(&mut state, &key.map(|byte| byte ^ pad));
    state
}

fn compress(state: &mut [u32; 8], block: &[u8]) {
    compress256(state, std::slice::from_ref(GenericArray::from_slice(block)));
}

/// The digest of a message: `state` after its first block, then `tail`.
fn finish(mut state: [u32; 8], tail: &[u8]) -> [u8; 32] {
    let mut blocks = tail.chunks_exact(BLOCK_BYTES);
    for block in &mut blocks {
        compress(&mut state, block);
    }
    let rest = blocks.remainder();
    let mut last_blocks = [0; BLOCK_BYTES * 2];
    last_blocks[..rest.len()].copy_from_slice(rest);
    last_blocks[rest.len()] = 0x80;
    // Padding takes at least nine bytes: a marker and the length in eight.
    let size = if rest.len() + 9 > BLOCK_BYTES {
        BLOCK_BYTES * 2
    } else {
        BLOCK_BYTES
    };
    let bits = (BLOCK_BYTES + tail.len()) as u64 * 8;
    last_blocks[size - 8..size].copy_from_slice(&bits.to_be_bytes());
    for block in last_blocks[..size].chunks_exact(BLOCK_BYTES) {
        compress(&mut state, block);
    }
    let mut digest = [0; 32];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

/// Signs in both schemes with one secret.
pub struct WebhookSigner {
    service_key: HmacKey,
    standard_key: HmacKey,
}

impl WebhookSigner {
    pub fn new(secret: &str) -> Result<Self, InvalidWebhookSecret> {
        let standard_key = secret.strip_prefix(SECRET_PREFIX).and_then(|rest| STANDARD.decode(rest).ok());
        let standard_key = standard_key.filter(|key| !key.is_empty()).ok_or(InvalidWebhookSecret)?;
        Ok(Self {
            service_key: HmacKey::new(secret.as_bytes()),
            standard_key: HmacKey::new(&standard_key),
        })
    }

    /// `sha256=<hex>` over the body, keyed with the secret's text.
    pub fn service(&self, body: &[u8]) -> [u8; 71] {
        let mut text = *b"sha256=0000000000000000000000000000000000000000000000000000000000000000";
        write_hex(&self.service_key.sign(body), &mut text[7..]);
        text
    }

    /// Standard Webhooks: `v1,<base64>` over `id.timestamp.body`, keyed with the decoded base64.
    pub fn standard(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut content = Vec::with_capacity(id.len() + 24 + body.len());
        content.extend_from_slice(id.as_bytes());
        content.push(b'.');
        content.extend_from_slice(timestamp.to_string().as_bytes());
        content.push(b'.');
        content.extend_from_slice(body);
        let mut text = String::with_capacity(47);
        text.push_str("v1,");
        STANDARD.encode_string(self.standard_key.sign(&content), &mut text);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{HmacKey, WebhookSigner};

    #[test]
    fn hmac_equals_rfc_4231() {
        let digest = HmacKey::new(b"Jefe").sign(b"what do ya want for nothing?");
        assert_eq!(digest[..4], [0x5b, 0xdc, 0xc1, 0x46]);
        let digest = HmacKey::new(&[0xaa; 131]).sign(b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(digest[..4], [0x60, 0xe4, 0x31, 0x59]);
    }

    #[test]
    fn a_secret_without_prefix_or_base64_is_rejected() {
        for secret in ["", "whsec_", "abcd", "whsec_%%%%"] {
            assert!(WebhookSigner::new(secret).is_err(), "{secret}");
        }
    }
}
