//! Lists, rings and bundles, without a program.

use super::*;
use uringlet_abi::register::{self, BufReg};
use uringlet_abi::{cqe, layout};
use uringlet_sys::{Errno, UserPtr, user};

const LIST: u16 = 3;
const RING: u16 = 5;

fn listed() -> BufGroups {
    let mut groups = BufGroups::default();
    groups.provide(LIST, 0x1000, 100, 3, 7).unwrap();
    groups
}

/// A ring of four entries with `bufs` (address, length, id) in it.
fn ringed(flags: u16, bufs: &[(u64, u32, u16)]) -> BufGroups {
    let mut groups = BufGroups::default();
    let flags = flags | register::PBUF_RING_MMAP;
    groups.register_ring(&BufReg { ring_entries: 4, bgid: RING, flags, ..BufReg::default() }).unwrap();
    let offset = layout::OFF_PBUF_RING | u64::from(RING) << layout::OFF_PBUF_SHIFT;
    let base = UserPtr::new(groups.map_for_program(offset, 64).unwrap());
    for (i, &(addr, len, bid)) in bufs.iter().enumerate() {
        user::write(base.add(i * 16), &addr).unwrap();
        user::write(base.add(i * 16 + 8), &len).unwrap();
        user::write(base.add(i * 16 + 12), &bid).unwrap();
    }
    user::write(base.add(14), &(bufs.len() as u16)).unwrap();
    groups
}

#[test]
fn unused_listed_buffer_returns_to_the_front() {
    let mut groups = listed();
    let first = groups.select(LIST, 0).unwrap();
    assert_eq!((first.addr, first.len, first.bid), (0x1000, 100, 7));
    let second = groups.select(LIST, 10).unwrap();
    assert_eq!((second.addr, second.len, second.bid), (0x1000 + 100, 10, 8));
    assert_eq!(groups.put(second), 0);
    let again = groups.select(LIST, 0).unwrap();
    assert_eq!((again.len, again.bid), (100, 8));
}

#[test]
fn used_listed_buffer_leaves_the_list() {
    let mut groups = listed();
    for bid in 7..10 {
        let mut selected = groups.select(LIST, 0).unwrap();
        assert_eq!(selected.mark_used(1), cqe::BUFFER | bid << 16);
        assert_eq!(groups.put(selected), cqe::BUFFER | bid << 16);
    }
    assert_eq!(groups.select(LIST, 0).unwrap_err(), Errno::ENOBUFS);
    assert_eq!(groups.remove(LIST, 9), Ok(0));
    assert_eq!(groups.remove(LIST + 1, 9), Err(Errno::ENOENT));
}

#[test]
fn list_holds_as_many_buffers_as_there_are_ids() {
    let mut groups = BufGroups::default();
    groups.provide(LIST, 0, 1, 65536, 0).unwrap();
    assert_eq!(groups.provide(LIST, 0, 1, 1, 0), Err(Errno::EOVERFLOW));
    assert_eq!(groups.remove(LIST, 65536), Ok(65535));
}

#[test]
fn bundle_takes_whole_buffers_and_returns_untouched_ones() {
    let mut groups = ringed(0, &[(0x1000, 10, 1), (0x2000, 10, 2), (0x3000, 10, 3)]);
    let cut = groups.select_bundle(RING, BundleLimit::All(25)).unwrap();
    assert_eq!((cut.len, cut.is_cut(), cut.is_last()), (20, true, false));
    groups.put(cut);
    let mut all = groups.select_bundle(RING, BundleLimit::All(0)).unwrap();
    assert_eq!((all.len, all.is_last(), all.iovecs().map(|v| v.len())), (30, true, Some(3)));
    assert_eq!(all.mark_used(11), cqe::BUFFER | 1 << 16);
    groups.put(all);
    assert_eq!(groups.status(u32::from(RING)), Ok(2));
    let mut one = groups.select_bundle(RING, BundleLimit::First).unwrap();
    assert_eq!((one.len, one.iovecs().is_none()), (10, true));
    groups.commit(&mut one);
    assert_eq!(groups.put(one), 0);
    assert_eq!(groups.status(u32::from(RING)), Ok(2));
}

