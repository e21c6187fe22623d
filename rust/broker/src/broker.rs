//! The broker as its owner sees it: start, stop, let in, cut, take, send.
//!
//! Every call but `start` and `stop` is short, never waits, and may come from any thread.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use bytestring::ByteString;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};

use crate::connection::{Close, Delivery, Downlink};
use crate::limits::Limits;
use crate::listener::{self, Listen, Tls};
use crate::registry::Registry;
use crate::stats::Stats;
use crate::topics::{Profile, ROOT};
use crate::uplink::{Batch, Uplink};

/// What every connection shares.
pub struct Shared {
    pub registry: Registry,
    pub uplink: Uplink,
    pub stats: Arc<Stats>,
    pub limits: Limits,
    pub places: Arc<Semaphore>,
    pub stopping: watch::Sender<bool>,
    client_ids: AtomicU64,
}

impl Shared {
    /// For a client that asked for one; it need only differ from the others of its own device.
    pub fn new_client_id(&self) -> ByteString {
        format!("auto-{}", self.client_ids.fetch_add(1, Ordering::Relaxed)).into()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {host}:{port}: {source}")]
    Listen {
        host: String,
        port: u16,
        source: std::io::Error,
    },
    #[error("{0}")]
    Tls(String),
    #[error("cannot start the broker's threads: {0}")]
    Threads(#[from] std::io::Error),
    #[error("the broker has been started before")]
    Again,
}

/// A message to one device. `topic` is below its prefix.
pub struct Outgoing {
    pub device_id: String,
    pub topic: String,
    pub payload: Bytes,
    pub qos: u8,
    pub retain: bool,
    pub expiry: Option<Duration>,
}

pub struct Broker {
    shared: Arc<Shared>,
    runtime: Mutex<Option<Runtime>>,
    addresses: Mutex<Vec<SocketAddr>>,
}

/// `stop` waits so long for connections to say goodbye, then drops what is left.
const GRACE: Duration = Duration::from_millis(1200);

impl Broker {
    pub fn new(limits: Limits) -> std::io::Result<Self> {
        let stats = Arc::new(Stats::default());
        let mut key = [0u8; 32];
        getrandom::fill(&mut key).map_err(std::io::Error::from)?;
        let shared = Shared {
            registry: Registry::new(key),
            uplink: Uplink::new(limits.uplink_bytes, Arc::clone(&stats))?,
            stats,
            places: Arc::new(Semaphore::new(limits.connections)),
            limits,
            stopping: watch::Sender::new(false),
            client_ids: AtomicU64::new(1),
        };
        Ok(Self {
            shared: Arc::new(shared),
            runtime: Mutex::new(None),
            addresses: Mutex::new(Vec::new()),
        })
    }

    /// Listen on all addresses or on none.
    pub fn start(&self, listens: &[Listen], tls: Option<&Tls>) -> Result<(), StartError> {
        let mut slot = self.runtime.lock();
        if slot.is_some() || *self.shared.stopping.borrow() {
            return Err(StartError::Again);
        }
        let acceptor = tls
            .map(Tls::acceptor)
            .transpose()
            .map_err(StartError::Tls)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.shared.limits.threads.max(1))
            .thread_name("broker")
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let bound: Vec<_> = listens.iter().map(bind).collect::<Result<_, _>>()?;
        for ((listener, address), listen) in bound.into_iter().zip(listens) {
            let acceptor = if listen.tls {
                Some(acceptor.clone().ok_or_else(no_certificate)?)
            } else {
                None
            };
            self.addresses.lock().push(address);
            let shared = Arc::clone(&self.shared);
            runtime.spawn(listener::listen(
                listener,
                listen.transport,
                acceptor,
                shared,
            ));
        }
        drop(entered);
        *slot = Some(runtime);
        Ok(())
    }

    /// Where it listens, in the order in which it was told to.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.lock().clone()
    }

    /// Let every device go. What has been queued may still be taken and acknowledged, to nobody's ears.
    pub fn stop(&self) {
        self.shared.stopping.send_replace(true);
        self.shared.registry.close_all(Close::Stopping);
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            let deadline = Instant::now() + GRACE;
            while self.shared.stats.sockets.get() > 0 && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
                // A connection that was being let in while we went through the list.
                self.shared.registry.close_all(Close::Stopping);
            }
            runtime.shutdown_timeout(Duration::from_millis(200));
        }
        self.shared.uplink.close();
    }

    pub fn admit(&self, device_id: &str, number: u32, password: &str, profile: Profile) {
        self.shared
            .registry
            .admit(device_id, number, password, profile, &self.shared.limits);
    }

    pub fn expel(&self, device_id: &str) -> bool {
        self.shared.registry.expel(device_id)
    }

    /// Cut the device's connections; it may come back.
    pub fn kick(&self, device_id: &str) -> bool {
        self.shared.registry.kick(device_id)
    }

    pub fn connected(&self, device_id: &str) -> bool {
        self.shared.registry.connected(device_id)
    }

    /// When the device has last subscribed (Unix ms; 0: never), as its event says, which may still be on its way.
    pub fn subscribed_ms(&self, device_id: &str) -> i64 {
        self.shared.registry.subscribed_ms(device_id)
    }

    /// Whether a live connection of the device has taken the message into its queue.
    pub fn publish(&self, message: Outgoing) -> bool {
        let Outgoing {
            device_id,
            topic,
            payload,
            qos,
            retain,
            expiry,
        } = message;
        let downlink = Downlink {
            topic: format!("{ROOT}{device_id}/{topic}").into(),
            payload,
            qos: qos.min(1),
            retain,
            dup: false,
            deadline: expiry.map(|expiry| Instant::now() + expiry),
        };
        let deliveries =
            self.shared
                .registry
                .publish(&device_id, &topic, &downlink, &self.shared.limits);
        if deliveries.contains(&Delivery::Full) {
            self.shared.stats.downlink_queue_full.one();
        }
        let heard = deliveries.contains(&Delivery::Queued);
        if !heard {
            self.shared.stats.downlink_unheard.one();
        }
        heard
    }

    pub fn take(&self, limit: usize) -> Option<Batch> {
        self.shared.uplink.take(limit)
    }

    pub fn is_stopped(&self) -> bool {
        self.shared.uplink.is_closed()
    }

    /// Readable exactly while there is something to take, and for ever once the broker has stopped.
    pub fn descriptor(&self) -> RawFd {
        self.shared.uplink.descriptor()
    }

    /// Counters since the start, and gauges of now. Looks at every device once: for a metrics page, not for a loop.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.shared.stats.snapshot();
        let depths = self.shared.registry.depths();
        counters.extend([
            ("devices_admitted", depths.devices),
            ("downlink_queue", depths.waiting),
            ("downlink_unacknowledged", depths.unacknowledged),
            ("sessions_stored", depths.stored),
        ]);
        counters
    }
}

fn bind(listen: &Listen) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen {
        host: listen.host.clone(),
        port: listen.port,
        source,
    };
    let listener = listener::bind(listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn no_certificate() -> StartError {
    StartError::Tls("a TLS port needs a certificate and a key".to_owned())
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop();
    }
}
