//! Kinds of messages that are dropped, each reported at most once a minute for a device.

/// A kind of message that was dropped; the index of its last report.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    Forbidden = 0,
    Oversize = 1,
    QueueFull = 2,
}

impl Fault {
    pub fn name(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Oversize => "oversize",
            Self::QueueFull => "queue_full",
        }
    }
}
