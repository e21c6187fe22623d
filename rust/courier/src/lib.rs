//! Carries webhook posts: many at a time, over kept connections, on a thread of its own.
//!
//! Parcels go in as a batch and their outcomes come out as a batch; between the two no Python runs, except where a new connection
//! asks where its host is (`News::Where`): names are looked up, and addresses judged, by whoever owns the courier, and it connects
//! to what it is told and to nothing else. HTTP is hyper's, TLS is rustls with the system's certificates.
//!
//! Laws:
//! - one deadline covers look-up, connection, TLS, sending and the answer to its end;
//! - of an answer at most `EXCERPT` bytes are read and none is decoded; nothing is followed;
//! - of one lane only so many are sent at once, the others wait here, and not for long;
//! - each parcel has one outcome, unless it is cut: then nothing more is sent or said of it.

mod courier;
mod dial;
mod exchange;
mod lanes;
mod model;
mod outbox;
mod pool;
mod stream;
mod tls;

pub use courier::{Courier, StartError};
pub use model::{Answer, Endpoint, Failure, News, Outcome, Parcel};
