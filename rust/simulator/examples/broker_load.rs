//! Measures the broker alone: a broker and a simulated fleet in one process, without the service.
//!
//! `cargo run --release -p latchboard-simulator --example broker_load -- [devices] [messages/s, 0 = as fast as possible] [seconds] [qos]`

use std::time::{Duration, Instant};

use latchboard_broker::{Broker, BrokerLimits, FirmwareProfile, MqttListenAddress, TransportKind};
use latchboard_simulator::{
    DeviceCredentials, FaultConfig, MqttVersion, Simulation, SimulationConfig, SimulatorConnectionConfig,
};

fn argument(index: usize, default: f64) -> f64 {
    std::env::args()
        .nth(index)
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (devices, rate, seconds, qos) = (
        argument(1, 100.0) as usize,
        argument(2, 0.0),
        argument(3, 5.0),
        argument(4, 1.0),
    );
    let broker = Broker::new(BrokerLimits {
        rate_per_second: 0.0,
        ..BrokerLimits::default()
    })?;
    let address = MqttListenAddress {
        transport: TransportKind::Tcp,
        tls: false,
        host: "127.0.0.1".to_owned(),
        port: 0,
    };
    broker.start(&[address], None)?;
    let credentials = |number: usize| DeviceCredentials {
        device_id: format!("dev_{number:020}"),
        password: format!("{number:032}"),
    };
    let fleet: Vec<DeviceCredentials> = (0..devices).map(credentials).collect();
    let started = Instant::now();
    for (number, device) in fleet.iter().enumerate() {
        broker.upsert_credentials(&device.device_id, number as u32, &device.password, FirmwareProfile::Native);
    }
    println!(
        "upsert_credentials: {:.2} µs for each device",
        started.elapsed().as_secs_f64() * 1e6 / devices as f64
    );
    let before = resident_kib();
    let config = SimulationConfig {
        connection: SimulatorConnectionConfig {
            host: "127.0.0.1".to_owned(),
            port: broker.addresses()[0].port(),
            websocket: false,
            trusted_certificates: None,
            mqtt_version: MqttVersion::V311,
        },
        profile: FirmwareProfile::Native,
        channels: Vec::new(),
        press_every: None,
        rate,
        qos: qos as u8,
        max_inflight: 20,
        concurrent_connects: 200,
        duration: Some(Duration::from_secs_f64(seconds)),
        faults: FaultConfig::default(),
        puback_log: false,
        threads: 1,
    };
    let started = Instant::now();
    let simulation = Simulation::start(config, fleet)?;
    let (mut taken, mut batches, mut all_connected, mut most) = (0usize, 0usize, None, 0);
    while simulation.is_running() {
        match broker.take(1000) {
            Some(mut batch) => {
                taken += batch.telemetry.len();
                batches += 1;
                batch.ack();
            }
            None => std::thread::sleep(Duration::from_micros(500)),
        }
        let connected = simulation.counters().connected.load(std::sync::atomic::Ordering::Relaxed) as usize;
        most = most.max(connected);
        if all_connected.is_none() && connected == devices {
            all_connected = Some(started.elapsed());
            println!(
                "{devices} connected in {:.2} s ({:.0}/s); {} KiB for both ends of each connection",
                started.elapsed().as_secs_f64(),
                devices as f64 / started.elapsed().as_secs_f64(),
                (resident_kib() - before) / devices.max(1),
            );
        }
    }
    let elapsed = started.elapsed().as_secs_f64();
    println!("most connected at once: {most}");
    println!(
        "{taken} telemetry messages in {elapsed:.2} s: {:.0}/s, {:.1} in each batch",
        taken as f64 / elapsed,
        taken as f64 / batches.max(1) as f64
    );
    for (name, value) in simulation.counters().snapshot() {
        println!("  {name} {value}");
    }
    Ok(())
}
