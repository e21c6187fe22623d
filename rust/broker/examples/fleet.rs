//! A broker and a fleet in one process, without the service: what the broker alone carries.
//!
//! `cargo run --release --example fleet -- [devices] [rate, 0 = flat out] [seconds] [qos]`

use std::time::{Duration, Instant};

use latchboard_broker::simulate::{Identity, Plan, Route, Simulation};
use latchboard_broker::{Broker, Limits, Listen, Profile, Transport};

fn argument(index: usize, default: f64) -> f64 {
    std::env::args()
        .nth(index)
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (devices, rate, seconds, qos) = (
        argument(1, 100.0) as usize,
        argument(2, 0.0),
        argument(3, 5.0),
        argument(4, 1.0),
    );
    let broker = Broker::new(Limits {
        rate_per_second: 0.0,
        ..Limits::default()
    })?;
    let listen = Listen {
        transport: Transport::Tcp,
        tls: false,
        host: "127.0.0.1".to_owned(),
        port: 0,
    };
    broker.start(&[listen], None)?;
    let identity = |number: usize| Identity {
        device_id: format!("dev_{number:020}"),
        password: format!("{number:032}"),
    };
    let identities: Vec<Identity> = (0..devices).map(identity).collect();
    let begun = Instant::now();
    for (number, identity) in identities.iter().enumerate() {
        broker.admit(
            &identity.device_id,
            number as u32,
            &identity.password,
            Profile::Native,
        );
    }
    println!(
        "admit: {:.2} us a device",
        begun.elapsed().as_secs_f64() * 1e6 / devices as f64
    );
    let before = resident_kib();
    let plan = Plan {
        route: Route {
            port: broker.addresses()[0].port(),
            ..Plan::default().route
        },
        rate,
        qos: qos as u8,
        duration: Some(Duration::from_secs_f64(seconds)),
        ..Plan::default()
    };
    let begun = Instant::now();
    let fleet = Simulation::start(plan, identities)?;
    let (mut taken, mut batches, mut all_here, mut most) = (0usize, 0usize, None, 0);
    while fleet.is_running() {
        match broker.take(1000) {
            Some(mut batch) => {
                taken += batch.telemetry.len();
                batches += 1;
                batch.ack();
            }
            None => std::thread::sleep(Duration::from_micros(500)),
        }
        let connected = fleet
            .tally()
            .connected
            .load(std::sync::atomic::Ordering::Relaxed) as usize;
        most = most.max(connected);
        if all_here.is_none() && connected == devices {
            all_here = Some(begun.elapsed());
            println!(
                "{devices} connected in {:.2} s ({:.0}/s); {} KiB for both ends of a connection",
                begun.elapsed().as_secs_f64(),
                devices as f64 / begun.elapsed().as_secs_f64(),
                (resident_kib() - before) / devices.max(1),
            );
        }
    }
    let spent = begun.elapsed().as_secs_f64();
    println!("most connected at once: {most}");
    println!(
        "{taken} telemetry messages in {spent:.2} s: {:.0}/s, {:.1} a batch",
        taken as f64 / spent,
        taken as f64 / batches.max(1) as f64
    );
    for (name, value) in fleet.tally().snapshot() {
        println!("  {name} {value}");
    }
    Ok(())
}
