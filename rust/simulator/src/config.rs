//! The configuration of a fleet: where and how it connects, its firmware, its telemetry rate, and its faults.

use std::time::Duration;

use latchboard_broker::FirmwareProfile;

use crate::channels::ChannelConfig;

#[derive(Debug, Clone)]
pub struct DeviceCredentials {
    pub device_id: String,
    pub password: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MqttVersion {
    V311,
    V5,
}

/// How devices reach the broker.
#[derive(Debug, Clone)]
pub struct SimulatorConnectionConfig {
    pub host: String,
    pub port: u16,
    pub websocket: bool,
    /// PEM certificates. With them the connection is TLS, and `host` must be one of the server certificate's names.
    pub trusted_certificates: Option<Vec<u8>>,
    pub mqtt_version: MqttVersion,
}

/// Faults to inject. Shares are of the fleet's devices, 0 to 1; each fault selects other devices.
#[derive(Debug, Clone, Default)]
pub struct FaultConfig {
    /// The share that ignores commands.
    pub silent: f64,
    /// The share that sends the result of a command after `slow_delay`.
    pub slow: f64,
    pub slow_delay: Duration,
    /// The share that sends the result twice.
    pub duplicate: f64,
    /// The share that runs a command and answers it after its deadline.
    pub late: f64,
    /// How often each device disconnects and reconnects.
    pub reconnect_every: Option<Duration>,
    /// How often each device closes its connection without a DISCONNECT and reconnects.
    pub abrupt_reconnect_every: Option<Duration>,
    /// How often all devices close their connections without a DISCONNECT at the same moment and reconnect at once.
    pub reconnect_storm_every: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct SimulationConfig {
    pub connection: SimulatorConnectionConfig,
    pub profile: FirmwareProfile,
    /// The channels of each device of the native profile; empty: one relay.
    pub channels: Vec<ChannelConfig>,
    /// About how often each device presses one of its inputs; None: never.
    pub press_every: Option<Duration>,
    /// Telemetry messages a second of the whole fleet; 0 sends as fast as PUBACKs arrive (QoS 1) or the socket accepts (QoS 0).
    pub rate: f64,
    pub qos: u8,
    /// Unacknowledged QoS-1 messages of one device.
    pub max_inflight: usize,
    /// Connections that may be opening at the same time.
    pub concurrent_connects: usize,
    /// None: until stopped.
    pub duration: Option<Duration>,
    pub faults: FaultConfig,
    /// Number every telemetry message of the native profile (metric `seq`) and keep the numbers that were acknowledged.
    pub puback_log: bool,
    pub threads: usize,
}
