//! One byte stream for every transport: TCP, TLS over TCP, and WebSocket over either.
//!
//! Law: a connection without input holds no read buffer; each thread has one.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;
use tokio_rustls::rustls::CommonState;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

/// TCP, with or without TLS.
pub enum MaybeTlsStream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What MQTT packets travel on.
pub enum TransportStream {
    Direct(MaybeTlsStream),
    WebSocket(Box<WebSocketByteStream>),
}

impl MaybeTlsStream {
    fn tls_session(&self) -> Option<&CommonState> {
        match self {
            Self::Tcp(_) => None,
            Self::Tls(stream) => Some(stream.get_ref().1),
        }
    }
}

impl TransportStream {
    /// None without TLS.
    pub fn tls_session(&self) -> Option<&CommonState> {
        match self {
            Self::Direct(stream) => stream.tls_session(),
            Self::WebSocket(stream) => stream.stream.get_ref().tls_session(),
        }
    }
}

/// Implements reading and writing for an enum whose variants can read and write.
macro_rules! forward_io {
    ($enum:ident: $($variant:ident),*) => {
        impl AsyncRead for $enum {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                match self.get_mut() { $(Self::$variant(stream) => Pin::new(stream).poll_read(cx, buf)),* }
            }
        }

        impl AsyncWrite for $enum {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() { $(Self::$variant(stream) => Pin::new(stream).poll_write(cx, buf)),* }
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $(Self::$variant(stream) => Pin::new(stream).poll_flush(cx)),* }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $(Self::$variant(stream) => Pin::new(stream).poll_shutdown(cx)),* }
            }
        }
    };
}

forward_io!(MaybeTlsStream: Tcp, Tls);
forward_io!(TransportStream: Direct, WebSocket);

/// The payloads of binary frames as one byte stream, subprotocol `mqtt`; an MQTT packet may span frames (MQTT 5.0, 6).
pub struct WebSocketByteStream {
    stream: WebSocketStream<MaybeTlsStream>,
    unread: Bytes,
}

impl WebSocketByteStream {
    /// The server's handshake. `max_message`: bytes of the largest frame or message accepted.
    pub async fn accept(stream: MaybeTlsStream, max_message: usize) -> Result<Self, WsError> {
        let config = Some(websocket_config(max_message));
        let stream = tokio_tungstenite::accept_hdr_async_with_config(stream, select_subprotocol, config).await?;
        Ok(Self::new(stream))
    }

    pub fn new(stream: WebSocketStream<MaybeTlsStream>) -> Self {
        Self {
            stream,
            unread: Bytes::new(),
        }
    }
}

/// Small buffers: the library's default of 128 KiB for each connection would be most of a connection's memory. `max_message` is in
/// bytes.
pub fn websocket_config(max_message: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_write_buffer_size(4 * max_message)
        .max_message_size(Some(max_message))
        .max_frame_size(Some(max_message))
}

// The library defines the signature.
#[allow(clippy::result_large_err)]
fn select_subprotocol(request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    const NAME: &str = "sec-websocket-protocol";
    let offered = request.headers().get_all(NAME).iter().filter_map(|value| value.to_str().ok());
    let selected = offered
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .find(|name| matches!(*name, "mqtt" | "mqttv3.1"));
    match selected.map(HeaderValue::from_str) {
        Some(Ok(name)) => {
            response.headers_mut().insert(NAME, name);
            Ok(response)
        }
        _ if !request.headers().contains_key(NAME) => Ok(response),
        _ => {
            let mut refusal = ErrorResponse::new(Some("the WebSocket subprotocol must be mqtt".to_owned()));
            *refusal.status_mut() = StatusCode::BAD_REQUEST;
            Err(refusal)
        }
    }
}

fn io_error(error: WsError) -> io::Error {
    match error {
        WsError::Io(error) => error,
        WsError::ConnectionClosed | WsError::AlreadyClosed => io::ErrorKind::ConnectionAborted.into(),
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    }
}

impl AsyncRead for WebSocketByteStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.unread.is_empty() {
            match ready!(Pin::new(&mut this.stream).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) => this.unread = bytes,
                Some(Ok(Message::Text(_))) => {
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(io_error(error))),
            }
        }
        let count = this.unread.len().min(buf.remaining());
        buf.put_slice(&this.unread[..count]);
        this.unread.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WebSocketByteStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut stream = Pin::new(&mut self.get_mut().stream);
        ready!(stream.as_mut().poll_ready(cx)).map_err(io_error)?;
        stream
            .start_send(Message::Binary(Bytes::copy_from_slice(buf)))
            .map_err(io_error)?;
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx).map_err(io_error)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_close(cx).map_err(io_error)
    }
}

/// How long the last write to a client may take.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_millis(500);

thread_local! {
    // One read buffer for each thread instead of one for each connection: ten thousand idle devices hold none.
    static READ_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; 32 * 1024].into_boxed_slice());
}

/// Append what the socket has to `input`; 0 bytes mean that the client has closed it.
pub(crate) fn poll_read(
    stream: &mut TransportStream,
    cx: &mut Context<'_>,
    input: &mut BytesMut,
) -> Poll<std::io::Result<usize>> {
    READ_BUFFER.with(|buffer| {
        let mut buffer = buffer.borrow_mut();
        let mut buffer = ReadBuf::new(&mut buffer);
        match Pin::new(stream).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) => {
                input.extend_from_slice(buffer.filled());
                Poll::Ready(Ok(buffer.filled().len()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    })
}

/// Write what is left and close the socket, as far as the client lets us.
pub(crate) async fn write_final(stream: &mut TransportStream, output: &mut BytesMut) {
    let write = async {
        stream.write_all(output).await?;
        stream.flush().await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(FINAL_WRITE_TIMEOUT, write).await;
}
