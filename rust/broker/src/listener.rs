//! Where devices come in: sockets, TLS and WebSocket handshakes, and the bound on how many there may be.

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

use crate::broker::Shared;
use crate::session;
use crate::transport::{Io, Plain, WebSocket};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    WebSocket,
}

/// One address to listen on; port 0 takes any free one.
#[derive(Debug, Clone)]
pub struct Listen {
    pub transport: Transport,
    pub tls: bool,
    pub host: String,
    pub port: u16,
}

/// A certificate chain and its key, both PEM.
pub struct Tls {
    pub certificates: Vec<u8>,
    pub key: Vec<u8>,
}

impl Tls {
    pub fn acceptor(&self) -> Result<TlsAcceptor, String> {
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(&self.certificates)
                .collect::<Result<_, _>>()
                .map_err(|error| format!("the TLS certificate file is not PEM: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| format!("the TLS key file is not PEM: {error}"))?;
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| format!("the TLS certificate and key cannot be used: {error}"))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// A fleet that comes back after an outage arrives at once.
const BACKLOG: u32 = 4096;
/// After an error of `accept` (mostly: no descriptors left), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The only way to find a dead device that has asked for no keep-alive of MQTT's own: after a minute of silence the kernel asks four
/// times, 15 s apart; so two minutes instead of the two hours and eleven minutes that are its default.
fn dead_peer_probe() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4)
}

/// Must run inside the runtime that will serve the socket.
pub fn bind(listen: &Listen) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in (listen.host.as_str(), listen.port).to_socket_addrs()? {
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
    // Inherited by what is accepted.
    SockRef::from(&socket).set_tcp_keepalive(&dead_peer_probe())?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accept until the broker stops.
pub async fn listen(
    listener: TcpListener,
    transport: Transport,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
) {
    let mut stopping = shared.stopping.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        let Ok((socket, address)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        shared.stats.accepted.one();
        let Ok(place) = Arc::clone(&shared.places).try_acquire_owned() else {
            shared.stats.refused_full.one();
            continue;
        };
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        tokio::spawn(async move {
            let _open = OpenSocket::new(&shared, place);
            receive(socket, address, transport, tls, &shared).await;
        });
    }
}

/// Counts a socket as long as its task lives, however that ends.
struct OpenSocket<'s> {
    shared: &'s Shared,
    _place: OwnedSemaphorePermit,
}

impl<'s> OpenSocket<'s> {
    fn new(shared: &'s Shared, place: OwnedSemaphorePermit) -> Self {
        shared.stats.sockets.one();
        Self {
            shared,
            _place: place,
        }
    }
}

impl Drop for OpenSocket<'_> {
    fn drop(&mut self) {
        self.shared.stats.sockets.sub(1);
    }
}

async fn receive(
    socket: TcpStream,
    address: SocketAddr,
    transport: Transport,
    tls: Option<TlsAcceptor>,
    shared: &Arc<Shared>,
) {
    let deadline = Instant::now() + shared.limits.connect_timeout;
    let _ = socket.set_nodelay(true);
    let io = if tls.is_none() && transport == Transport::Tcp {
        Io::Plain(Plain::Tcp(socket))
    } else {
        // Boxed, so that a plain connection's task does not carry the handshakes' space.
        let handshakes = Box::pin(shake_hands(socket, transport, tls, shared));
        match tokio::time::timeout_at(deadline.into(), handshakes).await {
            Ok(Some(io)) => io,
            Ok(None) => return shared.stats.refused_garbage.one(),
            Err(_) => return shared.stats.refused_timeout.one(),
        }
    };
    let over_websocket = transport == Transport::WebSocket;
    session::serve(
        io,
        Arc::clone(shared),
        over_websocket,
        address.to_string(),
        deadline,
    )
    .await;
}

async fn shake_hands(
    socket: TcpStream,
    transport: Transport,
    tls: Option<TlsAcceptor>,
    shared: &Shared,
) -> Option<Io> {
    let plain = match tls {
        None => Plain::Tcp(socket),
        Some(acceptor) => Plain::Tls(Box::new(acceptor.accept(socket).await.ok()?.into())),
    };
    match transport {
        Transport::Tcp => Some(Io::Plain(plain)),
        Transport::WebSocket => {
            // Frames need not align with packets; twice the largest packet leaves room for that.
            let frame = 2 * (shared.limits.payload + session::HEADROOM);
            WebSocket::accept(plain, frame)
                .await
                .ok()
                .map(|socket| Io::WebSocket(Box::new(socket)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_accepted_socket_inherits_the_probes_for_a_dead_peer() {
        let listener = bind_address(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (_client, (accepted, _)) = (client.expect("connected"), accepted.expect("accepted"));
        let socket = SockRef::from(&accepted);
        assert!(socket.keepalive().expect("readable"));
        assert_eq!(
            socket.tcp_keepalive_time().expect("readable"),
            Duration::from_secs(60)
        );
        assert_eq!(socket.tcp_keepalive_retries().expect("readable"), 4);
    }
}
