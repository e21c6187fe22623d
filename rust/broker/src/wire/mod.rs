//! MQTT 3.1.1 and 5 as one set of packets. `rmqtt-codec` reads and writes the bytes; this folder hides which version a client uses.
//!
//! Law: no other module of the broker names a type of `rmqtt-codec`. Read `packets` first, then `codec` and `encode`.

mod codec;
mod encode;
mod packets;

pub use self::codec::{PacketCodec, read_connect};
pub use self::packets::{ConnackProperties, Connect, Packet, ProtocolViolation, Publish, SubscribeFilter, Will, reason};

#[cfg(test)]
mod tests;
