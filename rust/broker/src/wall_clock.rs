//! The wall clock. The broker stamps a message when it reads it from the socket.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix milliseconds.
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_millis() as i64)
}
