//! Which certificates are trusted: the system's (`SSL_CERT_FILE` and `SSL_CERT_DIR` are heeded) and those given in addition.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::CourierStartError;

/// The connector, and how many root certificates it trusts.
pub fn connector(extra_pem: &[u8]) -> Result<(TlsConnector, usize), CourierStartError> {
    fn unreadable(error: impl std::fmt::Display) -> CourierStartError {
        CourierStartError::Certificates(error.to_string())
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for certificate in CertificateDer::pem_slice_iter(extra_pem) {
        roots.add(certificate.map_err(unreadable)?).map_err(unreadable)?;
    }
    let trusted = roots.len();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unreadable)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((TlsConnector::from(Arc::new(config)), trusted))
}
