//! Which certificates are believed: the system's, as OpenSSL's own variables may name them, and those given beside them.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::courier::StartError;

/// The connector, and how many certificates it believes.
pub fn connector(extra_pem: &[u8]) -> Result<(TlsConnector, usize), StartError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for certificate in CertificateDer::pem_slice_iter(extra_pem) {
        let certificate =
            certificate.map_err(|error| StartError::Certificates(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| StartError::Certificates(error.to_string()))?;
    }
    let believed = roots.len();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| StartError::Certificates(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((TlsConnector::from(Arc::new(config)), believed))
}
