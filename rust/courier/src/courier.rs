//! The courier itself: parcels in, news out, one task a parcel.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::dial::Questions;
use crate::exchange::{Roads, exchange};
use crate::lanes::Lanes;
use crate::model::{Failure, News, Outcome, PATIENCE, Parcel};
use crate::outbox::Outbox;
use crate::pool::{KEPT, Pool};
use crate::tls;

/// One thread carries more than a database can log, and leaves the other cores to the rest of the service.
const THREADS: usize = 1;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the courier's thread cannot be started: {0}")]
    Threads(#[from] io::Error),
    #[error("the given certificates cannot be read: {0}")]
    Certificates(String),
}

struct Shared {
    roads: Roads,
    lanes: Lanes,
    under_way: Mutex<HashMap<u64, AbortHandle>>,
}

pub struct Courier {
    shared: Arc<Shared>,
    runtime: Mutex<Option<Runtime>>,
    believed: usize,
}

impl Courier {
    /// `extra_pem`: certificates believed beside the system's. `at_once`: how many of one lane.
    pub fn new(extra_pem: &[u8], at_once: usize) -> Result<Self, StartError> {
        let (tls, believed) = tls::connector(extra_pem)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("webhook-courier")
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared {
            roads: Roads {
                pool: Pool::default(),
                questions: Questions::default(),
                outbox: Outbox::new()?,
                tls,
            },
            lanes: Lanes::new(at_once.max(1)),
            under_way: Mutex::new(HashMap::new()),
        });
        runtime.spawn(sweeping(Arc::clone(&shared)));
        Ok(Self {
            shared,
            runtime: Mutex::new(Some(runtime)),
            believed,
        })
    }

    /// How many root certificates are believed; without any, no https receiver is.
    pub fn believed(&self) -> usize {
        self.believed
    }

    /// After `stop` nothing is sent.
    pub fn send(&self, parcels: Vec<Parcel>) {
        let runtime = self.runtime.lock();
        let Some(runtime) = runtime.as_ref() else {
            return;
        };
        // Held over the whole batch, so that no task can end before it is known.
        let mut under_way = self.shared.under_way.lock();
        for parcel in parcels {
            let ticket = parcel.ticket;
            let task = runtime.spawn(carry(Arc::clone(&self.shared), parcel));
            under_way.insert(ticket, task.abort_handle());
        }
    }

    pub fn cut(&self, tickets: &[u64]) {
        let mut under_way = self.shared.under_way.lock();
        for ticket in tickets {
            if let Some(task) = under_way.remove(ticket) {
                task.abort();
            }
        }
    }

    /// The addresses of the host that `question` asked for, best first.
    pub fn direct(&self, question: u64, addresses: Vec<IpAddr>) {
        self.shared.roads.questions.answer(question, Ok(addresses));
    }

    /// There is no way to that host, and why.
    pub fn refuse(&self, question: u64, why: String) {
        self.shared.roads.questions.answer(question, Err(why));
    }

    pub fn take(&self) -> Vec<News> {
        self.shared.roads.outbox.take()
    }

    /// Readable while there is something to take.
    pub fn descriptor(&self) -> RawFd {
        self.shared.roads.outbox.descriptor()
    }

    /// Every connection is closed, and nothing more is said.
    pub fn stop(&self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn carry(shared: Arc<Shared>, parcel: Parcel) {
    let queued = shared.lanes.join(&parcel.lane);
    let place = tokio::time::timeout(PATIENCE, queued.turn()).await;
    let began = Instant::now();
    let result = if place.is_ok() {
        tokio::time::timeout(parcel.deadline, exchange(&shared.roads, &parcel))
            .await
            .unwrap_or(Err(Failure::Late(parcel.deadline)))
    } else {
        Err(Failure::Unsent)
    };
    drop(place);
    drop(queued);
    // Whoever was cut in this very moment has nothing to say any more.
    if shared.under_way.lock().remove(&parcel.ticket).is_some() {
        shared.roads.outbox.put(News::Outcome(Outcome {
            ticket: parcel.ticket,
            result,
            took: began.elapsed(),
        }));
    }
}

async fn sweeping(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(KEPT).await;
        shared.roads.pool.sweep();
    }
}
