//! TLS: the server's certificate, and devices that identify themselves by a certificate of their own.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{CommonState, RootCertStore, ServerConfig};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate chain and its private key, both PEM.
pub struct ServerCertificate {
    pub chain: Vec<u8>,
    pub key: Vec<u8>,
    /// The authorities (PEM) whose certificates devices must show. Without them, devices show none.
    pub client_ca: Option<Vec<u8>>,
}

impl ServerCertificate {
    pub fn acceptor(&self) -> Result<TlsAcceptor, String> {
        let chain = certificates(&self.chain).map_err(|error| format!("the TLS certificate file is not PEM: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| format!("the TLS key file is not PEM: {error}"))?;
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let verifier = self.client_verifier(&provider)?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_client_cert_verifier(verifier).with_single_cert(chain, key))
            .map_err(|error| format!("the TLS certificate and key cannot be used: {error}"))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn client_verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let Some(pem) = &self.client_ca else {
            return Ok(WebPkiClientVerifier::no_client_auth());
        };
        let failed = |error: String| format!("the client CA file cannot be used: {error}");
        let mut roots = RootCertStore::empty();
        for certificate in certificates(pem).map_err(failed)? {
            roots.add(certificate).map_err(|error| failed(error.to_string()))?;
        }
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .build()
            .map_err(|error| failed(error.to_string()))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())
}

/// The common names and DNS names of the client's certificate, which the handshake has verified. None without a certificate.
pub fn certificate_names(session: &CommonState) -> Option<Vec<String>> {
    let certificate = session.peer_certificates()?.first()?;
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return Some(Vec::new());
    };
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let alternatives = parsed.subject_alternative_name().ok().flatten();
    let dns = alternatives.iter().flat_map(|extension| &extension.value.general_names);
    let dns = dns.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    });
    Some(common.chain(dns).map(str::to_owned).collect())
}
