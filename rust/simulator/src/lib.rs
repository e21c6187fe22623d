//! A simulated fleet of devices, for load, demonstrations and tests of the service.
//!
//! Law: each device is a real MQTT client, 3.1.1 or 5, on a socket of its own over TCP, TLS or WebSocket. It behaves as the firmware of
//! its profile does: it subscribes, publishes that it is online, publishes telemetry at its share of the fleet's rate, and runs
//! commands. Faults of real devices are injected on request (`FaultConfig`) and counted.
//!
//! Read `config`, `simulation`, `device`, `channels`, then `session` and `commands`, then `firmware`.

mod channels;
mod commands;
mod config;
mod counters;
mod device;
mod firmware;
mod mqtt;
mod session;
mod simulation;

pub use channels::{ChannelConfig, ChannelKind};
pub use config::{DeviceCredentials, FaultConfig, MqttVersion, SimulationConfig, SimulatorConnectionConfig};
pub use counters::{LatencyHistogram, PubackSequenceRange, SimulationCounters};
pub use simulation::Simulation;
