//! Client addresses: the networks that are trusted, the groups that limits and bans count by, and the addresses that are held back for
//! a while, because all their connections fail.
//!
//! Law: behind one address there may be a whole plant with one device that has an old password. So an address that has a device
//! connected, or had one within a day, is not banned; and because this memory ends with the process, a device with correct credentials
//! comes in from a banned address too, and ends the ban.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// A network in CIDR notation.
#[derive(Debug, Clone, Copy)]
pub struct IpNetwork {
    bits: u128,
    mask: u128,
}

impl IpNetwork {
    /// `prefix`: bits of the network part, at most 32 for IPv4 and 128 for IPv6.
    pub fn new(address: IpAddr, prefix: u8) -> Self {
        let (bits, prefix) = match address {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped().to_bits(), 96 + u32::from(prefix.min(32))),
            IpAddr::V6(v6) => (v6.to_bits(), u32::from(prefix.min(128))),
        };
        let mask = prefix_mask(prefix);
        Self { bits: bits & mask, mask }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        Ipv6Addr::to_bits(bits) & self.mask == self.bits
    }
}

/// The first `prefix` bits of an address.
fn prefix_mask(prefix: u32) -> u128 {
    u128::MAX.checked_shl(128 - prefix).unwrap_or(0)
}

/// What limits and bans count by: one IPv4 address, or one IPv6 /64, which is what one subscriber has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientSubnet(u128);

const IPV6_BLOCK_BITS: u32 = 64;

impl ClientSubnet {
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().to_bits()),
            IpAddr::V6(v6) => Self(v6.to_bits() & prefix_mask(IPV6_BLOCK_BITS)),
        }
    }
}

/// The first pause; each further failure doubles it.
const FIRST_BAN: Duration = Duration::from_secs(1);
/// How long a success protects an address.
const SUCCESS_PROTECTS: Duration = Duration::from_secs(24 * 3600);
/// The pause between two searches for records to forget: a search reads all of them.
const PURGE_INTERVAL: Duration = Duration::from_secs(10);
/// Addresses remembered. A stranger with more of them is bounded by the limit on all pending connections.
const MAX_RECORDS: usize = 20_000;

#[derive(Default)]
struct SubnetLoginHistory {
    connected: u32,
    last_success: Option<Instant>,
    failures: u32,
    last_failure: Option<Instant>,
    banned_until: Option<Instant>,
}

/// Which addresses are held back for a while.
pub struct AddressBans {
    /// Failures in a row before the first ban; 0 switches bans off.
    ban_after: u32,
    max_ban: Duration,
    records: HashMap<ClientSubnet, SubnetLoginHistory>,
    last_purge: Option<Instant>,
}

impl AddressBans {
    pub fn new(ban_after: u32, max_ban: Duration) -> Self {
        Self {
            ban_after,
            max_ban,
            records: HashMap::new(),
            last_purge: None,
        }
    }

    pub fn is_banned(&self, block: ClientSubnet, now: Instant) -> bool {
        let record = self.records.get(&block);
        record.is_some_and(|record| record.banned_until.is_some_and(|until| now < until))
    }

    /// How many addresses are banned at this moment.
    pub fn count(&self, now: Instant) -> usize {
        let banned = |record: &&SubnetLoginHistory| record.banned_until.is_some_and(|until| now < until);
        self.records.values().filter(banned).count()
    }

    pub fn record_failure(&mut self, block: ClientSubnet, now: Instant) {
        if self.ban_after == 0 || !self.has_room(block, now) {
            return;
        }
        let (forget_after, max_ban) = (self.forget_after(), self.max_ban);
        let record = self.records.entry(block).or_default();
        let protected = record.connected > 0 || within(record.last_success, now, SUCCESS_PROTECTS);
        if protected {
            return;
        }
        if !within(record.last_failure, now, forget_after) {
            record.failures = 0;
        }
        record.failures = record.failures.saturating_add(1);
        record.last_failure = Some(now);
        if let Some(doublings) = record.failures.checked_sub(self.ban_after) {
            let pause = FIRST_BAN.saturating_mul(1 << doublings.min(20)).min(max_ban);
            record.banned_until = Some(now + pause);
        }
    }

    /// A device has connected. Pair it with `record_disconnect`.
    pub fn record_connect(&mut self, block: ClientSubnet, now: Instant) {
        if !self.has_room(block, now) {
            return;
        }
        let record = self.records.entry(block).or_default();
        record.connected += 1;
        record.last_success = Some(now);
        record.failures = 0;
        record.banned_until = None;
    }

    pub fn record_disconnect(&mut self, block: ClientSubnet, now: Instant) {
        if let Some(record) = self.records.get_mut(&block) {
            record.connected = record.connected.saturating_sub(1);
            record.last_success = Some(now);
        }
    }

