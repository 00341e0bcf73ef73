//! The environment that a child gets at execve(2): the program's, with this object in LD_PRELOAD.
//!
//! May run in a vfork child, which borrows the parent's memory: it uses nothing but its own stack
//! frame, no lock, no heap, no engine stack (a successful execve never returns one).

use core::sync::atomic::{AtomicUsize, Ordering};

use uringlet::ENGINE;

use crate::entry::on_engine_stack;
use crate::safe_read::EnvReader;

const NAME: &[u8] = b"LD_PRELOAD=";
/// Longer environments stay as they are: glibc's posix_spawn leaves its child 32 KiB of stack,
/// musl's 5 KiB, and both are usually enough.
const MAX_VARIABLES: usize = 768;
/// A longer LD_PRELOAD stays as it is.
const MAX_VALUE: usize = 512;

/// Address and length of this object's path: stored once in the constructor.
static PATH: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// What [`build_env`] has to change.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct EnvEdit {
    /// The number of variables now.
    count: usize,
    /// The index of LD_PRELOAD; `count` if there is none.
    index: usize,
    /// The address of its value, 0 if there is none.
    value: usize,
    /// The value's length: no more than that is copied, though another thread may change it.
    len: usize,
}

/// The path that LD_PRELOAD shall contain.
pub(crate) fn set_preload_path(path: &'static [u8]) {
    PATH[1].store(path.len(), Ordering::Relaxed);
    PATH[0].store(path.as_ptr() as usize, Ordering::Release);
}

fn preload_path() -> Option<&'static [u8]> {
    let at = PATH[0].load(Ordering::Acquire);
    // SAFETY: the pair was stored once, from a slice that lives as long as the process.
    (at != 0).then(|| unsafe { core::slice::from_raw_parts(at as *const u8, PATH[1].load(Ordering::Relaxed)) })
}

/// The number of bytes that the child's environment takes; 0 if `given` needs no change, cannot be
/// read, or is too long.
pub(crate) unsafe extern "C" fn measure_env(given: usize, edit: &mut EnvEdit) -> usize {
    end_shared_requests();
    edit_env(given, edit)
}

/// As [`measure_env`], for an environment that another process gets.
pub(crate) fn edit_env(given: usize, edit: &mut EnvEdit) -> usize {
    let Some(path) = preload_path() else { return 0 };
    let mut reader = EnvReader::new(given);
    let Some(found) = find_preload(&mut reader, given) else { return 0 };
    let mut value = [0_u8; MAX_VALUE];
    let len = if found.value == 0 { 0 } else { reader.string(found.value, &mut value) };
    if len == MAX_VALUE || contains_path(&value[..len], path) {
        return 0;
    }
    let pointers = 8 * (found.count + 2);
    *edit = EnvEdit { len, ..found };
    // "LD_PRELOAD=", the path, a colon, the value, a NUL.
    pointers + NAME.len() + path.len() + 1 + len + 1
}

/// Ends the requests of this process on rings that other processes use, too. A vfork child shares
/// none, so nothing is touched there.
pub(crate) fn end_shared_requests() {
    if ENGINE.shares_rings() {
        on_engine_stack(|| ENGINE.before_exec());
    }
}

/// Counts the variables and finds LD_PRELOAD. `None`: the environment cannot be read or is too
/// long.
fn find_preload(reader: &mut EnvReader, given: usize) -> Option<EnvEdit> {
    let mut edit = EnvEdit::default();
    let mut preload = None;
    loop {
        // To the kernel a null environment is an empty one.
        let variable = if given == 0 { 0 } else { reader.word(given.checked_add(8 * edit.count)?)? };
        if variable == 0 {
            break;
        }
        if edit.count == MAX_VARIABLES {
            return None;
        }
        if reader.begins_with(variable, NAME) {
            preload = Some((edit.count, variable + NAME.len()));
        }
        edit.count += 1;
    }
    (edit.index, edit.value) = preload.unwrap_or((edit.count, 0));
    Some(edit)
}

