//! Webhook signatures: HMAC-SHA256. The hash states of a key after its padding are computed once and cloned for each message. Defined by
//! `domain/webhooks/reference.py`. sha2 uses the processor's SHA instructions where it has them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::event_chain::write_hex;

const SECRET_PREFIX: &str = "whsec_";

/// The secret is not `whsec_` followed by base64.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidWebhookSecret;

struct WebhookKey(Hmac<Sha256>);

impl WebhookKey {
    fn new(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("HMAC takes a key of any length"))
    }

    fn sign(&self, content: &[u8]) -> [u8; 32] {
        self.0.clone().chain_update(content).finalize().into_bytes().into()
    }
}

/// Signs in both schemes with one secret.
pub struct WebhookSigner {
    service_key: WebhookKey,
    standard_key: WebhookKey,
}

impl WebhookSigner {
    pub fn new(secret: &str) -> Result<Self, InvalidWebhookSecret> {
        let standard_key = secret.strip_prefix(SECRET_PREFIX).and_then(|rest| STANDARD.decode(rest).ok());
        let standard_key = standard_key.filter(|key| !key.is_empty()).ok_or(InvalidWebhookSecret)?;
        Ok(Self {
            service_key: WebhookKey::new(secret.as_bytes()),
            standard_key: WebhookKey::new(&standard_key),
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
    use super::{WebhookKey, WebhookSigner};

    #[test]
    fn hmac_equals_rfc_4231() {
        let digest = WebhookKey::new(b"Jefe").sign(b"what do ya want for nothing?");
        assert_eq!(digest[..4], [0x5b, 0xdc, 0xc1, 0x46]);
        let digest = WebhookKey::new(&[0xaa; 131]).sign(b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(digest[..4], [0x60, 0xe4, 0x31, 0x59]);
    }

    #[test]
    fn a_secret_without_prefix_or_base64_is_rejected() {
        for secret in ["", "whsec_", "abcd", "whsec_%%%%"] {
            assert!(WebhookSigner::new(secret).is_err(), "{secret}");
        }
    }
}
