//! The environment that a program gets: the given one, with this object in LD_PRELOAD and the
//! policy of the task.

use core::ffi::CStr;

use super::room::Room;
use super::task_policy;
use crate::safe_read::ProgramReader;

const NAME: &[u8] = b"LD_PRELOAD=";
/// A longer LD_PRELOAD stays as it is.
const MAX_VALUE: usize = 2048;

/// What the given environment holds.
pub(super) struct ChildEnvironment {
    given: usize,
    /// The number of variables.
    count: usize,
    /// The index of LD_PRELOAD.
    index: Option<usize>,
    policy: PolicyVariable,
    value: [u8; MAX_VALUE],
    len: usize,
}

/// The variable of the task's policy.
#[derive(Clone, Copy, Default)]
struct PolicyVariable {
    /// As it shall be.
    wanted: Option<&'static CStr>,
    /// Where it stands.
    index: Option<usize>,
    is_kept: bool,
}

impl PolicyVariable {
    fn new(wanted: Option<&'static CStr>) -> Self {
        Self { wanted, index: None, is_kept: wanted.is_none() }
    }

    /// Looks at a variable.
    fn note(&mut self, at: usize, variable: usize, reader: &mut ProgramReader) {
        let Some(wanted) = self.wanted else { return };
        if reader.begins_with(variable, task_policy::PREFIX.as_bytes()) {
            self.index = Some(at);
            self.is_kept = reader.begins_with(variable, wanted.to_bytes_with_nul());
        }
    }

    /// The variable that takes the place of the one at `at`.
    fn in_place_of(self, at: usize) -> Option<usize> {
        self.wanted.filter(|_| self.index == Some(at)).map(|wanted| wanted.as_ptr().addr())
    }

    /// The variable that is missing.
    fn added(self) -> Option<usize> {
        self.wanted.filter(|_| self.index.is_none()).map(|wanted| wanted.as_ptr().addr())
    }
}

impl ChildEnvironment {
    /// Reads the array at `given`. `policy`: the variable of the task's policy that a child gets.
    /// `None`: it cannot be read, or has a very long LD_PRELOAD.
    pub(super) fn read(given: usize, policy: Option<&'static CStr>, reader: &mut ProgramReader) -> Option<Self> {
        let policy = PolicyVariable::new(policy);
        let mut environment = Self { given, count: 0, index: None, policy, value: [0; MAX_VALUE], len: 0 };
        let mut value = 0;
        // To the kernel a null environment is an empty one.
        loop {
            let variable = if given == 0 { 0 } else { reader.word(given.checked_add(8 * environment.count)?)? };
            if variable == 0 {
                break;
            }
            if reader.begins_with(variable, NAME) {
                (environment.index, value) = (Some(environment.count), variable + NAME.len());
            }
            environment.policy.note(environment.count, variable, reader);
            environment.count += 1;
        }
        if value != 0 {
            environment.len = reader.string(value, &mut environment.value);
        }
        (environment.len < MAX_VALUE).then_some(environment)
    }

    /// The entries of LD_PRELOAD.
    fn entries(&self) -> impl Iterator<Item = &[u8]> {
        self.value[..self.len].split(|&byte| byte == b':' || byte == b' ')
    }

    /// Whether it stays as it is: LD_PRELOAD names `library` already, or does not where that
    /// `is_missing`; and the policy is there.
    pub(super) fn is_kept(&self, library: &[u8], is_missing: bool) -> bool {
        self.policy.is_kept && self.is_preload_kept(library, is_missing)
    }

    fn is_preload_kept(&self, library: &[u8], is_missing: bool) -> bool {
        self.entries().any(|entry| entry == library) != is_missing
    }

    /// Builds the array with `first` before all other variables. If the library `is_missing`, its
    /// entry goes: the dynamic linker would complain in each program.
    pub(super) fn build(
        &self,
        first: Option<usize>,
        library: &[u8],
        is_missing: bool,
        reader: &mut ProgramReader,
        room: &mut Room<'_>,
    ) -> Option<usize> {
        let is_kept = self.is_preload_kept(library, is_missing);
        let preload = if is_kept { None } else { self.preload(library, is_missing, room)? };
        let changed = if is_kept { None } else { self.index };
        let added = preload.filter(|_| changed.is_none());
        let words = room.words(self.count + 4)?;
        let mut len = 0;
        let mut put = |variable| {
            words[len] = variable;
            len += 1;
        };
        first.into_iter().for_each(&mut put);
        for i in 0..self.count {
            let given = || reader.word(self.given + 8 * i);
            let variable = if changed == Some(i) { preload } else { self.policy.in_place_of(i).or_else(given) };
            variable.into_iter().for_each(&mut put);
        }
        added.into_iter().chain(self.policy.added()).for_each(&mut put);
        put(0);
        Some(words.as_ptr().expose_provenance())
    }

