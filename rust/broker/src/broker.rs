//! The broker as the service sees it: start and stop it, set credentials, disconnect devices, take inbound batches, publish.
//!
//! Law: every call but `start` and `stop` is short, never waits, and may come from any thread.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::connection_handle::{CloseReason, EnqueueResult, OutboundPublish};
use crate::inbound_queue::BrokerInboundBatch;
use crate::limits::BrokerLimits;
use crate::listener::{self, MqttListenAddress};
use crate::state::BrokerState;
use crate::tls::ServerCertificate;
use crate::topic_authorization::{FirmwareProfile, TOPIC_ROOT};

#[derive(Debug, thiserror::Error)]
pub enum BrokerStartError {
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
    #[error("the broker was already started")]
    AlreadyStarted,
}

/// A message to one device. `topic` is relative to the device's prefix.
pub struct OutboundMessage {
    pub device_id: String,
    pub topic: String,
    pub payload: Bytes,
    pub qos: u8,
    pub retain: bool,
    pub expiry: Option<Duration>,
}

pub struct Broker {
    shared: Arc<BrokerState>,
    runtime: Mutex<Option<Runtime>>,
    addresses: Mutex<Vec<SocketAddr>>,
}

/// How long `stop` waits for connections to close before it drops the rest.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(1200);

impl Broker {
    /// Fails when the system gives no random bytes or no socket pair.
    pub fn new(limits: BrokerLimits) -> std::io::Result<Self> {
        Ok(Self {
            shared: Arc::new(BrokerState::new(limits)?),
            runtime: Mutex::new(None),
            addresses: Mutex::new(Vec::new()),
        })
    }

