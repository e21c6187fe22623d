//! MQTT 3.1.1 and 5 as one set of packets. `rmqtt-codec` reads and writes the bytes; this folder hides which version a client uses.
//!
//! Law: no other module of the broker names a type of `rmqtt-codec`. Read `packet_types` first, then `connect`, `codec`, `packets_from_rmqtt`, `encode`.

mod codec;
mod connect;
mod encode;
mod packet_types;
mod packets_from_rmqtt;
pub mod reason;

pub use self::codec::PacketCodec;
pub use self::connect::read_connect;
pub use self::packet_types::{ConnackProperties, Connect, Packet, ProtocolViolation, Publish, SubscribeFilter, Will};

#[cfg(test)]
mod tests;
