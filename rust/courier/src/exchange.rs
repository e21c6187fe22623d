//! One request and its response, over hyper-util's pooled client.
//!
//! When a receiver closes a pooled connection, the request that was to use it is in one of two states. If the client has not begun to
//! write it, the receiver cannot have seen it, and the client sends it on another connection (`retry_canceled_requests`: hyper hands
//! such a request back, and no other). If any of it has been written, the receiver may have processed it: it is not sent again
//! (RFC 9110, 9.2.2) but the attempt fails, and the delivery's own schedule decides about the next.

use std::error::Error;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use hyper::http::Extensions;
use hyper::{Method, Request, Response, Uri};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::byte_stream::ResponseStarted;
use crate::connector::GuardedConnector;
use crate::error::AttemptFailure;
use crate::model::{Endpoint, MAX_EXCERPT, WebhookRequest, WebhookResponse};

/// Below the shortest idle timeout of common servers (2 s): an attempt fails if the server closes the connection while the request
/// is on its way.
const IDLE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Bytes of a response's status line and headers; hyper takes at most a hundred headers.
const MAX_HEAD: usize = 32 * 1024;
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

pub async fn exchange(
    client: &HttpClient,
    request: &WebhookRequest,
) -> Result<WebhookResponse, AttemptFailure> {
    let response = client.request(http_request(request)?).await;
    let response = response.map_err(|error| failure(&error, response_started(&error)))?;
    read(response).await.map_err(|error| failure(&error, true))
}

fn http_request(request: &WebhookRequest) -> Result<Request<Full<Bytes>>, AttemptFailure> {
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

fn uri(endpoint: &Endpoint, path_and_query: &str) -> Result<Uri, AttemptFailure> {
    let scheme = if endpoint.https { "https" } else { "http" };
    let Endpoint { host, port, .. } = endpoint;
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

async fn read(response: Response<Incoming>) -> Result<WebhookResponse, hyper::Error> {
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .filter(|value| value.len() <= MAX_RETRY_AFTER)
        .map(str::to_owned);
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut excerpt = Vec::new();
    // A body that is dropped before its end takes its connection with it.
    while !body.is_end_stream() && excerpt.len() < MAX_EXCERPT {
        let Some(frame) = body.frame().await else {
            break;
        };
        if let Some(data) = frame?.data_ref() {
            let room = MAX_EXCERPT - excerpt.len();
            excerpt.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    Ok(WebhookResponse {
        status,
        excerpt,
        retry_after,
    })
}

fn response_started(error: &legacy::Error) -> bool {
    let mut extras = Extensions::new();
    if let Some(connected) = error.connect_info() {
        connected.get_extras(&mut extras);
    }
    extras
        .get()
        .is_some_and(|started: &ResponseStarted| started.0.load(Ordering::Relaxed))
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
