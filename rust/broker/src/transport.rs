//! One type for the three ways a byte stream comes in: TCP, TLS over TCP, and WebSocket frames over either.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

/// TCP, with or without TLS.
pub enum Plain {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

pub enum Io {
    Plain(Plain),
    WebSocket(Box<WebSocket>),
}

macro_rules! forward {
    ($self:ident, $stream:ident => $call:expr, $($variant:path),*) => {
        match $self.get_mut() { $($variant($stream) => { let $stream = Pin::new($stream); $call })* }
    };
}

impl AsyncRead for Plain {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        forward!(self, stream => stream.poll_read(cx, buf), Plain::Tcp, Plain::Tls)
    }
}

impl AsyncWrite for Plain {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        forward!(self, stream => stream.poll_write(cx, buf), Plain::Tcp, Plain::Tls)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, stream => stream.poll_flush(cx), Plain::Tcp, Plain::Tls)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, stream => stream.poll_shutdown(cx), Plain::Tcp, Plain::Tls)
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        forward!(self, stream => stream.poll_read(cx, buf), Io::Plain, Io::WebSocket)
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        forward!(self, stream => stream.poll_write(cx, buf), Io::Plain, Io::WebSocket)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, stream => stream.poll_flush(cx), Io::Plain, Io::WebSocket)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, stream => stream.poll_shutdown(cx), Io::Plain, Io::WebSocket)
    }
}

/// MQTT 5.0, section 6: binary frames whose borders mean nothing, subprotocol `mqtt`.
pub struct WebSocket {
    stream: WebSocketStream<Plain>,
    rest: Bytes,
}

impl WebSocket {
    /// `frame`: the largest message taken; a client need not align its frames with MQTT packets.
    pub async fn accept(stream: Plain, frame: usize) -> Result<Self, WsError> {
        let config = Some(config(frame));
        let stream =
            tokio_tungstenite::accept_hdr_async_with_config(stream, subprotocol, config).await?;
        Ok(Self::over(stream))
    }

    /// As a client, on the path that most brokers have.
    pub async fn connect(stream: Plain, authority: &str, frame: usize) -> io::Result<Self> {
        let uri = format!("ws://{authority}/mqtt")
            .parse()
            .map_err(io::Error::other)?;
        let request = ClientRequestBuilder::new(uri).with_sub_protocol("mqtt");
        let (stream, _) =
            tokio_tungstenite::client_async_with_config(request, stream, Some(config(frame)))
                .await
                .map_err(broken)?;
        Ok(Self::over(stream))
    }

    fn over(stream: WebSocketStream<Plain>) -> Self {
        Self {
            stream,
            rest: Bytes::new(),
        }
    }
}

/// The library's buffers of 128 KiB a connection would be most of a connection's memory.
fn config(frame: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_write_buffer_size(4 * frame)
        .max_message_size(Some(frame))
        .max_frame_size(Some(frame))
}

// The signature is the library's.
#[allow(clippy::result_large_err)]
fn subprotocol(request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    const NAME: &str = "sec-websocket-protocol";
    let offered = request
        .headers()
        .get_all(NAME)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let chosen = offered
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .find(|name| matches!(*name, "mqtt" | "mqttv3.1"));
    match chosen.map(HeaderValue::from_str) {
        Some(Ok(name)) => {
            response.headers_mut().insert(NAME, name);
            Ok(response)
        }
        _ if !request.headers().contains_key(NAME) => Ok(response),
        _ => {
            let mut refusal =
                ErrorResponse::new(Some("ask for the WebSocket subprotocol mqtt".to_owned()));
            *refusal.status_mut() = StatusCode::BAD_REQUEST;
            Err(refusal)
        }
    }
}

fn broken(error: WsError) -> io::Error {
    match error {
        WsError::Io(error) => error,
        WsError::ConnectionClosed | WsError::AlreadyClosed => {
            io::ErrorKind::ConnectionAborted.into()
        }
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    }
}

impl AsyncRead for WebSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.rest.is_empty() {
            match ready!(Pin::new(&mut this.stream).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) => this.rest = bytes,
                Some(Ok(Message::Text(_))) => {
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(broken(error))),
            }
        }
        let count = this.rest.len().min(buf.remaining());
        buf.put_slice(&this.rest[..count]);
        this.rest.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WebSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut stream = Pin::new(&mut self.get_mut().stream);
        ready!(stream.as_mut().poll_ready(cx)).map_err(broken)?;
        stream
            .start_send(Message::Binary(Bytes::copy_from_slice(buf)))
            .map_err(broken)?;
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream)
            .poll_flush(cx)
            .map_err(broken)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream)
            .poll_close(cx)
            .map_err(broken)
    }
}
