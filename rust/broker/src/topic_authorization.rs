//! Which topics a device may publish and subscribe to. A device owns `devices/<deviceId>/`; some topics below it carry commands, and
//! only the service publishes there.
//!
//! Law: pure functions over strings. Topics and filters follow MQTT 5.0, 4.7.

/// The firmware of a device. It decides which topics carry commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirmwareProfile {
    Native,
    Tasmota,
    Esphome,
    Shelly,
}

impl FirmwareProfile {
    /// None for an unknown profile.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "native" => Some(Self::Native),
            "tasmota" => Some(Self::Tasmota),
            "esphome" => Some(Self::Esphome),
            "shelly" => Some(Self::Shelly),
            _ => None,
        }
    }

    /// Filters, relative to the device's prefix, of the topics to which only the service publishes.
    pub fn command_filters(self) -> &'static [&'static str] {
        match self {
            Self::Native => &["cmd", "sched", "time"],
            Self::Tasmota => &["cmnd/#"],
            // `<component>/<id>/command`, for a switch, a light or a cover.
            Self::Esphome => &["+/+/command"],
            Self::Shelly => &["rpc", "command/#"],
        }
    }
}

impl FirmwareProfile {
    /// Whether a filter, relative to the device's prefix, covers command topics only.
    pub fn is_command_filter(self, filter: &str) -> bool {
        // A filter is covered as a topic is, because `+` and `#` as levels are covered by wildcards only.
        self.command_filters().iter().any(|commands| filter_matches(commands, filter))
    }
}

/// The prefix of a device's topics is this and its id and `/`.
pub const TOPIC_ROOT: &str = "devices/";

/// The topic relative to the device's prefix, or None for a topic outside of it.
pub fn relative_topic<'t>(topic: &'t str, device_id: &str) -> Option<&'t str> {
    let relative = topic.strip_prefix(TOPIC_ROOT)?.strip_prefix(device_id)?.strip_prefix('/')?;
    (!relative.is_empty()).then_some(relative)
}

/// The topic relative to the device's prefix, if the device may publish to it.
pub fn authorize_publish<'t>(topic: &'t str, device_id: &str, profile: FirmwareProfile) -> Option<&'t str> {
    let relative = relative_topic(topic, device_id)?;
    let has_wildcard = topic.bytes().any(|byte| matches!(byte, b'+' | b'#' | 0));
    (!has_wildcard && !profile.is_command_filter(relative)).then_some(relative)
}

/// The filter relative to the device's prefix, if the device may subscribe to it.
pub fn authorize_subscribe<'t>(filter: &'t str, device_id: &str) -> Option<&'t str> {
    let relative = relative_topic(filter, device_id)?;
    is_valid_filter(relative).then_some(relative)
}

/// `#` only as the last level, `+` and `#` only as a whole level, no NUL (MQTT 5.0, 4.7.1).
fn is_valid_filter(filter: &str) -> bool {
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let whole = level == "+" || (level == "#" && levels.peek().is_none());
        if !whole && level.bytes().any(|byte| matches!(byte, b'+' | b'#' | 0)) {
            return false;
        }
    }
    true
}

/// Whether a valid filter covers a topic, both relative to the same prefix.
pub fn filter_matches(filter: &str, topic: &str) -> bool {
    let mut topic_levels = topic.split('/');
    for level in filter.split('/') {
        match (level, topic_levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (level, Some(name)) if level == name => {}
            // `sport/#` also covers `sport` (4.7.1.2): the first arm matches ("#", None).
            _ => return false,
        }
    }
    topic_levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: &str = "dev_aaaaaaaaaaaaaaaaaaaa";

    fn own(relative: &str) -> String {
        format!("devices/{DEVICE}/{relative}")
    }

    fn may_publish(relative: &str, profile: FirmwareProfile) -> bool {
        authorize_publish(&own(relative), DEVICE, profile) == Some(relative)
    }

    #[test]
    fn a_device_publishes_below_its_own_prefix_only_and_not_to_command_topics() {
        let native = FirmwareProfile::Native;
        assert!(may_publish("telemetry", native) && may_publish("sched/rev", native));
        for topic in ["cmd", "sched", "time", "", "#", "+/x", "a/#", "nul\0"] {
            assert_eq!(authorize_publish(&own(topic), DEVICE, native), None);
        }
        let longer_id = format!("devices/{DEVICE}x/state");
        let foreign = ["devices/dev_b/state", "devices", "devices/", "$SYS/x", "x", ""];
        for topic in foreign.into_iter().chain([longer_id.as_str()]) {
            assert_eq!(authorize_publish(topic, DEVICE, native), None, "{topic}");
        }
    }

    #[test]
    fn each_profile_has_its_own_command_topics() {
        use FirmwareProfile::{Esphome, Shelly, Tasmota};
        assert!(!may_publish("cmnd/POWER", Tasmota) && !may_publish("cmnd", Tasmota));
        assert!(may_publish("stat/POWER", Tasmota));
        assert!(!may_publish("switch/relay/command", Esphome));
        assert!(may_publish("switch/relay/state", Esphome));
        assert!(!may_publish("rpc", Shelly) && !may_publish("command/switch:0", Shelly));
        assert!(may_publish("events/rpc", Shelly));
    }

    #[test]
    fn a_filter_that_covers_more_than_command_topics_is_no_command_filter() {
        use FirmwareProfile::{Esphome, Native, Tasmota};
        for (profile, filter) in [
            (Native, "cmd"),
            (Tasmota, "cmnd/+"),
            (Esphome, "light/a/command"),
            (Esphome, "+/+/command"),
        ] {
            assert!(profile.is_command_filter(filter), "{filter}");
        }
        for (profile, filter) in [
            (Native, "#"),
            (Native, "+"),
            (Tasmota, "+/POWER"),
            (Esphome, "light/#"),
            (Esphome, "a/+/state"),
        ] {
            assert!(!profile.is_command_filter(filter), "{filter}");
        }
    }

    #[test]
    fn a_device_subscribes_to_valid_filters_below_its_own_prefix_only() {
        for valid in ["#", "cmd", "+/+/command", "+", "a/+/#"] {
            assert_eq!(authorize_subscribe(&own(valid), DEVICE), Some(valid), "{valid}");
        }
        for invalid in ["a#", "#/a", "a+/b", "a/#/b", ""] {
            assert_eq!(authorize_subscribe(&own(invalid), DEVICE), None, "{invalid}");
        }
        for foreign in ["#", "+/#", "devices/+/cmd", "devices/#", "$SYS/#", "$share/g/devices/x/cmd"] {
            assert_eq!(authorize_subscribe(foreign, DEVICE), None, "{foreign}");
        }
    }

    #[test]
    fn matching_follows_the_standard() {
        for (filter, topic) in [
            ("#", "a"),
            ("a/#", "a"),
            ("a/#", "a/b/c"),
            ("+", "a"),
            ("a/+/c", "a/b/c"),
            ("a", "a"),
        ] {
            assert!(filter_matches(filter, topic), "{filter} {topic}");
        }
        for (filter, topic) in [("+", "a/b"), ("a", "a/b"), ("a/b", "a"), ("a/+", "a"), ("b/#", "a")] {
            assert!(!filter_matches(filter, topic), "{filter} {topic}");
        }
    }
}
