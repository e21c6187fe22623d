//! Why the courier does not start, and why a delivery attempt has no response.

use std::io;
use std::time::Duration;

use crate::limits::MAX_RESPONSE;

#[derive(Debug, thiserror::Error)]
pub enum CourierStartError {
    #[error("the courier's thread cannot be started: {0}")]
    Threads(#[from] io::Error),
    #[error("the given certificates cannot be read: {0}")]
    Certificates(String),
}

/// Why there is no complete response. A number is the operating system's error number, 0 where there is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttemptFailure {
    /// The queue had no free slot within `QUEUE_TIMEOUT`: nothing was sent.
    #[error("not sent")]
    NotSent,
    #[error("no complete response within {0:?}")]
    Timeout(Duration),
    /// The courier's owner rejected the host, in its own words.
    #[error("{0}")]
    LookupFailed(String),
    #[error("connecting failed: {1}")]
    Connect(i32, String),
    #[error("certificate: {0}")]
    Certificate(String),
    #[error("TLS: {0}")]
    Tls(String),
    #[error("closed without a response")]
    Closed,
    #[error("closed in the middle of the response")]
    Truncated,
    #[error("longer than {MAX_RESPONSE} bytes")]
    TooLong,
    #[error("reset")]
    Reset,
    #[error("not HTTP: {0}")]
    NotHttp(String),
    #[error("{1}")]
    Io(i32, String),
    #[error("cannot be sent: {0}")]
    InvalidRequest(String),
}
