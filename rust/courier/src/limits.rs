//! How much and how long.

use std::time::Duration;

/// Bytes of a response body that are kept for the delivery log.
pub const MAX_EXCERPT: usize = 4096;
/// Bytes of the longest response body. A receiver that sends more has accepted nothing.
pub const MAX_RESPONSE: usize = 1024 * 1024;

/// How long a request waits for a slot of its queue. Its timestamp and the permission to send it must not grow old here.
pub const QUEUE_TIMEOUT: Duration = Duration::from_millis(250);
