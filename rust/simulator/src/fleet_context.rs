//! What all devices of a running fleet share.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Semaphore, watch};

use crate::broker_connector::BrokerConnector;
use crate::config::SimulationConfig;
use crate::counters::SimulationCounters;
use crate::puback_log::ReceivedPubackLog;

#[derive(Clone, Copy, Default)]
pub(crate) struct SimulationControlSignal {
    pub stop: bool,
    /// The number of reconnect storms so far; each increment closes all connections.
    pub storms: u64,
}

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
