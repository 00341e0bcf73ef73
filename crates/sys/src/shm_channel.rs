//! Two rings of messages, one each direction, in memory that two processes share. Neither process
//! trusts the other.
//!
//! Each ring has one sender and one receiver (threads of a process may share an end, under a lock
//! of its own). Each end keeps its own position privately. The shared positions are only for the
//! other end, which checks them: a corrupt peer gets [`CorruptPeer`], and can do no more harm than
//! that.
//!
//! No end enters the kernel while the other one is awake. A receiver counts how many of its threads
//! wait. A sender rings a doorbell (any means of wake-up that the two have) for one of them, and
//! uncounts that waiter, so that each waiter gets one doorbell at most:
//!
//! ```text
//!   sender                                        receiver
//!     message; tail                                 waiters += 1
//!     fence                                         fence
//!     waiters > 0? waiters -= 1, ring doorbell      tail unchanged? wait for the doorbell
//!                                                     else waiters -= 1; if it is 0 already, a doorbell is
//!                                                     or will be rung in vain
//! ```
//! A sender may publish its tail before it does the rest: further messages then share the fence and
//! at most one doorbell. Another thread may receive in a waiter's stead: it uncounts the waiter, as
//! a sender would, and ends with the receiver's half on the waiter's behalf.
//!
//! Whichever side fences second sees the other's store, so a receiver cannot sleep past a message.

use crate::shm_mapping::ShmMapping;
use crate::sync::AtomicU32;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

#[cfg(not(loom))]
use crate::linux::general::{F_GET_SEALS, F_SEAL_SHRINK};
#[cfg(loom)]
use crate::model::checker::sync::atomic::fence;
#[cfg(not(loom))]
use core::sync::atomic::fence;

/// A message: five words.
pub type ShmMessage = [u64; 5];

/// Bytes between words that different sides write: two cache lines. Loom has no cache.
#[cfg(not(loom))]
const LINE: usize = 128;
#[cfg(loom)]
const LINE: usize = 8;
/// Shared words of a ring: tail, head, waiters.
const WORDS: usize = 3;
/// Bytes of a message.
const MESSAGE: usize = size_of::<ShmMessage>();

/// Which of the two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelDirection {
    /// To the process that created the memory.
    ToCreator = 0,
    /// From the process that created the memory.
    FromCreator = 1,
}

/// The other side has written an impossible position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorruptPeer;

/// The ring has no room for another message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The shared memory. See the module.
#[derive(Debug)]
pub struct ShmChannel {
    mapping: ShmMapping,
    capacity: u32,
}

impl ShmChannel {
    const fn len(capacity: u32) -> usize {
        2 * (WORDS * LINE + capacity as usize * MESSAGE)
    }

    /// Bytes of the file for two rings of `capacity` messages each, a power of two.
    #[must_use]
    pub const fn file_len(capacity: u32) -> u64 {
        Self::len(capacity) as u64
    }

    /// Maps the beginning of a file that is all zero at first and that no process can shorten
    /// (`F_SEAL_SHRINK`).
    ///
    /// # Errors
    /// `EINVAL` the file is shorter, can be shortened, or `capacity` is no power of two; those of
    /// mmap(2).
    #[cfg(not(loom))]
    pub fn of_file(fd: i32, capacity: u32) -> Result<Self, syscalls::Errno> {
        const MEBI: u32 = 1 << 20;
        let len = Self::len(capacity);
        let is_valid = capacity.is_power_of_two() && capacity <= MEBI && is_sealed(fd)? && crate::io::fstat(fd)?.size >= len as u64;
        if is_valid { Ok(Self { mapping: ShmMapping::map_file(fd, len)?, capacity }) } else { Err(syscalls::Errno::EINVAL) }
    }

    /// Memory for both sides of a model.
    #[cfg(loom)]
    pub fn of_model(capacity: u32) -> Self {
        Self { mapping: ShmMapping::map(Self::len(capacity)).expect("memory"), capacity }
    }

    const fn begin(&self, direction: ChannelDirection) -> usize {
        direction as usize * (Self::len(self.capacity) / 2)
    }

    fn word(&self, direction: ChannelDirection, nth: usize) -> &AtomicU32 {
        // SAFETY: in the mapping, whose size was checked; a multiple of 4.
        unsafe { self.mapping.u32(self.begin(direction) + nth * LINE) }
    }

