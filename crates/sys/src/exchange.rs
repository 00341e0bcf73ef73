//! Two rings of messages, one each way, in memory that two processes share, neither of which believes the other.
//!
//! Each ring has one who sends and one who receives (a process may let several threads take turns, under a lock of its own). Both keep their own
//! position; what they share is only for the other one to see, and is checked: at worst the other one is not understood.
//!
//! Nobody enters the kernel while the other side is awake. Who receives tells how many of it sleep, and who sends rings a bell (whatever the two have
//! for that) for one of them. A sleeper is counted off by who rings for it, so that no bell is rung twice:
//!
//! ```text
//!   sender                                        receiver
//!     message; tail                                 asleep += 1
//!     fence                                         fence
//!     asleep > 0? asleep -= 1, and ring the bell    tail unchanged? sleep until the bell rings
//!                                                     else asleep -= 1, unless it is 0: then a bell is or will be rung for nothing
//! ```
//! A message may be shown, by its tail alone, before the sender goes through the rest: then others may come with it, for one fence and at most one bell.
//! Somebody else may receive in a sleeper's stead: counts it off, as a sender would, and goes through the receiver's half for it in the end.
//!
//! Of the two that come first to their fence, the other one sees what it has stored: a message is not there unseen while a receiver sleeps unrung.

use crate::area::Area;
use crate::sync::AtomicU32;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

#[cfg(loom)]
use crate::model::checker::sync::atomic::fence;
#[cfg(not(loom))]
use core::sync::atomic::fence;

/// What goes over it.
pub type Message = [u64; 5];

/// Words that different sides write are apart. Loom has no cache.
#[cfg(not(loom))]
const LINE: usize = 128;
#[cfg(loom)]
const LINE: usize = 8;
/// tail, head, asleep
const WORDS: usize = 3;
const MESSAGE: usize = size_of::<Message>();

/// Which ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To who made it.
    In = 0,
    /// From who made it.
    Out = 1,
}

/// The other side has written what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// There is no room for one more message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The memory. See the module.
#[derive(Debug)]
pub struct Exchange {
    area: Area,
    capacity: u32,
}

impl Exchange {
    const fn len(capacity: u32) -> usize {
        2 * (WORDS * LINE + capacity as usize * MESSAGE)
    }

    /// Bytes of the file for rings of so many messages, a power of two.
    #[must_use]
    pub const fn file_len(capacity: u32) -> u64 {
        Self::len(capacity) as u64
    }

    /// The first bytes of a file that has them, all zero at the start, and that nobody can shorten.
    ///
    /// # Errors
    /// `EINVAL` the file is shorter, can be shortened, or `capacity` is no power of two; those of mmap(2).
    #[cfg(not(loom))]
    pub fn of_file(fd: i32, capacity: u32) -> Result<Self, syscalls::Errno> {
        const MEBI: u32 = 1 << 20;
        let len = Self::len(capacity);
        let is_fit = capacity.is_power_of_two() && capacity <= MEBI && is_sealed(fd)? && crate::io::fstat(fd)?.size >= len as u64;
        if is_fit { Ok(Self { area: Area::map_file(fd, len)?, capacity }) } else { Err(syscalls::Errno::EINVAL) }
    }

    /// The same memory for both sides of a model.
    #[cfg(loom)]
    pub fn of_model(capacity: u32) -> Self {
        Self { area: Area::map(Self::len(capacity)).expect("memory"), capacity }
    }

    const fn begin(&self, way: Way) -> usize {
        way as usize * (Self::len(self.capacity) / 2)
    }

    fn word(&self, way: Way, nth: usize) -> &AtomicU32 {
        // SAFETY: in the area, whose size was checked; a multiple of 4.
        unsafe { self.area.u32(self.begin(way) + nth * LINE) }
    }

    fn tail(&self, way: Way) -> &AtomicU32 {
        self.word(way, 0)
    }

    fn head(&self, way: Way) -> &AtomicU32 {
        self.word(way, 1)
    }

    fn asleep(&self, way: Way) -> &AtomicU32 {
        self.word(way, 2)
    }

