//! What goes in and what comes out.

use std::time::Duration;

use bytes::Bytes;

/// Of an answer's body, for the log of deliveries.
pub const EXCERPT: usize = 4096;

/// How long a parcel waits for a place in its lane. What it says of the time, and what was allowed when it was handed over, must
/// not grow old here.
pub const PATIENCE: Duration = Duration::from_millis(250);

/// Whom a connection belongs to: connections are shared by everything that goes there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    pub https: bool,
    pub host: String,
    pub port: u16,
}

pub struct Parcel {
    /// The owner's own number, by which it will know the outcome.
    pub ticket: u64,
    /// Of those with the same name only so many are sent at once; empty: no lane.
    pub lane: String,
    pub endpoint: Endpoint,
    /// Path and query, percent-encoded.
    pub target: String,
    /// Without `Content-Length`, which is ours; with `Host`.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    pub deadline: Duration,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub excerpt: Vec<u8>,
    pub retry_after: Option<String>,
}

/// Why there was no complete answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Its lane had no place for it in `PATIENCE`: nothing was sent.
    #[error("not sent")]
    Unsent,
    #[error("no complete answer within {0:?}")]
    Late(Duration),
    /// In the words of whoever was asked where the host is.
    #[error("{0}")]
    Told(String),
    #[error("connecting failed: {1}")]
    Connect(i32, String),
    #[error("certificate: {0}")]
    Certificate(String),
    #[error("TLS: {0}")]
    Tls(String),
    #[error("closed without an answer")]
    Closed,
    #[error("closed in the middle of the answer")]
    Cut,
    #[error("reset")]
    Reset,
    #[error("not HTTP: {0}")]
    NotHttp(String),
    #[error("{1}")]
    Io(i32, String),
    #[error("cannot be sent: {0}")]
    Unsendable(String),
}

#[derive(Debug)]
pub struct Outcome {
    pub ticket: u64,
    pub result: Result<Answer, Failure>,
    pub took: Duration,
}

#[derive(Debug)]
pub enum News {
    Outcome(Outcome),
    /// To be answered with `Courier::direct` or `Courier::refuse`; the parcel's deadline is running.
    Where {
        question: u64,
        host: String,
        port: u16,
    },
}
