//! What a simulated device keeps while it disconnects and reconnects, and what all devices of a running fleet share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use latchboard_broker::FirmwareProfile;
use tokio::sync::{Semaphore, watch};

use crate::channels::{ChannelConfig, ChannelKind, SimulatedChannel};
use crate::config::{DeviceCredentials, SimulationConfig};
use crate::counters::{ReceivedPubackLog, SimulationCounters};
use crate::firmware::ReceivedCommand;
use crate::mqtt::BrokerConnector;

#[derive(Clone, Copy, Default)]
pub(crate) struct SimulationControlSignal {
    pub stop: bool,
    /// The number of reconnect storms so far; each increment closes all connections.
    pub storms: u64,
}

/// What all devices share.
pub(crate) struct SimulatedFleetContext {
    pub config: SimulationConfig,
    pub connector: BrokerConnector,
    /// The number of devices, at least 1.
    pub size: usize,
    pub end: Option<Instant>,
    pub counters: Arc<SimulationCounters>,
    pub puback_log: Arc<ReceivedPubackLog>,
    /// One permit for each connection that may be opening.
    pub connect_permits: Semaphore,
    pub signal: watch::Receiver<SimulationControlSignal>,
}

impl SimulatedFleetContext {
    pub fn is_over(&self, now: Instant) -> bool {
        self.end.is_some_and(|end| now >= end)
    }
}

/// What one device keeps from connection to connection.
pub(crate) struct SimulatedDeviceState {
    pub credentials: DeviceCredentials,
    /// The device's place in the fleet, from 0.
    pub index: usize,
    /// At least one; channel 1 is the first.
    pub channels: Vec<SimulatedChannel>,
    /// When it presses one of its inputs next, and how many presses there were.
    pub next_press: Option<Instant>,
    pub presses: usize,
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
        let mut channels = fleet.config.channels.clone();
        if channels.is_empty() || fleet.config.profile != FirmwareProfile::Native {
            channels = vec![ChannelConfig {
                kind: ChannelKind::Relay,
                name: String::new(),
            }];
        }
        let first = |every: Option<Duration>| every.map(|every| now + every.mul_f64(share));
        Self {
            reconnects: [first(faults.reconnect_every), first(faults.abrupt_reconnect_every)],
            credentials,
            index,
            channels: channels.into_iter().map(SimulatedChannel::new).collect(),
            next_press: first(fleet.config.press_every),
            presses: 0,
            sequence: 0,
            delayed_results: VecDeque::new(),
            recent_command_ids: VecDeque::new(),
        }
    }

    pub fn relay(&self) -> bool {
        self.channels.first().is_some_and(|channel| channel.on)
    }

    /// The channel of a command, if the device has it.
    pub fn channel(&mut self, command: &ReceivedCommand) -> Option<&mut SimulatedChannel> {
        command.channel.checked_sub(1).and_then(|index| self.channels.get_mut(index))
    }
}
