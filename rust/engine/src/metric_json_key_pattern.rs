//! The key of a metric in a JSON payload.

use crate::metric_interner::Metric;
use crate::number_row_packer::EncodedMetricKey;

/// How a metric is found in a payload and written to a row: `"name":` as a compact JSON writer puts it. One cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct MetricJsonKeyPattern {
    text: Box<[u8]>,
    /// The first 16 bytes, and a mask of those that belong to the key: one comparison instead of a call of memcmp.
    prefix: u128,
    mask: u128,
    pub encoded: EncodedMetricKey,
}

const _: () = assert!(size_of::<MetricJsonKeyPattern>() == 64);

const PREFIX: usize = 16;

impl MetricJsonKeyPattern {
    pub(crate) fn new(metric: &Metric) -> Self {
        let text = format!("\"{}\":", metric.name).into_bytes();
        let mut prefix = [0; PREFIX];
        let mut mask = [0; PREFIX];
        for (index, byte) in text.iter().take(PREFIX).enumerate() {
            prefix[index] = *byte;
            mask[index] = 0xff;
        }
        Self {
            prefix: u128::from_le_bytes(prefix),
            mask: u128::from_le_bytes(mask),
            text: text.into(),
            encoded: EncodedMetricKey::new(metric.number),
        }
    }

    /// Where the value begins, if this key and its colon begin at `at`.
    #[inline(always)]
    pub fn matches(&self, payload: &[u8], at: usize) -> Option<usize> {
        let rest = payload.get(at..)?;
        let prefix = match rest.first_chunk() {
            Some(prefix) => u128::from_le_bytes(*prefix),
            None => zero_padded(rest),
        };
        let found = (prefix ^ self.prefix) & self.mask == 0 && (self.text.len() <= PREFIX || rest.starts_with(&self.text));
        found.then_some(at + self.text.len())
    }
}

/// The end of a payload that is shorter than a prefix, padded with zeros, which no key contains.
#[inline]
fn zero_padded(rest: &[u8]) -> u128 {
    let mut prefix = [0; PREFIX];
    prefix[..rest.len()].copy_from_slice(rest);
    u128::from_le_bytes(prefix)
}
