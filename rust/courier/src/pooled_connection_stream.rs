//! A connection's bytes, plain or TLS, and what the client's pool has to know of it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Connections opened while more than this are open carry one request and are not pooled.
const MAX_POOLED: usize = 1024;

/// A TCP or a TLS stream.
pub trait AsyncStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> AsyncStream for T {}

/// Shared by a connection and the request that uses it.
#[derive(Clone, Default)]
pub struct PooledHttpConnectionFlagsHandle(Arc<PooledHttpConnectionFlags>);

#[derive(Default)]
struct PooledHttpConnectionFlags {
    response_started: AtomicBool,
    aborted: AtomicBool,
}

impl PooledHttpConnectionFlagsHandle {
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

pub struct PooledHttpStream {
    stream: Box<dyn AsyncStream>,
    state: PooledHttpConnectionFlagsHandle,
    open_connections: Arc<AtomicUsize>,
    is_pooled: bool,
}

impl PooledHttpStream {
    /// `open_connections` counts this one as long as it lives.
    pub fn new(stream: Box<dyn AsyncStream>, open_connections: Arc<AtomicUsize>) -> Self {
        let others = open_connections.fetch_add(1, Ordering::Relaxed);
        Self {
            stream,
            state: PooledHttpConnectionFlagsHandle::default(),
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
