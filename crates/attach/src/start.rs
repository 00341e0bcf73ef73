//! The constructor: runs before the program's own code and before its libraries' constructors.

use uringlet::{AsyncHint, ENGINE, WriteMode};
use uringlet_ublk::in_process::DEVICE_FILES;
use uringlet_ublk::remote::BROKER_FILES;

use crate::rewrite::CacheUse;
use crate::symbols::resolve_all;
use crate::{dl_hook, environ, exec_hook, explain, fork, rewrite};

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = start;

/// Takes no arguments: glibc passes argc, argv and envp to constructors, musl does not.
extern "C" fn start() {
    resolve_all();
    fork::HEAP.register();
    fork::register_handlers();
    ENGINE.prepare();
    choose_devices();
    if environ::variable("URINGLET_EXPLAIN").is_some() {
        explain::enable();
    }
    if let Some(hint) = environ::variable("URINGLET_IOSQE_ASYNC").and_then(AsyncHint::named) {
        ENGINE.set_async_hint(hint);
    }
    if let Some(mode) = environ::variable("URINGLET_MODE").and_then(WriteMode::named) {
        ENGINE.set_mode(mode);
    }
    attach();
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
    rewrite::examine(&objects, CacheUse::Allowed);
    exec_hook::prepare(&objects);
    if !dl_hook::install(&objects) {
        explain::line(|| {
            "libraries that the program loads later will not be rewritten: the dynamic linker is unfamiliar or being debugged".into()
        });
    }
}
