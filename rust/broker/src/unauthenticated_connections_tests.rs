//! The limits on connections that have not sent their CONNECT.

use super::*;

fn pending_connections(max: usize, max_per_address: usize) -> Arc<PendingConnections> {
    Arc::new(PendingConnections::new(&BrokerLimits {
        max_pending: max,
        max_pending_per_address: max_per_address,
        ban_after: 2,
        max_ban: Duration::from_secs(60),
        trusted_networks: vec![IpNetwork::new(IpAddr::from([127, 0, 0, 1]), 8)],
        ..BrokerLimits::default()
    }))
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn is_evicted(eviction: &mut PendingMqttSocketEvictionSignal) -> bool {
    eviction.0.try_recv().is_ok()
}

#[test]
fn one_address_has_its_share_and_others_still_come_in() {
    let (pending, now) = (pending_connections(10, 2), Instant::now());
    let _held: Vec<_> = (0..2).map(|_| pending.open(ip(1), now).expect("room")).collect();
    assert_eq!(pending.open(ip(1), now).err(), Some(BrokerSocketRefusalReason::AddressFull));
    assert!(pending.open(ip(2), now).is_ok());
}

#[test]
fn a_newcomer_takes_the_place_of_the_longest_silent_one_of_the_address_that_holds_most() {
    let (pending, start) = (pending_connections(3, 3), Instant::now());
    let (_other, mut of_other) = pending.open(ip(2), start).expect("room");
    let (_first, mut oldest) = pending.open(ip(1), start).expect("room");
    let (_second, mut younger) = pending.open(ip(1), start).expect("room");
    assert_eq!(
        pending.open(ip(3), start).err(),
        Some(BrokerSocketRefusalReason::Full),
        "who has just come is spared"
    );
    let _newcomer = pending.open(ip(3), start + SPARED).expect("room is made");
    assert!(is_evicted(&mut oldest) && !is_evicted(&mut younger) && !is_evicted(&mut of_other));
    assert_eq!(pending.counts(start).0, 3);
}

#[test]
fn a_connected_device_takes_no_place_and_is_not_evicted() {
    let (pending, start) = (pending_connections(1, 1), Instant::now());
    let (device, _) = pending.open(ip(1), start).expect("room");
    assert!(device.connect());
    let (late, _eviction) = pending.open(ip(2), start).expect("the device takes no place");
    let _newcomer = pending.open(ip(3), start + SPARED).expect("room is made");
    assert!(!late.connect(), "it was told to make room before its CONNECT was accepted");
}

#[test]
fn an_address_that_only_fails_is_banned_and_one_with_a_device_is_not() {
    let (pending, now) = (pending_connections(10, 10), Instant::now());
    let fail = |address| {
        let (socket, _) = pending.open(address, now).expect("not banned yet");
        socket.fail();
    };
    (0..2).for_each(|_| fail(ip(1)));
    assert_eq!(
        pending.open(ip(1), Instant::now()).err(),
        Some(BrokerSocketRefusalReason::Banned)
    );
    let (device, _) = pending.open(ip(2), now).expect("room");
    assert!(device.connect());
    (0..5).for_each(|_| fail(ip(2)));
    (0..5).for_each(|_| drop(pending.open(ip(3), now).expect("a health check closes without a word")));
    assert_eq!(pending.counts(Instant::now()).1, 1);
}

#[test]
fn a_trusted_address_has_no_share_of_its_own_and_is_never_banned() {
    let (pending, now) = (pending_connections(5, 1), Instant::now());
    let proxy = IpAddr::from([127, 0, 0, 1]);
    for _ in 0..9 {
        let (socket, _) = pending.open(proxy, now).expect("not banned");
        socket.fail();
    }
    let _held: Vec<_> = (0..5).map(|_| pending.open(proxy, now).expect("room")).collect();
    assert_eq!(pending.open(proxy, now).err(), Some(BrokerSocketRefusalReason::Full));
}
