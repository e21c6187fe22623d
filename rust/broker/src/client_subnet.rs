//! Client addresses in groups: one IPv4 address, or one IPv6 /64, which is what one subscriber has.

use std::net::IpAddr;

use crate::ip_network::prefix_mask;

/// What limits and bans count by.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
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
}
