//! Writers and a reader on one entry: what is read is of one event.

use super::{EventRing, FIELDS};
use crate::model;
use crate::sync::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use loom::thread;
use std::sync::Arc;

impl<const N: usize> EventRing<N> {
    fn modelled() -> Self {
        let entry = || super::EventSlot { seq: AtomicU64::new(0), fields: core::array::from_fn(|_| AtomicU64::new(0)) };
        Self { total: AtomicU64::new(0), entries: core::array::from_fn(|_| entry()) }
    }
}

fn is_whole(read: Option<(u64, [u64; FIELDS])>) -> bool {
    read.is_none_or(|(_, fields)| fields[0] != 0 && fields.iter().all(|&field| field == fields[0]))
}

#[test]
fn no_event_is_read_torn() {
    model::check(2, || {
        let ring = Arc::new(EventRing::<1>::modelled());
        let writer = thread::spawn({
            let ring = Arc::clone(&ring);
            move || {
                ring.post([1; FIELDS]);
                ring.post([2; FIELDS]);
            }
        });
        assert!(is_whole(ring.read(0)));
        writer.join().unwrap();
        assert_eq!(ring.read(0), Some((1, [2; FIELDS])));
    });
}

#[test]
fn writers_of_one_entry_do_not_mix() {
    model::check(2, || {
        let ring = Arc::new(EventRing::<1>::modelled());
        let writer = thread::spawn({
            let ring = Arc::clone(&ring);
            move || ring.post([1; FIELDS])
        });
        ring.post([2; FIELDS]);
        writer.join().unwrap();
        let read = ring.read(0);
        assert!(read.is_some() && is_whole(read), "{read:?}");
        assert_eq!(ring.total.load(Relaxed), 2);
    });
}
