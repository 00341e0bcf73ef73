//! The payload of a control command.

use uringlet_sys::Errno;
use uringlet_ublk::platform::Payload;

/// A control command's payload: the client's bytes, and what the driver writes back.
#[derive(Debug)]
pub(crate) struct ControlPayload {
    bytes: Vec<u8>,
    room: usize,
    pub(crate) at: usize,
    pub(crate) written: Vec<u8>,
}

impl ControlPayload {
    pub(crate) fn new(bytes: &[u8], room: u16) -> Self {
        Self { bytes: bytes.to_vec(), room: room.into(), at: 0, written: Vec::new() }
    }
}

impl Payload for ControlPayload {
    fn read(&mut self, at: usize, bytes: &mut [u8]) -> Result<(), Errno> {
        let part = at.checked_add(bytes.len()).and_then(|end| self.bytes.get(at..end)).ok_or(Errno::EFAULT)?;
        bytes.copy_from_slice(part);
        Ok(())
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        if at.checked_add(bytes.len()).is_none_or(|end| end > self.room) {
            return Err(Errno::EFAULT);
        }
        // No command writes twice.
        (self.at, self.written) = (at, bytes.to_vec());
        Ok(())
    }
}
