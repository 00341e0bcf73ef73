//! The end of `uringlet doctor`: what concerns all objects, and whether a ring can be made.

use alloc::string::String;

use uringlet_core::ENGINE;
use uringlet_sys::spawn::{CopyEnd, in_copy};
use uringlet_sys::{UserPtr, process, refusal, required_calls};

use crate::convert::int;
use crate::doctor::fact;
use crate::entry::on_engine_stack;
use crate::rewrite::{Cache, LoadedObject};
use crate::{bindings, dispatch, doctor, explain};

/// Bytes of `struct io_uring_params`.
const PARAMS_BYTES: usize = 120;

/// After the start: the facts that concern all objects. `hears_dlopen`: libraries that the program
/// loads later would be examined.
pub(crate) fn finish(objects: &[LoadedObject], hears_dlopen: bool) {
    if !doctor::is_asked() {
        return;
    }
    for (object, names) in bindings::all(objects) {
        fact(&[&"binds", &explain::name_of(&object.name), &names.join(" ")]);
    }
    fact(&[&"reaches", &bindings::may_reach_engine(objects)]);
    fact(&[&"dlopen", &hears_dlopen]);
    if let Some(cache) = Cache::open() {
        fact(&[&"cache", &String::from_utf8_lossy(cache.path())]);
    }
    if let Some(name) = required_calls::denied() {
        fact(&[&"denied", &name]);
    }
    match in_copy(|| on_engine_stack(make_ring)) {
        Ok(CopyEnd::Exit(errno)) => fact(&[&"ring", &"errno", &errno]),
        Ok(CopyEnd::Signal(signal)) => fact(&[&"ring", &"signal", &signal]),
        Err(errno) => fact(&[&"ring", &"untried", &errno.into_raw()]),
    }
    fact(&[&"end"]);
    process::exit(0);
}

/// Makes a ring and enters it, in a process of its own. Returns the errno, 0 for success.
fn make_ring() -> i32 {
    const ENTRIES: u32 = 4;
    refusal::be_quiet();
    let mut params = [0_u64; PARAMS_BYTES / 8];
    let made = int(dispatch::setup(ENTRIES, UserPtr::new(params.as_mut_ptr().addr())));
    if made < 0 {
        return -made;
    }
    let entered = int(ENGINE.enter(made.cast_unsigned(), 0, 0, 0, UserPtr::new(0), 0));
    if entered < 0 { -entered } else { 0 }
}
