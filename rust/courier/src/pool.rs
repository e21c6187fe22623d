//! Connections that lie idle, for the next parcel to the same endpoint.
//!
//! A connection is kept only so long as a burst lasts: below the shortest idle time-out of common servers (2 s), because one that
//! the receiver closes in the very moment it is used costs an exchange. All together are bounded: beyond that they are not kept.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::model::Endpoint;
use crate::stream::Heard;

pub const KEPT: Duration = Duration::from_millis(1500);
const MOST: usize = 1024;

/// A connection and the task that drives it; dropped, it is closed at once, whatever is still on the way.
pub struct Line {
    pub sender: SendRequest<Full<Bytes>>,
    pub heard: Heard,
    pub driver: AbortHandle,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

#[derive(Default)]
struct Shelf {
    lines: HashMap<Endpoint, Vec<(Line, Instant)>>,
    count: usize,
}

#[derive(Default)]
pub struct Pool(Mutex<Shelf>);

impl Pool {
    /// The one used last, which is the least likely to have been closed.
    pub fn take(&self, endpoint: &Endpoint) -> Option<Line> {
        let mut shelf = self.0.lock();
        let lines = shelf.lines.get_mut(endpoint)?;
        let mut seen = 0;
        let mut found = None;
        while let Some((line, since)) = lines.pop() {
            seen += 1;
            if since.elapsed() < KEPT && !line.sender.is_closed() {
                found = Some(line);
                break;
            }
        }
        shelf.count -= seen;
        found
    }

    pub fn put(&self, endpoint: &Endpoint, line: Line) {
        if line.sender.is_closed() {
            return;
        }
        let mut shelf = self.0.lock();
        if shelf.count >= MOST {
            return;
        }
        shelf.count += 1;
        let item = (line, Instant::now());
        if let Some(lines) = shelf.lines.get_mut(endpoint) {
            lines.push(item);
        } else {
            shelf.lines.insert(endpoint.clone(), vec![item]);
        }
    }

    /// Close what has lain idle for too long.
    pub fn sweep(&self) {
        let mut shelf = self.0.lock();
        let mut count = 0;
        shelf.lines.retain(|_, lines| {
            lines.retain(|(line, since)| since.elapsed() < KEPT && !line.sender.is_closed());
            count += lines.len();
            !lines.is_empty()
        });
        shelf.count = count;
    }
}
