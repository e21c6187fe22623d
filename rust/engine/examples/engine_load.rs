//! The engine alone under load, for a profiler: no Python, no broker, no database.
//!
//! `cargo run --release -p latchboard-engine --example drive -- [devices] [rules per device] [rounds] [form]`, where the form is `plain`,
//! `envelope`, `text`, `units`, `array` or `nested`. Prints messages per processor second and the memory per device.

use std::fmt::Write;
use std::fs;
use std::hint::black_box;

use latchboard_engine::compiled_rules::{Condition, ConditionTest, EQUAL, GREATER, LESS, NEVER, RuleSpec};
use latchboard_engine::engine::Engine;

const METRICS: [&str; 5] = ["temperature", "humidity", "pressure", "voltage", "rssi"];
const BATCH: usize = 256;
const MESSAGES: usize = 200_000;
const NOW_MS: i64 = 1_790_000_000_000;

/// xorshift64*: the same devices and messages in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

fn rule(random: &mut Random, number: u32, index: usize) -> RuleSpec {
    const MASKS: [u8; 4] = [GREATER, GREATER | EQUAL, LESS, LESS | EQUAL];
    let condition = |k: usize| {
        let mask = MASKS[(index + k) % 4];
        let distance = 11.0 + random.below(61) as f64 / 10.0;
        let limit = if mask & GREATER != 0 {
            60.0 + distance
        } else {
            60.0 - distance
        };
        let metric = METRICS[(index + k) % 5].into();
        Condition {
            metric,
            test: ConditionTest::Number(mask, limit),
        }
    };
    RuleSpec {
        rule: number,
        priority: 100,
        any: false,
        conditions: (0..2).map(condition).collect(),
        clear: Vec::new(),
        for_ms: 0,
        cooldown_ms: 0,
        command: 2 + index as u32 % 5,
        matched: false,
        held_since: NEVER,
        last_fired: NEVER,
    }
}

fn payload(random: &mut Random, form: &str) -> Vec<u8> {
    let mut body = String::new();
    for (index, name) in METRICS.iter().enumerate() {
        let value = 32.0 + (0..4).map(|_| random.below(14_000) as f64).sum::<f64>() / 1_000.0;
        let digits = [1, 1, 2, 3, 2][index];
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(body, "{comma}\"{name}\": {value:.digits$}");
    }
    let whole = match form {
        "envelope" => format!("{{\"ts\": {NOW_MS}, \"m\": {{{body}}}}}"),
        "text" => format!("{{{body}, \"mode\": \"eco\"}}"),
        "units" => format!("{{\"m\": {{{body}}}, \"u\": {{\"temperature\": \"celsius\"}}}}"),
        "array" => format!("[{{{body}}},{{{body}}}]"),
        "nested" => format!("{{{body}, \"raw\": {{\"adc\": [1, 2, 3]}}}}"),
        _ => format!("{{{body}}}"),
    };
    whole.into_bytes()
}

fn status(field: &str) -> usize {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(field));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.unwrap_or(0)
}

/// User and system time of this process in seconds, as Linux counts it: in hundredths.
fn processor_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> = after.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // The first field, the state, is a letter and is filtered out.
    fields
        .get(10)
        .zip(fields.get(11))
        .map_or(0.0, |(user, system)| (user + system) / 100.0)
}

fn engine_with_devices(devices: u32, rules: usize, random: &mut Random) -> Engine {
    let mut engine = Engine::default();
    let first = b"{\"temperature\":60.5,\"humidity\":60.5,\"pressure\":60.5,\"voltage\":60.5,\"rssi\":60.5}";
    for device in 1..=devices {
        engine.ingest([(device, NOW_MS - 1, &first[..])].into_iter(), i64::MAX);
        let number = |index: usize| (device - 1) * rules as u32 + index as u32 + 1;
        let specs = (0..rules).map(|index| rule(random, number(index), index));
        engine.put_rules(device, specs.collect());
    }
    engine.checkpoint(usize::MAX);
    engine
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize, default: usize| arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (devices, rules, rounds) = (argument(0, 1_000) as u32, argument(1, 5), argument(2, 5));
    let form = arguments.get(3).map_or("plain", String::as_str);
    let mut random = Random(88_172_645_463_325_252);
    let before = status("VmRSS:");
    let mut engine = engine_with_devices(devices, rules, &mut random);
    let bytes_per_device = (status("VmRSS:") - before) * 1024 / devices as usize;
    let messages: Vec<(u32, i64, Vec<u8>)> = (0..MESSAGES)
        .map(|_| {
            (
                1 + random.below(u64::from(devices)) as u32,
                NOW_MS,
                payload(&mut random, form),
            )
        })
        .collect();
    let started = processor_seconds();
    let mut fired = 0;
    for _ in 0..rounds {
        for batch in messages.chunks(BATCH) {
            let result = engine.ingest(
                batch.iter().map(|(device, at, payload)| (*device, *at, &payload[..])),
                i64::MAX,
            );
            fired += black_box(result).fired.len();
        }
    }
    let spent = processor_seconds() - started;
    let rate = (rounds * MESSAGES) as f64 / spent.max(0.01) / 1e6;
    println!(
        "{devices} devices x {rules} rules, {form}: {rate:.2} million messages per processor second, {fired} fired, {bytes_per_device} bytes per device"
    );
}
