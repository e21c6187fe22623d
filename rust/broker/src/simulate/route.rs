//! How a device comes to its broker: TCP, TLS, and WebSocket over either.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::plan::Route;
use crate::transport::{Io, Plain, WebSocket};

/// The largest WebSocket message taken from a broker.
const FRAME: usize = 256 * 1024;

/// A route whose certificates have been read.
pub(super) struct Way {
    route: Route,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Way {
    pub fn new(route: Route) -> io::Result<Self> {
        let tls = match &route.trust {
            None => None,
            Some(pem) => {
                let name = ServerName::try_from(route.host.clone()).map_err(io::Error::other)?;
                Some((TlsConnector::from(Arc::new(trusting(pem)?)), name))
            }
        };
        Ok(Self { route, tls })
    }

    pub async fn go(&self) -> io::Result<Io> {
        let socket = TcpStream::connect((self.route.host.as_str(), self.route.port)).await?;
        socket.set_nodelay(true)?;
        let plain = match &self.tls {
            None => Plain::Tcp(socket),
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), socket).await?;
                Plain::Tls(Box::new(stream.into()))
            }
        };
        if !self.route.websocket {
            return Ok(Io::Plain(plain));
        }
        let authority = format!("{}:{}", self.route.host, self.route.port);
        let socket = WebSocket::connect(plain, &authority, FRAME).await?;
        Ok(Io::WebSocket(Box::new(socket)))
    }
}

fn trusting(pem: &[u8]) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots
            .add(certificate.map_err(io::Error::other)?)
            .map_err(io::Error::other)?;
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
