//! The embedded MQTT broker, for devices only: version 3.1.1 and 5, over TCP, TLS and WebSocket.
//!
//! A device authenticates with its own password, publishes and subscribes below its own topic prefix, and exchanges messages with the
//! service only; no message goes from one device to another. So there is no routing table: one queue for what devices send
//! (`inbound_queue`), and for what they are sent the open connections of each device (`state`).
//!
//! Laws:
//! - a QoS-1 publish is acknowledged to its device when the service acknowledges the batch that holds it, never before;
//! - every queue and buffer has a limit: what cannot be queued is not read from the socket;
//! - no connection waits for what another connection does.
//!
//! `wire` reads and writes MQTT packets with `rmqtt-codec`. A connection goes through `listener`, `session`, `device`.

mod addresses;
mod broker;
mod connection_handle;
mod device;
mod inbound_queue;
mod limits;
mod listener;
mod session;
mod state;
mod stats;
mod tls;
pub mod topic_authorization;
pub mod transport;
mod unauthenticated_connections;
mod wire;

pub use addresses::IpNetwork;
pub use broker::{Broker, BrokerStartError, OutboundMessage};
pub use connection_handle::EnqueueResult;
pub use inbound_queue::{BrokerDeviceEvent, BrokerInboundBatch, RawTelemetryMessage, now_ms, set_now_ms};
pub use limits::BrokerLimits;
pub use listener::{MqttListenAddress, TransportKind};
pub use tls::ServerCertificate;
pub use topic_authorization::FirmwareProfile;
