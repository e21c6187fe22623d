//! The embedded MQTT broker: what devices need, and nothing that only other clients of a broker would.
//!
//! A device logs in with its own password, publishes and subscribes below its own prefix, and talks to the service alone: no
//! message ever travels from one device to another. So there is no routing table, only one queue upward (`uplink`) and, per
//! device, a handful of connections downward (`registry`).
//!
//! Three laws hold everywhere:
//! - a QoS-1 message is confirmed to its device when the batch that holds it is acknowledged, never before;
//! - nothing grows without a bound: what cannot be queued is not read from the socket;
//! - whatever one device or stranger does on its connection, no other connection waits for it.
//!
//! MQTT packets are read and written by `rmqtt-codec` behind `wire`; everything above it is ours.

mod broker;
mod bucket;
mod clock;
mod connection;
mod device;
mod fault;
mod limits;
mod listener;
mod registry;
mod session;
pub mod simulate;
mod stats;
pub mod topics;
mod transport;
mod uplink;
mod wire;

pub use broker::{Broker, Outgoing, StartError};
pub use limits::Limits;
pub use listener::{Listen, Tls, Transport};
pub use topics::Profile;
pub use uplink::{Batch, Event, TelemetryMessage};
