//! The channels of a simulated device: what of it can be switched, set or pressed, and what a command does to each.
//!
//! Law: no sockets; the caller gives the time.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

/// What a cover needs from one end to the other.
const TRAVEL: Duration = Duration::from_secs(8);
const OPEN: i64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelKind {
    Relay,
    Level,
    Color,
    Cover,
    Climate,
    Input,
}

const KINDS: [(&str, ChannelKind); 6] = [
    ("RELAY", ChannelKind::Relay),
    ("LEVEL", ChannelKind::Level),
    ("COLOR", ChannelKind::Color),
    ("COVER", ChannelKind::Cover),
    ("CLIMATE", ChannelKind::Climate),
    ("INPUT", ChannelKind::Input),
];

impl ChannelKind {
    pub fn from_name(name: &str) -> Option<Self> {
        KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    pub(crate) fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Relay => &["ON", "OFF", "TOGGLE"],
            Self::Level => &["ON", "OFF", "TOGGLE", "SET_LEVEL"],
            Self::Color => &["ON", "OFF", "TOGGLE", "SET_LEVEL", "SET_COLOR"],
            Self::Cover => &["OPEN", "CLOSE", "STOP", "SET_POSITION"],
            Self::Climate => &["SET_TARGET", "SET_MODE"],
            Self::Input => &[],
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum RelayAction {
    Set(bool),
    Toggle,
    #[default]
    None,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceivedCommand {
    /// Empty where the firmware's commands have none.
    pub id: String,
    /// From 1.
    pub channel: usize,
    /// Name and parameters of native commands; `action` is what they do to a relay.
    pub cmd: String,
    pub params: Value,
    pub action: RelayAction,
    pub expires_ms: Option<i64>,
    /// Where a Shelly sends its response.
    pub reply_to: String,
}

impl Default for ReceivedCommand {
    fn default() -> Self {
        Self {
            id: String::new(),
            channel: 1,
            cmd: String::new(),
            params: Value::Null,
            action: RelayAction::None,
            expires_ms: None,
            reply_to: String::new(),
        }
    }
}

/// A channel of each device of the fleet; without a name the service gives it one.
#[derive(Debug, Clone)]
pub struct ChannelConfig {
    pub kind: ChannelKind,
    pub name: String,
}

/// A cover on its way; the result of the command follows when it arrives.
struct Travel {
    from: i64,
    to: i64,
    began: Instant,
    command: ReceivedCommand,
}

impl Travel {
    fn ends(&self) -> Instant {
        self.began + TRAVEL * u32::try_from((self.to - self.from).abs()).unwrap_or(0) / OPEN as u32
    }

    fn position(&self, now: Instant) -> i64 {
        let way = (now - self.began).as_secs_f64() / TRAVEL.as_secs_f64() * OPEN as f64;
        let way = (way as i64).min((self.to - self.from).abs());
        self.from + way * (self.to - self.from).signum()
    }
}

pub(crate) struct SimulatedChannel {
    pub config: ChannelConfig,
    pub on: bool,
    /// 0 to 100; the position of a cover.
    level: i64,
    /// What else its kind reports.
    details: Map<String, Value>,
    travel: Option<Travel>,
}

impl SimulatedChannel {
    pub fn new(config: ChannelConfig) -> Self {
        let details = match config.kind {
            ChannelKind::Color => json!({"color": "#ffd27f"}),
            ChannelKind::Climate => json!({"celsius": 20.0, "mode": "HEAT"}),
            _ => json!({}),
        };
        Self {
            level: if config.kind == ChannelKind::Cover { 0 } else { OPEN },
            details: details.as_object().cloned().unwrap_or_default(),
            on: false,
            travel: None,
            config,
        }
    }

    /// Whether it is on or off.
    pub fn is_switched(&self) -> bool {
        matches!(self.config.kind, ChannelKind::Relay | ChannelKind::Level | ChannelKind::Color)
    }

    /// A relay confirms commands that it does not know, too: each device type has its own.
    pub fn supports(&self, cmd: &str) -> bool {
        let known = ["STATUS", "GET_SCHEDULES"].contains(&cmd) || self.config.kind.commands().contains(&cmd);
        known || self.config.kind == ChannelKind::Relay
    }

    /// What a state message says of it; None of an INPUT, which has no state.
    pub fn state(&self, now: Instant) -> Option<Map<String, Value>> {
        let mut state = self.details.clone();
        let mut set = |name: &str, value: Value| state.insert(name.to_owned(), value);
        if self.is_switched() {
            set("relay", json!(if self.on { "ON" } else { "OFF" }));
        }
        match self.config.kind {
            ChannelKind::Input => return None,
            ChannelKind::Level | ChannelKind::Color => {
                set("level", json!(self.level));
            }
            ChannelKind::Cover => {
                set("position", json!(self.position(now)));
                if let Some(travel) = &self.travel {
                    set("moving", json!(if travel.to > travel.from { "OPENING" } else { "CLOSING" }));
                }
            }
            ChannelKind::Relay | ChannelKind::Climate => {}
        }
        Some(state)
    }

    fn position(&self, now: Instant) -> i64 {
        self.travel.as_ref().map_or(self.level, |travel| travel.position(now))
    }

    /// Run a command that the channel supports. Returns the command whose travel it has ended.
    pub fn run(&mut self, command: &ReceivedCommand, now: Instant) -> Option<ReceivedCommand> {
        let number = |name: &str| command.params[name].as_i64().map(|value| value.clamp(0, OPEN));
        if self.is_switched() {
            self.on = match command.action {
                RelayAction::Set(on) => on,
                RelayAction::Toggle => !self.on,
                RelayAction::None => self.on,
            };
        }
        match (self.config.kind, command.cmd.as_str()) {
            (ChannelKind::Level | ChannelKind::Color, "SET_LEVEL") => self.set_level(number("level")),
            (ChannelKind::Color, "SET_COLOR") => {
                self.on = true;
                self.set_level(number("level"));
                self.details = ["color", "kelvin"]
                    .iter()
                    .filter(|name| !command.params[**name].is_null())
                    .map(|name| ((*name).to_owned(), command.params[*name].clone()))
                    .collect();
            }
            (ChannelKind::Cover, "OPEN") => return self.travel_to(OPEN, command, now),
            (ChannelKind::Cover, "CLOSE") => return self.travel_to(0, command, now),
            (ChannelKind::Cover, "SET_POSITION") => {
                let to = number("position").unwrap_or(self.level);
                return self.travel_to(to, command, now);
            }
            (ChannelKind::Cover, "STOP") => return self.stop(now),
            (ChannelKind::Climate, "SET_TARGET") => self.set_detail("celsius", command),
            (ChannelKind::Climate, "SET_MODE") => self.set_detail("mode", command),
            _ => {}
        }
        None
    }

    fn set_level(&mut self, level: Option<i64>) {
        if let Some(level) = level {
            self.on = level > 0;
            // Switched off by its level, it comes on again with the last one.
            self.level = if level > 0 { level } else { self.level };
        }
    }

    fn set_detail(&mut self, name: &str, command: &ReceivedCommand) {
        self.details.insert(name.to_owned(), command.params[name].clone());
    }

    fn travel_to(&mut self, to: i64, command: &ReceivedCommand, now: Instant) -> Option<ReceivedCommand> {
        let interrupted = self.stop(now);
        self.travel = Some(Travel {
            from: self.level,
            to,
            began: now,
            command: command.clone(),
        });
        interrupted
    }

    fn stop(&mut self, now: Instant) -> Option<ReceivedCommand> {
        self.level = self.position(now);
        self.travel.take().map(|travel| travel.command)
    }

    /// Whether the command's travel has not ended.
    pub fn is_under_way(&self, command: &ReceivedCommand) -> bool {
        self.travel.as_ref().is_some_and(|travel| travel.command.id == command.id)
    }

    pub fn arrival(&self) -> Option<Instant> {
        self.travel.as_ref().map(Travel::ends)
    }

    /// The command whose travel has ended now.
    pub fn arrive(&mut self, now: Instant) -> Option<ReceivedCommand> {
        self.arrival().filter(|ends| *ends <= now)?;
        self.stop(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(kind: ChannelKind) -> SimulatedChannel {
        SimulatedChannel::new(ChannelConfig {
            kind,
            name: String::new(),
        })
    }

    fn command(id: &str, cmd: &str, params: Value) -> ReceivedCommand {
        ReceivedCommand {
            id: id.to_owned(),
            cmd: cmd.to_owned(),
            params,
            ..ReceivedCommand::default()
        }
    }

    fn text(channel: &SimulatedChannel, now: Instant) -> String {
        Value::from(channel.state(now).unwrap_or_default()).to_string()
    }

    #[test]
    fn a_cover_travels_and_the_next_command_ends_the_one_before() {
        let (mut vent, start) = (channel(ChannelKind::Cover), Instant::now());
        assert_eq!(vent.run(&command("a", "OPEN", Value::Null), start), None);
        let half = start + TRAVEL / 2;
        assert_eq!(text(&vent, half), r#"{"moving":"OPENING","position":50}"#);
        assert_eq!(vent.arrive(half), None);
        let ended = vent.run(&command("b", "SET_POSITION", json!({"position": 25})), half);
        assert_eq!(ended.map(|one| one.id), Some("a".to_owned()));
        assert!(vent.is_under_way(&command("b", "", Value::Null)));
        assert_eq!(vent.arrival(), Some(half + TRAVEL / 4));
        let arrived = vent.arrive(half + TRAVEL / 4);
        assert_eq!(arrived.map(|one| one.id), Some("b".to_owned()));
        assert_eq!(text(&vent, half + TRAVEL), r#"{"position":25}"#);
        vent.run(&command("c", "CLOSE", Value::Null), half);
        let stopped = vent.run(&command("d", "STOP", Value::Null), half + TRAVEL / 10);
        assert_eq!(stopped.map(|one| one.id), Some("c".to_owned()));
        assert_eq!(text(&vent, half + TRAVEL), r#"{"position":15}"#);
    }

    #[test]
    fn each_kind_runs_its_commands_and_no_others() {
        let now = Instant::now();
        let mut light = channel(ChannelKind::Level);
        light.run(&command("a", "SET_LEVEL", json!({"level": 30})), now);
        assert_eq!(text(&light, now), r#"{"level":30,"relay":"ON"}"#);
        light.run(&command("b", "SET_LEVEL", json!({"level": 0})), now);
        assert_eq!(text(&light, now), r#"{"level":30,"relay":"OFF"}"#);
        let mut lamp = channel(ChannelKind::Color);
        lamp.run(&command("c", "SET_COLOR", json!({"kelvin": 2700, "level": 40})), now);
        assert_eq!(text(&lamp, now), r#"{"kelvin":2700,"level":40,"relay":"ON"}"#);
        let mut heating = channel(ChannelKind::Climate);
        heating.run(&command("d", "SET_TARGET", json!({"celsius": 21.5})), now);
        assert_eq!(text(&heating, now), r#"{"celsius":21.5,"mode":"HEAT"}"#);
        assert_eq!(channel(ChannelKind::Input).state(now), None);
        assert!(channel(ChannelKind::Relay).supports("FLUSH"));
        for (kind, cmd) in [
            (ChannelKind::Input, "ON"),
            (ChannelKind::Level, "OPEN"),
            (ChannelKind::Cover, "ON"),
        ] {
            assert!(!channel(kind).supports(cmd), "{kind:?} {cmd}");
            assert!(channel(kind).supports("STATUS"));
        }
    }
}
