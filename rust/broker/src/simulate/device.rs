//! One simulated device: what it keeps while it comes and goes, and its connection.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::sleep;

use super::behaviour::Visit;
use super::firmware::{self, Order, Said};
use super::speech::{Heard, Speech};
use super::{Fleet, Identity, Signal, Tally};
use crate::clock::now_ms;
use crate::topics::ROOT;
use crate::transport::Io;

/// A refused or failed connection is tried again after this, doubled up to `PATIENCE`.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(15);
/// A storm is one because all come back at once; a moment is given to the sockets.
const STORM_PAUSE: Duration = Duration::from_millis(10);
pub(super) const KEEP_ALIVE_S: u16 = 60;
const ANSWER: Duration = Duration::from_secs(15);

/// What outlives a connection.
pub(super) struct Persona {
    pub identity: Identity,
    pub index: usize,
    pub relay: bool,
    /// Number of the next telemetry message.
    pub sequence: u64,
    /// Last words that are due later.
    pub owed: VecDeque<(Instant, Order)>,
    /// Commands it has had, so that none is run twice.
    pub known: VecDeque<String>,
    /// When it is to leave next, with a goodbye and without.
    pub departures: [Option<Instant>; 2],
}

impl Persona {
    fn new(fleet: &Fleet, identity: Identity, index: usize) -> Self {
        let (faults, now) = (&fleet.plan.faults, Instant::now());
        // Each device at its own moment, so that the fleet does not leave as one.
        let share = 0.5 + (index as f64 + 0.5) / fleet.count as f64;
        let first = |every: Option<Duration>| every.map(|every| now + every.mul_f64(share));
        Self {
            departures: [first(faults.reconnect_every), first(faults.dirty_every)],
            identity,
            index,
            relay: false,
            sequence: 0,
            owed: VecDeque::new(),
            known: VecDeque::new(),
        }
    }
}

/// Come, stay and go until the fleet's time is over.
pub(super) async fn live(fleet: Arc<Fleet>, identity: Identity, index: usize) {
    let mut signal = fleet.signal.clone();
    let mut persona = Persona::new(&fleet, identity, index);
    let mut pause = FIRST_PAUSE;
    while !fleet.is_over(Instant::now()) {
        let visit = visit(&fleet, &mut persona, &mut signal).await;
        pause = match visit {
            Ok(Visit::Over) => return,
            Ok(Visit::Storm) => STORM_PAUSE,
            Ok(Visit::ComeBack { .. }) => FIRST_PAUSE,
            Err(_) => (pause * 2).clamp(FIRST_PAUSE, PATIENCE),
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = stopped(&mut signal) => return,
        }
    }
}

async fn stopped(signal: &mut watch::Receiver<Signal>) {
    // An error means that the fleet was dropped: that is its end too.
    let _ = signal.wait_for(|signal| signal.stop).await;
}

async fn visit(
    fleet: &Fleet,
    persona: &mut Persona,
    signal: &mut watch::Receiver<Signal>,
) -> io::Result<Visit> {
    let storms = signal.borrow().storms;
    let opened = tokio::select! {
        opened = open(fleet, persona) => opened,
        () = stopped(signal) => return Ok(Visit::Over),
    };
    let mut device = opened?;
    Tally::one(&fleet.tally.connected);
    let stayed = {
        let interrupted = signal.wait_for(|signal| signal.stop || signal.storms != storms);
        tokio::pin!(interrupted);
        tokio::select! {
            stayed = device.stay() => stayed,
            heard = interrupted => match heard {
                Ok(signal) if !signal.stop => Ok(Visit::Storm),
                _ => Ok(Visit::Over),
            },
        }
    };
    device.leave(&stayed).await;
    stayed
}

async fn open<'f>(fleet: &'f Fleet, persona: &'f mut Persona) -> io::Result<Device<'f>> {
    let _turn = fleet.gate.acquire().await.map_err(io::Error::other)?;
    let opening = tokio::time::timeout(ANSWER, Device::connect(fleet, persona)).await;
    opening
        .unwrap_or_else(|late| Err(late.into()))
        .inspect_err(|error| {
            let refused = error.kind() == io::ErrorKind::PermissionDenied;
            let tally = &fleet.tally;
            Tally::one(if refused {
                &tally.refused
            } else {
                &tally.failed
            });
        })
}