#[test]
fn incremental_bundle_ends_inside_a_buffer() {
    let mut groups = ringed(register::PBUF_RING_INC, &[(0x1000, 10, 1), (0x2000, 10, 2), (0x3000, 10, 3)]);
    let mut some = groups.select_bundle(RING, BundleLimit::All(15)).unwrap();
    assert_eq!((some.len, some.is_cut()), (15, false));
    assert_eq!(some.mark_used(15), cqe::BUFFER | cqe::BUF_MORE | 1 << 16);
    groups.put(some);
    let mut rest = groups.select_bundle(RING, BundleLimit::All(0)).unwrap();
    assert_eq!((rest.addr, rest.len, rest.bid), (0x2005, 15, 2));
    assert_eq!(rest.mark_used(15), cqe::BUFFER | 2 << 16);
    groups.put(rest);
    assert_eq!(groups.select_bundle(RING, BundleLimit::First).err(), Some(Errno::ENOBUFS));
}

#[test]
fn committed_bundle_returns_empty_buffers() {
    let bufs = [(0x1000, 10, 1), (0x2000, 10, 2), (0x3000, 10, 3)];
    let mut groups = ringed(0, &bufs);
    let mut committed = groups.select_bundle(RING, BundleLimit::All(20)).unwrap();
    committed.mark_used(5);
    groups.commit(&mut committed);
    committed.mark_used(8);
    assert_eq!(groups.put(committed), cqe::BUFFER | 1 << 16);
    assert_eq!(groups.status(u32::from(RING)), Ok(1));
    // Not behind another's back.
    let mut committed = groups.select_bundle(RING, BundleLimit::All(10)).unwrap();
    committed.mark_used(0);
    groups.commit(&mut committed);
    let mut other = groups.select(RING, 0).unwrap();
    groups.commit(&mut other);
    groups.put(committed);
    assert_eq!(groups.status(u32::from(RING)), Ok(3));

    let mut groups = ringed(register::PBUF_RING_INC, &bufs);
    let mut committed = groups.select_bundle(RING, BundleLimit::All(25)).unwrap();
    committed.mark_used(5);
    groups.commit(&mut committed);
    assert_eq!(groups.select_bundle(RING, BundleLimit::First).unwrap().addr, 0x3005);
    committed.mark_used(12);
    assert_eq!(groups.put(committed), cqe::BUFFER | cqe::BUF_MORE | 1 << 16);
    let rest = groups.select_bundle(RING, BundleLimit::All(0)).unwrap();
    assert_eq!((rest.addr, rest.len, rest.bid), (0x2002, 18, 2));
}

#[test]
fn head_of_a_ring_moves_only_for_used_buffers() {
    let mut groups = ringed(0, &[(0x1000, 10, 1), (0x2000, 10, 2)]);
    let selected = groups.select(RING, 5).unwrap();
    assert_eq!((selected.addr, selected.len, selected.bid), (0x1000, 5, 1));
    groups.put(selected);
    assert_eq!(groups.status(u32::from(RING)), Ok(0));
    let mut selected = groups.select(RING, 0).unwrap();
    assert_eq!(selected.mark_used(3), cqe::BUFFER | 1 << 16);
    groups.put(selected);
    assert_eq!(groups.status(u32::from(RING)), Ok(1));
}

#[test]
fn committed_buffer_belongs_to_one_request() {
    let mut groups = ringed(0, &[(0x1000, 10, 1), (0x2000, 10, 2)]);
    let mut first = groups.select(RING, 0).unwrap();
    groups.commit(&mut first);
    let mut second = groups.select(RING, 0).unwrap();
    assert_eq!(second.bid, 2);
    groups.commit(&mut second);
    assert_eq!(groups.select(RING, 0).unwrap_err(), Errno::ENOBUFS);
    // Not the last one selected: it cannot go back, so the program must be told that it has it.
    assert_eq!(groups.put(first), cqe::BUFFER | 1 << 16);
    assert_eq!(groups.put(second), 0);
    assert_eq!(groups.select(RING, 0).unwrap().bid, 2);
}

#[test]
fn partly_filled_buffer_never_returns() {
    let mut groups = ringed(0, &[(0x1000, 10, 1)]);
    let mut selected = groups.select(RING, 0).unwrap();
    selected.mark_used(4);
    groups.commit(&mut selected);
    assert_eq!(groups.put(selected), cqe::BUFFER | 1 << 16);
    assert_eq!(groups.status(u32::from(RING)), Ok(1));
}

