//! Reason codes of MQTT 5.0, section 2.4, as far as we say them.

pub const SUCCESS: u8 = 0x00;
pub const WITH_WILL: u8 = 0x04;
pub const MALFORMED: u8 = 0x81;
pub const PROTOCOL_ERROR: u8 = 0x82;
pub const CLIENT_ID: u8 = 0x85;
pub const CREDENTIALS: u8 = 0x86;
pub const NOT_AUTHORIZED: u8 = 0x87;
pub const BUSY: u8 = 0x89;
pub const SHUTTING_DOWN: u8 = 0x8b;
pub const AUTH_METHOD: u8 = 0x8c;
pub const KEEP_ALIVE: u8 = 0x8d;
pub const TAKEN_OVER: u8 = 0x8e;
pub const PACKET_ID_UNKNOWN: u8 = 0x92;
pub const TOO_LARGE: u8 = 0x95;
pub const QUOTA: u8 = 0x97;
pub const ADMINISTRATIVE: u8 = 0x98;
pub const SHARED: u8 = 0x9e;
pub const SUBSCRIPTION_IDS: u8 = 0xa1;