    /// A failure is forgotten after the longest ban and ten minutes without another.
    fn forget_after(&self) -> Duration {
        self.max_ban + Duration::from_secs(600)
    }

    fn has_room(&mut self, block: ClientSubnet, now: Instant) -> bool {
        if self.records.len() < MAX_RECORDS || self.records.contains_key(&block) {
            return true;
        }
        if within(self.last_purge, now, PURGE_INTERVAL) {
            return false;
        }
        self.last_purge = Some(now);
        let forget_after = self.forget_after();
        self.records.retain(|_, record| {
            let is_recent = within(record.last_failure, now, forget_after) || within(record.last_success, now, SUCCESS_PROTECTS);
            record.connected > 0 || is_recent
        });
        self.records.len() < MAX_RECORDS
    }
}

fn within(moment: Option<Instant>, now: Instant, duration: Duration) -> bool {
    moment.is_some_and(|moment| now.saturating_duration_since(moment) < duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_network_contains_its_addresses_and_no_other() {
        let loopback = IpNetwork::new(ip("127.0.0.0"), 8);
        assert!(loopback.contains(ip("127.9.9.9")) && loopback.contains(ip("::ffff:127.0.0.1")));
        assert!(!loopback.contains(ip("128.0.0.1")) && !loopback.contains(ip("::1")));
        assert!(IpNetwork::new(ip("::1"), 128).contains(ip("::1")));
        assert!(IpNetwork::new(ip("0.0.0.0"), 0).contains(ip("9.9.9.9")));
        assert!(!IpNetwork::new(ip("0.0.0.0"), 0).contains(ip("2001:db8::1")));
    }

    #[test]
    fn an_ipv6_subscriber_is_one_block_and_a_mapped_ipv4_address_is_that_address() {
        assert_eq!(
            ClientSubnet::of(ip("2001:db8:1:2::1")),
            ClientSubnet::of(ip("2001:db8:1:2:ffff::9"))
        );
        assert_ne!(
            ClientSubnet::of(ip("2001:db8:1:2::1")),
            ClientSubnet::of(ip("2001:db8:1:3::1"))
        );
        assert_eq!(ClientSubnet::of(ip("::ffff:192.0.2.1")), ClientSubnet::of(ip("192.0.2.1")));
        assert_ne!(ClientSubnet::of(ip("192.0.2.1")), ClientSubnet::of(ip("192.0.2.2")));
    }

    fn block(last: u8) -> ClientSubnet {
        ClientSubnet::of(std::net::IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn the_ban_doubles_with_each_further_failure_up_to_its_limit() {
        let (mut bans, start) = (AddressBans::new(3, Duration::from_secs(5)), Instant::now());
        let mut now = start;
        for _ in 0..2 {
            bans.record_failure(block(1), now);
            assert!(!bans.is_banned(block(1), now));
        }
        for pause_s in [1, 2, 4, 5, 5] {
            bans.record_failure(block(1), now);
            assert!(bans.is_banned(block(1), now + Duration::from_millis(pause_s * 1000 - 1)));
            now += Duration::from_secs(pause_s);
            assert!(!bans.is_banned(block(1), now));
        }
        assert!(!bans.is_banned(block(2), start));
        let much_later = now + bans.forget_after();
        bans.record_failure(block(1), much_later);
        assert!(!bans.is_banned(block(1), much_later), "old failures are forgotten");
    }

    #[test]
    fn an_address_with_a_device_is_not_banned_for_a_day_after_its_last_disconnect() {
        let (mut bans, start) = (AddressBans::new(1, Duration::from_secs(60)), Instant::now());
        bans.record_failure(block(1), start);
        assert_eq!(bans.count(start), 1);
        bans.record_connect(block(1), start);
        assert_eq!(bans.count(start), 0, "a success lifts the ban");
        bans.record_disconnect(block(1), start + Duration::from_secs(10));
        let (same_day, next_day) = (start + Duration::from_secs(80_000), start + Duration::from_secs(90_000));
        bans.record_failure(block(1), same_day);
        assert!(!bans.is_banned(block(1), same_day));
        bans.record_failure(block(1), next_day);
        assert!(bans.is_banned(block(1), next_day));
    }

    #[test]
    fn zero_switches_bans_off_and_the_memory_is_bounded() {
        let now = Instant::now();
        let mut off = AddressBans::new(0, Duration::from_secs(60));
        off.record_failure(block(1), now);
        assert!(!off.is_banned(block(1), now));
        let mut bans = AddressBans::new(1, Duration::from_secs(60));
        for number in 0..30_000_u32 {
            bans.record_failure(ClientSubnet::of(std::net::IpAddr::from(number.to_be_bytes())), now);
        }
        assert_eq!(bans.records.len(), MAX_RECORDS);
    }
}
