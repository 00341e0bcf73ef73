//! Random commands, requests and teardowns: nothing is lost or ends twice, data is right, and
//! everything ends.

use super::*;
use uringlet_abi::ublk::state;

/// A small generator: a seed names one run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// What the test knows about a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RandomServer {
    Nothing,
    Waits(u64),
    Has,
}

const DEPTH: u16 = 4;

struct Game {
    harness: Harness,
    device: Arc<UblkDevice<TestPlatform>>,
    flags: u64,
    tags: [RandomServer; DEPTH as usize],
    in_flight: u32,
    submitted: u64,
    finished: u64,
    is_open: bool,
}

impl Game {
    fn new(flags: u64) -> Self {
        let harness = Harness::new();
        let device = harness.add(flags, DEPTH);
        Self {
            harness,
            device,
            flags,
            tags: [RandomServer::Nothing; DEPTH as usize],
            in_flight: 0,
            submitted: 0,
            finished: 0,
            is_open: false,
        }
    }

    fn uses_copy(&self) -> bool {
        self.flags & feature::USER_COPY != 0
    }

    /// Collects what has ended on both sides.
    fn look(&mut self) {
        let log: Vec<_> = self.harness.log.lock().unwrap().drain(..).collect();
        for (id, res) in log {
            let at = self.tags.iter().position(|&tag| tag == RandomServer::Waits(id)).expect("a command ends once");
            assert!([0, 1, -19].contains(&res), "{res}");
            self.tags[at] = if res == -19 { RandomServer::Nothing } else { RandomServer::Has };
        }
        let finished = self.harness.finished(1024);
        for (cookie, result, bytes) in finished {
            self.in_flight -= 1;
            self.finished += 1;
            // The server answers reads with their number.
            if result.is_ok() && cookie % 2 == 0 {
                assert_eq!(bytes, [cookie as u8; 1024], "the data of request {cookie}");
            }
        }
    }

    fn submit(&mut self) {
        if self.in_flight == u32::from(DEPTH) {
            return;
        }
        self.in_flight += 1;
        let cookie = self.submitted;
        self.submitted += 1;
        let op = if cookie.is_multiple_of(2) { IoOp::Read } else { IoOp::Write };
        // The sector tells the server which request this is.
        self.harness.submit_with(op, 0, cookie % 1000 * 2, 2, cookie, &[cookie as u8; 1024]);
    }

    fn fetch(&mut self, tag: u16) {
        let early = self.flags & (feature::USER_COPY | feature::NEED_GET_DATA) == 0;
        self.send(tag, ublk_io::FETCH_REQ, 0, if early { buffer(tag) } else { 0 });
    }

    fn send(&mut self, tag: u16, nr: u8, result: i32, addr: u64) {
        let id = self.harness.next;
        let before = self.tags[tag as usize];
        // Recorded before it is sent: the command may complete at once.
        match self.harness.io(nr, tag, result, addr) {
            None => self.tags[tag as usize] = RandomServer::Waits(id),
            Some(-19) => self.tags[tag as usize] = RandomServer::Nothing,
            Some(0 | 1) => self.tags[tag as usize] = RandomServer::Has,
            Some(res) => {
                assert!([-22, -16].contains(&res), "{res}");
                self.tags[tag as usize] = before;
            }
        }
    }

    /// The server commits: everything, a part, or an error.
    fn serve(&mut self, tag: u16, dice: &mut Dice) {
        let iod = self.harness.descriptor(tag);
        let addr = if self.uses_copy() { 0 } else { buffer(tag) };
        let result = match dice.roll(6) {
            0 => -5,
            1 if iod.nr_sectors > 1 => 512,
            _ => iod.nr_sectors as i32 * 512,
        };
        let wants = iod.op_flags & 0xff == 1 && self.flags & feature::NEED_GET_DATA != 0 && dice.roll(2) == 0;
        if wants {
            return self.send(tag, ublk_io::NEED_GET_DATA, 0, addr);
        }
        if iod.op_flags & 0xff == 0 {
            self.answer_read(tag, &iod, addr);
        } else if result > 0 {
            self.check_write(tag, &iod, addr);
        }
        self.send(tag, ublk_io::COMMIT_AND_FETCH_REQ, result, addr);
    }

    fn answer_read(&self, tag: u16, iod: &IoDesc, addr: u64) {
        // Requests in flight differ in their sector, so the sector identifies the request.
        let at = iod.start_sector / 2;
        let cookie = (self.submitted.saturating_sub(1000)..self.submitted).rev().find(|n| n % 1000 == at).unwrap_or(0);
        let len = iod.nr_sectors as usize * 512;
        if self.uses_copy() {
            let span = SlotRange { queue: 0, tag, offset: 0, len: len as u32 };
            self.device.buffers().write(span, &vec![cookie as u8; len]).unwrap();
        } else {
            self.harness.server.lock().unwrap()[addr as usize..][..len].fill(cookie as u8);
        }
    }

