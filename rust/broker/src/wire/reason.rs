//! The reason codes that the broker uses, named as in MQTT 5.0, section 2.4.

pub const SUCCESS: u8 = 0x00;
pub const DISCONNECT_WITH_WILL: u8 = 0x04;
pub const MALFORMED_PACKET: u8 = 0x81;
pub const PROTOCOL_ERROR: u8 = 0x82;
pub const UNSUPPORTED_PROTOCOL_VERSION: u8 = 0x84;
pub const CLIENT_IDENTIFIER_NOT_VALID: u8 = 0x85;
pub const BAD_USER_NAME_OR_PASSWORD: u8 = 0x86;
pub const NOT_AUTHORIZED: u8 = 0x87;
pub const SERVER_BUSY: u8 = 0x89;
pub const SERVER_SHUTTING_DOWN: u8 = 0x8b;
pub const BAD_AUTHENTICATION_METHOD: u8 = 0x8c;
pub const KEEP_ALIVE_TIMEOUT: u8 = 0x8d;
pub const SESSION_TAKEN_OVER: u8 = 0x8e;
pub const TOPIC_NAME_INVALID: u8 = 0x90;
pub const PACKET_IDENTIFIER_NOT_FOUND: u8 = 0x92;
pub const PACKET_TOO_LARGE: u8 = 0x95;
pub const QUOTA_EXCEEDED: u8 = 0x97;
pub const ADMINISTRATIVE_ACTION: u8 = 0x98;
pub const QOS_NOT_SUPPORTED: u8 = 0x9b;
pub const SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: u8 = 0x9e;
pub const SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: u8 = 0xa1;
