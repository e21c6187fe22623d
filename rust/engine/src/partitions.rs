//! Partitions of the devices: which one a device belongs to, and how an instance hands one to another: the state of its devices
//! (checkpoints) and their messages (blocks). `partition_of` is defined by `domain/partitions/model.py`, a block by
//! `tests/support/telemetry_block_codec.py`.
//!
//! ```text
//! All numbers are little-endian.
//! ┌─────────────┬───────────┬─────────────────────────────────────────┬──────────────────┐
//! │ version     │ count     │ CRC-32 of everything after these 9 bytes│ `count` messages │
//! │ u8, 1       │ u32       │ u32                                     │                  │
//! └─────────────┴───────────┴─────────────────────────────────────────┴──────────────────┘
//! Message
//! ┌─────────────┬────────────────────────┬──────────────────┬───────────┬────────────────┐
//! │ device      │ arrival                │ kind             │ length    │ payload        │
//! │ u32         │ i64, Unix milliseconds │ u8, 0: telemetry │ u32       │ `length` bytes │
//! └─────────────┴────────────────────────┴──────────────────┴───────────┴────────────────┘
//! ```
//!
//! Law: a block is read whole or refused whole. What is truncated, longer than it says, damaged, or of a later version is refused.

use std::fmt;

use crate::batch_result::DeviceCheckpoint;
use crate::engine::Engine;

/// Fibonacci hashing: 2^32 divided by the golden ratio.
const MULTIPLIER: u64 = 2_654_435_769;

/// Between 0 and `partitions`, which is not 0.
#[inline]
pub fn partition_of(device: u32, partitions: u32) -> u32 {
    let hash = (u64::from(device) * MULTIPLIER) & u64::from(u32::MAX);
    ((hash * u64::from(partitions)) >> 32) as u32
}

impl Engine {
    /// Removes the devices of a partition with their values, rules and timers; returns how many. Another engine has them now.
    pub fn drop_partition(&mut self, partition: u32, partitions: u32) -> usize {
        let is_dropped = |number: &u32| partition_of(*number, partitions) == partition;
        self.changed.retain(|number| !is_dropped(number));
        let numbers = self.devices.headers().map(|header| header.number);
        let dropped: Vec<u32> = numbers.filter(is_dropped).collect();
        for number in &dropped {
            self.devices.remove(*number);
            self.deaf.remove(number);
        }
        dropped.len()
    }

    /// Checkpoints of the devices of a partition that differ from their last one, at most `limit`.
    pub fn checkpoint_partition(&mut self, partition: u32, partitions: u32, limit: usize) -> Vec<DeviceCheckpoint> {
        let mut taken = Vec::new();
        self.changed.retain(|number| {
            let is_taken = taken.len() < limit && partition_of(*number, partitions) == partition;
            if is_taken {
                taken.push(*number);
            }
            !is_taken
        });
        self.checkpoints_of(taken)
    }
}

const VERSION: u8 = 1;
const TELEMETRY: u8 = 0;
const HEADER: usize = 9;
const MESSAGE_HEADER: usize = 17;

/// A message of a block; the payload is a part of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TelemetryBlockMessage {
    pub device: u32,
    pub arrived_ms: i64,
    /// Where the payload begins and ends in the block.
    pub begin: usize,
    pub end: usize,
}

/// Why bytes are not a block, and the position of the first byte that is wrong or missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockError {
    pub at: usize,
    pub reason: &'static str,
}

impl fmt::Display for BlockError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "byte {}: {}", self.at, self.reason)
    }
}

/// One partition's messages, in the order of their arrival.
struct TelemetryBlockWriter {
    bytes: Vec<u8>,
    count: u32,
}

impl TelemetryBlockWriter {
    fn new(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.extend_from_slice(&[0; HEADER]);
        Self { bytes, count: 0 }
    }

    fn put(&mut self, device: u32, arrived_ms: i64, payload: &[u8]) {
        self.bytes.extend_from_slice(&device.to_le_bytes());
        self.bytes.extend_from_slice(&arrived_ms.to_le_bytes());
        self.bytes.push(TELEMETRY);
        self.bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(payload);
        self.count += 1;
    }

