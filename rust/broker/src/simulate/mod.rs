//! A fleet of native devices that exists only here: for load, for demonstrations, for tests of the service.
//!
//! Each device is a real MQTT 3.1.1 client on a socket of its own. It subscribes, says that it is online, reports telemetry at its
//! share of the fleet's rate, and obeys `ON`, `OFF`, `TOGGLE` and `STATUS` with `ack`, `state` and `done`. Faults are shares of the
//! fleet: silent devices never answer a command, slow ones answer late, duplicating ones answer twice.

mod behaviour;
mod device;
mod histogram;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

pub use histogram::Histogram;

#[derive(Debug, Clone)]
pub struct Identity {
    pub device_id: String,
    pub password: String,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub host: String,
    pub port: u16,
    /// Telemetry messages a second of the whole fleet; 0 sends as fast as confirmations come (QoS 1) or the socket takes (QoS 0).
    pub rate: f64,
    pub qos: u8,
    /// Unconfirmed QoS-1 messages of one device.
    pub window: usize,
    /// Connections being opened at the same time.
    pub connecting: usize,
    /// None: until stopped.
    pub duration: Option<Duration>,
    /// Each device closes its connection without a word this often, and comes back.
    pub reconnect_every: Option<Duration>,
    pub silent: f64,
    pub duplicating: f64,
    pub slow: f64,
    pub slowness: Duration,
    pub threads: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 1883,
            rate: 100.0,
            qos: 1,
            window: 20,
            connecting: 200,
            duration: None,
            reconnect_every: None,
            silent: 0.0,
            duplicating: 0.0,
            slow: 0.0,
            slowness: Duration::from_secs(2),
            threads: 1,
        }
    }
}

/// What has happened so far. Counters; `connected` is a gauge.
#[derive(Default)]
pub struct Tally {
    pub connected: AtomicU64,
    pub connects: AtomicU64,
    pub refused: AtomicU64,
    pub failed: AtomicU64,
    pub lost: AtomicU64,
    pub sent: AtomicU64,
    pub confirmed: AtomicU64,
    pub commands: AtomicU64,
    pub results: AtomicU64,
    pub schedules: AtomicU64,
    /// From the write of a QoS-1 telemetry message to its PUBACK.
    pub confirmation: Histogram,
    /// From opening the socket to the CONNACK.
    pub connecting: Histogram,
}

impl Tally {
    pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
        let mut values = vec![
            ("connected", self.connected.load(Relaxed)),
            ("connects", self.connects.load(Relaxed)),
            ("refused", self.refused.load(Relaxed)),
            ("failed", self.failed.load(Relaxed)),
            ("lost", self.lost.load(Relaxed)),
            ("sent", self.sent.load(Relaxed)),
            ("confirmed", self.confirmed.load(Relaxed)),
            ("commands", self.commands.load(Relaxed)),
            ("results", self.results.load(Relaxed)),
            ("schedules", self.schedules.load(Relaxed)),
        ];
        let (confirmation, connecting) = (&self.confirmation, &self.connecting);
        values.extend([
            ("confirmation_p50_us", confirmation.quantile(0.5)),
            ("confirmation_p99_us", confirmation.quantile(0.99)),
            ("confirmation_max_us", confirmation.max()),
            ("connect_p50_us", connecting.quantile(0.5)),
            ("connect_p99_us", connecting.quantile(0.99)),
        ]);
        values
    }
}

/// What all devices of a running fleet share.
struct Fleet {
    plan: Plan,
    tally: Arc<Tally>,
    gate: Semaphore,
    stopping: watch::Receiver<bool>,
}

/// A fleet that runs on threads of its own until its time is over, or it is stopped or dropped.
pub struct Simulation {
    tally: Arc<Tally>,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
    started: Instant,
}

impl Simulation {
    pub fn start(plan: Plan, identities: Vec<Identity>) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(plan.threads.max(1))
            .thread_name("simulate")
            .enable_all()
            .build()?;
        let tally = Arc::new(Tally::default());
        let (stop, stopping) = watch::channel(false);
        let gate = Semaphore::new(plan.connecting.max(1));
        let fleet = Arc::new(Fleet {
            plan,
            tally: Arc::clone(&tally),
            gate,
            stopping,
        });
        let thread = std::thread::Builder::new()
            .name("simulate".to_owned())
            .spawn(move || runtime.block_on(run(fleet, identities)))?;
        Ok(Self {
            tally,
            stop,
            thread: Some(thread),
            started: Instant::now(),
        })
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Every device says goodbye; returns when all have.
    pub fn stop(&mut self) {
        self.stop.send_replace(true);
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

async fn run(fleet: Arc<Fleet>, identities: Vec<Identity>) {
    let count = identities.len().max(1);
    let mut devices = JoinSet::new();
    for (index, identity) in identities.into_iter().enumerate() {
        devices.spawn(device::live(Arc::clone(&fleet), identity, index, count));
    }
    while devices.join_next().await.is_some() {}
}
