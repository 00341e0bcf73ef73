//! The ublk ABI as data: commands, flags and structures of `<linux/ublk_cmd.h>`. No logic but the
//! byte layouts.
//!
//! `UBLK_U_CMD_ADD_DEV` is [`ctrl::ADD_DEV`] inside [`ioctl_nr`]'s encoding, `UBLK_F_USER_COPY` is
//! [`feature::USER_COPY`], `UBLK_IO_RES_NEED_GET_DATA` is [`io::RES_NEED_GET_DATA`].

/// Numbers of control commands (on `/dev/ublk-control`): the low byte of an ioctl-encoded command,
/// or a legacy opcode.
#[allow(missing_docs)]
pub mod ctrl {
    pub const GET_QUEUE_AFFINITY: u8 = 0x01;
    pub const GET_DEV_INFO: u8 = 0x02;
    pub const ADD_DEV: u8 = 0x04;
    pub const DEL_DEV: u8 = 0x05;
    pub const START_DEV: u8 = 0x06;
    pub const STOP_DEV: u8 = 0x07;
    pub const SET_PARAMS: u8 = 0x08;
    pub const GET_PARAMS: u8 = 0x09;
    pub const START_USER_RECOVERY: u8 = 0x10;
    pub const END_USER_RECOVERY: u8 = 0x11;
    pub const GET_DEV_INFO2: u8 = 0x12;
    pub const GET_FEATURES: u8 = 0x13;
    pub const DEL_DEV_ASYNC: u8 = 0x14;
    pub const UPDATE_SIZE: u8 = 0x15;
    pub const QUIESCE_DEV: u8 = 0x16;
}

/// I/O commands (on `/dev/ublkcN`), the results in their CQEs, and the layout of the char device.
#[allow(missing_docs)]
pub mod io {
    pub const FETCH_REQ: u8 = 0x20;
    pub const COMMIT_AND_FETCH_REQ: u8 = 0x21;
    pub const NEED_GET_DATA: u8 = 0x22;

    pub const RES_OK: i32 = 0;
    pub const RES_NEED_GET_DATA: i32 = 1;
    /// `-ENODEV`
    pub const RES_ABORT: i32 = -19;

    /// Offset of the request data, bytes: `UBLKSRV_IO_BUF_OFFSET`.
    pub const BUF_OFFSET: u64 = 0x8000_0000;
    /// log2 of the bytes reserved for a tag.
    pub const TAG_SHIFT: u32 = 25;
    /// log2 of the bytes reserved for a queue.
    pub const QUEUE_SHIFT: u32 = 41;
    pub const MAX_DEPTH: u16 = 4096;
    pub const MAX_QUEUES: u16 = 4096;
    /// Bytes between the descriptors of two queues.
    pub const DESC_STRIDE: u64 = MAX_DEPTH as u64 * super::IoDesc::SIZE as u64;

    /// Offset of a tag's data in the char device, bytes.
    #[must_use]
    pub const fn slot(queue: u16, tag: u16) -> u64 {
        BUF_OFFSET + ((queue as u64) << QUEUE_SHIFT | (tag as u64) << TAG_SHIFT)
    }

    /// Offset of a tag's descriptor in the char device, bytes.
    #[must_use]
    pub const fn descriptor(queue: u16, tag: u16) -> u64 {
        queue as u64 * DESC_STRIDE + tag as u64 * super::IoDesc::SIZE as u64
    }
}

/// Commands of the in-process front end (on `/dev/uringlet/ublkbN`), which the kernel does not
/// have. The number is [`client::BASE`] plus the operation of [`iod`]; `sqe->addr` is the program's
/// buffer; the result is the bytes done, or -errno.
#[allow(missing_docs)]
pub mod client {
    pub const BASE: u8 = 0x80;
}

/// `UBLK_F_*`: features of the driver and of a device.
#[allow(missing_docs)]
pub mod feature {
    pub const SUPPORT_ZERO_COPY: u64 = 1 << 0;
    pub const URING_CMD_COMP_IN_TASK: u64 = 1 << 1;
    pub const NEED_GET_DATA: u64 = 1 << 2;
    pub const USER_RECOVERY: u64 = 1 << 3;
    pub const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    pub const UNPRIVILEGED_DEV: u64 = 1 << 5;
    pub const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    pub const USER_COPY: u64 = 1 << 7;
    pub const ZONED: u64 = 1 << 8;
    pub const USER_RECOVERY_FAIL_IO: u64 = 1 << 9;
    pub const UPDATE_SIZE: u64 = 1 << 10;
    pub const QUIESCE: u64 = 1 << 12;
    pub const PER_IO_DAEMON: u64 = 1 << 13;
}

