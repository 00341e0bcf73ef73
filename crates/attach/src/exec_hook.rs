//! Children follow: a child whose environment has lost LD_PRELOAD gets it back at its execve(2).
//!
//! The hook sits at the system call inside libc's `execve`, which `execv`, `posix_spawn`, `system` and `popen` reach by calls that no symbol catches. It may
//! run in a vfork child, which borrows the parent's memory: it uses nothing but its own stack frame, no lock, no heap, no engine stack (a successful execve
//! never gives one back).
//!
//! A child that cannot be attached (static, set-uid) loses nothing: its dynamic linker ignores the variable or is not there.

use core::arch::naked_asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use syscalls::Sysno;
use uringlet::ENGINE;

use crate::entry::on_engine_stack;
use crate::rewrite::{self, LoadedObject};
use crate::safe_read;
use crate::symbols::weak_address;

const NAME: &[u8] = b"LD_PRELOAD=";
/// Longer environments and lists stay as they are: glibc's posix_spawn leaves its child 32 KiB of stack, musl's 5 KiB, and both are usually enough.
const MAX_VARIABLES: usize = 768;
const MAX_VALUE: usize = 512;

/// This object's path: set once in the constructor.
static PATH: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// What a new environment takes.
#[repr(C)]
#[derive(Debug, Default)]
struct EnvEdit {
    /// Variables now.
    count: usize,
    /// Which of them is LD_PRELOAD; `count` if none.
    slot: usize,
    /// Where its value is, 0 if none.
    value: usize,
    /// The value's length: it is not read beyond, though another thread may change it.
    len: usize,
}

/// Puts the hook into libc. False: children that lose LD_PRELOAD will not be attached.
pub(crate) fn install(objects: &[LoadedObject]) -> bool {
    // A relative path means something else in the child.
    let Some(path) = rewrite::own_path(objects).filter(|path| path.starts_with(b"/")) else { return false };
    // Kept for the life of the process.
    let path = path.leak();
    PATH[1].store(path.len(), Ordering::Relaxed);
    PATH[0].store(path.as_ptr() as usize, Ordering::Release);
    let functions = [weak_address!("execve"), weak_address!("execveat"), weak_address!("fexecve")];
    rewrite::hook_exec_calls(objects, &functions, exec_entry as *const () as usize)
}

fn path() -> Option<&'static [u8]> {
    let at = PATH[0].load(Ordering::Acquire);
    // SAFETY: the pair was stored once, from a leaked vector.
    (at != 0).then(|| unsafe { core::slice::from_raw_parts(at as *const u8, PATH[1].load(Ordering::Relaxed)) })
}

/// Where the trampolines in libc's exec functions jump: the system call is made here, with the environment as it should be, and the trampoline goes on behind
/// it if it fails.
///
/// The new environment lies below the stack pointer's old value and above its present one until the kernel has read it. It takes no more room than it needs.
#[unsafe(naked)]
unsafe extern "C" fn exec_entry() {
    naked_asm!(
        "lea rsp, [rsp - 128]",
        "push r11",
        "push r9",
        "push r8",
        "push r10",
        "push rdx",
        "push rsi",
        "push rdi",
        "push rax",
        "push rbx",
        "mov rbx, rsp",
        // The environment in its place, and the structure below.
        "sub rsp, {need} + 8",
        "and rsp, -16",
        "push r12",
        "push r13",
        "mov r12, rdx",
        "cmp eax, {execveat}",
        "cmove r12, r10",
        "lea r13, [rsp + 16]",
        "mov rdi, r12",
        "mov rsi, r13",
        "call {measure}",
        "mov rcx, r12",
        "test rax, rax",
        "jz 70f",
        "mov rdi, r12",
        "mov rsi, r13",
        "sub rsp, rax",
        "and rsp, -16",
        "mov rdx, rsp",
        "call {build}",
        "mov rcx, rax",
        "70: mov r12, [r13 - 8]",
        "mov r13, [r13 - 16]",
        "mov rax, [rbx + 8]",
        "mov rdi, [rbx + 16]",
        "mov rsi, [rbx + 24]",
        "mov rdx, [rbx + 32]",
        "mov r10, [rbx + 40]",
        "mov r8, [rbx + 48]",
        "mov r9, [rbx + 56]",
        "cmp eax, {execveat}",
        "cmove r10, rcx",
        "cmovne rdx, rcx",
        "syscall",
        "mov rsp, rbx",
        "pop rbx",
        "pop rdi",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop r10",
        "pop r8",
        "pop r9",
        "pop r11",
        "lea rsp, [rsp + 128]",
        "add r11, 2",
        "jmp r11",
        need = const size_of::<EnvEdit>(),
        execveat = const Sysno::execveat as i32,
        measure = sym measure,
        build = sym build,
    )
}

/// How many bytes the environment takes that the child shall have; 0 if `given` is right, or cannot be read, or is too long.
unsafe extern "C" fn measure(given: usize, need: &mut EnvEdit) -> usize {
    end_shared_requests();
    let Some(path) = path() else { return 0 };
    let Some(found) = survey(given) else { return 0 };
    let mut value = [0_u8; MAX_VALUE];
    let len = if found.value == 0 { 0 } else { safe_read::text(found.value, &mut value) };
    if len == MAX_VALUE || lists(&value[..len], path) {
        return 0;
    }
    let pointers = 8 * (found.count + 2);
    *need = EnvEdit { len, ..found };
    // "LD_PRELOAD=", the path, a colon, the value, a NUL.
    pointers + NAME.len() + path.len() + 1 + len + 1
}

