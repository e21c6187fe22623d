//! The courier's events, until its owner takes them. The requests under way bound its size: each adds its lookups and one result.
//!
//! A socket pair is readable exactly while the queue is not empty, for any event loop to watch.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use parking_lot::Mutex;

use crate::model::HttpCourierEvent;

struct CourierQueueState {
    events: VecDeque<HttpCourierEvent>,
    signalled: bool,
}

pub struct HttpCourierEventQueue {
    inner: Mutex<CourierQueueState>,
    signal_writer: UnixStream,
    signal_reader: UnixStream,
}

impl HttpCourierEventQueue {
    pub fn new() -> io::Result<Self> {
        let (signal_writer, signal_reader) = UnixStream::pair()?;
        signal_writer.set_nonblocking(true)?;
        signal_reader.set_nonblocking(true)?;
        let inner = Mutex::new(CourierQueueState {
            events: VecDeque::new(),
            signalled: false,
        });
        Ok(Self {
            inner,
            signal_writer,
            signal_reader,
        })
    }

    pub fn push(&self, event: HttpCourierEvent) {
        let mut inner = self.inner.lock();
        inner.events.push_back(event);
        if !inner.signalled {
            // The pair never holds more than one byte, so the write cannot block.
            inner.signalled = (&self.signal_writer).write(&[1]).is_ok();
        }
    }

    pub fn take_all(&self) -> Vec<HttpCourierEvent> {
        let mut inner = self.inner.lock();
        if inner.signalled {
            let mut byte = [0_u8; 1];
            inner.signalled = (&self.signal_reader).read(&mut byte).is_err();
        }
        inner.events.drain(..).collect()
    }

    pub fn readable_fd(&self) -> RawFd {
        self.signal_reader.as_raw_fd()
    }
}
