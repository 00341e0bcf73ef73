//! A file that the ring makes belongs to the thread's user, and has the mode that its umask leaves.

use anyhow::ensure;
use io_uring::{opcode, types};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::actor::Actor;
use crate::identity::effective_user;
use crate::numbers::Fd;
use crate::pool::c_path;

pub(crate) fn step(actor: &mut Actor) -> anyhow::Result<()> {
    actor.names += 1;
    let path = actor.world.pool.commons.join(format!("{}-{}-{}", std::process::id(), actor.me, actor.names));
    let name = c_path(&path);
    let plain = c_path(&path.with_extension("plain"));
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: a string that ends in NUL.
    let wanted = Fd::of(unsafe { libc::open(plain.as_ptr(), flags, 0o666) });
    let whose = actor.any_ring();
    let entry = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), name.as_ptr()).flags(flags).mode(0o666).build();
    let got = actor.ask(whose, entry, "an OPENAT with O_CREAT")?;
    actor.world.count("creations", 1);
    ensure!(wanted.is_ok() == (got >= 0), "WRONG RIGHTS: creating {name:?}: {got}, a plain one: {wanted:?}");
    if got < 0 {
        return Ok(());
    }
    drop(Fd::of(got)?);
    let (made, like) = (fs::metadata(&path)?, fs::metadata(Path::new(plain.to_str()?))?);
    let facts = |m: &fs::Metadata| (m.uid(), m.gid(), m.mode());
    ensure!(
        facts(&made) == facts(&like) && made.uid() == effective_user(),
        "WRONG RIGHTS: a new file has owner, group, mode {:?}, a plain one {:?}, user {}",
        facts(&made),
        facts(&like),
        effective_user()
    );
    let unlink = opcode::UnlinkAt::new(types::Fd(libc::AT_FDCWD), name.as_ptr()).build();
    let unlinked = actor.ask(whose, unlink, "an UNLINKAT")?;
    ensure!(unlinked == 0, "unlinking its own file {name:?}: {unlinked}");
    // SAFETY: a string that ends in NUL.
    unsafe { libc::unlink(plain.as_ptr()) };
    Ok(())
}
