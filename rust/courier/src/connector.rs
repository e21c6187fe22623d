//! From an endpoint to a connection: guarded lookup, TCP, TLS.
//!
//! Every connection starts with a lookup that the courier's owner answers, so that it is made to a checked address whatever the
//! client's reason to open it. Several addresses are tried as RFC 8305 says: one after the other, the next as soon as one fails or
//! has not answered for a quarter of a second; the first that answers is taken.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;
use tower_service::Service;

use crate::delegated_address_lookups::DelegatedAddressLookups;
use crate::error::AttemptFailure;
use crate::model::HttpOrigin;
use crate::pooled_connection_stream::{AsyncStream, PooledHttpStream};

const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// The client finishes a connection it has begun even when its request has found another one or is cancelled: then no request's
/// timeout ends it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct GuardedConnector {
    lookups: Arc<DelegatedAddressLookups>,
    tls: TlsConnector,
    open_connections: Arc<AtomicUsize>,
}

impl GuardedConnector {
    pub fn new(lookups: Arc<DelegatedAddressLookups>, tls: TlsConnector) -> Self {
        Self {
            lookups,
            tls,
            open_connections: Arc::default(),
        }
    }

    async fn connect(&self, endpoint: HttpOrigin) -> Result<TokioIo<PooledHttpStream>, AttemptFailure> {
        let addresses = self.lookups.resolve(&endpoint).await?;
        let connected = connect_any(&addresses, endpoint.port).await;
        let stream = connected.map_err(|error| AttemptFailure::Connect(error.raw_os_error().unwrap_or(0), error.to_string()))?;
        let _ = stream.set_nodelay(true);
        let byte_stream: Box<dyn AsyncStream> = if endpoint.https {
            Box::new(self.handshake(stream, endpoint.host).await?)
        } else {
            Box::new(stream)
        };
        let open_connections = Arc::clone(&self.open_connections);
        Ok(TokioIo::new(PooledHttpStream::new(byte_stream, open_connections)))
    }

    async fn handshake(&self, stream: TcpStream, host: String) -> Result<TlsStream<TcpStream>, AttemptFailure> {
        let invalid = format!("{host} is not a valid server name");
        let name = ServerName::try_from(host).map_err(|_| AttemptFailure::Tls(invalid))?;
        self.tls.connect(name, stream).await.map_err(|error| {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
            match inner {
                Some(rustls::Error::InvalidCertificate(why)) => AttemptFailure::Certificate(why.to_string()),
                Some(other) => AttemptFailure::Tls(other.to_string()),
                None => AttemptFailure::Tls(error.to_string()),
            }
        })
    }
}

impl Service<Uri> for GuardedConnector {
    type Response = TokioIo<PooledHttpStream>;
    type Error = AttemptFailure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            timeout(CONNECT_TIMEOUT, connector.connect(endpoint(&server)))
                .await
                .unwrap_or(Err(AttemptFailure::Timeout(CONNECT_TIMEOUT)))
        })
    }
}

/// The server of a URI as the client asks for it: with scheme and port.
fn endpoint(server: &Uri) -> HttpOrigin {
    let host = server.host().unwrap_or_default();
    HttpOrigin {
        https: server.scheme_str() == Some("https"),
        host: host.trim_matches(['[', ']']).to_owned(),
        port: server.port_u16().unwrap_or_default(),
    }
}

async fn connect_any(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
    let mut untried = addresses.iter();
    let mut attempts = JoinSet::new();
    let mut last_error = io::Error::new(io::ErrorKind::AddrNotAvailable, "no address");
    loop {
        let next = untried.next();
        if let Some(address) = next {
            attempts.spawn(TcpStream::connect(SocketAddr::new(*address, port)));
        } else if attempts.is_empty() {
            return Err(last_error);
        }
        let wait = if untried.len() == 0 {
            Duration::MAX
        } else {
            NEXT_ADDRESS_AFTER
        };
        match timeout(wait, attempts.join_next()).await {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(error)))) => last_error = error,
            Ok(Some(Err(_)) | None) | Err(_) => {}
        }
    }
}
