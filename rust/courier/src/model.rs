//! The requests that go in, the events that come out, why an attempt has no response; how much and how long.

use std::io;
use std::time::Duration;

use bytes::Bytes;

/// Bytes of a response body that are kept for the delivery log.
pub const MAX_EXCERPT: usize = 4096;
/// Bytes of the longest response body. A receiver that sends more has accepted nothing.
pub const MAX_RESPONSE: usize = 1024 * 1024;

/// How long a request waits for a slot of its queue. Its timestamp and the permission to send it must not grow old here.
pub const QUEUE_TIMEOUT: Duration = Duration::from_millis(250);

/// The server of a URL. All requests to it share its connections.
#[derive(Clone, Debug)]
pub struct HttpOrigin {
    pub https: bool,
    /// A name, or an IP address without brackets.
    pub host: String,
    pub port: u16,
}

pub struct OutboundHttpRequest {
    /// The owner's number for this attempt; its result carries it.
    pub attempt_id: u64,
    /// Requests with the same key share a limit of concurrent requests; without a key there is no limit.
    pub queue_key: String,
    pub endpoint: HttpOrigin,
    /// Percent-encoded.
    pub path_and_query: String,
    /// With `Host`, without `Content-Length`.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// For the whole exchange, from lookup to the end of the response.
    pub timeout: Duration,
}

#[derive(Debug)]
pub struct OutboundHttpResponse {
    pub status: u16,
    /// The first `MAX_EXCERPT` bytes of the body.
    pub excerpt: Vec<u8>,
    /// The header `Retry-After` (RFC 9110, 10.2.3) as it came.
    pub retry_after: Option<String>,
}

#[derive(Debug)]
pub struct AttemptResult {
    pub attempt_id: u64,
    pub result: Result<OutboundHttpResponse, AttemptFailure>,
    pub duration: Duration,
}

#[derive(Debug)]
pub enum HttpCourierEvent {
    Finished(AttemptResult),
    /// To be answered with `Courier::resolve_lookup` or `Courier::fail_lookup`; the request's timeout is running.
    LookupRequested {
        lookup_id: u64,
        host: String,
        port: u16,
        https: bool,
    },
}

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
