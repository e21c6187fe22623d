//! One connection of a simulated device: it opens, publishes telemetry, handles what it receives, reconnects as the configuration says,
//! and closes.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use latchboard_broker::now_ms;
use latchboard_broker::topic_authorization::TOPIC_ROOT;
use tokio::time::sleep_until;

use crate::channels::SimulatedChannel;
use crate::counters::SimulationCounters;
use crate::device::{SimulatedDeviceState, SimulatedFleetContext};
use crate::firmware::{self, ReceivedCommand, SimulatedDeviceMessage, SimulatedSensorValues};
use crate::mqtt::{MqttClient, ServerPacket};

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
        let (topic, payload) = firmware::will(config.profile);
        let will = (format!("{}{topic}", session.prefix), payload);
        let credentials = &session.device.credentials;
        session.client.connect(credentials, KEEP_ALIVE_S, will).await?;
        SimulationCounters::increment(&fleet.counters.connects);
        fleet.counters.connect_time.record(started.elapsed());
        let filters = firmware::filters(config.profile).iter();
        let filters = filters.map(|filter| format!("{}{filter}", session.prefix).into());
        session.client.subscribe(&filters.collect::<Vec<_>>())?;
        for message in firmware::online_messages(config.profile, &session.device.channels, now_ms()) {
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

const PING_INTERVAL: Duration = Duration::from_secs(KEEP_ALIVE_S as u64 / 2);

struct SessionSendTimes {
    /// Between two telemetry messages; None sends as fast as possible.
    interval: Option<Duration>,
    next_telemetry: Instant,
    next_ping: Instant,
}

impl SimulatedDeviceSession<'_> {
    fn timetable(&self) -> SessionSendTimes {
        let (rate, fleet_size) = (self.fleet.config.rate, self.fleet.size as f64);
        let now = Instant::now();
        let interval = (rate > 0.0).then(|| Duration::from_secs_f64(fleet_size / rate));
        // Each device at its own moment of the interval, so that the fleet's messages are evenly spread.
        let share = (self.device.index as f64 + 0.5) / fleet_size;
        let offset = interval.map_or(Duration::ZERO, |interval| interval.mul_f64(share));
        SessionSendTimes {
            interval,
            next_telemetry: now + offset,
            next_ping: now + PING_INTERVAL,
        }
    }

    /// Run until the device is to disconnect.
    pub async fn run(&mut self) -> io::Result<SessionOutcome> {
        let end = self.fleet.end;
        let mut times = self.timetable();
        self.skip_missed_reconnects();
        loop {
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Ok(SessionOutcome::Finished);
            }
            if let Some(graceful) = self.reconnect_due(now) {
                return Ok(SessionOutcome::Reconnect { graceful });
            }
            let may_publish = self.unacknowledged.len() < self.fleet.config.max_inflight;
            self.send_due(&mut times, may_publish, now)?;
            self.client.flush().await?;
            let flat_out = may_publish && times.interval.is_none();
            let result = self.device.delayed_results.front().map(|(when, _)| *when);
            let telemetry = Some(times.next_telemetry).filter(|_| may_publish);
            let [reconnect, abrupt_reconnect] = self.device.reconnects;
            let arrival = self.device.channels.iter().filter_map(SimulatedChannel::arrival).min();
            let next = [
                telemetry,
                end,
                reconnect,
                abrupt_reconnect,
                result,
                arrival,
                self.device.next_press,
            ];
            let next = next.into_iter().flatten().fold(times.next_ping, Instant::min);
            tokio::select! {
                packet = self.client.read() => {
                    let packet = packet?;
                    self.handle(packet)?;
                    while let Some(packet) = self.client.next_buffered()? {
                        self.handle(packet)?;
                    }
                }
                () = sleep_until(next.into()), if !flat_out => {}
                () = tokio::task::yield_now(), if flat_out => {}
            }
        }
    }

    /// A reconnect that fell due while the device was disconnected is skipped.
    fn skip_missed_reconnects(&mut self) {
        let (intervals, now) = (self.reconnect_intervals(), Instant::now());
        for (due, interval) in self.device.reconnects.iter_mut().zip(intervals) {
            if due.is_some_and(|due| due <= now) {
                *due = interval.map(|interval| now + interval);
            }
        }
    }

    fn reconnect_intervals(&self) -> [Option<Duration>; 2] {
        let faults = &self.fleet.config.faults;
        [faults.reconnect_every, faults.abrupt_reconnect_every]
    }

    /// Whether a reconnect is due, and if so, whether with a DISCONNECT; the next one is then scheduled.
    fn reconnect_due(&mut self, now: Instant) -> Option<bool> {
        let intervals = self.reconnect_intervals();
        let reconnects = self.device.reconnects.iter_mut().zip(intervals);
        for ((due, interval), graceful) in reconnects.zip([true, false]) {
            if due.is_some_and(|due| due <= now) {
                *due = interval.map(|interval| now + interval);
                return Some(graceful);
            }
        }
        None
    }

    fn send_due(&mut self, times: &mut SessionSendTimes, may_publish: bool, now: Instant) -> io::Result<()> {
        if now >= times.next_ping {
            self.client.pingreq()?;
            times.next_ping = now + PING_INTERVAL;
        }
        let is_due = |(when, _): &mut (Instant, ReceivedCommand)| *when <= now;
        while let Some((_, command)) = self.device.delayed_results.pop_front_if(is_due) {
            self.send_result(&command)?;
        }
        self.finish_travels(now)?;
        if self.device.next_press.is_some_and(|due| due <= now) {
            self.press_input()?;
            // Between half and one and a half of the interval.
            let chance = (self.device.index + self.device.presses).wrapping_mul(2_654_435_769) as u32;
            let share = 0.5 + f64::from(chance) / f64::from(u32::MAX);
            self.device.next_press = self.fleet.config.press_every.map(|every| now + every.mul_f64(share));
        }
        if may_publish && times.next_telemetry <= now {
            self.publish_telemetry()?;
            // A late message is not made up for: the rate stays constant.
            let next = |interval: Duration| (times.next_telemetry + interval).max(now);
            times.next_telemetry = times.interval.map_or(now, next);
        }
        Ok(())
    }

    fn publish_telemetry(&mut self) -> io::Result<()> {
        let (config, device) = (&self.fleet.config, &mut *self.device);
        let sequence = device.sequence;
        device.sequence += 1;
        let mut sample = SimulatedSensorValues::at(now_ms(), device.index, device.relay(), sequence);
        sample.include_sequence = config.puback_log;
        let message = firmware::telemetry(config.profile, &sample);
        let packet_id = self.publish(message, config.qos.min(1))?;
        SimulationCounters::increment(&self.fleet.counters.sent);
        if packet_id > 0 {
            self.unacknowledged.push_back((packet_id, sequence, Instant::now()));
        }
        Ok(())
    }

    fn handle(&mut self, packet: ServerPacket) -> io::Result<()> {
        match packet {
            ServerPacket::PubAck(packet_id) => self.handle_puback(packet_id),
            ServerPacket::Publish(message) => self.receive(&message)?,
            ServerPacket::Disconnect => return Err(io::ErrorKind::ConnectionAborted.into()),
            ServerPacket::ConnectionAccepted | ServerPacket::Other => {}
        }
        Ok(())
    }

    fn handle_puback(&mut self, packet_id: u16) {
        let mut unacknowledged = self.unacknowledged.iter();
        let index = unacknowledged.position(|(id, ..)| *id == packet_id);
        let acknowledged = index.and_then(|index| self.unacknowledged.remove(index));
        if let Some((_, sequence, written)) = acknowledged {
            let counters = &self.fleet.counters;
            counters.puback_time.record(written.elapsed());
            SimulationCounters::increment(&counters.confirmed);
            self.fleet.puback_log.record(self.device.index, sequence);
        }
    }
}
