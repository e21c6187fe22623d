//! How many of one lane are sent at once; the others of it wait here, in the order in which they came.
//!
//! So a lane can be handed more than it may send at a time, and goes on by itself when an answer comes.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

struct Lane {
    places: Arc<Semaphore>,
    users: usize,
}

pub struct Lanes {
    at_once: usize,
    lanes: Mutex<HashMap<String, Lane>>,
}

impl Lanes {
    pub fn new(at_once: usize) -> Self {
        Self {
            at_once,
            lanes: Mutex::new(HashMap::new()),
        }
    }

    /// A place in the queue of the lane; the empty name is no lane, and nobody waits there.
    pub fn join<'a>(&'a self, name: &'a str) -> Queued<'a> {
        let places = (!name.is_empty()).then(|| {
            let mut lanes = self.lanes.lock();
            if !lanes.contains_key(name) {
                let places = Arc::new(Semaphore::new(self.at_once));
                lanes.insert(name.to_owned(), Lane { places, users: 0 });
            }
            let lane = lanes.get_mut(name)?;
            lane.users += 1;
            Some(Arc::clone(&lane.places))
        });
        Queued {
            lanes: self,
            name,
            places: places.flatten(),
        }
    }
}

/// Dropped, it leaves the lane; the last one closes it.
pub struct Queued<'a> {
    lanes: &'a Lanes,
    name: &'a str,
    places: Option<Arc<Semaphore>>,
}

impl Queued<'_> {
    /// The permit, to be held while sending; None where there is no lane.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        match &self.places {
            Some(places) => Arc::clone(places).acquire_owned().await.ok(),
            None => None,
        }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if self.places.is_some() {
            let mut lanes = self.lanes.lanes.lock();
            if let Some(lane) = lanes.get_mut(self.name) {
                lane.users -= 1;
                if lane.users == 0 {
                    lanes.remove(self.name);
                }
            }
        }
    }
}
