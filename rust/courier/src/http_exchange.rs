//! One request and its response, over hyper-util's pooled client.
//!
//! When a receiver closes a pooled connection, the request that was to use it is in one of two states. If the client has not begun to
//! write it, the receiver cannot have seen it, and the client sends it on another connection (`retry_canceled_requests`: hyper hands
//! such a request back, and no other). If any of it has been written, the receiver may have processed it: it is not sent again
//! (RFC 9110, 9.2.2) but the attempt fails, and the delivery's own schedule decides about the next.
//!
//! hyper goes on sending a cancelled request for as long as the receiver takes to read it. `AbortConnectionOnDrop` prevents that.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::http::Extensions;
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::connect::{CaptureConnection, Connected, capture_connection};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::connection::ConnectionFlags;
use crate::connection::GuardedConnector;
use crate::model::AttemptFailure;
use crate::model::{HttpOrigin, OutboundHttpRequest, OutboundHttpResponse};
use crate::model::{MAX_EXCERPT, MAX_RESPONSE};

/// Below the shortest idle timeout of common servers (2 s): an attempt fails if the server closes the connection while the request
/// is on its way.
const IDLE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Bytes of a response's status line and headers; hyper takes at most a hundred headers.
const MAX_HEAD: usize = 32 * 1024;
/// A body up to this size goes to the socket at once (Linux's smallest default send buffer is 16 KB), so that nothing is left to send.
const MAX_UNGUARDED: usize = 4 * 1024;
const MAX_RETRY_AFTER: usize = 64;

pub type HttpClient = Client<GuardedConnector, Full<Bytes>>;

pub fn http_client(connector: GuardedConnector) -> HttpClient {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .http1_max_buf_size(MAX_HEAD)
        .http1_title_case_headers(true)
        .retry_canceled_requests(true)
        .set_host(false)
        .build(connector)
}

pub async fn exchange(client: &HttpClient, request: &OutboundHttpRequest) -> Result<OutboundHttpResponse, AttemptFailure> {
    let is_large = request.body.len() > MAX_UNGUARDED;
    let mut request = http_request(request)?;
    let connection = is_large.then(|| capture_connection(&mut request));
    let mut response = client.request(request);
    let mut guard = AbortConnectionOnDrop(connection);
    let response = (&mut response).await;
    let response = response.map_err(|error| failure(&error, response_started(&error)))?;
    let (head, mut body) = response.into_parts();
    let mut guard = AbortConnectionOnDrop(guard.0.take());
    let excerpt = read_body(&mut body).await?;
    guard.0 = None;
    Ok(OutboundHttpResponse {
        status: head.status.as_u16(),
        excerpt,
        retry_after: retry_after(&head.headers),
    })
}

/// Closes a large request's connection at once, unless the response was read to its end. To be declared after the future or body that
/// it guards: dropped before them, it marks the connection before hyper learns of the cancellation.
struct AbortConnectionOnDrop(Option<CaptureConnection>);

impl Drop for AbortConnectionOnDrop {
    fn drop(&mut self) {
        if let Some(capture) = &self.0
            && let Some(connected) = &*capture.connection_metadata()
            && let Some(connection) = connection_state(connected)
        {
            connection.abort();
        }
    }
}

fn connection_state(connected: &Connected) -> Option<ConnectionFlags> {
    let mut extras = Extensions::new();
    connected.get_extras(&mut extras);
    extras.remove()
}

fn response_started(error: &legacy::Error) -> bool {
    let connection = error.connect_info().and_then(connection_state);
    connection.is_some_and(|connection| connection.response_started())
}

fn http_request(request: &OutboundHttpRequest) -> Result<Request<Full<Bytes>>, AttemptFailure> {
    let mut http_request = Request::builder()
        .method(Method::POST)
        .uri(uri(&request.endpoint, &request.path_and_query)?)
        .body(Full::new(request.body.clone()))
        .map_err(invalid)?;
    let headers = http_request.headers_mut();
    for (name, value) in &request.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(invalid)?;
        headers.append(name, HeaderValue::from_str(value).map_err(invalid)?);
    }
    Ok(http_request)
}

fn uri(endpoint: &HttpOrigin, path_and_query: &str) -> Result<Uri, AttemptFailure> {
    let scheme = if endpoint.https { "https" } else { "http" };
    let HttpOrigin { host, port, .. } = endpoint;
    let authority = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    let uri = Uri::builder().scheme(scheme).authority(authority);
    uri.path_and_query(path_and_query).build().map_err(invalid)
}

fn invalid(error: impl std::fmt::Display) -> AttemptFailure {
    AttemptFailure::InvalidRequest(error.to_string())
}

/// Read the body to its end, and keep its first bytes. A receiver whose response does not end has not accepted anything.
async fn read_body(body: &mut Incoming) -> Result<Vec<u8>, AttemptFailure> {
    let (mut excerpt, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failure(&error, true))?;
        if let Some(data) = frame.data_ref() {
            let room = MAX_EXCERPT - excerpt.len();
            excerpt.extend_from_slice(&data[..data.len().min(room)]);
            length += data.len();
        }
        if length > MAX_RESPONSE {
            return Err(AttemptFailure::TooLong);
        }
    }
    Ok(excerpt)
}

fn retry_after(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    (value.len() <= MAX_RETRY_AFTER).then(|| value.to_owned())
}

fn failure(error: &(dyn Error + 'static), response_started: bool) -> AttemptFailure {
    let closed = if response_started {
        AttemptFailure::Truncated
    } else {
        AttemptFailure::Closed
    };
    if let Some(failure) = cause::<AttemptFailure>(error) {
        return failure.clone();
    }
    if let Some(io) = cause::<io::Error>(error) {
        return match io.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => AttemptFailure::Reset,
            io::ErrorKind::UnexpectedEof => closed,
            _ => AttemptFailure::Io(io.raw_os_error().unwrap_or(0), io.to_string()),
        };
    }
    match cause::<hyper::Error>(error) {
        Some(error) if error.is_parse() => AttemptFailure::NotHttp(error.to_string()),
        _ => closed,
    }
}

/// The first error of this type in the chain of sources.
fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    match error.downcast_ref() {
        Some(found) => Some(found),
        None => cause(error.source()?),
    }
}
