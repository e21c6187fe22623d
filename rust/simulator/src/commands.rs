//! How a device handles what it receives: it runs commands, responds, and injects the configured faults.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use latchboard_broker::now_ms;

use crate::channels::ChannelKind;
use crate::counters::SimulationCounters;
use crate::firmware::{self, ParsedRequestToDevice, ReceivedCommand, SimulatedDeviceMessage};
use crate::mqtt::ReceivedPublish;
use crate::session::SimulatedDeviceSession;

/// How many command ids a device remembers, as our firmware does.
const REMEMBERED_IDS: usize = 16;
/// How long after the deadline a late device sends its result.
const LATENESS: Duration = Duration::from_secs(1);
/// The service's default, for firmware whose commands carry no deadline.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(60);

/// What the inputs do, one after the other.
const PRESSES: [&str; 4] = ["SINGLE", "SINGLE", "DOUBLE", "LONG"];

/// Whether the device belongs to this share of the fleet, 0 to 1. Each `fault` number selects other devices.
fn is_selected(index: usize, fault: usize, share: f64) -> bool {
    // Fibonacci hashing: the factor is 2^32 divided by the golden ratio.
    let hash = (index + fault * 1009).wrapping_mul(2_654_435_769) as u32;
    f64::from(hash) < share * f64::from(u32::MAX)
}