/// Builds the environment in `buffer`, which is as long as [`measure_env`] said: first the
/// pointers, then the one new string.
pub(crate) unsafe extern "C" fn build_env(given: usize, edit: &EnvEdit, buffer: *mut usize) -> usize {
    let path = preload_path().unwrap_or_default();
    let end = edit.count.max(edit.index + 1);
    let mut reader = EnvReader::new(given);
    // SAFETY: the buffer has room for `count` + 2 pointers and the string's bytes; all of it is
    // written before the kernel reads it.
    unsafe {
        for i in 0..edit.count {
            buffer.add(i).write(reader.word(given + 8 * i).unwrap_or(0));
        }
        let text = buffer.add(edit.count + 2).cast::<u8>();
        buffer.add(edit.index).write(text as usize);
        buffer.add(end).write(0);
        let mut at = 0;
        for part in [NAME, path] {
            core::ptr::copy_nonoverlapping(part.as_ptr(), text.add(at), part.len());
            at += part.len();
        }
        let mut value = [0_u8; MAX_VALUE];
        let len = if edit.value == 0 { 0 } else { reader.string(edit.value, &mut value[..edit.len]) };
        if len > 0 {
            text.add(at).write(b':');
            core::ptr::copy_nonoverlapping(value.as_ptr(), text.add(at + 1), len);
            at += 1 + len;
        }
        text.add(at).write(0);
    }
    buffer as usize
}

/// Whether a preload list names `path`.
fn contains_path(list: &[u8], path: &[u8]) -> bool {
    list.split(|&b| b == b':' || b == b' ').any(|entry| entry == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    /// The environment that a child gets for this one; `None`: the same.
    fn child_env(variables: &[&CStr]) -> Option<Vec<String>> {
        if preload_path().is_none() {
            set_preload_path(b"/l/u.so");
        }
        let pointers: Vec<usize> = variables.iter().map(|v| v.as_ptr() as usize).chain([0]).collect();
        let mut edit = EnvEdit::default();
        // SAFETY: as `exec_entry` calls them; the buffer is as long as required.
        unsafe {
            let bytes = measure_env(pointers.as_ptr() as usize, &mut edit);
            let mut buffer = vec![usize::MAX; bytes.div_ceil(8)];
            if bytes == 0 {
                return None;
            }
            let built = build_env(pointers.as_ptr() as usize, &edit, buffer.as_mut_ptr()) as *const *const std::ffi::c_char;
            let texts = (0..).map(|i| built.add(i).read()).take_while(|t| !t.is_null());
            Some(texts.map(|t| CStr::from_ptr(t).to_str().unwrap().to_owned()).collect())
        }
    }

    fn owned(texts: &[&str]) -> Option<Vec<String>> {
        Some(texts.iter().map(|&t| t.to_owned()).collect())
    }

    #[test]
    fn preload_variable_is_added_or_extended_if_needed() {
        assert_eq!(child_env(&[]), owned(&["LD_PRELOAD=/l/u.so"]));
        assert_eq!(child_env(&[c"A=b", c"C="]), owned(&["A=b", "C=", "LD_PRELOAD=/l/u.so"]));
        assert_eq!(child_env(&[c"LD_PRELOAD=", c"A=b"]), owned(&["LD_PRELOAD=/l/u.so", "A=b"]));
        assert_eq!(child_env(&[c"A=b", c"LD_PRELOAD=a.so b.so"]), owned(&["A=b", "LD_PRELOAD=/l/u.so:a.so b.so"]));
        assert_eq!(child_env(&[c"LD_PRELOAD=a.so:/l/u.so"]), None);
    }

    #[test]
    fn too_long_environment_is_left_alone() {
        let long = std::ffi::CString::new([b"LD_PRELOAD=".to_vec(), vec![b'a'; MAX_VALUE]].concat()).unwrap();
        assert_eq!(child_env(&[&long]), None);
        assert_eq!(child_env(&vec![c"A=b"; MAX_VARIABLES + 1]), None);
        assert_eq!(child_env(&vec![c"A=b"; MAX_VARIABLES]).unwrap().len(), MAX_VARIABLES + 1);
    }

    #[test]
    fn bad_address_is_left_to_the_kernel() {
        let mut edit = EnvEdit::default();
        // SAFETY: the address is not dereferenced.
        assert_eq!(unsafe { measure_env(8, &mut edit) }, 0);
    }
}
