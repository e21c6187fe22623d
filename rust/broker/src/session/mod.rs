//! One connection, from its CONNECT to its end.
//!
//! A connection is one task that owns its socket and handles one packet at a time. Law: every wait of it (for bytes, for the inbound
//! queue, for the device's rate limit) goes through `ConnectionTask::poll_background`, which also acknowledges, sends and notices a
//! close. So a device whose own messages must wait still receives messages, and can be disconnected at any moment.
//!
//! Read `connect`, `connection`, `poll`, then `publish` and `subscribe`.

mod connect;
mod connection;
mod poll;
mod publish;
mod subscribe;

use std::sync::Arc;

use bytes::BytesMut;

use self::connect::{accept_connect, hold_back_banned, receive_connect};
use self::connection::ConnectionTask;
use crate::state::BrokerState;
use crate::transport::{TransportStream, write_final};

pub use self::connect::PeerInfo;

/// Serve one socket until its end.
pub async fn serve(mut stream: TransportStream, shared: Arc<BrokerState>, peer: PeerInfo<'_>) {
    let mut input = BytesMut::new();
    let mut shutdown = shared.shutdown.subscribe();
    let connect = receive_connect(&mut stream, &shared, &mut input, peer.accepted);
    let received = tokio::select! {
        received = tokio::time::timeout_at(peer.connect_deadline.into(), connect) => received,
        _ = shutdown.wait_for(|shutdown| *shutdown) => return,
    };
    drop(shutdown);
    let (mut codec, connect) = match received {
        Ok(Some(received)) => received,
        Ok(None) => return,
        Err(_) => {
            peer.accepted.fail();
            return shared.stats.refused_timeout.increment();
        }
    };
    let mut output = BytesMut::new();
    let accepted = peer.accepted;
    match accept_connect(&shared, &mut codec, connect, &mut output, peer).await {
        Err(code) => {
            hold_back_banned(&shared, accepted).await;
            codec.refuse(&mut output, code);
            write_final(&mut stream, &mut output).await;
        }
        Ok(accepted) => {
            // Boxed, so that a task that waits for a CONNECT does not carry the space of a session.
            let run = async move {
                let mut task = ConnectionTask::new(accepted, stream, codec, input, output, shared);
                task.reset_timer();
                task.run().await;
            };
            Box::pin(run).await;
        }
    }
}