/// `UBLK_S_DEV_*`: states of a device.
#[allow(missing_docs)]
pub mod state {
    pub const DEAD: u16 = 0;
    pub const LIVE: u16 = 1;
    pub const QUIESCED: u16 = 2;
    pub const FAIL_IO: u16 = 3;
}

/// Operations and flags in an I/O descriptor's first word.
#[allow(missing_docs)]
pub mod iod {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const FLUSH: u32 = 2;
    pub const DISCARD: u32 = 3;
    pub const WRITE_ZEROES: u32 = 5;

    pub const F_FAILFAST_DEV: u32 = 1 << 8;
    pub const F_FAILFAST_TRANSPORT: u32 = 1 << 9;
    pub const F_FAILFAST_DRIVER: u32 = 1 << 10;
    pub const F_META: u32 = 1 << 11;
    pub const F_FUA: u32 = 1 << 13;
    pub const F_NOUNMAP: u32 = 1 << 15;
    pub const F_SWAP: u32 = 1 << 16;
    /// All of them.
    pub const F_ALL: u32 = F_FAILFAST_DEV | F_FAILFAST_TRANSPORT | F_FAILFAST_DRIVER | F_META | F_FUA | F_NOUNMAP | F_SWAP;
}

/// `UBLK_PARAM_TYPE_*` and `UBLK_ATTR_*`.
#[allow(missing_docs)]
pub mod param {
    pub const BASIC: u32 = 1 << 0;
    pub const DISCARD: u32 = 1 << 1;
    pub const DEVT: u32 = 1 << 2;
    pub const ZONED: u32 = 1 << 3;

    pub const ATTR_READ_ONLY: u32 = 1 << 0;
    pub const ATTR_ROTATIONAL: u32 = 1 << 1;
    pub const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
    pub const ATTR_FUA: u32 = 1 << 3;
}

/// The type byte of ioctl-encoded commands: `'u'`.
pub const IOCTL_TYPE: u8 = b'u';

/// The number of a command: ioctl-encoded with type `'u'`, or a legacy opcode (type 0). `None`:
/// neither.
#[must_use]
pub const fn ioctl_nr(cmd_op: u32) -> Option<u8> {
    match (cmd_op >> 8) as u8 {
        0 | IOCTL_TYPE => Some(cmd_op as u8),
        _ => None,
    }
}

/// `_IOR('u', GET_FEATURES, struct ublksrv_ctrl_cmd)`: the only command that must have its whole
/// encoding.
pub const U_CMD_GET_FEATURES: u32 = 2 << 30 | (CtrlCmd::SIZE as u32) << 16 | (IOCTL_TYPE as u32) << 8 | ctrl::GET_FEATURES as u32;

