//! The steps of `init`.

use uringlet_sys::kernel_ring::{self, AskIn};
use uringlet_sys::own_program::OwnProgram;
use uringlet_sys::ring_backend::{self, RingBackend};
use uringlet_sys::thread;

use crate::environment::ProgramEnvironment;
use crate::library::Library;
use crate::{ActiveBackend, InitError, program};

/// Returns what answers io_uring calls from now on. Does not return if the program is executed
/// again: then it begins anew, attached, and this answers [`ActiveBackend::Engine`] there.
///
/// `object` is the content of `liburinglet.so`. `URINGLET_LIB` names another one.
///
/// # Errors
/// See [`InitError`]. The program goes on as it is.
pub fn init(object: Option<&[u8]>) -> Result<ActiveBackend, InitError> {
    if ring_backend::is_attached() {
        return Ok(ActiveBackend::Engine);
    }
    let environment = ProgramEnvironment::of_libc();
    if is_left_to_kernel(&environment)? {
        return Ok(ActiveBackend::Kernel);
    }
    Err(execute_again(object, environment))
}

fn is_left_to_kernel(environment: &ProgramEnvironment) -> Result<bool, InitError> {
    let wanted = match environment.value(RingBackend::VARIABLE) {
        Some(name) => RingBackend::named(name).ok_or(InitError::Variable)?,
        None => RingBackend::WhenBlocked,
    };
    Ok(match wanted {
        RingBackend::Kernel | RingBackend::KernelTraced => true,
        RingBackend::Engine => false,
        // Another thread may use descriptor numbers meanwhile.
        RingBackend::WhenBlocked if thread::count() == Some(1) => kernel_ring::works(AskIn::ThisProcess),
        RingBackend::WhenBlocked => kernel_ring::works(AskIn::Copy),
    })
}

/// Returns only if that is not possible.
fn execute_again(object: Option<&[u8]>, mut environment: ProgramEnvironment) -> InitError {
    let own = match OwnProgram::read() {
        Ok(own) => own,
        Err(errno) => return InitError::Proc(errno.into_raw()),
    };
    if own.is_secure {
        return InitError::Privileged;
    }
    if own.threads > 1 {
        return InitError::Threads;
    }
    if environment.says_executed_again() {
        return InitError::NotAttached;
    }
    match Library::provide(object, &environment) {
        Ok(library) => {
            environment.attach(library.path());
            program::execute(own, &library, environment)
        }
        Err(error) => error,
    }
}