    fn at(&self, way: Way, position: u32) -> usize {
        self.begin(way) + WORDS * LINE + (position & (self.capacity - 1)) as usize * MESSAGE
    }

    fn load(&self, way: Way, position: u32) -> Message {
        let at = self.at(way, position);
        // SAFETY: masked to the ring; the area and the ring begin at multiples of 8, and so does each message.
        core::array::from_fn(|i| unsafe { self.area.u64(at + i * 8) }.load(Relaxed))
    }

    fn store(&self, way: Way, position: u32, message: &Message) {
        let at = self.at(way, position);
        for (i, &word) in message.iter().enumerate() {
            // SAFETY: as above.
            unsafe { self.area.u64(at + i * 8) }.store(word, Relaxed);
        }
    }

    /// Counts a sleeper off: it is to be rung for, or need not sleep. False: none is counted.
    fn claim(&self, way: Way) -> bool {
        self.asleep(way).fetch_update(AcqRel, Relaxed, |asleep| asleep.checked_sub(1)).is_ok()
    }
}

/// Whether nobody can shorten a file: its mapping then has all its pages, always.
#[cfg(not(loom))]
fn is_sealed(fd: i32) -> Result<bool, syscalls::Errno> {
    const F_GET_SEALS: usize = 1034;
    const F_SEAL_SHRINK: usize = 2;
    // SAFETY: no addresses.
    let seals = unsafe { syscalls::syscall!(syscalls::Sysno::fcntl, fd, F_GET_SEALS) }?;
    Ok(seals & F_SEAL_SHRINK != 0)
}

/// Who sends one way.
#[derive(Debug)]
pub struct Sender {
    exchange: Arc<Exchange>,
    way: Way,
    next: u32,
}

impl Sender {
    /// The only one for this way.
    #[must_use]
    pub const fn new(exchange: Arc<Exchange>, way: Way) -> Self {
        Self { exchange, way, next: 0 }
    }

    /// Stores a message, which nobody sees before [`publish`](Self::publish).
    ///
    /// # Errors
    /// [`Full`]
    pub fn put(&mut self, message: &Message) -> Result<(), Full> {
        // Acquire: the receiver has read what was there before.
        let head = self.exchange.head(self.way).load(Acquire);
        if self.next.wrapping_sub(head) >= self.exchange.capacity {
            return Err(Full);
        }
        self.exchange.store(self.way, self.next, message);
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Shows what was put to those who are awake. [`publish`](Self::publish) must follow.
    pub fn show(&self) {
        // Pairs with `Receiver::take`.
        self.exchange.tail(self.way).store(self.next, Release);
    }

    /// Shows what was put. True: the bell must be rung once.
    #[must_use]
    pub fn publish(&self) -> bool {
        self.show();
        fence(SeqCst);
        self.exchange.asleep(self.way).load(Relaxed) > 0 && self.exchange.claim(self.way)
    }
}

/// Who receives one way.
#[derive(Debug)]
pub struct Receiver {
    exchange: Arc<Exchange>,
    way: Way,
    next: u32,
}

/// Whether a receiver may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Until the bell rings.
    Sleep,
    /// There are messages.
    Awake,
    /// There are messages, and a bell is, or will be, rung for who wanted to sleep.
    Rung,
}

impl Receiver {
    /// The only one for this way.
    #[must_use]
    pub const fn new(exchange: Arc<Exchange>, way: Way) -> Self {
        Self { exchange, way, next: 0 }
    }

    /// The next message, if there is one.
    ///
    /// # Errors
    /// [`Broken`]
    pub fn take(&mut self) -> Result<Option<Message>, Broken> {
        // Pairs with `Sender::publish`.
        let tail = self.exchange.tail(self.way).load(Acquire);
        match tail.wrapping_sub(self.next) {
            0 => Ok(None),
            n if n > self.exchange.capacity => Err(Broken),
            _ => {
                let message = self.exchange.load(self.way, self.next);
                self.next = self.next.wrapping_add(1);
                // Pairs with `Sender::put`.
                self.exchange.head(self.way).store(self.next, Release);
                Ok(Some(message))
            }
        }
    }

