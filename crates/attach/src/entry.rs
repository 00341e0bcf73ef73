//! Rust code onto an engine stack: for code that was entered through one of the exported symbols.

use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU32;

use crate::arch::{call_on_exec_stack, call_on_stack};
use crate::exec::OwnStack;

/// A closure that runs on another stack, and its result.
struct ClosureSlot<F, R> {
    f: MaybeUninit<F>,
    result: MaybeUninit<R>,
}

/// Runs `f` on an engine stack.
pub(crate) fn on_engine_stack<R, F: FnOnce() -> R>(f: F) -> R {
    unsafe extern "C" fn run<R, F: FnOnce() -> R>(data: *mut u8) {
        // SAFETY: `data` is the slot below, and `f` is taken exactly once.
        unsafe {
            let slot = &mut *data.cast::<ClosureSlot<F, R>>();
            let f = slot.f.assume_init_read();
            slot.result.write(f());
        }
    }
    let mut slot: ClosureSlot<F, R> = ClosureSlot { f: MaybeUninit::new(f), result: MaybeUninit::uninit() };
    // SAFETY: `run` is given the slot it expects, which outlives the call; it has filled `result`
    // when it returns.
    unsafe {
        call_on_stack(run::<R, F>, (&raw mut slot).cast());
        slot.result.assume_init()
    }
}

/// Runs `f` on a stack of `exec::stack`. `None`: none becomes free.
pub(crate) fn on_exec_stack<R>(f: impl FnOnce(OwnStack) -> R) -> Option<R> {
    unsafe extern "C" fn run<R, F: FnOnce(OwnStack) -> R>(data: *mut u8, word: *const u32) {
        // SAFETY: `data` is the pair below, and `word` that of a stack taken for this call.
        unsafe {
            let (f, result) = &mut *data.cast::<(Option<F>, Option<R>)>();
            *result = f.take().map(|f| f(OwnStack::of(AtomicU32::from_ptr(word.cast_mut()))));
        }
    }
    fn call<R, F: FnOnce(OwnStack) -> R>(f: F) -> Option<R> {
        let mut slot = (Some(f), None);
        // SAFETY: `run` is given the pair that it expects, which outlives the call.
        unsafe { call_on_exec_stack(run::<R, F>, (&raw mut slot).cast()) };
        slot.1
    }
    call(f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{STACK_BYTES, free_stacks};

    fn stack_address() -> usize {
        let local = 0_u8;
        &raw const local as usize
    }

    #[test]
    fn closure_runs_on_an_engine_stack_and_returns_it() {
        let outside = stack_address();
        let (inside, nested) = on_engine_stack(|| (stack_address(), on_engine_stack(stack_address)));
        assert!(outside.abs_diff(inside) > STACK_BYTES);
        assert!(inside / STACK_BYTES != nested / STACK_BYTES);
        assert!(free_stacks() >= 2);
        let again = on_engine_stack(stack_address);
        assert_eq!(again / STACK_BYTES, inside / STACK_BYTES);
    }

    #[test]
    fn stack_is_never_used_by_two_threads() {
        let threads: Vec<_> = (0..8)
            .map(|me: u64| {
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        on_engine_stack(|| {
                            let mut mark = [me; 64];
                            core::hint::black_box(&mut mark);
                            assert!(mark.iter().all(|&m| m == me));
                        });
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
