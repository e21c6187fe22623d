//! Listening sockets, TLS and WebSocket handshakes, and the limit on open sockets.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::session::{self, PeerInfo};
use crate::shared::BrokerState;
use crate::transport::{MaybeTlsStream, TransportStream, WebSocketByteStream};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    Tcp,
    WebSocket,
}

/// One address to listen on; port 0 means any free port.
#[derive(Debug, Clone)]
pub struct ListenAddress {
    pub transport: TransportKind,
    pub tls: bool,
    pub host: String,
    pub port: u16,
}

/// A certificate chain and its private key, both PEM.
pub struct ServerCertificate {
    pub chain: Vec<u8>,
    pub key: Vec<u8>,
}

impl ServerCertificate {
    pub fn acceptor(&self) -> Result<TlsAcceptor, String> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&self.chain)
            .collect::<Result<_, _>>()
            .map_err(|error| format!("the TLS certificate file is not PEM: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| format!("the TLS key file is not PEM: {error}"))?;
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| format!("the TLS certificate and key cannot be used: {error}"))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Large: after an outage all devices reconnect at once.
const BACKLOG: u32 = 4096;
/// The pause after an error of `accept`, usually a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// TCP keepalive finds a dead device whose MQTT keep alive is 0: after a minute of silence the kernel sends four probes 15 s apart.
/// So a dead connection ends after two minutes; the kernel's default is two hours and eleven minutes.
fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4)
}

/// Bind to the first address of the host that works. Call it within the runtime that serves the socket.
pub fn bind(address: &ListenAddress) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in (address.host.as_str(), address.port).to_socket_addrs()? {
        match bind_address(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn bind_address(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    // Accepted sockets inherit it.
    SockRef::from(&socket).set_tcp_keepalive(&keepalive())?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accept connections until the broker stops.
pub async fn accept_loop(listener: TcpListener, transport: TransportKind, tls: Option<TlsAcceptor>, shared: Arc<BrokerState>) {
    let mut shutdown = shared.shutdown.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        };
        let Ok((socket, address)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        shared.stats.accepted.increment();
        let Ok(permit) = Arc::clone(&shared.socket_permits).try_acquire_owned() else {
            shared.stats.refused_full.increment();
            continue;
        };
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        tokio::spawn(async move {
            let _open = OpenSocket::new(&shared, permit);
            serve_socket(socket, address, transport, tls, &shared).await;
        });
    }
}

/// Counts a socket while its task lives, even if the task panics.
struct OpenSocket<'s> {
    shared: &'s BrokerState,
    _permit: OwnedSemaphorePermit,
}

impl<'s> OpenSocket<'s> {
    fn new(shared: &'s BrokerState, permit: OwnedSemaphorePermit) -> Self {
        shared.stats.sockets.increment();
        Self { shared, _permit: permit }
    }
}

impl Drop for OpenSocket<'_> {
    fn drop(&mut self) {
        self.shared.stats.sockets.subtract(1);
    }
}

async fn serve_socket(
    socket: TcpStream,
    address: SocketAddr,
    transport: TransportKind,
    tls: Option<TlsAcceptor>,
    shared: &Arc<BrokerState>,
) {
    let connect_deadline = Instant::now() + shared.limits.connect_timeout;
    let _ = socket.set_nodelay(true);
    let stream = if tls.is_none() && transport == TransportKind::Tcp {
        TransportStream::Direct(MaybeTlsStream::Tcp(socket))
    } else {
        // Boxed, so that the task of a TCP connection does not carry the space of the handshakes.
        let handshakes = Box::pin(handshake(socket, transport, tls, shared));
        match tokio::time::timeout_at(connect_deadline.into(), handshakes).await {
            Ok(Some(stream)) => stream,
            Ok(None) => return shared.stats.refused_garbage.increment(),
            Err(_) => return shared.stats.refused_timeout.increment(),
        }
    };
    let peer = PeerInfo {
        over_websocket: transport == TransportKind::WebSocket,
        address: address.to_string(),
        connect_deadline,
    };
    session::serve(stream, Arc::clone(shared), peer).await;
}

/// The TLS and WebSocket handshakes; None when one of them fails.
async fn handshake(
    socket: TcpStream,
    transport: TransportKind,
    tls: Option<TlsAcceptor>,
    shared: &BrokerState,
) -> Option<TransportStream> {
    let stream = match tls {
        None => MaybeTlsStream::Tcp(socket),
        Some(acceptor) => MaybeTlsStream::Tls(Box::new(acceptor.accept(socket).await.ok()?.into())),
    };
    match transport {
        TransportKind::Tcp => Some(TransportStream::Direct(stream)),
        TransportKind::WebSocket => {
            // A frame may hold parts of two packets.
            let max_message = 2 * shared.limits.max_packet_size();
            let stream = WebSocketByteStream::accept(stream, max_message).await.ok()?;
            Some(TransportStream::WebSocket(Box::new(stream)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_accepted_socket_inherits_the_tcp_keepalive() {
        let listener = bind_address(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (_client, (accepted, _)) = (client.expect("connected"), accepted.expect("accepted"));
        let socket = SockRef::from(&accepted);
        assert!(socket.keepalive().expect("readable"));
        assert_eq!(socket.tcp_keepalive_time().expect("readable"), Duration::from_secs(60));
        assert_eq!(socket.tcp_keepalive_retries().expect("readable"), 4);
    }
}