pub(super) struct Device<'f> {
    pub fleet: &'f Fleet,
    pub persona: &'f mut Persona,
    pub prefix: String,
    io: Io,
    speech: Speech,
    input: BytesMut,
    output: BytesMut,
    next_id: u16,
    /// Telemetry not confirmed yet, oldest first: packet id, its number, when it was written.
    pub unconfirmed: VecDeque<(u16, u64, Instant)>,
}

impl<'f> Device<'f> {
    async fn connect(fleet: &'f Fleet, persona: &'f mut Persona) -> io::Result<Device<'f>> {
        let begun = Instant::now();
        let plan = &fleet.plan;
        let mut device = Device {
            fleet,
            prefix: format!("{ROOT}{}/", persona.identity.device_id),
            persona,
            io: fleet.way.go().await?,
            speech: Speech::new(plan.route.protocol),
            input: BytesMut::new(),
            output: BytesMut::new(),
            next_id: 1,
            unconfirmed: VecDeque::new(),
        };
        device.log_in().await?;
        Tally::one(&fleet.tally.connects);
        fleet.tally.connecting.record(begun.elapsed());
        let filters = firmware::filters(plan.profile).iter();
        let filters = filters.map(|below| format!("{}{below}", device.prefix).into());
        device
            .speech
            .subscribe(&mut device.output, filters.collect())?;
        for message in firmware::greeting(plan.profile, device.persona.relay, now_ms()) {
            device.say(message)?;
        }
        device.flush().await?;
        Ok(device)
    }

    async fn log_in(&mut self) -> io::Result<()> {
        let (below, payload) = firmware::will(self.fleet.plan.profile);
        let will = (format!("{}{below}", self.prefix), payload);
        let (output, who) = (&mut self.output, &self.persona.identity);
        self.speech.connect(output, who, KEEP_ALIVE_S, will)?;
        self.flush().await?;
        match self.read().await? {
            Heard::Accepted => Ok(()),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// The end of a visit: with a goodbye, where it is one.
    async fn leave(&mut self, stayed: &io::Result<Visit>) {
        let tally = &self.fleet.tally;
        let counter = match stayed {
            Ok(Visit::Over) => None,
            Ok(Visit::ComeBack { polite: true }) => Some(&tally.fault_reconnect),
            Ok(Visit::ComeBack { polite: false }) => Some(&tally.fault_dirty),
            Ok(Visit::Storm) => Some(&tally.fault_storm),
            Err(_) => Some(&tally.lost),
        };
        if let Some(counter) = counter {
            Tally::one(counter);
        }
        let polite = matches!(stayed, Ok(Visit::Over | Visit::ComeBack { polite: true }));
        if polite && self.speech.goodbye(&mut self.output).is_ok() {
            // It ends either way; the goodbye only spares the service the will.
            let _ = tokio::time::timeout(ANSWER, self.flush()).await;
        }
        tally.abandon(self.unconfirmed.len() as u64);
        tally.gone();
    }

    pub fn ping(&mut self) -> io::Result<()> {
        self.speech.ping(&mut self.output)
    }

    pub fn confirm(&mut self, packet_id: NonZeroU16) -> io::Result<()> {
        self.speech.confirm(&mut self.output, packet_id)
    }

    pub async fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        self.io.write_all_buf(&mut self.output).await?;
        self.io.flush().await
    }

    /// What has been read already, without a system call each.
    pub fn overheard(&mut self) -> io::Result<Option<Heard>> {
        self.speech.hear(&mut self.input)
    }

    pub async fn read(&mut self) -> io::Result<Heard> {
        loop {
            if let Some(heard) = self.overheard()? {
                return Ok(heard);
            }
            if self.io.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Returns the packet id; 0 at QoS 0.
    pub fn publish(&mut self, message: Said, qos: u8) -> io::Result<u16> {
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        let packet_id = NonZeroU16::new(self.next_id).filter(|_| qos > 0);
        let topic = format!("{}{}", self.prefix, message.below);
        let (output, payload): (_, Bytes) = (&mut self.output, message.payload);
        self.speech
            .publish(output, topic, payload, packet_id, message.retain)?;
        Ok(packet_id.map_or(0, NonZeroU16::get))
    }

    pub fn say(&mut self, message: Said) -> io::Result<()> {
        self.publish(message, 1).map(|_| ())
    }
}
