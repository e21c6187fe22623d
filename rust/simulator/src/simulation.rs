//! A running fleet, and the life of each of its devices: connect, run, reconnect, until the fleet's duration is over or the fleet is
//! stopped.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::config::{DeviceCredentials, SimulationConfig};
use crate::counters::{PubackSequenceRange, ReceivedPubackLog, SimulationCounters};
use crate::device::{SimulatedDeviceState, SimulatedFleetContext, SimulationControlSignal};
use crate::mqtt::BrokerConnector;
use crate::session::{RESPONSE_TIMEOUT, SessionOutcome, SimulatedDeviceSession};

/// A fleet that runs on threads of its own until its duration is over, or it is stopped or dropped.
pub struct Simulation {
    counters: Arc<SimulationCounters>,
    puback_log: Arc<ReceivedPubackLog>,
    device_ids: Vec<String>,
    signal: watch::Sender<SimulationControlSignal>,
    thread: Option<std::thread::JoinHandle<()>>,
    started: Instant,
}

impl Simulation {
    /// Fails when the trusted certificates are invalid, or the system gives no threads.
    pub fn start(config: SimulationConfig, devices: Vec<DeviceCredentials>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.threads.max(1))
            .thread_name("simulate")
            .enable_all()
            .build()?;
        let (signal, receiver) = watch::channel(SimulationControlSignal::default());
        let counters = Arc::new(SimulationCounters::default());
        let puback_log = Arc::new(ReceivedPubackLog::new(if config.puback_log { devices.len() } else { 0 }));
        let fleet = Arc::new(SimulatedFleetContext {
            connector: BrokerConnector::new(config.connection.clone())?,
            size: devices.len().max(1),
            end: config.duration.map(|duration| Instant::now() + duration),
            counters: Arc::clone(&counters),
            puback_log: Arc::clone(&puback_log),
            connect_permits: Semaphore::new(config.concurrent_connects.max(1)),
            signal: receiver,
            config,
        });
        let device_ids = devices.iter().map(|each| each.device_id.clone()).collect();
        let storm_signal = signal.clone();
        let thread = std::thread::Builder::new()
            .name("simulate".to_owned())
            .spawn(move || runtime.block_on(run_fleet(fleet, devices, storm_signal)))?;
        Ok(Self {
            counters,
            puback_log,
            device_ids,
            signal,
            thread: Some(thread),
            started: Instant::now(),
        })
    }

    pub fn counters(&self) -> &SimulationCounters {
        &self.counters
    }

    /// By device id, the sequence numbers of the acknowledged telemetry messages; empty ranges unless the configuration asks for them.
    pub fn puback_log(&self) -> Vec<(&str, Vec<PubackSequenceRange>)> {
        let ids = self.device_ids.iter().enumerate();
        ids.map(|(index, id)| (id.as_str(), self.puback_log.ranges(index))).collect()
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Every device closes its connection without a DISCONNECT now, and reconnects at once.
    pub fn reconnect_storm(&self) {
        self.signal.send_modify(|signal| signal.storms += 1);
    }

    /// Every device disconnects; returns when all have.
    pub fn stop(&mut self) {
        self.signal.send_modify(|signal| signal.stop = true);
        if let Some(thread) = self.thread.take() {
            // A panic of the fleet's thread has been printed; the counters are still true.
            let _ = thread.join();
        }
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn run_fleet(
    fleet: Arc<SimulatedFleetContext>,
    devices: Vec<DeviceCredentials>,
    signal: watch::Sender<SimulationControlSignal>,
) {
    let mut running = JoinSet::new();
    for (index, credentials) in devices.into_iter().enumerate() {
        running.spawn(run_device(Arc::clone(&fleet), credentials, index));
    }
    let storm_every = fleet.config.faults.reconnect_storm_every;
    let storms = storm_every.map(|every| tokio::spawn(repeat_storms(signal, every)));
    while running.join_next().await.is_some() {}
    if let Some(storms) = storms {
        storms.abort();
    }
}

async fn repeat_storms(signal: watch::Sender<SimulationControlSignal>, every: Duration) {
    loop {
        tokio::time::sleep(every.max(Duration::from_millis(100))).await;
        signal.send_modify(|signal| signal.storms += 1);
    }
}

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
