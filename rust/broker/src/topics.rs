//! Who may say what where. A device owns `devices/<deviceId>/`; below it, some topics are ours to speak on (downward).
//!
//! Pure functions over strings. A topic is judged by its bytes, not by a tree: there are no subscriptions of strangers to find.

/// The firmware a device runs, thus which topics below its prefix are downward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Native,
    Tasmota,
    Esphome,
    Shelly,
}

impl Profile {
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "native" => Some(Self::Native),
            "tasmota" => Some(Self::Tasmota),
            "esphome" => Some(Self::Esphome),
            "shelly" => Some(Self::Shelly),
            _ => None,
        }
    }

    /// Filters, below the prefix, of what only the service publishes.
    pub fn downward(self) -> &'static [&'static str] {
        match self {
            Self::Native => &["cmd", "sched", "time"],
            Self::Tasmota => &["cmnd/#"],
            // `<component>/<id>/command`; a light or a cover takes commands in the same place as a switch.
            Self::Esphome => &["+/+/command"],
            Self::Shelly => &["rpc", "command/#"],
        }
    }
}

pub const ROOT: &str = "devices/";

/// What lies below the device's own prefix, or None for a topic of anybody else.
pub fn below<'t>(topic: &'t str, device_id: &str) -> Option<&'t str> {
    let rest = topic
        .strip_prefix(ROOT)?
        .strip_prefix(device_id)?
        .strip_prefix('/')?;
    (!rest.is_empty()).then_some(rest)
}

/// The part of `topic` below the prefix if this device may publish there.
pub fn may_publish<'t>(topic: &'t str, device_id: &str, profile: Profile) -> Option<&'t str> {
    let rest = below(topic, device_id)?;
    let clean = !topic.bytes().any(|byte| matches!(byte, b'+' | b'#' | 0));
    let downward = profile
        .downward()
        .iter()
        .any(|filter| matches(filter, rest));
    (clean && !downward).then_some(rest)
}

/// The part of `filter` below the prefix if this device may subscribe to it.
pub fn may_subscribe<'t>(filter: &'t str, device_id: &str) -> Option<&'t str> {
    let rest = below(filter, device_id)?;
    is_filter(rest).then_some(rest)
}

/// MQTT 5.0, 4.7.1: `#` only as the last level, `+` and `#` only as a whole level; no NUL.
fn is_filter(filter: &str) -> bool {
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let whole = level == "+" || (level == "#" && levels.peek().is_none());
        if !whole && level.bytes().any(|byte| matches!(byte, b'+' | b'#' | 0)) {
            return false;
        }
    }
    true
}

/// Whether a (valid) filter covers a topic, both below the same prefix.
pub fn matches(filter: &str, topic: &str) -> bool {
    let mut topic_levels = topic.split('/');
    for level in filter.split('/') {
        match (level, topic_levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (level, Some(name)) if level == name => {}
            // `sport/#` also covers `sport` (4.7.1.2), which the first arm has seen as ("#", None).
            _ => return false,
        }
    }
    topic_levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: &str = "dev_aaaaaaaaaaaaaaaaaaaa";

    fn own(rest: &str) -> String {
        format!("devices/{ME}/{rest}")
    }

    #[test]
    fn a_device_publishes_upward_topics_below_its_own_prefix_only() {
        assert_eq!(
            may_publish(&own("telemetry"), ME, Profile::Native),
            Some("telemetry")
        );
        assert_eq!(
            may_publish(&own("sched/rev"), ME, Profile::Native),
            Some("sched/rev")
        );
        for topic in ["cmd", "sched", "time", "", "#", "+/x", "a/#", "nul\0"] {
            assert_eq!(
                may_publish(&own(topic), ME, Profile::Native),
                None,
                "{topic}"
            );
        }
        for topic in [
            "devices/dev_b/state",
            "devices",
            "devices/",
            "$SYS/x",
            "x",
            "",
        ] {
            assert_eq!(may_publish(topic, ME, Profile::Native), None, "{topic}");
        }
        let longer = format!("devices/{ME}x/state");
        assert_eq!(may_publish(&longer, ME, Profile::Native), None);
    }

    #[test]
    fn each_profile_closes_its_own_downward_topics() {
        assert_eq!(may_publish(&own("cmnd/POWER"), ME, Profile::Tasmota), None);
        assert_eq!(may_publish(&own("cmnd"), ME, Profile::Tasmota), None);
        assert!(may_publish(&own("stat/POWER"), ME, Profile::Tasmota).is_some());
        assert_eq!(
            may_publish(&own("switch/relay/command"), ME, Profile::Esphome),
            None
        );
        assert!(may_publish(&own("switch/relay/state"), ME, Profile::Esphome).is_some());
        assert_eq!(may_publish(&own("rpc"), ME, Profile::Shelly), None);
        assert_eq!(
            may_publish(&own("command/switch:0"), ME, Profile::Shelly),
            None
        );
        assert!(may_publish(&own("events/rpc"), ME, Profile::Shelly).is_some());
    }

    #[test]
    fn filters_stay_below_the_prefix_and_are_well_formed() {
        for good in ["#", "cmd", "+/+/command", "+", "a/+/#"] {
            assert_eq!(may_subscribe(&own(good), ME), Some(good), "{good}");
        }
        for bad in ["a#", "#/a", "a+/b", "a/#/b", ""] {
            assert_eq!(may_subscribe(&own(bad), ME), None, "{bad}");
        }
        for foreign in [
            "#",
            "+/#",
            "devices/+/cmd",
            "devices/#",
            "$SYS/#",
            "$share/g/devices/x/cmd",
        ] {
            assert_eq!(may_subscribe(foreign, ME), None, "{foreign}");
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
            assert!(matches(filter, topic), "{filter} {topic}");
        }
        for (filter, topic) in [
            ("+", "a/b"),
            ("a", "a/b"),
            ("a/b", "a"),
            ("a/+", "a"),
            ("b/#", "a"),
        ] {
            assert!(!matches(filter, topic), "{filter} {topic}");
        }
    }
}
