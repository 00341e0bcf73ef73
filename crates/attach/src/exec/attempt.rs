//! One call that starts a program: what it would start, and the call that attaches to that.

use uringlet_sys::exec_file::ExecPath;
use uringlet_sys::linux::general::AT_FDCWD;
use uringlet_sys::passthrough::pass_through;
use uringlet_sys::{Sysno, UserPtr};

use super::call::ExecCall;
use super::decimal::Decimal;
use super::environment::ChildEnvironment;
use super::library::{library_file, library_path};
use super::room::Room;
use super::search;
use super::stack::Lender;
use super::target::{Examiner, ExecTarget, PATH_MAX, StaticTarget};
use super::task_policy;
use crate::convert::Register;
use crate::safe_read::ProgramReader;
use crate::static_file::static_program;

/// How the call is changed.
enum Change {
    None,
    /// The environment alone.
    Environment,
    /// This object is executed, and loads the program.
    Load(StaticTarget),
}

/// A request, and what was found out about it.
pub(super) struct ExecAttempt<'r> {
    request: ExecCall,
    /// This object's path, with a NUL behind.
    library: &'static [u8],
    /// It is not in the process' root, or the program cannot have it.
    is_missing: bool,
    environment: ChildEnvironment,
    reader: ProgramReader,
    room: Room<'r>,
    change: Change,
}

impl<'r> ExecAttempt<'r> {
    /// `None`: the call is left as it is.
    pub(super) fn new(mut request: ExecCall, room: &'r mut [usize]) -> Option<Self> {
        let library = library_path()?;
        let found = library_file(library);
        let mut room = Room::new(room);
        let mut reader = ProgramReader::new(0, request.stack);
        if request.is_searched {
            request.file = search::find(request.file.path.addr(), &mut reader, &mut room)?;
        }
        let arrays = [request.arguments, request.environment].map(UserPtr::new);
        let own_program = static_program().map(|program| program.path);
        let target = Examiner { reader: &mut reader, room: &mut room, library: found, own_program, arrays }.examine(request.file);
        let mut reader = ProgramReader::new(request.environment, request.stack);
        let is_missing = found.is_none() || matches!(target, ExecTarget::Foreign);
        let change = match target {
            ExecTarget::Untouched => return None,
            ExecTarget::Static(target) if !is_missing => Change::Load(target),
            ExecTarget::Static(_) | ExecTarget::Preloadable | ExecTarget::Foreign => Change::Environment,
        };
        let environment = ChildEnvironment::read(request.environment, task_policy::variable(), &mut reader)?;
        let mut attempt = Self { request, library, is_missing, environment, reader, room, change };
        if matches!(attempt.change, Change::Environment) && attempt.environment.is_kept(attempt.library_name(), is_missing) {
            attempt.change = Change::None;
        }
        Some(attempt)
    }

    pub(super) fn is_change(&self) -> bool {
        !matches!(self.change, Change::None)
    }

    /// This object's path.
    fn library_name(&self) -> &'static [u8] {
        self.library.strip_suffix(b"\0").unwrap_or(self.library)
    }

    /// Makes the changed call. Returns if there is none, or it has failed.
    pub(super) fn execute(mut self, lender: &Lender) {
        let call = match core::mem::replace(&mut self.change, Change::None) {
            Change::None => None,
            Change::Environment => self.with_environment(),
            Change::Load(target) => self.load(&target),
        };
        let Some((nr, args)) = call else { return };
        if let Some(_loan) = lender.lend() {
            // SAFETY: the program's own call with strings that live until it has failed.
            let _ = unsafe { pass_through(nr, args) };
        }
    }

    /// The program's call with another environment.
    fn with_environment(&mut self) -> Option<(Sysno, [usize; 6])> {
        let environment = self.build_environment(None)?;
        let ExecCall { file: ExecPath { dir, path, flags }, arguments, .. } = self.request;
        Some(if dir == AT_FDCWD && flags == 0 {
            (Sysno::execve, [path.addr(), arguments, environment, 0, 0, 0])
        } else {
            (Sysno::execveat, [dir.reg(), path.addr(), arguments, environment, flags.reg(), 0])
        })
    }

    /// This object's start with the program's arguments.
    fn load(&mut self, target: &StaticTarget) -> Option<(Sysno, [usize; 6])> {
        let script = Decimal::of_index(target.script);
        let mut path = [0; PATH_MAX];
        let len = self.strings().string(target.path, &mut path);
        let first = self.room.text(&[b"URINGLET_EXEC=", script.bytes(), b":", &path[..len]])?;
        let arguments = self.arguments(target.prefix())?;
        let environment = self.build_environment(Some(first))?;
        Some((Sysno::execve, [self.library.as_ptr().expose_provenance(), arguments, environment, 0, 0, 0]))
    }

    /// Reads anything but the environment.
    fn strings(&self) -> ProgramReader {
        ProgramReader::new(0, self.request.stack)
    }

    fn build_environment(&mut self, first: Option<usize>) -> Option<usize> {
        let library = self.library_name();
        self.environment.build(first, library, self.is_missing, &mut self.reader, &mut self.room)
    }

    /// The array of arguments: the program's own, or a script's, whose first is replaced.
    fn arguments(&mut self, prefix: &[usize]) -> Option<usize> {
        let given = self.request.arguments;
        if prefix.is_empty() {
            return Some(given);
        }
        let mut reader = self.strings();
        let count = count_words(given, &mut reader)?;
        let words = self.room.words(prefix.len() + count.max(1))?;
        let rest = (1..count).map(|i| reader.word(given + 8 * i).unwrap_or(0));
        let all = prefix.iter().copied().chain(rest).chain([0]);
        words.iter_mut().zip(all).for_each(|(place, argument)| *place = argument);
        Some(words.as_ptr().expose_provenance())
    }
}

/// The number of words before the null.
fn count_words(array: usize, reader: &mut ProgramReader) -> Option<usize> {
    let mut count = 0;
    while array != 0 && reader.word(array.checked_add(8 * count)?)? != 0 {
        count += 1;
    }
    Some(count)
}
