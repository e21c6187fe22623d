//! One connection of a simulated device: how it opens and closes, and the messages it publishes.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use latchboard_broker::topic_authorization::TOPIC_ROOT;
use latchboard_broker::wall_clock::now_ms;

use crate::counters::SimulationCounters;
use crate::firmware_messages::{self, SimulatedDeviceMessage};
use crate::fleet_context::SimulatedFleetContext;
use crate::mqtt_client::MqttClient;
use crate::simulated_device_state::SimulatedDeviceState;

pub(crate) const KEEP_ALIVE_S: u16 = 60;
/// How long the broker may take to accept a connection, or to read the last packets of one.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// How a session ended.
pub(crate) enum SessionOutcome {
    /// The fleet's duration is over, or the fleet was stopped.
    Finished,
    /// `graceful`: with a DISCONNECT.
    Reconnect {
        graceful: bool,
    },
    Storm,
    /// The connection was lost.
    Lost,
}

pub(crate) struct SimulatedDeviceSession<'f> {
    pub fleet: &'f SimulatedFleetContext,
    pub device: &'f mut SimulatedDeviceState,
    pub client: MqttClient,
    pub prefix: String,
    /// Telemetry messages without a PUBACK, oldest first: packet id, sequence number, when it was written.
    pub unacknowledged: VecDeque<(u16, u64, Instant)>,
}

impl<'f> SimulatedDeviceSession<'f> {
    /// Connect, subscribe and publish that the device is online. `PermissionDenied` when the broker refuses the CONNECT.
    pub async fn open(
        fleet: &'f SimulatedFleetContext,
        device: &'f mut SimulatedDeviceState,
    ) -> io::Result<SimulatedDeviceSession<'f>> {
        let started = Instant::now();
        let config = &fleet.config;
        let stream = fleet.connector.connect().await?;
        let mut session = SimulatedDeviceSession {
            fleet,
            prefix: format!("{TOPIC_ROOT}{}/", device.credentials.device_id),
            device,
            client: MqttClient::new(stream, config.connection.mqtt_version),
            unacknowledged: VecDeque::new(),
        };
        let (topic, payload) = firmware_messages::will(config.profile);
        let will = (format!("{}{topic}", session.prefix), payload);
        let credentials = &session.device.credentials;
        session.client.connect(credentials, KEEP_ALIVE_S, will).await?;
        SimulationCounters::increment(&fleet.counters.connects);
        fleet.counters.connect_time.record(started.elapsed());
        let filters = firmware_messages::filters(config.profile).iter();
        let filters = filters.map(|filter| format!("{}{filter}", session.prefix).into());
        session.client.subscribe(&filters.collect::<Vec<_>>())?;
        for message in firmware_messages::online_messages(config.profile, session.device.relay, now_ms()) {
            session.publish(message, 1)?;
        }
        session.client.flush().await?;
        Ok(session)
    }

    /// Count how the session ended; a graceful end sends a DISCONNECT.
    pub async fn close(&mut self, end: &SessionOutcome) {
        let counters = &self.fleet.counters;
        let counter = match end {
            SessionOutcome::Finished => None,
            SessionOutcome::Reconnect { graceful: true } => Some(&counters.fault_reconnect),
            SessionOutcome::Reconnect { graceful: false } => Some(&counters.fault_dirty),
            SessionOutcome::Storm => Some(&counters.fault_storm),
            SessionOutcome::Lost => Some(&counters.lost),
        };
        if let Some(counter) = counter {
            SimulationCounters::increment(counter);
        }
        let graceful = matches!(end, SessionOutcome::Finished | SessionOutcome::Reconnect { graceful: true });
        if graceful && self.client.disconnect().is_ok() {
            // The connection closes in any case; the DISCONNECT only prevents the will.
            let _ = tokio::time::timeout(RESPONSE_TIMEOUT, self.client.flush()).await;
        }
        counters.count_closed(self.unacknowledged.len() as u64);
    }

    /// Returns the packet id; 0 at QoS 0.
    pub fn publish(&mut self, message: SimulatedDeviceMessage, qos: u8) -> io::Result<u16> {
        let topic = format!("{}{}", self.prefix, message.topic);
        self.client.publish(topic, message.payload, qos, message.retain)
    }
}
