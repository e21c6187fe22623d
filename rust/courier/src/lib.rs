//! Sends webhook requests: many at a time, over pooled connections, on a thread of its own.
//!
//! Requests go in as a batch and their results come out as a batch. No Python runs in between, except when a new connection needs an
//! address (`HttpCourierEvent::LookupRequested`): the owner of the courier resolves the name and checks the addresses, and the courier
//! connects to the addresses it gets and to no others. HTTP/1.1 is hyper's, pooling hyper-util's, TLS rustls' with the system's
//! certificates.
//!
//! Laws:
//! - one timeout covers lookup, connection, TLS, the request and the response;
//! - at most `MAX_EXCERPT` bytes of a response body are kept and nothing is decoded; redirects are not followed;
//! - the requests of one queue are sent a few at a time, the others wait here for at most `QUEUE_TIMEOUT`;
//! - every request has one result, unless it is cancelled: then nothing more is sent or reported;
//! - a request that a receiver may have read is never sent again.

mod connection;
mod courier;
mod events;
mod http_exchange;
mod model;

pub use courier::Courier;
pub use model::{
    AttemptFailure, AttemptResult, CourierStartError, HttpCourierEvent, HttpOrigin, OutboundHttpRequest, OutboundHttpResponse,
};
