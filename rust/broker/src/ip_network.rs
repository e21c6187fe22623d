//! IP networks in CIDR notation.

use std::net::{IpAddr, Ipv6Addr};

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
pub(crate) fn prefix_mask(prefix: u32) -> u128 {
    u128::MAX.checked_shl(128 - prefix).unwrap_or(0)
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
}