#[test]
fn incremental_buffer_is_consumed_from_its_front() {
    let mut groups = ringed(register::PBUF_RING_INC, &[(0x1000, 10, 1)]);
    let mut selected = groups.select(RING, 8).unwrap();
    assert_eq!(selected.mark_used(4), cqe::BUFFER | cqe::BUF_MORE | 1 << 16);
    groups.put(selected);
    let mut selected = groups.select(RING, 0).unwrap();
    assert_eq!((selected.addr, selected.len), (0x1004, 6));
    assert_eq!(selected.mark_used(6), cqe::BUFFER | 1 << 16);
    groups.put(selected);
    assert_eq!(groups.status(u32::from(RING)), Ok(1));
}

#[test]
fn committed_incremental_buffer_loses_the_bytes_asked_for() {
    let mut groups = ringed(register::PBUF_RING_INC, &[(0x1000, 10, 1)]);
    let mut selected = groups.select(RING, 4).unwrap();
    groups.commit(&mut selected);
    assert_eq!(selected.mark_used(1), cqe::BUFFER | cqe::BUF_MORE | 1 << 16);
    groups.put(selected);
    assert_eq!(groups.select(RING, 0).unwrap().addr, 0x1004);
}

#[test]
fn buffer_of_an_unregistered_ring_changes_no_other_ring() {
    let mut groups = ringed(0, &[(0x1000, 10, 1)]);
    let mut selected = groups.select(RING, 0).unwrap();
    let reg = BufReg { ring_entries: 4, bgid: RING, ..BufReg::default() };
    groups.unregister_ring(&reg).unwrap();
    groups.register_ring(&BufReg { flags: register::PBUF_RING_MMAP, ..reg }).unwrap();
    selected.mark_used(1);
    groups.put(selected);
    assert_eq!(groups.status(u32::from(RING)), Ok(0));
}

#[test]
fn group_is_a_list_or_a_ring() {
    let mut groups = listed();
    let reg = BufReg { ring_entries: 4, bgid: LIST, flags: register::PBUF_RING_MMAP, ..BufReg::default() };
    assert_eq!(groups.register_ring(&reg), Err(Errno::EEXIST));
    assert_eq!(groups.status(u32::from(LIST)), Err(Errno::EINVAL));
    groups.remove(LIST, 3).unwrap();
    assert_eq!(groups.register_ring(&reg), Ok(()));
    assert_eq!(groups.provide(LIST, 0, 1, 1, 0), Err(Errno::EINVAL));
    assert_eq!(groups.remove(LIST, 1), Err(Errno::EINVAL));
    assert_eq!(groups.unregister_ring(&reg), Err(Errno::EINVAL));
    assert_eq!(groups.unregister_ring(&BufReg { flags: 0, ..reg }), Ok(()));
    assert_eq!(groups.status(u32::from(LIST)), Err(Errno::ENOENT));
}

#[test]
fn malformed_registrations_are_refused() {
    let mut groups = BufGroups::default();
    let good = BufReg { ring_entries: 4, bgid: 1, flags: register::PBUF_RING_MMAP, ..BufReg::default() };
    for bad in [
        BufReg { ring_entries: 0, ..good },
        BufReg { ring_entries: 3, ..good },
        BufReg { ring_entries: 65536, ..good },
        BufReg { flags: 4, ..good },
        BufReg { min_left: 1, ..good },
        BufReg { resv: [0, 0, 0, 0, 1], ..good },
        BufReg { flags: 0, ring_addr: 8, ..good },
    ] {
        assert_eq!(groups.register_ring(&bad), Err(Errno::EINVAL), "{bad:?}");
    }
    assert_eq!(groups.register_ring(&BufReg { flags: 0, ..good }), Err(Errno::EFAULT));
    assert_eq!(groups.register_ring(&BufReg { flags: 0, ring_addr: 0x10000, ..good }), Err(Errno::EFAULT));
    assert_eq!(groups.map_for_program(layout::OFF_PBUF_RING | 1 << 16, 64), Err(Errno::ENOMEM));
}