/// Other processes that use a ring hear of the end of what this one has in flight there. False, and so nothing touched, in a vfork child.
fn end_shared_requests() {
    if ENGINE.shares_rings() {
        on_engine_stack(|| ENGINE.before_exec());
    }
}

/// Looks through an environment. `None`: the kernel may refuse it.
fn survey(given: usize) -> Option<EnvEdit> {
    let mut need = EnvEdit::default();
    let mut preload = None;
    loop {
        // No environment at all is an empty one to the kernel.
        let variable = if given == 0 { 0 } else { safe_read::word(given + 8 * need.count)? };
        if variable == 0 {
            break;
        }
        if need.count == MAX_VARIABLES {
            return None;
        }
        let mut head = [0_u8; NAME.len()];
        if safe_read::text(variable, &mut head) == head.len() && head == NAME {
            preload = Some((need.count, variable + NAME.len()));
        }
        need.count += 1;
    }
    (need.slot, need.value) = preload.unwrap_or((need.count, 0));
    Some(need)
}

/// Builds in `room`, which is as long as [`measure`] said: first the pointers, then the one text that is new.
unsafe extern "C" fn build(given: usize, need: &EnvEdit, room: *mut usize) -> usize {
    let path = path().unwrap_or_default();
    let end = need.count.max(need.slot + 1);
    // SAFETY: the room has `count` + 2 pointers and the text's bytes; all of it is written before the kernel reads it.
    unsafe {
        for i in 0..need.count {
            room.add(i).write(safe_read::word(given + 8 * i).unwrap_or(0));
        }
        let text = room.add(need.count + 2).cast::<u8>();
        room.add(need.slot).write(text as usize);
        room.add(end).write(0);
        let mut at = 0;
        for part in [NAME, path] {
            core::ptr::copy_nonoverlapping(part.as_ptr(), text.add(at), part.len());
            at += part.len();
        }
        let mut value = [0_u8; MAX_VALUE];
        let len = if need.value == 0 { 0 } else { safe_read::text(need.value, &mut value[..need.len]) };
        if len > 0 {
            text.add(at).write(b':');
            core::ptr::copy_nonoverlapping(value.as_ptr(), text.add(at + 1), len);
            at += 1 + len;
        }
        text.add(at).write(0);
    }
    room as usize
}

/// Whether a preload list names `path`.
fn lists(list: &[u8], path: &[u8]) -> bool {
    list.split(|&b| b == b':' || b == b' ').any(|entry| entry == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    /// The environment that a child gets for this one; `None`: the same.
    fn given(variables: &[&CStr]) -> Option<Vec<String>> {
        if path().is_none() {
            PATH[1].store(7, Ordering::Relaxed);
            PATH[0].store(b"/l/u.so".as_ptr() as usize, Ordering::Release);
        }
        let pointers: Vec<usize> = variables.iter().map(|v| v.as_ptr() as usize).chain([0]).collect();
        let mut need = EnvEdit::default();
        // SAFETY: as `exec_entry` calls them; the room is as long as asked for.
        unsafe {
            let bytes = measure(pointers.as_ptr() as usize, &mut need);
            let mut room = vec![usize::MAX; bytes.div_ceil(8)];
            if bytes == 0 {
                return None;
            }
            let built = build(pointers.as_ptr() as usize, &need, room.as_mut_ptr()) as *const *const std::ffi::c_char;
            let texts = (0..).map(|i| built.add(i).read()).take_while(|t| !t.is_null());
            Some(texts.map(|t| CStr::from_ptr(t).to_str().unwrap().to_owned()).collect())
        }
    }

    fn owned(texts: &[&str]) -> Option<Vec<String>> {
        Some(texts.iter().map(|&t| t.to_owned()).collect())
    }

    #[test]
    fn the_variable_is_added_completed_or_left() {
        assert_eq!(given(&[]), owned(&["LD_PRELOAD=/l/u.so"]));
        assert_eq!(given(&[c"A=b", c"C="]), owned(&["A=b", "C=", "LD_PRELOAD=/l/u.so"]));
        assert_eq!(given(&[c"LD_PRELOAD=", c"A=b"]), owned(&["LD_PRELOAD=/l/u.so", "A=b"]));
        assert_eq!(given(&[c"A=b", c"LD_PRELOAD=a.so b.so"]), owned(&["A=b", "LD_PRELOAD=/l/u.so:a.so b.so"]));
        assert_eq!(given(&[c"LD_PRELOAD=a.so:/l/u.so"]), None);
    }

    #[test]
    fn what_is_too_long_stays() {
        let long = std::ffi::CString::new([b"LD_PRELOAD=".to_vec(), vec![b'a'; MAX_VALUE]].concat()).unwrap();
        assert_eq!(given(&[&long]), None);
        assert_eq!(given(&vec![c"A=b"; MAX_VARIABLES + 1]), None);
        assert_eq!(given(&vec![c"A=b"; MAX_VARIABLES]).unwrap().len(), MAX_VARIABLES + 1);
    }

    #[test]
    fn bad_addresses_are_left_to_the_kernel() {
        let mut need = EnvEdit::default();
        // SAFETY: the address is not dereferenced.
        assert_eq!(unsafe { measure(8, &mut need) }, 0);
    }
}
