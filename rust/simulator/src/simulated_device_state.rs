//! What a simulated device keeps while it disconnects and reconnects.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::DeviceCredentials;
use crate::firmware_messages::ReceivedCommand;
use crate::fleet_context::SimulatedFleetContext;

pub(crate) struct SimulatedDeviceState {
    pub credentials: DeviceCredentials,
    /// The device's place in the fleet, from 0.
    pub index: usize,
    pub relay: bool,
    /// Number of the next telemetry message.
    pub sequence: u64,
    /// Results to send later, earliest first.
    pub delayed_results: VecDeque<(Instant, ReceivedCommand)>,
    /// Ids of the last commands, so that a repeated one is not run again.
    pub recent_command_ids: VecDeque<String>,
    /// When it reconnects next: after a DISCONNECT, and without one.
    pub reconnects: [Option<Instant>; 2],
}

impl SimulatedDeviceState {
    pub fn new(fleet: &SimulatedFleetContext, credentials: DeviceCredentials, index: usize) -> Self {
        let (faults, now) = (&fleet.config.faults, Instant::now());
        // Spread over the interval, so that the devices do not reconnect together.
        let share = 0.5 + (index as f64 + 0.5) / fleet.size as f64;
        let first = |every: Option<Duration>| every.map(|every| now + every.mul_f64(share));
        Self {
            reconnects: [first(faults.reconnect_every), first(faults.abrupt_reconnect_every)],
            credentials,
            index,
            relay: false,
            sequence: 0,
            delayed_results: VecDeque::new(),
            recent_command_ids: VecDeque::new(),
        }
    }
}