impl SimulatedDeviceSession<'_> {
    pub(crate) fn receive(&mut self, message: &ReceivedPublish) -> io::Result<()> {
        if let Some(packet_id) = message.packet_id {
            self.client.puback(packet_id)?;
        }
        let topic = message.topic.strip_prefix(self.prefix.as_str());
        let (profile, relay) = (self.fleet.config.profile, self.device.relay());
        let topic = topic.unwrap_or_default();
        match firmware::parse(profile, topic, &message.payload, relay, now_ms()) {
            ParsedRequestToDevice::Command(command) => self.run_command(command),
            ParsedRequestToDevice::Schedule(confirmation) => {
                SimulationCounters::increment(&self.fleet.counters.schedules);
                self.publish(confirmation, 1).map(|_| ())
            }
            ParsedRequestToDevice::Query(response) => self.publish(response, 1).map(|_| ()),
            ParsedRequestToDevice::Unknown => Ok(()),
        }
    }

    fn run_command(&mut self, command: ReceivedCommand) -> io::Result<()> {
        let (counters, faults) = (&self.fleet.counters, &self.fleet.config.faults);
        let index = self.device.index;
        SimulationCounters::increment(&counters.commands);
        let is_repeated = self.is_repeated(&command);
        if is_repeated {
            SimulationCounters::increment(&counters.repeats);
        }
        let Some(channel) = self.device.channel(&command) else {
            return self.refuse(&command, "UNKNOWN_CHANNEL");
        };
        if !channel.supports(&command.cmd) {
            return self.refuse(&command, "UNSUPPORTED");
        }
        if is_repeated {
            return if channel.is_under_way(&command) {
                Ok(())
            } else {
                self.send_result(&command)
            };
        }
        if is_selected(index, 1, faults.silent) {
            SimulationCounters::increment(&counters.fault_silent);
            return Ok(());
        }
        if command.expires_ms.is_some_and(|expires| expires < now_ms()) {
            SimulationCounters::increment(&counters.expired);
            let result = firmware::expired(&command, channel);
            return self.respond(vec![result]);
        }
        if is_selected(index, 4, faults.late) {
            SimulationCounters::increment(&counters.fault_late);
            let when = Instant::now() + time_to_deadline(&command) + LATENESS;
            self.device.delayed_results.push_back((when, command));
            return Ok(());
        }
        if !self.start(&command)? {
            return Ok(()); // a cover answers when it arrives
        }
        if is_selected(index, 2, faults.slow) {
            SimulationCounters::increment(&counters.fault_slow);
            let when = Instant::now() + faults.slow_delay;
            self.device.delayed_results.push_back((when, command));
            return Ok(());
        }
        self.send_result(&command)
    }

    /// Whether the command's id is known; if not, it is remembered.
    fn is_repeated(&mut self, command: &ReceivedCommand) -> bool {
        let ids = &mut self.device.recent_command_ids;
        if command.id.is_empty() || ids.contains(&command.id) {
            return !command.id.is_empty();
        }
        if ids.len() == REMEMBERED_IDS {
            ids.pop_front();
        }
        ids.push_back(command.id.clone());
        false
    }

    fn refuse(&mut self, command: &ReceivedCommand, code: &str) -> io::Result<()> {
        SimulationCounters::increment(&self.fleet.counters.answered);
        self.respond(vec![firmware::error(command, code)])
    }

    /// Run the command, and say so. Whether its result is due at once.
    fn start(&mut self, command: &ReceivedCommand) -> io::Result<bool> {
        let profile = self.fleet.config.profile;
        let Some(channel) = self.device.channel(command) else {
            return Ok(true);
        };
        let interrupted = channel.run(command, Instant::now());
        let messages = firmware::acknowledgement(profile, command, channel, now_ms());
        let answers_now = !channel.is_under_way(command);
        if let Some(interrupted) = interrupted {
            self.refuse(&interrupted, "INTERRUPTED")?;
        }
        self.respond(messages)?;
        Ok(answers_now)
    }

    /// The covers that have arrived report it, and answer their commands.
    pub(crate) fn finish_travels(&mut self, now: Instant) -> io::Result<()> {
        for index in 0..self.device.channels.len() {
            let channel = &mut self.device.channels[index];
            if let Some(command) = channel.arrive(now) {
                let state = firmware::state(index + 1, channel, "cmd", &command.id, now_ms());
                self.respond(state.into_iter().collect())?;
                self.send_result(&command)?;
            }
        }
        Ok(())
    }

    /// Press the next input, if the device has any.
    pub(crate) fn press_input(&mut self) -> io::Result<()> {
        let channels = (1..).zip(&self.device.channels);
        let inputs = channels.filter(|(_, channel)| channel.config.kind == ChannelKind::Input);
        let inputs: Vec<usize> = inputs.map(|(number, _)| number).collect();
        let count = self.device.presses;
        self.device.presses += 1;
        let Some(number) = inputs.get(count % inputs.len().max(1)) else {
            return Ok(());
        };
        let action = PRESSES[count / inputs.len() % PRESSES.len()];
        self.publish(firmware::press(*number, action), 1).map(|_| ())
    }

    /// Send the result of a command; a device with the `duplicate` fault sends it twice.
    pub(crate) fn send_result(&mut self, command: &ReceivedCommand) -> io::Result<()> {
        let (config, counters) = (&self.fleet.config, &self.fleet.counters);
        let Some(channel) = self.device.channel(command) else {
            return Ok(());
        };
        let [mut results, again] = [(); 2].map(|()| firmware::result(config.profile, command, channel, now_ms()));
        SimulationCounters::increment(&counters.answered);
        if is_selected(self.device.index, 3, config.faults.duplicate) {
            SimulationCounters::increment(&counters.fault_duplicate);
            results.extend(again);
        }
        self.respond(results)
    }

    fn respond(&mut self, messages: Vec<SimulatedDeviceMessage>) -> io::Result<()> {
        let count = messages.len() as u64;
        self.fleet.counters.results.fetch_add(count, Relaxed);
        let mut messages = messages.into_iter();
        messages.try_for_each(|message| self.publish(message, 1).map(|_| ()))
    }
}

fn time_to_deadline(command: &ReceivedCommand) -> Duration {
    command.expires_ms.map_or(DEFAULT_DEADLINE, |expires| {
        Duration::from_millis(u64::try_from(expires - now_ms()).unwrap_or(0))
    })
}
