//! Why the broker drops a message of a device. Each reason is reported at most once a minute for a device.

/// The value is the index of the device's last report.
#[derive(Debug, Clone, Copy)]
pub enum DropReason {
    Forbidden = 0,
    Oversize = 1,
    QueueFull = 2,
}

impl DropReason {
    /// The `kind` of the device's `fault` event.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Oversize => "oversize",
            Self::QueueFull => "queue_full",
        }
    }
}