    fn finish(mut self) -> Vec<u8> {
        let crc = crc32fast::hash(&self.bytes[HEADER..]);
        self.bytes[0] = VERSION;
        self.bytes[1..5].copy_from_slice(&self.count.to_le_bytes());
        self.bytes[5..HEADER].copy_from_slice(&crc.to_le_bytes());
        self.bytes
    }
}

/// (partition, block) of these messages: (device, arrival, payload) in order of arrival. The blocks of a partition follow each other
/// in that order. No block has more than `max_bytes`, unless a single message does.
pub fn split_into_blocks<'a>(
    messages: impl Iterator<Item = (u32, i64, &'a [u8])>,
    partitions: u32,
    max_bytes: usize,
) -> Vec<(u32, Vec<u8>)> {
    let mut open: Vec<Option<TelemetryBlockWriter>> = (0..partitions).map(|_| None).collect();
    let mut blocks = Vec::new();
    for (device, arrived_ms, payload) in messages {
        let partition = partition_of(device, partitions);
        let writer = &mut open[partition as usize];
        let size = MESSAGE_HEADER + payload.len();
        if let Some(full) = writer.take_if(|writer| writer.bytes.len() + size > max_bytes) {
            blocks.push((partition, full.finish()));
        }
        writer
            .get_or_insert_with(|| TelemetryBlockWriter::new(HEADER + 4 * size))
            .put(device, arrived_ms, payload);
    }
    for (partition, writer) in open.into_iter().enumerate() {
        if let Some(writer) = writer {
            blocks.push((partition as u32, writer.finish()));
        }
    }
    blocks
}

/// The messages of a block.
pub fn read_block(block: &[u8]) -> Result<Vec<TelemetryBlockMessage>, BlockError> {
    let mut reader = TelemetryBlockReader { bytes: block, at: 0 };
    let [version] = reader.take()?;
    if version != VERSION {
        return Err(reader.refuse(1, "the version is unknown"));
    }
    let count = u32::from_le_bytes(reader.take()?) as usize;
    let crc = u32::from_le_bytes(reader.take()?);
    if crc32fast::hash(&block[HEADER..]) != crc {
        return Err(reader.refuse(4, "the checksum is that of other bytes"));
    }
    if count > block.len() / MESSAGE_HEADER {
        return Err(reader.refuse(8, "more messages are announced than there is room for"));
    }
    let mut messages = Vec::with_capacity(count);
    for _ in 0..count {
        messages.push(reader.message()?);
    }
    if reader.at != block.len() {
        return Err(reader.refuse(0, "bytes follow the last message"));
    }
    Ok(messages)
}

struct TelemetryBlockReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl TelemetryBlockReader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BlockError> {
        let Some(taken) = self.bytes[self.at..].first_chunk() else {
            return Err(self.truncated());
        };
        self.at += N;
        Ok(*taken)
    }

    fn message(&mut self) -> Result<TelemetryBlockMessage, BlockError> {
        let device = u32::from_le_bytes(self.take()?);
        let arrived_ms = i64::from_le_bytes(self.take()?);
        let [kind] = self.take()?;
        if kind != TELEMETRY {
            return Err(self.refuse(1, "the kind of the message is unknown"));
        }
        let length = u32::from_le_bytes(self.take()?) as usize;
        if length > self.bytes.len() - self.at {
            return Err(self.truncated());
        }
        let begin = self.at;
        self.at += length;
        Ok(TelemetryBlockMessage {
            device,
            arrived_ms,
            begin,
            end: self.at,
        })
    }

    /// `back`: how many bytes before the current one the wrong one begins.
    fn refuse(&self, back: usize, reason: &'static str) -> BlockError {
        BlockError {
            at: self.at - back,
            reason,
        }
    }

    fn truncated(&self) -> BlockError {
        BlockError {
            at: self.bytes.len(),
            reason: "the block ends too early",
        }
    }
}