    fn check_write(&self, tag: u16, iod: &IoDesc, addr: u64) {
        if self.flags & feature::NEED_GET_DATA != 0 {
            // NEED_GET_DATA may not have been sent yet: then the commit is refused.
            return;
        }
        let at = iod.start_sector / 2;
        let cookie = (self.submitted.saturating_sub(1000)..self.submitted).rev().find(|n| n % 1000 == at).unwrap_or(0);
        let mut bytes = vec![0; iod.nr_sectors as usize * 512];
        if self.uses_copy() {
            self.device.buffers().read(SlotRange { queue: 0, tag, offset: 0, len: bytes.len() as u32 }, &mut bytes).unwrap();
        } else {
            let len = bytes.len();
            bytes.copy_from_slice(&self.harness.server.lock().unwrap()[addr as usize..][..len]);
        }
        assert!(bytes.iter().all(|&byte| byte == cookie as u8), "the data of request {cookie}");
    }

    fn open(&mut self) {
        if self.device.open().is_ok() {
            self.is_open = true;
        }
    }

    /// The server dies, its ring first.
    fn die(&mut self) {
        for tag in 0..DEPTH {
            if matches!(self.tags[tag as usize], RandomServer::Waits(_)) {
                self.device.cancel_io_command(&IoCmd { tag, ..IoCmd::default() });
            }
            self.look();
        }
        if self.is_open {
            self.device.close();
            self.is_open = false;
        }
        self.tags
            .iter_mut()
            .for_each(|tag| *tag = if let RandomServer::Waits(_) = *tag { panic!("never finished") } else { RandomServer::Nothing });
    }

    fn turn(&mut self, dice: &mut Dice) {
        let tag = dice.roll(u64::from(DEPTH)) as u16;
        match dice.roll(40) {
            0..=11 => self.submit(),
            12..=28 if self.tags[tag as usize] == RandomServer::Has => self.serve(tag, dice),
            29..=31 if self.is_open => self.fetch(tag),
            32 => self.open(),
            33 if self.device.is_ready() => drop(self.harness.command(ctrl::START_DEV, 7)),
            34 if self.device.is_ready() => drop(self.harness.command(ctrl::END_USER_RECOVERY, 8)),
            35 => drop(self.harness.command(ctrl::START_USER_RECOVERY, 0)),
            36 if dice.roll(4) == 0 => self.die(),
            37 if dice.roll(8) == 0 && !self.tags.contains(&RandomServer::Has) => self.harness.command(ctrl::STOP_DEV, 0).unwrap(),
            38 if dice.roll(4) == 0 => drop(self.harness.command(ctrl::QUIESCE_DEV, 1)),
            _ => {}
        }
        self.look();
    }

    /// The server dies and the device is deleted: everything has to end.
    fn finish(mut self) -> (u64, u16) {
        self.die();
        self.harness.command(ctrl::DEL_DEV, 0).unwrap();
        let state = self.device.info().state;
        let finished: Vec<_> = self.harness.client.finished.lock().unwrap().drain(..).collect();
        self.finished += finished.len() as u64;
        assert_eq!(self.finished, self.submitted, "every request ends once");
        assert_eq!(self.harness.results(), []);
        assert_eq!(self.harness.driver.ids(), []);
        (self.finished, state)
    }
}

#[test]
fn every_request_and_command_ends_once_in_random_runs() {
    let recovery = feature::USER_RECOVERY | feature::QUIESCE;
    let kinds = [
        0,
        feature::NEED_GET_DATA,
        feature::USER_COPY,
        recovery,
        recovery | feature::USER_RECOVERY_REISSUE,
        recovery | feature::USER_RECOVERY_REISSUE | feature::NEED_GET_DATA,
        recovery | feature::USER_RECOVERY_REISSUE | feature::USER_COPY,
        recovery | feature::USER_RECOVERY_FAIL_IO,
    ];
    let mut total = 0;
    for seed in 1..=400_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut game = Game::new(kinds[(seed % kinds.len() as u64) as usize]);
        for _ in 0..400 {
            game.turn(&mut dice);
        }
        let (finished, last) = game.finish();
        assert_eq!(last, state::DEAD);
        total += finished;
    }
    assert!(total > 10_000, "the worlds were too quiet: {total}");
}
