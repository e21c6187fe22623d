//! A simulated fleet of devices, for load, demonstrations and tests of the service.
//!
//! Law: each device is a real MQTT client, 3.1.1 or 5, on a socket of its own over TCP, TLS or WebSocket. It behaves as the firmware of
//! its profile does: it subscribes, publishes that it is online, publishes telemetry at its share of the fleet's rate, and runs
//! commands. Faults of real devices are injected on request (`FaultConfig`) and counted.
//!
//! Read `config`, `simulation`, `device_loop`, then `session` and `session_loop`, then `firmware_messages`.

mod broker_connector;
mod command_handling;
mod config;
mod counters;
mod device_loop;
mod firmware_messages;
mod fleet_context;
mod histogram;
mod mqtt_client;
mod mqtt_packets;
mod puback_log;
mod session;
mod session_loop;
mod simulated_device_state;
mod simulation;

pub use config::{DeviceCredentials, FaultConfig, MqttVersion, SimulationConfig, SimulatorConnectionConfig};
pub use counters::SimulationCounters;
pub use histogram::LatencyHistogram;
pub use puback_log::PubackSequenceRange;
pub use simulation::Simulation;
