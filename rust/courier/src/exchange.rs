//! One request and its answer.
//!
//! The receiver may close a kept connection in the moment it is used. Such a connection ends without a byte of an answer, and then
//! the parcel goes out once more on a new one, within the same deadline: a receiver knows a delivery that it gets twice by its id.
//! On a connection of its own, or once an answer has begun, a parcel is never sent again.

use std::error::Error;
use std::io;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response};
use tokio_rustls::TlsConnector;

use crate::dial::{Questions, dial};
use crate::model::{Answer, EXCERPT, Failure, Parcel};
use crate::outbox::Outbox;
use crate::pool::{Line, Pool};

const LONGEST_RETRY_AFTER: usize = 64;

pub struct Roads {
    pub pool: Pool,
    pub questions: Questions,
    pub outbox: Outbox,
    pub tls: TlsConnector,
}

pub async fn exchange(roads: &Roads, parcel: &Parcel) -> Result<Answer, Failure> {
    let request = request(parcel)?;
    if let Some(mut line) = roads.pool.take(&parcel.endpoint) {
        line.heard.reset();
        match ask(&mut line, request.clone()).await {
            Ok((answer, whole)) => return Ok(done(roads, parcel, line, answer, whole)),
            Err(failure) if line.heard.anything() => return Err(failure),
            Err(_) => {}
        }
    }
    let mut line = dial(
        &parcel.endpoint,
        &roads.questions,
        &roads.outbox,
        &roads.tls,
    )
    .await?;
    let (answer, whole) = ask(&mut line, request).await?;
    Ok(done(roads, parcel, line, answer, whole))
}

/// Keep the line when there is nothing of this answer left on it.
fn done(roads: &Roads, parcel: &Parcel, line: Line, answer: Answer, whole: bool) -> Answer {
    if whole {
        roads.pool.put(&parcel.endpoint, line);
    }
    answer
}

fn request(parcel: &Parcel) -> Result<Request<Full<Bytes>>, Failure> {
    let unsendable = |what: &dyn std::fmt::Display| Failure::Unsendable(what.to_string());
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&parcel.target)
        .body(Full::new(parcel.body.clone()))
        .map_err(|error| unsendable(&error))?;
    let headers = request.headers_mut();
    for (name, value) in &parcel.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| unsendable(&error))?;
        let value = HeaderValue::from_str(value).map_err(|error| unsendable(&error))?;
        headers.append(name, value);
    }
    Ok(request)
}

async fn ask(line: &mut Line, request: Request<Full<Bytes>>) -> Result<(Answer, bool), Failure> {
    let heard = line.heard.clone();
    let failed = |error: hyper::Error| failure(&error, heard.anything());
    line.sender.ready().await.map_err(failed)?;
    let response = line.sender.send_request(request).await.map_err(failed)?;
    read(response).await.map_err(failed)
}

/// The answer, and whether it was read to its end.
async fn read(response: Response<Incoming>) -> Result<(Answer, bool), hyper::Error> {
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .filter(|value| value.len() <= LONGEST_RETRY_AFTER)
        .map(str::to_owned);
    let mut answer = Answer {
        status: response.status().as_u16(),
        excerpt: Vec::new(),
        retry_after,
    };
    let mut body = response.into_body();
    while !body.is_end_stream() && answer.excerpt.len() < EXCERPT {
        let Some(frame) = body.frame().await else {
            return Ok((answer, true));
        };
        if let Some(data) = frame?.data_ref() {
            let room = EXCERPT - answer.excerpt.len();
            answer
                .excerpt
                .extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    let whole = body.is_end_stream();
    Ok((answer, whole))
}

fn failure(error: &hyper::Error, heard: bool) -> Failure {
    if let Some(io) = io_error(error) {
        return match io.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Failure::Reset,
            io::ErrorKind::UnexpectedEof if heard => Failure::Cut,
            io::ErrorKind::UnexpectedEof => Failure::Closed,
            _ => Failure::Io(io.raw_os_error().unwrap_or(0), io.to_string()),
        };
    }
    if error.is_parse() {
        return Failure::NotHttp(error.to_string());
    }
    if heard { Failure::Cut } else { Failure::Closed }
}

fn io_error(error: &hyper::Error) -> Option<&io::Error> {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref() {
            return Some(io);
        }
        cause = inner.source();
    }
    None
}
