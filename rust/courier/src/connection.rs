//! From an endpoint to a connection: guarded lookup, TCP, TLS.
//!
//! Every connection starts with a lookup that the courier's owner answers, so that it is made to a checked address whatever the
//! client's reason to open it. Several addresses are tried as RFC 8305 says: one after the other, the next as soon as one fails or
//! has not answered for a quarter of a second; the first that answers is taken.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use tower_service::Service;

use crate::events::Lookups;
use crate::model::{AttemptFailure, CourierStartError, HttpOrigin};

const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// The client finishes a connection it has begun even when its request has found another one or is cancelled: then no request's
/// timeout ends it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct GuardedConnector {
    lookups: Arc<Lookups>,
    tls: TlsConnector,
    open_connections: Arc<AtomicUsize>,
}

impl GuardedConnector {
    pub fn new(lookups: Arc<Lookups>, tls: TlsConnector) -> Self {
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

/// The connector, and how many root certificates it trusts: the system's (`SSL_CERT_FILE` and `SSL_CERT_DIR` are heeded) and those given
/// in addition.
pub fn tls_connector(extra_pem: &[u8]) -> Result<(TlsConnector, usize), CourierStartError> {
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

/// Connections opened while more than this are open carry one request and are not pooled.
const MAX_POOLED: usize = 1024;

/// A TCP or a TLS stream.
pub trait AsyncStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> AsyncStream for T {}

/// Shared by a connection and the request that uses it.
#[derive(Clone, Default)]
pub struct ConnectionFlags(Arc<Flags>);

#[derive(Default)]
struct Flags {
    response_started: AtomicBool,
    aborted: AtomicBool,
}

impl ConnectionFlags {
    /// A byte has arrived after the last byte sent; records of TLS itself do not count.
    pub fn response_started(&self) -> bool {
        self.0.response_started.load(Ordering::Relaxed)
    }

    /// Nothing more is sent. The connection closes when its task runs next.
    pub fn abort(&self) {
        self.0.aborted.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> io::Result<()> {
        if self.0.aborted.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

/// A connection's bytes, plain or TLS, and what the client's pool has to know of it.
pub struct PooledHttpStream {
    stream: Box<dyn AsyncStream>,
    state: ConnectionFlags,
    open_connections: Arc<AtomicUsize>,
    is_pooled: bool,
}

impl PooledHttpStream {
    /// `open_connections` counts this one as long as it lives.
    pub fn new(stream: Box<dyn AsyncStream>, open_connections: Arc<AtomicUsize>) -> Self {
        let others = open_connections.fetch_add(1, Ordering::Relaxed);
        Self {
            stream,
            state: ConnectionFlags::default(),
            open_connections,
            is_pooled: others < MAX_POOLED,
        }
    }
}

impl Drop for PooledHttpStream {
    fn drop(&mut self) {
        self.open_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection for PooledHttpStream {
    fn connected(&self) -> Connected {
        let connected = Connected::new().extra(self.state.clone());
        if !self.is_pooled {
            connected.poison();
        }
        connected
    }
}

impl AsyncRead for PooledHttpStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            this.state.0.response_started.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for PooledHttpStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.state.check()?;
        let flags = &this.state.0;
        flags.response_started.store(false, Ordering::Relaxed);
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.state.check()?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    /// Does not wait: a receiver that does not read TLS's last record must not keep the connection open.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.get_mut().stream).poll_shutdown(context);
        Poll::Ready(match polled {
            Poll::Ready(result) => result,
            Poll::Pending => Ok(()),
        })
    }
}