macro_rules! le_struct {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($(#[$fdoc:meta])* $field:ident: $t:ident @ $at:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$fdoc])* pub $field: $t,)* }

        impl $name {
            /// Size in bytes.
            pub const SIZE: usize = $size;

            /// Decodes its bytes in memory.
            #[must_use]
            pub fn from_bytes(bytes: &[u8; $size]) -> Self {
                Self { $($field: $t::from_le_bytes(core::array::from_fn(|i| bytes[$at + i])),)* }
            }

            /// Encodes it as in memory.
            #[must_use]
            pub fn to_bytes(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                $(bytes[$at..$at + size_of::<$t>()].copy_from_slice(&self.$field.to_le_bytes());)*
                bytes
            }
        }
    };
}

le_struct! {
    /// `struct ublksrv_ctrl_cmd`: payload of a control command's SQE.
    CtrlCmd, 32 {
        /// The device, `u32::MAX` for any or none.
        dev_id: u32 @ 0,
        /// The queue, `u16::MAX` for none.
        queue_id: u16 @ 4,
        /// Bytes at `addr`.
        len: u16 @ 6,
        /// Address of the payload.
        addr: u64 @ 8,
        /// Inline argument.
        data: u64 @ 16,
        /// Bytes of the char device's path in front of the payload.
        dev_path_len: u16 @ 24,
    }
}

le_struct! {
    /// `struct ublksrv_ctrl_dev_info`.
    DevInfo, 64 {
        /// Queues.
        nr_hw_queues: u16 @ 0,
        /// Tags a queue.
        queue_depth: u16 @ 2,
        /// `UBLK_S_DEV_*`.
        state: u16 @ 4,
        /// Largest request, bytes.
        max_io_buf_bytes: u32 @ 8,
        /// Number of the device.
        dev_id: u32 @ 12,
        /// The server's process, -1 for none.
        ublksrv_pid: i32 @ 16,
        /// `UBLK_F_*`.
        flags: u64 @ 24,
        /// Private to the server.
        ublksrv_flags: u64 @ 32,
        /// User that added it.
        owner_uid: u32 @ 40,
        /// Group of that user.
        owner_gid: u32 @ 44,
        /// Reserved.
        reserved1: u64 @ 48,
        /// Reserved.
        reserved2: u64 @ 56,
    }
}

le_struct! {
    /// `struct ublksrv_io_cmd`: payload of an I/O command's SQE.
    IoCmd, 16 {
        /// Queue.
        q_id: u16 @ 0,
        /// Tag.
        tag: u16 @ 2,
        /// Bytes done, or -errno.
        result: i32 @ 4,
        /// The server's buffer.
        addr: u64 @ 8,
    }
}

le_struct! {
    /// Payload of a command of the in-process front end.
    ClientCmd, 16 {
        /// First sector.
        sector: u64 @ 0,
        /// Length, sectors.
        sectors: u32 @ 8,
        /// `UBLK_IO_F_*`.
        flags: u32 @ 12,
    }
}

le_struct! {
    /// `struct ublksrv_io_desc`: a request for the server.
    IoDesc, 24 {
        /// Operation and `UBLK_IO_F_*`.
        op_flags: u32 @ 0,
        /// Length, sectors of 512 bytes.
        nr_sectors: u32 @ 4,
        /// First sector.
        start_sector: u64 @ 8,
        /// The server's buffer.
        addr: u64 @ 16,
    }
}

le_struct! {
    /// `struct ublk_param_basic`.
    ParamBasic, 32 {
        /// `UBLK_ATTR_*`.
        attrs: u32 @ 0,
        /// log2 of the logical block, bytes.
        logical_bs_shift: u8 @ 4,
        /// log2 of the physical block, bytes.
        physical_bs_shift: u8 @ 5,
        /// log2 of the optimal request, bytes.
        io_opt_shift: u8 @ 6,
        /// log2 of the minimum request, bytes.
        io_min_shift: u8 @ 7,
        /// Largest request, sectors.
        max_sectors: u32 @ 8,
        /// Requests do not cross multiples of it, sectors; 0 for none.
        chunk_sectors: u32 @ 12,
        /// Size, sectors.
        dev_sectors: u64 @ 16,
        /// Segments' alignment.
        virt_boundary_mask: u64 @ 24,
    }
}

le_struct! {
    /// `struct ublk_param_discard`.
    ParamDiscard, 20 {
        /// Offset of the first granule, bytes.
        discard_alignment: u32 @ 0,
        /// Granule, bytes.
        discard_granularity: u32 @ 4,
        /// Largest discard, sectors.
        max_discard_sectors: u32 @ 8,
        /// Largest write of zeroes, sectors.
        max_write_zeroes_sectors: u32 @ 12,
        /// Ranges a discard.
        max_discard_segments: u16 @ 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_keep_their_bytes_through_decoding() {
        let bytes = core::array::from_fn(|i| i as u8 + 1);
        let cmd = CtrlCmd::from_bytes(&bytes);
        assert_eq!((cmd.dev_id, cmd.queue_id, cmd.len, cmd.dev_path_len), (0x0403_0201, 0x0605, 0x0807, 0x1a19));
        assert_eq!(cmd.data, 0x1817_1615_1413_1211);
        assert_eq!(CtrlCmd::from_bytes(&cmd.to_bytes()), cmd);
        let iod = IoDesc { op_flags: 1, nr_sectors: 2, start_sector: 3, addr: 4 };
        assert_eq!(IoDesc::from_bytes(&iod.to_bytes()), iod);
    }

    #[test]
    fn both_encodings_give_the_commands_number() {
        assert_eq!(ioctl_nr(0x20), Some(io::FETCH_REQ));
        assert_eq!(ioctl_nr(0xc010_7520), Some(io::FETCH_REQ));
        assert_eq!(ioctl_nr(0xc010_7620), None);
        assert_eq!(U_CMD_GET_FEATURES, 0x8020_7513);
        assert_eq!(io::DESC_STRIDE, 98304);
        assert_eq!((io::descriptor(2, 3), io::slot(1, 2)), (2 * 98304 + 72, 0x8000_0000 + (1 << 41) + (2 << 25)));
    }
}