    /// The new LD_PRELOAD; `Some(None)`: there shall be none.
    fn preload(&self, library: &[u8], is_missing: bool, room: &mut Room<'_>) -> Option<Option<usize>> {
        let value = &self.value[..self.len];
        if !is_missing {
            let colon: &[u8] = if value.is_empty() { b"" } else { b":" };
            return room.text(&[NAME, library, colon, value]).map(Some);
        }
        let mut others = [0; MAX_VALUE];
        let mut len = 0;
        for entry in self.entries().filter(|&entry| entry != library && !entry.is_empty()) {
            for &byte in entry.iter().chain(b":") {
                others[len] = byte;
                len += 1;
            }
        }
        if len == 0 {
            return Some(None);
        }
        room.text(&[NAME, &others[..len - 1]]).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_char;

    const LIBRARY: &[u8] = b"/l/u.so";

    fn texts(at: usize) -> Vec<String> {
        // SAFETY: an array that `build` has made of strings that are there.
        let text = |i: usize| unsafe {
            let text = (at as *const *const c_char).add(i).read();
            (!text.is_null()).then(|| CStr::from_ptr(text).to_str().unwrap().to_owned())
        };
        (0..).map_while(text).collect()
    }

    /// The environment that a child gets for this one; `None`: the same.
    fn child_env(variables: &[&CStr], first: Option<&CStr>, is_missing: bool) -> Option<Vec<String>> {
        child_env_with(None, variables, first, is_missing)
    }

    fn child_env_with(policy: Option<&'static CStr>, variables: &[&CStr], first: Option<&CStr>, is_missing: bool) -> Option<Vec<String>> {
        let pointers: Vec<usize> = variables.iter().map(|v| v.as_ptr() as usize).chain([0]).collect();
        let mut reader = ProgramReader::new(pointers.as_ptr() as usize, 0);
        let environment = ChildEnvironment::read(pointers.as_ptr() as usize, policy, &mut reader).unwrap();
        if first.is_none() && environment.is_kept(LIBRARY, is_missing) {
            return None;
        }
        let mut words = [usize::MAX; 1024];
        let first = first.map(|text| text.as_ptr() as usize);
        environment.build(first, LIBRARY, is_missing, &mut reader, &mut Room::new(&mut words)).map(texts)
    }

    fn owned(texts: &[&str]) -> Option<Vec<String>> {
        Some(texts.iter().map(|&t| t.to_owned()).collect())
    }

    #[test]
    fn preload_variable_is_added_or_extended_if_needed() {
        let child_env = |variables| child_env(variables, None, false);
        assert_eq!(child_env(&[]), owned(&["LD_PRELOAD=/l/u.so"]));
        assert_eq!(child_env(&[c"A=b", c"C="]), owned(&["A=b", "C=", "LD_PRELOAD=/l/u.so"]));
        assert_eq!(child_env(&[c"LD_PRELOAD=", c"A=b"]), owned(&["LD_PRELOAD=/l/u.so", "A=b"]));
        assert_eq!(child_env(&[c"A=b", c"LD_PRELOAD=a.so b.so"]), owned(&["A=b", "LD_PRELOAD=/l/u.so:a.so b.so"]));
        assert_eq!(child_env(&[c"LD_PRELOAD=a.so:/l/u.so"]), None);
    }

    #[test]
    fn where_the_library_is_missing_only_its_entry_goes() {
        let child_env = |variables| child_env(variables, None, true);
        assert_eq!(child_env(&[c"A=b"]), None);
        assert_eq!(child_env(&[c"LD_PRELOAD=a.so"]), None);
        assert_eq!(child_env(&[c"LD_PRELOAD=/l/u.so", c"A=b"]), owned(&["A=b"]));
        assert_eq!(child_env(&[c"LD_PRELOAD=a.so:/l/u.so b.so"]), owned(&["LD_PRELOAD=a.so:b.so"]));
    }

    #[test]
    fn loaders_variable_comes_first() {
        assert_eq!(child_env(&[c"LD_PRELOAD=/l/u.so"], Some(c"X=y"), false), owned(&["X=y", "LD_PRELOAD=/l/u.so"]));
        assert_eq!(child_env(&[], Some(c"X=y"), false), owned(&["X=y", "LD_PRELOAD=/l/u.so"]));
    }

    #[test]
    fn policy_of_the_task_is_added_or_replaced_if_needed() {
        let child_env = |variables: &[&CStr]| child_env_with(Some(c"URINGLET_TASK_POLICY=d:1"), variables, None, false);
        let preload = c"LD_PRELOAD=/l/u.so";
        assert_eq!(child_env(&[]), owned(&["LD_PRELOAD=/l/u.so", "URINGLET_TASK_POLICY=d:1"]));
        let beside = [preload, c"A=b"];
        assert_eq!(child_env(&beside), owned(&["LD_PRELOAD=/l/u.so", "A=b", "URINGLET_TASK_POLICY=d:1"]));
        let former = [c"URINGLET_TASK_POLICY=d:12", preload];
        assert_eq!(child_env(&former), owned(&["URINGLET_TASK_POLICY=d:1", "LD_PRELOAD=/l/u.so"]));
        let kept = [c"URINGLET_TASK_POLICY=d:1", preload];
        assert_eq!(child_env(&kept), None);
    }

    #[test]
    fn unreadable_or_long_environment_is_left_alone() {
        let reader = &mut ProgramReader::new(0, 0);
        assert!(ChildEnvironment::read(8, None, reader).is_none());
        let long = std::ffi::CString::new([b"LD_PRELOAD=".to_vec(), vec![b'a'; MAX_VALUE]].concat()).unwrap();
        let pointers = [long.as_ptr() as usize, 0];
        assert!(ChildEnvironment::read(pointers.as_ptr() as usize, None, reader).is_none());
        let environment = ChildEnvironment::read(0, None, reader).unwrap();
        assert!(environment.build(None, LIBRARY, false, reader, &mut Room::new(&mut [0; 4])).is_none());
    }
}
