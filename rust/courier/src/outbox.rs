//! What the courier has to say, until its owner takes it. Bounded by what was sent: a parcel is in it twice at the most.
//!
//! A socket pair is readable exactly while there is something to take, for any event loop to watch.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use parking_lot::Mutex;

use crate::model::News;

struct Inner {
    news: VecDeque<News>,
    signalled: bool,
}

pub struct Outbox {
    inner: Mutex<Inner>,
    waker: UnixStream,
    wakee: UnixStream,
}

impl Outbox {
    pub fn new() -> io::Result<Self> {
        let (waker, wakee) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        wakee.set_nonblocking(true)?;
        let inner = Mutex::new(Inner {
            news: VecDeque::new(),
            signalled: false,
        });
        Ok(Self {
            inner,
            waker,
            wakee,
        })
    }

    pub fn put(&self, news: News) {
        let mut inner = self.inner.lock();
        inner.news.push_back(news);
        if !inner.signalled {
            // One byte at most is ever in the pair, so the write cannot block.
            inner.signalled = (&self.waker).write(&[1]).is_ok();
        }
    }

    /// All there is.
    pub fn take(&self) -> Vec<News> {
        let mut inner = self.inner.lock();
        if inner.signalled {
            let mut byte = [0_u8; 1];
            inner.signalled = (&self.wakee).read(&mut byte).is_err();
        }
        inner.news.drain(..).collect()
    }

    pub fn descriptor(&self) -> RawFd {
        self.wakee.as_raw_fd()
    }
}
