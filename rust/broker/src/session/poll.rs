//! The waits of a connection. Law: while it waits, it acknowledges, sends, writes and notices a close.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWrite;

use super::connection::{ConnectionTask, DisconnectCause};
use crate::transport::poll_read;
use crate::wire::reason;

/// With more bytes of unwritten output than this, nothing is read or sent.
const MAX_UNWRITTEN_OUTPUT: usize = 64 * 1024;

impl ConnectionTask {
    /// Set the timer to the next timeout.
    pub(super) fn reset_timer(&mut self) {
        let limit = self.shared.limits.write_timeout;
        let keep_alive = self.keep_alive.map(|limit| self.last_received + limit);
        let write = self.write_blocked_since.map(|since| since + limit);
        let next = [keep_alive, write]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or_else(|| Instant::now() + limit);
        self.timer.as_mut().reset(next.into());
    }

    /// Wait for bytes from the client.
    pub(super) fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DisconnectCause>> {
        self.poll_background(cx)?;
        if self.output.len() < MAX_UNWRITTEN_OUTPUT {
            match poll_read(&mut self.stream, cx, &mut self.input) {
                Poll::Ready(Ok(0) | Err(_)) => {
                    return Poll::Ready(Err(DisconnectCause::SocketClosed));
                }
                Poll::Ready(Ok(count)) => {
                    self.last_received = Instant::now();
                    self.shared.stats.bytes_read.add(count as u64);
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending => {}
            }
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if self.keep_alive.is_some_and(|limit| now >= self.last_received + limit) {
                return Poll::Ready(Err(DisconnectCause::KeepAliveTimeout));
            }
            self.check_write_timeout(now)?;
            self.reset_timer();
        }
        Poll::Pending
    }

    fn check_write_timeout(&self, now: Instant) -> Result<(), DisconnectCause> {
        let limit = self.shared.limits.write_timeout;
        match self.write_blocked_since {
            Some(since) if now >= since + limit => Err(DisconnectCause::WriteTimeout),
            _ => Ok(()),
        }
    }

    /// Wait for something other than bytes. The broker does not read the socket, so this time does not count for the keep alive.
    async fn wait_until<T>(
        &mut self,
        mut condition: impl FnMut(&ConnectionTask, &mut Context<'_>) -> Poll<T>,
    ) -> Result<T, DisconnectCause> {
        let result = poll_fn(|cx| {
            self.poll_background(cx)?;
            if let Poll::Ready(value) = condition(self, cx) {
                return Poll::Ready(Ok(value));
            }
            while self.timer.as_mut().poll(cx).is_ready() {
                self.check_write_timeout(Instant::now())?;
                self.last_received = Instant::now();
                self.reset_timer();
            }
            Poll::Pending
        })
        .await;
        self.last_received = Instant::now();
        result
    }

    pub(super) async fn wait_for<T>(&mut self, future: impl Future<Output = T>) -> Result<T, DisconnectCause> {
        let mut future = Box::pin(future);
        self.wait_until(|_, cx| future.as_mut().poll(cx)).await
    }

    /// Wait until fewer publishes of the client than the receive maximum are unacknowledged.
    pub(super) async fn wait_for_receive_maximum(&mut self) -> Result<(), DisconnectCause> {
        let below_maximum = |task: &ConnectionTask, _: &mut Context<'_>| {
            if task.pending_pubacks.len() < task.shared.limits.receive_maximum {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        };
        self.wait_until(below_maximum).await
    }

    /// Empty the shared state: acknowledge, send, write. An error when the connection is to close.
    fn poll_background(&mut self, cx: &mut Context<'_>) -> Result<(), DisconnectCause> {
        let connection = Arc::clone(&self.connection);
        let mut shared_state = connection.shared_state.lock();
        if let Some(reason) = shared_state.close {
            return Err(DisconnectCause::ClosedByBroker(reason));
        }
        for sequence in shared_state.acknowledged.drain(..) {
            self.pending_pubacks.complete(sequence, reason::SUCCESS);
        }
        self.write_acknowledgements();
        while self.output.len() < MAX_UNWRITTEN_OUTPUT && shared_state.inflight_out.len() < self.send_quota {
            if !self.send_next(&mut shared_state) {
                break;
            }
        }
        shared_state.last_received = Some(self.last_received);
        let waker = shared_state.waker.as_ref();
        if !waker.is_some_and(|waker| waker.will_wake(cx.waker())) {
            shared_state.waker = Some(cx.waker().clone());
        }
        drop(shared_state);
        self.poll_write(cx)
    }

    fn write_acknowledgements(&mut self) {
        while let Some((packet_id, reason)) = self.pending_pubacks.pop_completed() {
            self.codec.puback(&mut self.output, packet_id, reason);
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<(), DisconnectCause> {
        while !self.output.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.output) {
                Poll::Ready(Ok(0) | Err(_)) => return Err(DisconnectCause::SocketClosed),
                Poll::Ready(Ok(count)) => {
                    self.shared.stats.bytes_written.add(count as u64);
                    self.output.advance(count);
                    self.write_blocked_since = None;
                    self.unflushed = true;
                }
                Poll::Pending => {
                    if self.write_blocked_since.is_none() {
                        self.write_blocked_since = Some(Instant::now());
                        self.reset_timer();
                    }
                    return Ok(());
                }
            }
        }
        if self.unflushed {
            self.output = BytesMut::new();
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(_)) => return Err(DisconnectCause::SocketClosed),
                Poll::Pending => {}
            }
        }
        Ok(())
    }
}
