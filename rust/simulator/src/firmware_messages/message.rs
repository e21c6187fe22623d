//! The messages that a device of any profile sends and receives. Topics are relative to the device's prefix.

use bytes::Bytes;

pub(crate) struct SimulatedDeviceMessage {
    pub topic: String,
    pub payload: Bytes,
    pub retain: bool,
}

impl SimulatedDeviceMessage {
    pub fn new(topic: &str, payload: impl Into<Bytes>) -> Self {
        Self {
            topic: topic.to_owned(),
            payload: payload.into(),
            retain: false,
        }
    }

    pub fn retained(topic: &str, payload: impl Into<Bytes>) -> Self {
        Self {
            retain: true,
            ..Self::new(topic, payload)
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum RelayAction {
    Set(bool),
    Toggle,
    #[default]
    None,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReceivedCommand {
    /// Empty where the firmware's commands have none.
    pub id: String,
    pub action: RelayAction,
    pub expires_ms: Option<i64>,
    /// Where a Shelly sends its response.
    pub reply_to: String,
}

pub(crate) enum ParsedRequestToDevice {
    Command(ReceivedCommand),
    /// A question, with the response to it.
    Query(SimulatedDeviceMessage),
    /// A schedule, with the message that confirms it.
    Schedule(SimulatedDeviceMessage),
    Unknown,
}

pub(super) fn on_off(relay: bool) -> &'static str {
    if relay { "ON" } else { "OFF" }
}
