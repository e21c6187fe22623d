//! Opens connections to the broker: TCP, TLS, and WebSocket over either.

use std::io;
use std::sync::Arc;

use latchboard_broker::transport::{MaybeTlsStream, TransportStream, WebSocketByteStream, websocket_config};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;

use crate::config::SimulatorConnectionConfig;

/// Bytes of the largest WebSocket message accepted from a broker.
const MAX_WEBSOCKET_MESSAGE: usize = 256 * 1024;

pub(crate) struct BrokerConnector {
    config: SimulatorConnectionConfig,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl BrokerConnector {
    /// Fails when a trusted certificate is invalid.
    pub fn new(config: SimulatorConnectionConfig) -> io::Result<Self> {
        let tls = match &config.trusted_certificates {
            None => None,
            Some(pem) => {
                let name = ServerName::try_from(config.host.clone()).map_err(io::Error::other)?;
                Some((TlsConnector::from(Arc::new(tls_config(pem)?)), name))
            }
        };
        Ok(Self { config, tls })
    }

    pub async fn connect(&self) -> io::Result<TransportStream> {
        let socket = TcpStream::connect((self.config.host.as_str(), self.config.port)).await?;
        socket.set_nodelay(true)?;
        let stream = match &self.tls {
            None => MaybeTlsStream::Tcp(socket),
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), socket).await?;
                MaybeTlsStream::Tls(Box::new(stream.into()))
            }
        };
        if !self.config.websocket {
            return Ok(TransportStream::Direct(stream));
        }
        // `/mqtt` is the path that most brokers use.
        let uri = format!("ws://{}:{}/mqtt", self.config.host, self.config.port);
        let uri = uri.parse().map_err(io::Error::other)?;
        let request = ClientRequestBuilder::new(uri).with_sub_protocol("mqtt");
        let config = Some(websocket_config(MAX_WEBSOCKET_MESSAGE));
        let (stream, _) = tokio_tungstenite::client_async_with_config(request, stream, config)
            .await
            .map_err(io::Error::other)?;
        Ok(TransportStream::WebSocket(Box::new(WebSocketByteStream::new(stream))))
    }
}

fn tls_config(pem: &[u8]) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