    fn tail(&self, direction: ChannelDirection) -> &AtomicU32 {
        self.word(direction, 0)
    }

    fn head(&self, direction: ChannelDirection) -> &AtomicU32 {
        self.word(direction, 1)
    }

    fn waiters(&self, direction: ChannelDirection) -> &AtomicU32 {
        self.word(direction, 2)
    }

    fn at(&self, direction: ChannelDirection, position: u32) -> usize {
        self.begin(direction) + WORDS * LINE + (position & (self.capacity - 1)) as usize * MESSAGE
    }

    fn load(&self, direction: ChannelDirection, position: u32) -> ShmMessage {
        let at = self.at(direction, position);
        // SAFETY: masked to the ring; the mapping and the ring begin at multiples of 8, and so does
        // each message.
        core::array::from_fn(|i| unsafe { self.mapping.u64(at + i * 8) }.load(Relaxed))
    }

    fn store(&self, direction: ChannelDirection, position: u32, message: &ShmMessage) {
        let at = self.at(direction, position);
        for (i, &word) in message.iter().enumerate() {
            // SAFETY: as above.
            unsafe { self.mapping.u64(at + i * 8) }.store(word, Relaxed);
        }
    }

    /// Uncounts a waiter, which gets a doorbell or need not wait. Returns false if none is counted.
    fn uncount_waiter(&self, direction: ChannelDirection) -> bool {
        self.waiters(direction).fetch_update(AcqRel, Relaxed, |waiters| waiters.checked_sub(1)).is_ok()
    }
}

/// Whether no process can shorten a file. Then accesses to its mapping never raise SIGBUS.
#[cfg(not(loom))]
fn is_sealed(fd: i32) -> Result<bool, syscalls::Errno> {
    // SAFETY: no addresses.
    let seals = unsafe { syscalls::syscall!(syscalls::Sysno::fcntl, fd, F_GET_SEALS) }?;
    Ok(seals & F_SEAL_SHRINK as usize != 0)
}

/// The sending end of one direction.
#[derive(Debug)]
pub struct Sender {
    channel: Arc<ShmChannel>,
    direction: ChannelDirection,
    next: u32,
}

impl Sender {
    /// The only one for this direction.
    #[must_use]
    pub const fn new(channel: Arc<ShmChannel>, direction: ChannelDirection) -> Self {
        Self { channel, direction, next: 0 }
    }

    /// Stores a message. The receiver sees it after [`publish`](Self::publish).
    ///
    /// # Errors
    /// [`Full`]
    pub fn put(&mut self, message: &ShmMessage) -> Result<(), Full> {
        // Acquire: the receiver has read the slot's previous message.
        let head = self.channel.head(self.direction).load(Acquire);
        if self.next.wrapping_sub(head) >= self.channel.capacity {
            return Err(Full);
        }
        self.channel.store(self.direction, self.next, message);
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Makes the stored messages visible to receivers that are awake. [`publish`](Self::publish)
    /// must follow.
    pub fn publish_tail(&self) {
        // Pairs with `Receiver::take`.
        self.channel.tail(self.direction).store(self.next, Release);
    }

    /// Makes the stored messages visible. True: the caller must ring the doorbell once.
    #[must_use]
    pub fn publish(&self) -> bool {
        self.publish_tail();
        fence(SeqCst);
        self.channel.waiters(self.direction).load(Relaxed) > 0 && self.channel.uncount_waiter(self.direction)
    }
}

/// The receiving end of one direction.
#[derive(Debug)]
pub struct Receiver {
    channel: Arc<ShmChannel>,
    direction: ChannelDirection,
    next: u32,
}

/// What a receiver has to do after [`Receiver::prepare_wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitDecision {
    /// Wait until the doorbell rings.
    Block,
    /// Take the messages that are there.
    Ready,
    /// Take the messages that are there; a doorbell is, or will be, rung for this waiter as well.
    ReadyAndSignalled,
}

impl Receiver {
    /// The only one for this direction.
    #[must_use]
    pub const fn new(channel: Arc<ShmChannel>, direction: ChannelDirection) -> Self {
        Self { channel, direction, next: 0 }
    }

