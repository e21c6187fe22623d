//! The requests that go in and the events that come out.

use std::time::Duration;

use bytes::Bytes;

use crate::error::AttemptFailure;

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
