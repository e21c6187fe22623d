//! Listening sockets, TLS and WebSocket handshakes, and the limit on open sockets.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::Error as WsError;

use crate::connection_handle::CloseReason;
use crate::session::{self, PeerInfo};
use crate::state::BrokerState;
use crate::tls::certificate_names;
use crate::transport::{MaybeTlsStream, TransportStream, WebSocketByteStream};
use crate::unauthenticated_connections::{AcceptedSocketGuard, BrokerSocketRefusalReason};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    Tcp,
    WebSocket,
}

/// One address to listen on; port 0 means any free port.
#[derive(Debug, Clone)]
pub struct MqttListenAddress {
    pub transport: TransportKind,
    pub tls: bool,
    pub host: String,
    pub port: u16,
}

/// Large: after an outage all devices reconnect at once.
const BACKLOG: u32 = 4096;
/// The pause after an error of `accept`, usually a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a suspended broker looks whether it may listen again, and closes connections that came through.
const SUSPENDED_POLL: Duration = Duration::from_millis(50);

/// TCP keepalive finds a dead device whose MQTT keep alive is 0: after a minute of silence the kernel sends four probes 15 s apart.
/// So a dead connection ends after two minutes; the kernel's default is two hours and eleven minutes.
fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4)
}

/// Bind to the first address of the host that works. Call it within the runtime that serves the socket.
pub fn bind(address: &MqttListenAddress) -> io::Result<TcpListener> {
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

/// Accept connections until the broker stops. While it is suspended the socket is closed, so that a load balancer sees it.
pub async fn accept_loop(
    mut listener: TcpListener,
    transport: TransportKind,
    tls: Option<TlsAcceptor>,
    shared: Arc<BrokerState>,
) {
    let (mut shutdown, mut suspended) = (shared.shutdown.subscribe(), shared.suspended.subscribe());
    let Ok(address) = listener.local_addr() else { return };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => Some(accepted),
            _ = suspended.wait_for(|suspended| *suspended) => None,
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        };
        let Some(accepted) = accepted else {
            drop(listener);
            let Some(reopened) = reopen(address, &shared).await else {
                return;
            };
            listener = reopened;
            continue;
        };
        let Ok((socket, address)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        shared.stats.accepted.increment();
        let Some(permit) = take_permit(&shared) else {
            continue;
        };
        let (accepted, eviction) = match shared.pending.open(address.ip(), Instant::now()) {
            Ok(opened) => opened,
            Err(reason) => {
                count_refusal(&shared, reason);
                continue;
            }
        };
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        tokio::spawn(async move {
            let _open = OpenMqttSocketGuard::new(&shared, permit);
            tokio::select! {
                () = serve_socket(socket, address, &accepted, transport, tls, &shared) => {}
                () = eviction.wait() => shared.stats.refused_evicted.increment(),
            }
        });
    }
}

/// None, and a count, when as many sockets are open as may be.
fn take_permit(shared: &BrokerState) -> Option<OwnedSemaphorePermit> {
    let permit = Arc::clone(&shared.socket_permits).try_acquire_owned();
    permit.inspect_err(|_| shared.stats.refused_full.increment()).ok()
}

/// Keep all connections closed while the broker is suspended, then listen again. None when the broker stops.
async fn reopen(address: SocketAddr, shared: &BrokerState) -> Option<TcpListener> {
    while !*shared.shutdown.borrow() {
        if !*shared.suspended.borrow() {
            if let Ok(listener) = bind_address(address) {
                return Some(listener);
            }
        } else if shared.stats.sockets.get() > 0 {
            // A socket that was accepted before may have finished its CONNECT since.
            shared.registry.close_all(CloseReason::ShuttingDown);
        }
        tokio::time::sleep(SUSPENDED_POLL).await;
    }
    None
}

fn count_refusal(shared: &BrokerState, reason: BrokerSocketRefusalReason) {
    match reason {
        BrokerSocketRefusalReason::Banned => shared.stats.refused_banned.increment(),
        BrokerSocketRefusalReason::AddressFull => shared.stats.refused_address_full.increment(),
        BrokerSocketRefusalReason::Full => shared.stats.refused_full.increment(),
    }
}

/// Counts a socket while its task lives, even if the task panics.
struct OpenMqttSocketGuard<'s> {
    shared: &'s BrokerState,
    _permit: OwnedSemaphorePermit,
}

impl<'s> OpenMqttSocketGuard<'s> {
    fn new(shared: &'s BrokerState, permit: OwnedSemaphorePermit) -> Self {
        shared.stats.sockets.increment();
        Self { shared, _permit: permit }
    }
}

impl Drop for OpenMqttSocketGuard<'_> {
    fn drop(&mut self) {
        self.shared.stats.sockets.subtract(1);
    }
}

async fn serve_socket(
    socket: TcpStream,
    address: SocketAddr,
    accepted: &AcceptedSocketGuard,
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
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                // A health check closes the socket without a word; that is no failure of its address.
                if error != HandshakeError::Closed {
                    accepted.fail();
                }
                return shared.stats.refused_garbage.increment();
            }
            Err(_) => {
                accepted.fail();
                return shared.stats.refused_timeout.increment();
            }
        }
    };
    let peer = PeerInfo {
        over_websocket: transport == TransportKind::WebSocket,
        address: address.to_string(),
        connect_deadline,
        certificate_names: stream.tls_session().and_then(certificate_names),
        accepted,
    };
    session::serve(stream, Arc::clone(shared), peer).await;
}

#[derive(Debug, PartialEq, Eq)]
enum HandshakeError {
    Closed,
    Refused,
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Refused,
        }
    }
}

/// The TLS and WebSocket handshakes.
async fn handshake(
    socket: TcpStream,
    transport: TransportKind,
    tls: Option<TlsAcceptor>,
    shared: &BrokerState,
) -> Result<TransportStream, HandshakeError> {
    let stream = match tls {
        None => MaybeTlsStream::Tcp(socket),
        Some(acceptor) => MaybeTlsStream::Tls(Box::new(acceptor.accept(socket).await?.into())),
    };
    match transport {
        TransportKind::Tcp => Ok(TransportStream::Direct(stream)),
        TransportKind::WebSocket => {
            // A frame may hold parts of two packets.
            let max_message = 2 * shared.limits.max_packet_size();
            let accepted = WebSocketByteStream::accept(stream, max_message).await;
            let stream = accepted.map_err(|error| match error {
                WsError::Io(error) => error.into(),
                _ => HandshakeError::Refused,
            })?;
            Ok(TransportStream::WebSocket(Box::new(stream)))
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
