//! From an endpoint to a connection: ask where it is, connect, TLS, HTTP.
//!
//! Several addresses are tried as RFC 8305 says: one after the other, the next as soon as one fails or has been silent for a
//! quarter of a second; the first that answers is taken.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::model::{Endpoint, Failure, News};
use crate::outbox::Outbox;
use crate::pool::Line;
use crate::stream::{Heard, Stream, Wire};

const NEXT_AFTER: Duration = Duration::from_millis(250);
/// Of an answer's headers, which hyper takes at most a hundred of.
const MOST_HEAD: usize = 32 * 1024;

pub type Directions = Result<Vec<IpAddr>, String>;

/// Who asked where a host is and still waits for it.
#[derive(Default)]
pub struct Questions {
    next: AtomicU64,
    open: Mutex<HashMap<u64, oneshot::Sender<Directions>>>,
}

impl Questions {
    pub fn answer(&self, question: u64, directions: Directions) {
        if let Some(asker) = self.open.lock().remove(&question) {
            let _ = asker.send(directions);
        }
    }

    async fn ask(&self, endpoint: &Endpoint, outbox: &Outbox) -> Result<Vec<IpAddr>, Failure> {
        let question = self.next.fetch_add(1, Ordering::Relaxed);
        let (asker, heard) = oneshot::channel();
        self.open.lock().insert(question, asker);
        let _forgets = Forgets(self, question);
        outbox.put(News::Where {
            question,
            host: endpoint.host.clone(),
            port: endpoint.port,
        });
        match heard.await {
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(why)) => Err(Failure::Told(why)),
            Err(_) => Err(Failure::Told("The service is stopping.".to_owned())),
        }
    }
}

/// Whoever is cut or late waits no more.
struct Forgets<'a>(&'a Questions, u64);

impl Drop for Forgets<'_> {
    fn drop(&mut self) {
        self.0.open.lock().remove(&self.1);
    }
}

pub async fn dial(
    endpoint: &Endpoint,
    questions: &Questions,
    outbox: &Outbox,
    tls: &TlsConnector,
) -> Result<Line, Failure> {
    let addresses = questions.ask(endpoint, outbox).await?;
    let stream = connect(&addresses, endpoint.port)
        .await
        .map_err(|error| Failure::Connect(error.raw_os_error().unwrap_or(0), error.to_string()))?;
    let _ = stream.set_nodelay(true);
    let wire = if endpoint.https {
        Wire::Tls(Box::new(secure(stream, endpoint, tls).await?))
    } else {
        Wire::Plain(stream)
    };
    let heard = Heard::default();
    let io = TokioIo::new(Stream {
        wire,
        heard: heard.clone(),
    });
    let (sender, connection) = http1::Builder::new()
        .max_header_size(MOST_HEAD)
        .title_case_headers(true)
        .handshake(io)
        .await
        .map_err(|error| Failure::Io(0, error.to_string()))?;
    let driver = tokio::spawn(async move {
        let _ = connection.await; // whoever waits for the answer hears of it
    });
    Ok(Line {
        sender,
        heard,
        driver: driver.abort_handle(),
    })
}

async fn connect(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
    let mut left = addresses.iter();
    let mut trying = JoinSet::new();
    let mut failed = io::Error::new(io::ErrorKind::AddrNotAvailable, "no address");
    loop {
        let next = left.next();
        if let Some(address) = next {
            trying.spawn(TcpStream::connect(SocketAddr::new(*address, port)));
        } else if trying.is_empty() {
            return Err(failed);
        }
        let patience = if left.len() == 0 {
            Duration::MAX
        } else {
            NEXT_AFTER
        };
        match tokio::time::timeout(patience, trying.join_next()).await {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(error)))) => failed = error,
            Ok(Some(Err(_)) | None) | Err(_) => {}
        }
    }
}

async fn secure(
    stream: TcpStream,
    endpoint: &Endpoint,
    tls: &TlsConnector,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Failure> {
    let name = ServerName::try_from(endpoint.host.clone()).map_err(|_| {
        Failure::Tls(format!(
            "{} is no name a certificate can have",
            endpoint.host
        ))
    })?;
    tls.connect(name, stream).await.map_err(|error| {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        match inner {
            Some(rustls::Error::InvalidCertificate(why)) => Failure::Certificate(why.to_string()),
            Some(other) => Failure::Tls(other.to_string()),
            None => Failure::Tls(error.to_string()),
        }
    })
}
