//! Dropping rights before the program starts. The sandbox has one thread, so calls that act on a
//! thread change the whole process.

use anyhow::Context;
use rustix::io::Errno;
use rustix::process::{Gid, Signal, Uid, getppid, set_parent_process_death_signal};
use rustix::thread::CapabilitySet;

/// The capabilities that Docker leaves to a container's root by default.
fn docker_capabilities() -> CapabilitySet {
    CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID
        | CapabilitySet::KILL
        | CapabilitySet::SETGID
        | CapabilitySet::SETUID
        | CapabilitySet::SETPCAP
        | CapabilitySet::NET_BIND_SERVICE
        | CapabilitySet::NET_RAW
        | CapabilitySet::SYS_CHROOT
        | CapabilitySet::MKNOD
        | CapabilitySet::AUDIT_WRITE
        | CapabilitySet::SETFCAP
}

/// Shrinks the bounding set: a root's exec takes its capabilities from there.
pub(super) fn keep_docker_capabilities() -> anyhow::Result<()> {
    let kept = docker_capabilities();
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if kept.contains(capability) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Beyond the last capability of this kernel.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error).with_context(|| format!("capability {bit}")),
        }
    }
    match rustix::thread::clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error).context("ambient capabilities"),
    }
}

/// Changes groups, group and user in this order: later steps need rights that the user change
/// drops.
pub(super) fn become_user(uid: u32) -> anyhow::Result<()> {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    Ok(())
}

/// Asks the kernel to kill this process when the thread that started it ends.
pub(super) fn die_with_parent() -> anyhow::Result<()> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the call; this process has another parent then.
    anyhow::ensure!(getppid() == parent, "the starter is gone");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_container_has_fourteen_capabilities() {
        assert_eq!(super::docker_capabilities().bits().count_ones(), 14);
    }
}