    /// Whether there is nothing to take.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exchange.tail(self.way).load(Relaxed) == self.next
    }

    /// One of those who receive would like to sleep.
    #[must_use]
    pub fn rest(&self) -> Rest {
        self.exchange.asleep(self.way).fetch_add(1, AcqRel);
        fence(SeqCst);
        if self.is_empty() {
            Rest::Sleep
        } else if self.exchange.claim(self.way) {
            Rest::Awake
        } else {
            Rest::Rung
        }
    }

    /// Somebody else receives instead of one who sleeps: no bell is rung for that one until it [`rests`](Self::rest) in its stead. False: none sleeps.
    #[must_use]
    pub fn stand_in(&self) -> bool {
        self.exchange.claim(self.way)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fd::EngineFd;
    use crate::io;
    use syscalls::{Sysno, syscall};

    fn file_of(len: u64, seals: u32) -> EngineFd {
        const MFD_ALLOW_SEALING: usize = 2;
        const F_ADD_SEALS: usize = 1033;
        // SAFETY: a NUL-terminated name.
        let fd = unsafe { syscall!(Sysno::memfd_create, c"test".as_ptr(), MFD_ALLOW_SEALING) }.unwrap();
        let file = EngineFd::adopt(fd as i32);
        io::ftruncate(file.number(), len as i64).unwrap();
        // SAFETY: no addresses.
        unsafe { syscall!(Sysno::fcntl, file.number(), F_ADD_SEALS, seals) }.unwrap();
        file
    }

    const SHRINK: u32 = 2;

    fn pair(capacity: u32) -> (Sender, Receiver, Arc<Exchange>) {
        let file = file_of(Exchange::file_len(capacity), SHRINK);
        let here = Arc::new(Exchange::of_file(file.number(), capacity).unwrap());
        let there = Arc::new(Exchange::of_file(file.number(), capacity).unwrap());
        (Sender::new(Arc::clone(&here), Way::Out), Receiver::new(there, Way::Out), here)
    }

    #[test]
    fn messages_arrive_in_order_and_no_more_than_there_is_room_for() {
        let (mut sender, mut receiver, _) = pair(4);
        for round in 0..10 {
            for i in 0..4 {
                assert_eq!(sender.put(&[round, i, 2, 3, 4]), Ok(()));
            }
            assert_eq!(sender.put(&[0; 5]), Err(Full));
            assert_eq!(receiver.take(), Ok(None));
            assert!(!sender.publish());
            for i in 0..4 {
                assert_eq!(receiver.take(), Ok(Some([round, i, 2, 3, 4])));
            }
            assert_eq!(receiver.take(), Ok(None));
        }
    }

    #[test]
    fn a_bell_is_rung_once_for_each_sleeper() {
        let (mut sender, mut receiver, _) = pair(4);
        assert_eq!(receiver.rest(), Rest::Sleep);
        sender.put(&[1; 5]).unwrap();
        assert!(sender.publish());
        sender.put(&[2; 5]).unwrap();
        assert!(!sender.publish());
        assert_eq!(receiver.rest(), Rest::Awake);
        assert_eq!(receiver.take(), Ok(Some([1; 5])));
        assert_eq!(receiver.take(), Ok(Some([2; 5])));
        assert_eq!(receiver.rest(), Rest::Sleep);
        assert!(receiver.stand_in());
        assert!(!receiver.stand_in());
        sender.put(&[3; 5]).unwrap();
        assert!(!sender.publish());
    }

    #[test]
    fn who_scribbles_is_not_understood() {
        let (mut sender, mut receiver, exchange) = pair(4);
        exchange.tail(Way::Out).store(5, Relaxed);
        assert_eq!(receiver.take(), Err(Broken));
        exchange.head(Way::Out).store(77, Relaxed);
        assert_eq!(sender.put(&[0; 5]), Err(Full));
    }

    #[test]
    fn only_a_file_that_stays_as_long_as_it_is() {
        let len = Exchange::file_len(4);
        let of = |file: EngineFd, capacity| Exchange::of_file(file.number(), capacity).map(drop);
        assert_eq!(of(file_of(len, SHRINK), 4), Ok(()));
        for (file, capacity) in [(file_of(len, SHRINK), 8), (file_of(len, SHRINK), 3), (file_of(len, 0), 4), (file_of(len - 1, SHRINK), 4)]
        {
            assert_eq!(of(file, capacity), Err(syscalls::Errno::EINVAL));
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::lock::{Mutex, futex_wait, futex_wake};
    use crate::model;
    use crate::model::checker::thread;

    /// A bell that remembers how often it was rung.
    #[derive(Debug)]
    struct Bell(AtomicU32);

    impl Bell {
        fn ring(&self) {
            self.0.fetch_add(1, AcqRel);
            futex_wake(&self.0, 1);
        }

        fn wait(&self) {
            while self.0.fetch_update(AcqRel, Relaxed, |rung| rung.checked_sub(1)).is_err() {
                let _ = futex_wait(&self.0, 0, u64::MAX);
            }
        }
    }

    /// Messages are sent while their receiver falls asleep: none is left behind, which loom reports as a deadlock.
    #[test]
    fn no_message_meets_a_sleeper_that_nobody_wakes() {
        model::check(3, || {
            let exchange = Arc::new(Exchange::of_model(2));
            let bell = Arc::new(Bell(AtomicU32::new(0)));
            let other = thread::spawn({
                let (exchange, bell) = (Arc::clone(&exchange), Arc::clone(&bell));
                move || {
                    let mut sender = Sender::new(exchange, Way::In);
                    for i in 0..2 {
                        sender.put(&[i; 5]).expect("room");
                        sender.show();
                        if sender.publish() {
                            bell.ring();
                        }
                    }
                }
            });
            let mut receiver = Receiver::new(exchange, Way::In);
            for i in 0..2 {
                loop {
                    if let Some(message) = receiver.take().expect("understood") {
                        assert_eq!(message, [i; 5]);
                        break;
                    }
                    match receiver.rest() {
                        Rest::Sleep | Rest::Rung => bell.wait(),
                        Rest::Awake => {}
                    }
                }
            }
            other.join().expect("the sender");
        });
    }

    /// The same, while a third thread receives in the sleeper's stead for a while.
    #[test]
    fn no_message_is_left_by_who_stood_in() {
        model::check(2, || {
            let exchange = Arc::new(Exchange::of_model(2));
            let (bell, taken) = (Arc::new(Bell(AtomicU32::new(0))), Arc::new(AtomicU32::new(0)));
            let receiver = Arc::new(Mutex::new(Receiver::new(Arc::clone(&exchange), Way::In)));
            let drain = |receiver: &mut Receiver, taken: &AtomicU32| {
                while let Some(message) = receiver.take().expect("understood") {
                    assert_eq!(message[0], u64::from(taken.fetch_add(1, AcqRel)));
                }
            };
            let owner = thread::spawn({
                let (bell, taken, receiver) = (Arc::clone(&bell), Arc::clone(&taken), Arc::clone(&receiver));
                move || {
                    while taken.load(Acquire) < 2 {
                        let mut turn = receiver.lock();
                        drain(&mut turn, &taken);
                        let rest = if taken.load(Acquire) < 2 { turn.rest() } else { Rest::Awake };
                        drop(turn);
                        if rest != Rest::Awake {
                            bell.wait();
                        }
                    }
                }
            });
            let helper = thread::spawn({
                let (bell, taken) = (Arc::clone(&bell), Arc::clone(&taken));
                move || {
                    let mut turn = receiver.lock();
                    if turn.stand_in() {
                        loop {
                            drain(&mut turn, &taken);
                            if turn.rest() != Rest::Awake {
                                break;
                            }
                        }
                        if taken.load(Acquire) == 2 {
                            // For the owner, who would sleep for ever in this model.
                            bell.ring();
                        }
                    }
                }
            });
            let mut sender = Sender::new(exchange, Way::In);
            for i in 0..2 {
                sender.put(&[i; 5]).expect("room");
                if sender.publish() {
                    bell.ring();
                }
            }
            owner.join().expect("the owner");
            helper.join().expect("the helper");
            assert_eq!(taken.load(Acquire), 2);
        });
    }
}
