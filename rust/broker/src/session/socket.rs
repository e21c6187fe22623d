//! Reads into a shared buffer, and the last write to a client.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};

use crate::transport::TransportStream;

/// How long the last write to a client may take.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_millis(500);

thread_local! {
    // One read buffer for each thread instead of one for each connection: ten thousand idle devices hold none.
    static READ_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; 32 * 1024].into_boxed_slice());
}

/// Append what the socket has to `input`; 0 bytes mean that the client has closed it.
pub(super) fn poll_read(
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
pub(super) async fn write_final(stream: &mut TransportStream, output: &mut BytesMut) {
    let write = async {
        stream.write_all(output).await?;
        stream.flush().await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(FINAL_WRITE_TIMEOUT, write).await;
}
