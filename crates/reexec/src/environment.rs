//! The environment: as libc has it, and as the program gets it when it is executed again.

use alloc::ffi::CString;
use alloc::format;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char};

use uringlet_sys::own_program::environment_at;
use uringlet_sys::process::pid_now;
use uringlet_sys::ring_backend::RingBackend;

/// What this crate tells the program that it executes again, `PID:PATH`: the process, and the
/// object.
const INIT: &str = "URINGLET_INIT";
const PRELOAD: &str = "LD_PRELOAD";

/// A list of `NAME=value`.
#[derive(Debug)]
pub(crate) struct ProgramEnvironment(Vec<CString>);

impl ProgramEnvironment {
    /// As the program has it now.
    pub(crate) fn of_libc() -> Self {
        unsafe extern "C" {
            static environ: *const *const c_char;
        }
        // SAFETY: libc's own array. Like getenv(3), this must not run beside a setenv(3).
        Self(unsafe { environment_at(environ) })
    }

    /// The value of a variable. An empty one counts as none.
    pub(crate) fn value(&self, name: &str) -> Option<&[u8]> {
        self.text(name).map(CStr::to_bytes)
    }

    /// As [`value`](Self::value), with its NUL.
    pub(crate) fn text(&self, name: &str) -> Option<&CStr> {
        let text = self.0.iter().find(|text| has_name(text, name))?;
        CStr::from_bytes_with_nul(&text.to_bytes_with_nul()[name.len() + 1..]).ok().filter(|text| !text.is_empty())
    }

    /// Whether this process has executed itself with the object that is still to be preloaded.
    /// Other processes inherit the variable, and LD_PRELOAD loses an object that is gone.
    pub(crate) fn says_executed_again(&self) -> bool {
        let said = self.value(INIT).and_then(|said| {
            let colon = said.iter().position(|&byte| byte == b':')?;
            Some((&said[..colon], &said[colon + 1..]))
        });
        let preloaded = self.value(PRELOAD).unwrap_or_default();
        said.is_some_and(|(pid, path)| pid == format!("{}", pid_now()).as_bytes() && entries(preloaded).any(|entry| entry == path))
    }

    /// Has the dynamic linker load the object at `path` first.
    pub(crate) fn attach(&mut self, path: &CStr) {
        let others = entries(self.value(PRELOAD).unwrap_or_default()).filter(|&entry| entry != path.to_bytes());
        let list = core::iter::once(path.to_bytes()).chain(others).collect::<Vec<_>>().join(&b':');
        self.set(PRELOAD, &list);
        let said = [format!("{}:", pid_now()).as_bytes(), path.to_bytes()].concat();
        self.set(INIT, &said);
        // The answer "blocked" is inherited.
        if self.value(RingBackend::VARIABLE).is_some() {
            self.set(RingBackend::VARIABLE, b"engine");
        }
    }

    /// Replaces a variable in its place, or adds it.
    fn set(&mut self, name: &str, value: &[u8]) {
        let Ok(text) = CString::new([name.as_bytes(), b"=", value].concat()) else { return };
        match self.0.iter_mut().find(|text| has_name(text, name)) {
            Some(place) => *place = text,
            None => self.0.push(text),
        }
    }

    /// Puts a variable before all others.
    pub(crate) fn set_first(&mut self, name: &str, value: &[u8]) {
        self.0.retain(|text| !has_name(text, name));
        if let Ok(text) = CString::new([name.as_bytes(), b"=", value].concat()) {
            self.0.insert(0, text);
        }
    }

    /// The list, for execve(2).
    pub(crate) fn into_list(self) -> Vec<CString> {
        self.0
    }
}

fn has_name(text: &CString, name: &str) -> bool {
    text.to_bytes().strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
}

/// The entries of LD_PRELOAD.
fn entries(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b':' || byte == b' ').filter(|entry| !entry.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;

    fn environment(variables: &[&CStr]) -> ProgramEnvironment {
        ProgramEnvironment(variables.iter().map(|&text| text.to_owned()).collect())
    }

    #[test]
    fn the_object_comes_first_and_the_rest_stays() {
        let mut it = environment(&[c"A=b", c"LD_PRELOAD=x.so y.so", c"odd", c"URINGLET=when-blocked"]);
        it.attach(c"/o");
        let said = CString::new(format!("URINGLET_INIT={}:/o", pid_now())).unwrap();
        let expected = environment(&[c"A=b", c"LD_PRELOAD=/o:x.so:y.so", c"odd", c"URINGLET=engine", &said]);
        assert_eq!(it.0, expected.0);
        assert!(it.says_executed_again());
        it.attach(c"/o");
        assert_eq!(it.0, expected.0);
    }

    #[test]
    fn another_process_or_object_was_not_executed_again() {
        let said = |init: &str, preload: &str| {
            let variables = [format!("URINGLET_INIT={init}"), format!("LD_PRELOAD={preload}")];
            ProgramEnvironment(variables.into_iter().map(|text| CString::new(text).unwrap()).collect()).says_executed_again()
        };
        let own = pid_now();
        assert!(said(&format!("{own}:/o"), "/o"));
        assert!(!said(&format!("{own}:/o"), "/p"));
        assert!(!said(&format!("{own}:/o"), ""));
        assert!(!said(&format!("{}:/o", own + 1), "/o"));
        assert!(!said("", "/o"));
        assert!(!said("x", "/o"));
    }

    #[test]
    fn libcs_environment_is_read() {
        assert!(ProgramEnvironment::of_libc().value("PATH").is_some());
        assert!(ProgramEnvironment::of_libc().value("PAT").is_none());
    }
}
