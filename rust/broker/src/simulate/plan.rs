//! What a fleet is to do: where it connects and how, what its devices are, how much they say, and how they fail.

use std::time::Duration;

use crate::topics::Profile;

#[derive(Debug, Clone)]
pub struct Identity {
    pub device_id: String,
    pub password: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    V311,
    V5,
}

/// How devices reach the broker.
#[derive(Debug, Clone)]
pub struct Route {
    pub host: String,
    pub port: u16,
    pub websocket: bool,
    /// PEM certificates to trust; with them the connection is TLS, and `host` must be one of the certificate's names.
    pub trust: Option<Vec<u8>>,
    pub protocol: Protocol,
}

/// Shares are of the fleet's devices, 0 to 1; each falls on devices of its own.
#[derive(Debug, Clone)]
pub struct Faults {
    /// Commands arrive and nothing happens.
    pub silent: f64,
    /// The last word to a command comes after `slowness`.
    pub slow: f64,
    pub slowness: Duration,
    /// The last word comes twice.
    pub duplicating: f64,
    /// The command is run and answered after its deadline.
    pub late: f64,
    /// Each device says goodbye this often, and comes back.
    pub reconnect_every: Option<Duration>,
    /// Each device closes its connection without a word this often, and comes back.
    pub dirty_every: Option<Duration>,
    /// The whole fleet closes its connections at the same moment this often, and comes back at once.
    pub storm_every: Option<Duration>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            silent: 0.0,
            slow: 0.0,
            slowness: Duration::from_secs(2),
            duplicating: 0.0,
            late: 0.0,
            reconnect_every: None,
            dirty_every: None,
            storm_every: None,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub route: Route,
    pub profile: Profile,
    /// Telemetry messages a second of the whole fleet; 0 sends as fast as confirmations come (QoS 1) or the socket takes (QoS 0).
    pub rate: f64,
    pub qos: u8,
    /// Unconfirmed QoS-1 messages of one device.
    pub window: usize,
    /// Connections being opened at the same time.
    pub connecting: usize,
    /// None: until stopped.
    pub duration: Option<Duration>,
    pub faults: Faults,
    /// Number every native telemetry message (metric `seq`) and keep which numbers were confirmed.
    pub journal: bool,
    pub threads: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            route: Route {
                host: "127.0.0.1".to_owned(),
                port: 1883,
                websocket: false,
                trust: None,
                protocol: Protocol::V311,
            },
            profile: Profile::Native,
            rate: 100.0,
            qos: 1,
            window: 20,
            connecting: 200,
            duration: None,
            faults: Faults::default(),
            journal: false,
            threads: 1,
        }
    }
}
