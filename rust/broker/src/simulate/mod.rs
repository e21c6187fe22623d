//! A fleet of devices that exists only here: for load, for demonstrations, for tests of the service.
//!
//! Each device is a real MQTT client on a socket of its own, 3.1.1 or 5, over TCP, TLS or WebSocket. It speaks as the firmware of
//! its profile does: subscribes, says that it is online, reports telemetry at its share of the fleet's rate, and obeys. What goes
//! wrong with devices goes wrong here on purpose (`Faults`), and is counted.

mod behaviour;
mod device;
mod firmware;
mod histogram;
mod journal;
mod plan;
mod route;
mod speech;
mod tally;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use self::journal::Journal;
use self::route::Way;

pub use self::histogram::Histogram;
pub use self::journal::Run;
pub use self::plan::{Faults, Identity, Plan, Protocol, Route};
pub use self::tally::Tally;

/// What every device listens to beside its socket.
#[derive(Clone, Copy, Default)]
struct Signal {
    stop: bool,
    /// Each new one cuts all connections at once.
    storms: u64,
}

/// What all devices of a running fleet share.
struct Fleet {
    plan: Plan,
    way: Way,
    count: usize,
    end: Option<Instant>,
    tally: Arc<Tally>,
    journal: Arc<Journal>,
    gate: Semaphore,
    signal: watch::Receiver<Signal>,
}

impl Fleet {
    fn is_over(&self, now: Instant) -> bool {
        self.end.is_some_and(|end| now >= end)
    }
}

/// A fleet that runs on threads of its own until its time is over, or it is stopped or dropped.
pub struct Simulation {
    tally: Arc<Tally>,
    journal: Arc<Journal>,
    device_ids: Vec<String>,
    signal: watch::Sender<Signal>,
    thread: Option<std::thread::JoinHandle<()>>,
    started: Instant,
}

impl Simulation {
    /// Fails when the certificates to trust are none, or threads cannot be had.
    pub fn start(plan: Plan, identities: Vec<Identity>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(plan.threads.max(1))
            .thread_name("simulate")
            .enable_all()
            .build()?;
        let (signal, heard) = watch::channel(Signal::default());
        let numbered = if plan.journal { identities.len() } else { 0 };
        let (tally, journal) = (Arc::new(Tally::default()), Arc::new(Journal::of(numbered)));
        let fleet = Arc::new(Fleet {
            way: Way::new(plan.route.clone())?,
            count: identities.len().max(1),
            end: plan.duration.map(|duration| Instant::now() + duration),
            tally: Arc::clone(&tally),
            journal: Arc::clone(&journal),
            gate: Semaphore::new(plan.connecting.max(1)),
            signal: heard,
            plan,
        });
        let device_ids = identities
            .iter()
            .map(|each| each.device_id.clone())
            .collect();
        let storms = signal.clone();
        let thread = std::thread::Builder::new()
            .name("simulate".to_owned())
            .spawn(move || runtime.block_on(run(fleet, identities, storms)))?;
        Ok(Self {
            tally,
            journal,
            device_ids,
            signal,
            thread: Some(thread),
            started: Instant::now(),
        })
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// By device id, the numbers of the telemetry messages that were confirmed; empty runs without a journal.
    pub fn journal(&self) -> Vec<(&str, Vec<Run>)> {
        let ids = self.device_ids.iter().enumerate();
        ids.map(|(index, id)| (id.as_str(), self.journal.runs(index)))
            .collect()
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Every connection is closed without a word at this moment, and opened again at once.
    pub fn storm(&self) {
        self.signal.send_modify(|signal| signal.storms += 1);
    }

    /// Every device says goodbye; returns when all have.
    pub fn stop(&mut self) {
        self.signal.send_modify(|signal| signal.stop = true);
        if let Some(thread) = self.thread.take() {
            // A panic of the fleet has been printed by then; what was counted is still true.
            let _ = thread.join();
        }
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn run(fleet: Arc<Fleet>, identities: Vec<Identity>, signal: watch::Sender<Signal>) {
    let mut devices = JoinSet::new();
    for (index, identity) in identities.into_iter().enumerate() {
        devices.spawn(device::live(Arc::clone(&fleet), identity, index));
    }
    let storms = fleet
        .plan
        .faults
        .storm_every
        .map(|every| tokio::spawn(storm(signal, every)));
    while devices.join_next().await.is_some() {}
    if let Some(storms) = storms {
        storms.abort();
    }
}

async fn storm(signal: watch::Sender<Signal>, every: Duration) {
    loop {
        tokio::time::sleep(every.max(Duration::from_millis(100))).await;
        signal.send_modify(|signal| signal.storms += 1);
    }
}
