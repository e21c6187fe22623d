//! The waiting of a connection. Whatever it waits for, it goes on confirming, sending, writing, and listening for the order to end.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{End, Session};
use crate::transport::Io;
use crate::wire::reason;

/// Above this much unwritten output nothing more is read or sent down.
const HIGH_WATER: usize = 64 * 1024;
/// How long the last words to a client may take.
const FAREWELL: Duration = Duration::from_millis(500);

thread_local! {
    // One read buffer a thread instead of one a connection: ten thousand idle devices hold none.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; 32 * 1024].into_boxed_slice());
}

pub(super) fn poll_read(
    io: &mut Io,
    cx: &mut Context<'_>,
    input: &mut BytesMut,
) -> Poll<std::io::Result<usize>> {
    SCRATCH.with(|scratch| {
        let mut scratch = scratch.borrow_mut();
        let mut buffer = ReadBuf::new(&mut scratch);
        match Pin::new(io).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) => {
                input.extend_from_slice(buffer.filled());
                Poll::Ready(Ok(buffer.filled().len()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    })
}

pub(super) async fn say(io: &mut Io, output: &mut BytesMut) {
    use tokio::io::AsyncWriteExt;
    let words = async {
        io.write_all(output).await?;
        io.flush().await?;
        io.shutdown().await
    };
    let _ = tokio::time::timeout(FAREWELL, words).await;
}

impl Session {
    pub(super) fn rearm(&mut self) {
        let limit = self.shared.limits.write_patience;
        let silence = self.keep_alive.map(|keep_alive| self.heard + keep_alive);
        let stuck = self.stalled.map(|since| since + limit);
        let next = [silence, stuck]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or_else(|| Instant::now() + limit);
        self.timer.as_mut().reset(next.into());
    }

    /// Wait for bytes, serving everything else meanwhile.
    pub(super) fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        self.poll_service(cx)?;
        if self.output.len() < HIGH_WATER {
            match poll_read(&mut self.io, cx, &mut self.input) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(End::Gone)),
                Poll::Ready(Ok(count)) => {
                    self.heard = Instant::now();
                    self.shared.stats.bytes_read.add(count as u64);
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending => {}
            }
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if self
                .keep_alive
                .is_some_and(|keep_alive| now >= self.heard + keep_alive)
            {
                return Poll::Ready(Err(End::Silent));
            }
            self.check_writing(now)?;
            self.rearm();
        }
        Poll::Pending
    }

    fn check_writing(&self, now: Instant) -> Result<(), End> {
        let patience = self.shared.limits.write_patience;
        let stuck = self.stalled.is_some_and(|since| now >= since + patience);
        if stuck { Err(End::Stuck) } else { Ok(()) }
    }

    /// Wait for something other than bytes. Not hearing the device is then our doing, and not held against it.
    pub(super) async fn wait<T>(&mut self, something: impl Future<Output = T>) -> Result<T, End> {
        let mut something = Box::pin(something);
        let outcome = poll_fn(|cx| {
            self.poll_service(cx)?;
            if let Poll::Ready(value) = something.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            while self.timer.as_mut().poll(cx).is_ready() {
                self.check_writing(Instant::now())?;
                self.heard = Instant::now();
                self.rearm();
            }
            Poll::Pending
        })
        .await;
        self.heard = Instant::now();
        outcome
    }

    /// Confirm, send down, write, and notice an order to close.
    fn poll_service(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let connection = Arc::clone(&self.connection);
        let mut outbox = connection.outbox.lock();
        if let Some(why) = outbox.close {
            return Err(End::Closed(why));
        }
        for sequence in outbox.confirmed.drain(..) {
            Self::settle(&mut self.pending, self.first, sequence, reason::SUCCESS);
        }
        self.answer();
        while self.output.len() < HIGH_WATER && outbox.inflight.len() < self.window {
            let Some(message) = outbox.waiting.pop_front() else {
                break;
            };
            if let Some(sent) = self.send(message) {
                outbox.inflight.push_back(sent);
            }
        }
        if !outbox
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            outbox.waker = Some(cx.waker().clone());
        }
        drop(outbox);
        self.poll_write(cx)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        while !self.output.is_empty() {
            match Pin::new(&mut self.io).poll_write(cx, &self.output) {
                Poll::Ready(Ok(0) | Err(_)) => return Err(End::Gone),
                Poll::Ready(Ok(count)) => {
                    self.shared.stats.bytes_written.add(count as u64);
                    self.output.advance(count);
                    self.stalled = None;
                    self.unflushed = true;
                }
                Poll::Pending => {
                    if self.stalled.is_none() {
                        self.stalled = Some(Instant::now());
                        self.rearm();
                    }
                    return Ok(());
                }
            }
        }
        if self.unflushed {
            self.output = BytesMut::new();
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(_)) => return Err(End::Gone),
                Poll::Pending => {}
            }
        }
        Ok(())
    }

    pub(super) async fn wait_for_window(&mut self) -> Result<(), End> {
        let outcome = poll_fn(|cx| {
            self.poll_service(cx)?;
            if self.pending.len() < self.shared.limits.inflight {
                return Poll::Ready(Ok(()));
            }
            while self.timer.as_mut().poll(cx).is_ready() {
                self.check_writing(Instant::now())?;
                self.heard = Instant::now();
                self.rearm();
            }
            Poll::Pending
        })
        .await;
        self.heard = Instant::now();
        outcome
    }
}