    /// Listen on all addresses or on none.
    pub fn start(
        &self,
        listen_on: &[MqttListenAddress],
        certificate: Option<&ServerCertificate>,
    ) -> Result<(), BrokerStartError> {
        let mut slot = self.runtime.lock();
        if slot.is_some() || *self.shared.shutdown.borrow() {
            return Err(BrokerStartError::AlreadyStarted);
        }
        let acceptor = certificate
            .map(ServerCertificate::acceptor)
            .transpose()
            .map_err(BrokerStartError::Tls)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.shared.limits.threads.max(1))
            .thread_name("broker")
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let bound: Vec<_> = listen_on.iter().map(bind).collect::<Result<_, _>>()?;
        for ((listener, local), address) in bound.into_iter().zip(listen_on) {
            let acceptor = if address.tls {
                Some(acceptor.clone().ok_or_else(missing_certificate)?)
            } else {
                None
            };
            self.addresses.lock().push(local);
            let shared = Arc::clone(&self.shared);
            runtime.spawn(listener::accept_loop(listener, address.transport, acceptor, shared));
        }
        drop(entered);
        *slot = Some(runtime);
        Ok(())
    }

    /// The bound addresses, in the order of `start`.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.lock().clone()
    }

    /// Close every connection. Queued messages can still be taken, but their acknowledgements reach no device.
    pub fn stop(&self) {
        self.shared.shutdown.send_replace(true);
        self.shared.registry.close_all(CloseReason::ShuttingDown);
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            let deadline = Instant::now() + SHUTDOWN_GRACE;
            while self.shared.stats.sockets.get() > 0 && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
                // A connection may have been accepted while `close_all` ran.
                self.shared.registry.close_all(CloseReason::ShuttingDown);
            }
            runtime.shutdown_timeout(Duration::from_millis(200));
        }
        self.shared.inbound_queue.close();
    }

    /// Close every connection and stop listening until `resume`: devices are to connect to another instance.
    pub fn suspend(&self) {
        self.shared.suspended.send_replace(true);
        self.shared.registry.close_all(CloseReason::ShuttingDown);
    }

    /// Listen again, on the same ports.
    pub fn resume(&self) {
        self.shared.suspended.send_replace(false);
    }

    /// Let a device connect with this password; connections with another password, number or profile are closed.
    pub fn upsert_credentials(&self, device_id: &str, number: u32, password: &str, profile: FirmwareProfile) {
        let (registry, limits) = (&self.shared.registry, &self.shared.limits);
        registry.upsert_credentials(device_id, number, password, profile, limits);
    }

    /// Close the device's connections and refuse it from now on. False for an unknown device.
    pub fn remove_device(&self, device_id: &str) -> bool {
        self.shared.registry.remove_device(device_id)
    }

    /// Close the device's connections, because it has connected to another instance. Whether there was one.
    pub fn disconnect_device(&self, device_id: &str) -> bool {
        let device = self.shared.registry.find(device_id);
        device.is_some_and(|device| device.close_for_other_instance())
    }

    pub fn is_connected(&self, device_id: &str) -> bool {
        let device = self.shared.registry.find(device_id);
        device.is_some_and(|device| device.is_connected())
    }

    /// When the device last subscribed (Unix ms; 0: never). Its subscribe event has the same time and may still be queued.
    pub fn last_subscribed_ms(&self, device_id: &str) -> i64 {
        let device = self.shared.registry.find(device_id);
        device.map_or(0, |device| device.last_subscribed_ms())
    }

    /// Bytes; the Maximum Packet Size that the device's last connection announced. None without a limit.
    pub fn max_packet_size(&self, device_id: &str) -> Option<u32> {
        let device = self.shared.registry.find(device_id);
        device.and_then(|device| device.max_packet_size())
    }

    /// `Queued` when the message was queued for at least one open connection of the device.
    pub fn publish(&self, message: OutboundMessage) -> EnqueueResult {
        let publish = OutboundPublish {
            topic: format!("{TOPIC_ROOT}{}/{}", message.device_id, message.topic).into(),
            payload: message.payload,
            qos: message.qos.min(1),
            retain: message.retain,
            expires: message.expiry.map(|expiry| Instant::now() + expiry),
        };
        let device = self.shared.registry.find(&message.device_id);
        let limits = &self.shared.limits;
        let results = device.map_or_else(Vec::new, |device| device.publish(&message.topic, &publish, limits));
        let (counts, any) = (&self.shared.stats, |result| results.contains(&result));
        if any(EnqueueResult::QueueFull) {
            counts.outbound_queue_full.increment();
        }
        if any(EnqueueResult::Queued) {
            EnqueueResult::Queued
        } else if any(EnqueueResult::TooLarge) {
            counts.outbound_too_large.increment();
            EnqueueResult::TooLarge
        } else {
            counts.outbound_no_subscriber.increment();
            results.first().copied().unwrap_or(EnqueueResult::NotSubscribed)
        }
    }

    /// At most `limit` messages and events; None when there are none.
    pub fn take(&self, limit: usize) -> Option<BrokerInboundBatch> {
        self.shared.inbound_queue.take(limit)
    }

    pub fn is_stopped(&self) -> bool {
        self.shared.inbound_queue.is_closed()
    }

    /// Readable exactly while `take` would return a batch, and always after `stop`.
    pub fn descriptor(&self) -> RawFd {
        self.shared.inbound_queue.descriptor()
    }

    /// Counters since the start, and gauges. Locks each device once: for a metrics page, not for a loop.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let mut values = self.shared.stats.snapshot();
        let depths = self.shared.registry.depths();
        let (pending, banned_addresses) = self.shared.pending.counts(Instant::now());
        values.extend([
            ("pending", pending as u64),
            ("banned_addresses", banned_addresses as u64),
            ("devices_admitted", depths.devices),
            ("outbound_queue", depths.outbound_pending),
            ("outbound_unacknowledged", depths.outbound_inflight),
            ("sessions_stored", depths.stored_sessions),
        ]);
        values
    }
}

fn bind(address: &MqttListenAddress) -> Result<(TcpListener, SocketAddr), BrokerStartError> {
    let failed = |source| BrokerStartError::Listen {
        host: address.host.clone(),
        port: address.port,
        source,
    };
    let listener = listener::bind(address).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok((listener, local))
}

fn missing_certificate() -> BrokerStartError {
    BrokerStartError::Tls("a TLS listener needs a certificate and a key".to_owned())
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop();
    }
}
