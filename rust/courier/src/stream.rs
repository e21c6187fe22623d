//! A connection's bytes, plain or TLS, and whether anything has been heard on it since the last request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

pub enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// True once a byte of the application's has arrived: of an answer, TLS's own records apart.
#[derive(Clone, Default)]
pub struct Heard(Arc<AtomicBool>);

impl Heard {
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub fn anything(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub struct Stream {
    pub wire: Wire,
    pub heard: Heard,
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = match &mut this.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Wire::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if buffer.filled().len() > before {
            this.heard.0.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().wire {
            Wire::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Wire::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().wire {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(context),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().wire {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
