//! The constructor: runs before the program's own code and before its libraries' constructors.

use uringlet_core::{AsyncHint, ENGINE, WriteMode};
use uringlet_sys::fault_plan;
use uringlet_sys::passthrough::write_stderr;
use uringlet_ublk::in_process::DEVICE_FILES;
use uringlet_ublk::remote::BROKER_FILES;

use crate::rewrite::{CacheUse, LoadedObject, ScanTotals};
use crate::symbols::note_objects;
use crate::{
    backend, bindings, diagnose, dl_hook, doctor, environ, exec, exec_hook, explain, fork, intercepted, kernel_rings, mistakes, notice,
    rewrite, safe_read, trap,
};

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = start;

/// Takes no arguments: glibc passes argc, argv and envp to constructors, musl does not.
extern "C" fn start() {
    note_objects();
    if backend::choose() {
        return;
    }
    prepare();
    fork::register_handlers();
    attach();
    trap::note_start();
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = end;

/// exit(3). A forked child ends its requests on its parent's rings, which nobody would complete.
extern "C" fn end() {
    exec::end_at_exit();
    kernel_rings::look();
}

/// What a process needs, however it was started.
fn prepare() {
    fork::HEAP.register();
    ENGINE.claim_process();
    backend::prepare();
    choose_devices();
    configure();
    notice::prepare();
    mistakes::check();
    doctor::prepare();
    trap::start();
}

/// What the environment says about the engine.
pub(crate) fn configure() {
    exec::inherit_task_policy();
    if environ::is_on("URINGLET_EXPLAIN") {
        explain::enable();
    }
    if let Some(hint) = environ::variable("URINGLET_IOSQE_ASYNC").and_then(AsyncHint::named) {
        ENGINE.set_async_hint(hint);
    }
    if let Some(path) = environ::variable("URINGLET_TRACE") {
        ENGINE.trace(path);
    }
    if let Some(plan) = environ::variable(fault_plan::VARIABLE)
        && !ENGINE.inject(plan)
    {
        write_stderr(b"uringlet: ignored: URINGLET_FAULTS is damaged: `uringlet run --inject` makes it\n");
    }
    if let Some(mode) = environ::variable("URINGLET_MODE").and_then(WriteMode::named) {
        ENGINE.set_mode(mode);
    }
}

/// Selects the ublk devices of the program: a broker's, if `uringlet run` names one, else its own.
fn choose_devices() {
    let broker = environ::variable("URINGLET_UBLK").filter(|&value| value == b"broker");
    match broker.and_then(|_| environ::variable("URINGLET_UBLK_DIR")) {
        Some(dir) => {
            BROKER_FILES.set_broker(dir, environ::variable("URINGLET_PROGRAM"));
            ENGINE.set_opener(&BROKER_FILES);
        }
        None => ENGINE.set_opener(&DEVICE_FILES),
    }
}

fn attach() {
    let objects = rewrite::loaded();
    let totals = rewrite::examine(&objects, CacheUse::Allowed);
    if !backend::is_kernel_traced() && (totals.has_ring_sites() || bindings::may_make_rings(&objects)) {
        ENGINE.expect_rings();
    }
    exec_hook::prepare(&objects);
    let hears_dlopen = dl_hook::install(&objects);
    if !hears_dlopen {
        explain::line(|| "libraries that the program loads later will not be rewritten: the dynamic linker is unfamiliar".into());
    }
    tell(&objects, &totals, hears_dlopen);
}

/// Tells the user what was attached, or that nothing was.
fn tell(objects: &[LoadedObject], totals: &ScanTotals, hears_dlopen: bool) {
    explain::bindings(objects);
    diagnose::finish(objects, hears_dlopen);
    notice::at_start(objects, totals.has_ring_sites() || totals.has_refused());
    notice::program_starts();
}

/// Attaches to a static program, which is mapped. `own_path` is that of this object. False: the
/// system forbids it, or the program is left to the kernel.
pub(crate) fn attach_static(program: &LoadedObject, own_path: &[u8]) -> bool {
    if backend::is_kernel_wanted() {
        return false;
    }
    prepare();
    if !backend::is_kernel_traced() {
        ENGINE.expect_rings();
    }
    safe_read::set_segments(program.readable.clone());
    intercepted::intercept_static();
    let objects = core::slice::from_ref(program);
    let totals = rewrite::examine(objects, CacheUse::Allowed);
    exec::set_library_path(own_path);
    tell(objects, &totals, false);
    trap::note_start();
    !totals.has_refused()
}