    /// Takes the next message, if there is one.
    ///
    /// # Errors
    /// [`CorruptPeer`]
    pub fn take(&mut self) -> Result<Option<ShmMessage>, CorruptPeer> {
        // Pairs with `Sender::publish`.
        let tail = self.channel.tail(self.direction).load(Acquire);
        match tail.wrapping_sub(self.next) {
            0 => Ok(None),
            n if n > self.channel.capacity => Err(CorruptPeer),
            _ => {
                let message = self.channel.load(self.direction, self.next);
                self.next = self.next.wrapping_add(1);
                // Pairs with `Sender::put`.
                self.channel.head(self.direction).store(self.next, Release);
                Ok(Some(message))
            }
        }
    }

    /// Whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channel.tail(self.direction).load(Relaxed) == self.next
    }

    /// Counts the calling thread as a waiter, unless there are messages. Returns what it has to do.
    #[must_use]
    pub fn prepare_wait(&self) -> WaitDecision {
        self.channel.waiters(self.direction).fetch_add(1, AcqRel);
        fence(SeqCst);
        if self.is_empty() {
            WaitDecision::Block
        } else if self.channel.uncount_waiter(self.direction) {
            WaitDecision::Ready
        } else {
            WaitDecision::ReadyAndSignalled
        }
    }

    /// Uncounts a waiter in order to receive in its stead. It gets no doorbell until the caller
    /// counts it again by [`prepare_wait`](Self::prepare_wait). Returns false if there is no
    /// waiter.
    #[must_use]
    pub fn claim_waiter(&self) -> bool {
        self.channel.uncount_waiter(self.direction)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fd::EngineFd;
    use crate::io;
    use crate::linux::general::{F_ADD_SEALS, MFD_ALLOW_SEALING};
    use syscalls::{Sysno, syscall};

    fn file_of(len: u64, seals: u32) -> EngineFd {
        // SAFETY: a NUL-terminated name.
        let fd = unsafe { syscall!(Sysno::memfd_create, c"test".as_ptr(), MFD_ALLOW_SEALING) }.unwrap();
        let file = EngineFd::adopt(fd as i32);
        io::ftruncate(file.number(), len as i64).unwrap();
        // SAFETY: no addresses.
        unsafe { syscall!(Sysno::fcntl, file.number(), F_ADD_SEALS, seals) }.unwrap();
        file
    }

    fn pair(capacity: u32) -> (Sender, Receiver, Arc<ShmChannel>) {
        let file = file_of(ShmChannel::file_len(capacity), F_SEAL_SHRINK);
        let here = Arc::new(ShmChannel::of_file(file.number(), capacity).unwrap());
        let there = Arc::new(ShmChannel::of_file(file.number(), capacity).unwrap());
        (Sender::new(Arc::clone(&here), ChannelDirection::FromCreator), Receiver::new(there, ChannelDirection::FromCreator), here)
    }

    #[test]
    fn messages_arrive_in_order_up_to_the_capacity() {
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
    fn each_waiter_gets_one_doorbell() {
        let (mut sender, mut receiver, _) = pair(4);
        assert_eq!(receiver.prepare_wait(), WaitDecision::Block);
        sender.put(&[1; 5]).unwrap();
        assert!(sender.publish());
        sender.put(&[2; 5]).unwrap();
        assert!(!sender.publish());
        assert_eq!(receiver.prepare_wait(), WaitDecision::Ready);
        assert_eq!(receiver.take(), Ok(Some([1; 5])));
        assert_eq!(receiver.take(), Ok(Some([2; 5])));
        assert_eq!(receiver.prepare_wait(), WaitDecision::Block);
        assert!(receiver.claim_waiter());
        assert!(!receiver.claim_waiter());
        sender.put(&[3; 5]).unwrap();
        assert!(!sender.publish());
    }

    #[test]
    fn impossible_positions_are_refused() {
        let (mut sender, mut receiver, channel) = pair(4);
        channel.tail(ChannelDirection::FromCreator).store(5, Relaxed);
        assert_eq!(receiver.take(), Err(CorruptPeer));
        channel.head(ChannelDirection::FromCreator).store(77, Relaxed);
        assert_eq!(sender.put(&[0; 5]), Err(Full));
    }

    #[test]
    fn a_file_that_can_shrink_is_refused() {
        let len = ShmChannel::file_len(4);
        let of = |file: EngineFd, capacity| ShmChannel::of_file(file.number(), capacity).map(drop);
        assert_eq!(of(file_of(len, F_SEAL_SHRINK), 4), Ok(()));
        for (file, capacity) in
            [(file_of(len, F_SEAL_SHRINK), 8), (file_of(len, F_SEAL_SHRINK), 3), (file_of(len, 0), 4), (file_of(len - 1, F_SEAL_SHRINK), 4)]
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

    /// A doorbell that counts its rings.
    #[derive(Debug)]
    struct Doorbell(AtomicU32);

    impl Doorbell {
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

    /// Messages are sent while their receiver starts to wait. Loom reports a message that is left
    /// behind as a deadlock.
    #[test]
    fn a_message_wakes_a_receiver_that_starts_to_wait() {
        model::check(3, || {
            let channel = Arc::new(ShmChannel::of_model(2));
            let doorbell = Arc::new(Doorbell(AtomicU32::new(0)));
            let other = thread::spawn({
                let (channel, doorbell) = (Arc::clone(&channel), Arc::clone(&doorbell));
                move || {
                    let mut sender = Sender::new(channel, ChannelDirection::ToCreator);
                    for i in 0..2 {
                        sender.put(&[i; 5]).expect("room");
                        sender.publish_tail();
                        if sender.publish() {
                            doorbell.ring();
                        }
                    }
                }
            });
            let mut receiver = Receiver::new(channel, ChannelDirection::ToCreator);
            for i in 0..2 {
                loop {
                    if let Some(message) = receiver.take().expect("understood") {
                        assert_eq!(message, [i; 5]);
                        break;
                    }
                    match receiver.prepare_wait() {
                        WaitDecision::Block | WaitDecision::ReadyAndSignalled => doorbell.wait(),
                        WaitDecision::Ready => {}
                    }
                }
            }
            other.join().expect("the sender");
        });
    }

    /// The same, while a third thread receives in the waiter's stead for a while.
    #[test]
    fn a_thread_that_claimed_a_waiter_leaves_no_message() {
        model::check(2, || {
            let channel = Arc::new(ShmChannel::of_model(2));
            let (doorbell, taken) = (Arc::new(Doorbell(AtomicU32::new(0))), Arc::new(AtomicU32::new(0)));
            let receiver = Arc::new(Mutex::new(Receiver::new(Arc::clone(&channel), ChannelDirection::ToCreator)));
            let drain = |receiver: &mut Receiver, taken: &AtomicU32| {
                while let Some(message) = receiver.take().expect("understood") {
                    assert_eq!(message[0], u64::from(taken.fetch_add(1, AcqRel)));
                }
            };
            let owner = thread::spawn({
                let (doorbell, taken, receiver) = (Arc::clone(&doorbell), Arc::clone(&taken), Arc::clone(&receiver));
                move || {
                    while taken.load(Acquire) < 2 {
                        let mut turn = receiver.lock();
                        drain(&mut turn, &taken);
                        let rest = if taken.load(Acquire) < 2 { turn.prepare_wait() } else { WaitDecision::Ready };
                        drop(turn);
                        if rest != WaitDecision::Ready {
                            doorbell.wait();
                        }
                    }
                }
            });
            let helper = thread::spawn({
                let (doorbell, taken) = (Arc::clone(&doorbell), Arc::clone(&taken));
                move || {
                    let mut turn = receiver.lock();
                    if turn.claim_waiter() {
                        loop {
                            drain(&mut turn, &taken);
                            if turn.prepare_wait() != WaitDecision::Ready {
                                break;
                            }
                        }
                        if taken.load(Acquire) == 2 {
                            // For the owner, who would sleep for ever in this model.
                            doorbell.ring();
                        }
                    }
                }
            });
            let mut sender = Sender::new(channel, ChannelDirection::ToCreator);
            for i in 0..2 {
                sender.put(&[i; 5]).expect("room");
                if sender.publish() {
                    doorbell.ring();
                }
            }
            owner.join().expect("the owner");
            helper.join().expect("the helper");
            assert_eq!(taken.load(Acquire), 2);
        });
    }
}
