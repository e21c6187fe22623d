//! The life of a device: connect, run, reconnect, until the fleet's duration is over or the fleet is stopped.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;

use crate::config::DeviceCredentials;
use crate::counters::SimulationCounters;
use crate::fleet_context::{SimulatedFleetContext, SimulationControlSignal};
use crate::session::{RESPONSE_TIMEOUT, SessionOutcome, SimulatedDeviceSession};
use crate::simulated_device_state::SimulatedDeviceState;

/// The pause after a connection; doubled with each failed attempt to connect, up to `MAX_BACKOFF`.
const MIN_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(15);
/// In a reconnect storm all devices reconnect at once; the sockets get a moment to close.
const STORM_PAUSE: Duration = Duration::from_millis(10);

pub(crate) async fn run_device(fleet: Arc<SimulatedFleetContext>, credentials: DeviceCredentials, index: usize) {
    let mut signal = fleet.signal.clone();
    let mut device = SimulatedDeviceState::new(&fleet, credentials, index);
    let mut pause = MIN_BACKOFF;
    while !fleet.is_over(Instant::now()) {
        pause = match run_session(&fleet, &mut device, &mut signal).await {
            Ok(SessionOutcome::Finished) => return,
            Ok(SessionOutcome::Storm) => STORM_PAUSE,
            Ok(SessionOutcome::Reconnect { .. } | SessionOutcome::Lost) => MIN_BACKOFF,
            Err(_) => (pause * 2).clamp(MIN_BACKOFF, MAX_BACKOFF),
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = stopped(&mut signal) => return,
        }
    }
}

async fn stopped(signal: &mut watch::Receiver<SimulationControlSignal>) {
    // An error means that the simulation was dropped, which stops it too.
    let _ = signal.wait_for(|signal| signal.stop).await;
}

async fn run_session(
    fleet: &SimulatedFleetContext,
    device: &mut SimulatedDeviceState,
    signal: &mut watch::Receiver<SimulationControlSignal>,
) -> io::Result<SessionOutcome> {
    let storms = signal.borrow().storms;
    let opened = tokio::select! {
        opened = open_session(fleet, device) => opened,
        () = stopped(signal) => return Ok(SessionOutcome::Finished),
    };
    let mut session = opened?;
    SimulationCounters::increment(&fleet.counters.connected);
    let end = {
        let interrupted = signal.wait_for(|signal| signal.stop || signal.storms != storms);
        tokio::pin!(interrupted);
        tokio::select! {
            end = session.run() => end,
            signal = interrupted => match signal {
                Ok(signal) if !signal.stop => Ok(SessionOutcome::Storm),
                _ => Ok(SessionOutcome::Finished),
            },
        }
    };
    let end = end.unwrap_or(SessionOutcome::Lost);
    session.close(&end).await;
    Ok(end)
}

async fn open_session<'f>(
    fleet: &'f SimulatedFleetContext,
    device: &'f mut SimulatedDeviceState,
) -> io::Result<SimulatedDeviceSession<'f>> {
    let permit = fleet.connect_permits.acquire().await;
    let _permit = permit.map_err(io::Error::other)?;
    let opening = tokio::time::timeout(RESPONSE_TIMEOUT, SimulatedDeviceSession::open(fleet, device)).await;
    opening.unwrap_or_else(|timeout| Err(timeout.into())).inspect_err(|error| {
        let refused = error.kind() == io::ErrorKind::PermissionDenied;
        let counters = &fleet.counters;
        SimulationCounters::increment(if refused { &counters.refused } else { &counters.failed });
    })
}
