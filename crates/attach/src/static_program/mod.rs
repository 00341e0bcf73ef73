//! Static programs: they have no dynamic linker that would preload this object. So this object is
//! executed instead of them, and loads them into its own process.
//!
//! `execve("…/liburinglet.so", arguments of the program, URINGLET_EXEC=… and its environment)`: the
//! kernel starts this object at its entry point, with the process id, descriptors, signal
//! dispositions and arguments that the program shall have. It maps the program's file as the kernel
//! would, rewrites its call sites, and jumps to its first instruction on the same stack.
//!
//! | module | holds |
//! |---|---|
//! | `relocate` | the dynamic linker's work for this object |
//! | `request` | the variable `URINGLET_EXEC` |
//! | `initial_stack` | arguments, environment and auxiliary vector |
//! | `image` | what the headers of an executable say |
//! | `map` | mapping it |

mod image;
mod initial_stack;
mod map;
mod relocate;
mod request;

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::CStr;

use uringlet_sys::linux::auxvec::{AT_BASE, AT_ENTRY, AT_EXECFN, AT_HWCAP2, AT_PHDR, AT_PHNUM};
use uringlet_sys::linux::general::{AT_FDCWD, O_CLOEXEC};
use uringlet_sys::passthrough::{pass_through, write_stderr};
use uringlet_sys::process_image::{self, ProgramParts};
use uringlet_sys::{Errno, Sysno, UserPtr, io, process};

use crate::arch::own_span;
use crate::convert::address;
use crate::environ;
use crate::rewrite::LoadedObject;
use crate::start;
use crate::static_file;
use image::{HEADER_BYTES, Header, Image, ImageError};
use initial_stack::{InitialStack, text};
pub(crate) use relocate::relocate;
use request::ExecRequest;

/// How the program is started.
#[repr(C)]
pub(crate) struct ProgramStart {
    /// Its first instruction.
    entry: usize,
    /// The stack pointer that it starts with.
    stack: usize,
}

/// The exit status of a program that cannot be run, as a shell's.
const NOT_RUNNABLE: i32 = 126;

/// Why a program does not start.
enum LoadError {
    Image(ImageError),
    /// What failed, and how.
    System(&'static str, Errno),
}

/// A program in memory.
struct Loaded {
    image: Image,
    /// What is added to the addresses of its file.
    base: u64,
    path: &'static CStr,
}

impl Loaded {
    fn at(&self, address: u64) -> u64 {
        self.base.wrapping_add(address)
    }
}

/// Loads the program that the environment names. `stack` is as the kernel has left it.
///
/// # Safety
/// Called once, by the object's entry point, after [`relocate()`].
pub(crate) unsafe extern "C" fn start_program(stack: *mut usize) -> ProgramStart {
    // SAFETY: the caller's.
    let mut initial = unsafe { InitialStack::at(stack) };
    // SAFETY: addresses of the initial stack.
    let request = initial.variables().first().and_then(|&at| ExecRequest::parse(unsafe { text(at) }));
    let Some(request) = request else {
        fail(b"liburinglet.so", "is a library: run programs with it by `uringlet run PROGRAM`");
    };
    let first = initial.variables()[0];
    initial.remove_first_variable();
    environ::set_initial_stack(stack);
    close_own_gaps();
    let loaded = load(request.path).unwrap_or_else(|failure| match failure {
        LoadError::Image(error) => fail(request.path.to_bytes(), error.text()),
        LoadError::System(what, errno) => fail(request.path.to_bytes(), &format!("cannot be {what}: {errno}")),
    });
    static_file::set(loaded.path);
    let own_path = initial.auxiliary(AT_EXECFN);
    // SAFETY: as above.
    let own_path = own_path.map(|at| unsafe { text(at) }.to_bytes()).unwrap_or_default();
    process::prepare_thread_keys(initial.auxiliary(AT_HWCAP2).unwrap_or(0));
    if !start::attach_static(&object_of(&loaded), own_path) {
        execute_plainly(request.path, &initial);
    }
    let script = if request.script == 0 { None } else { initial.arguments().get(request.script).copied() };
    let file_name = script.unwrap_or(request.path.as_ptr().addr());
    describe(&loaded, &mut initial, file_name, first, stack);
    if loaded.image.has_executable_stack {
        map::make_stack_executable(stack.addr());
    }
    ProgramStart { entry: address(loaded.at(loaded.image.entry)), stack: stack.addr() }
}

fn close_own_gaps() {
    let base = own_span().start;
    // SAFETY: the first segment starts with the header of the file, and holds the table.
    let mapped = |at: u64, len: usize| unsafe { core::slice::from_raw_parts(address(base + at) as *const u8, len) };
    let Ok(header) = Header::parse(mapped(0, HEADER_BYTES)) else { return };
    if let Ok(image) = Image::parse(&header, mapped(header.table(), header.table_bytes()), u64::MAX) {
        map::close_gaps(&image, base);
    }
}

/// Executes the program without us, so that it finds itself as it would. Returns if that fails:
/// then it runs as it was loaded.
fn execute_plainly(path: &CStr, initial: &InitialStack<'_>) {
    let [arguments, variables] = initial.arrays();
    // SAFETY: a path and two arrays of strings, all of the initial stack.
    let _ = unsafe { pass_through(Sysno::execve, [path.as_ptr().addr(), arguments, variables, 0, 0, 0]) };
}

/// Reads, checks and maps the file.
fn load(path: &'static CStr) -> Result<Loaded, LoadError> {
    let opened = io::openat(AT_FDCWD, UserPtr::new(path.as_ptr().addr()), O_CLOEXEC, 0);
    let fd = io::number_of(opened.map_err(|errno| LoadError::System("opened", errno))?);
    let loaded = load_open(path, fd);
    let _ = io::close(fd);
    loaded
}

fn load_open(path: &'static CStr, fd: i32) -> Result<Loaded, LoadError> {
    let unreadable = |errno| LoadError::System("read", errno);
    let read = |into: &mut [u8], offset: u64| {
        let at = i64::try_from(offset).map_err(|_| LoadError::Image(ImageError::Truncated))?;
        io::pread(fd, UserPtr::new(into.as_mut_ptr().addr()), into.len(), at).map_err(unreadable)
    };
    let mut bytes = [0; HEADER_BYTES];
    let len = read(&mut bytes, 0)?;
    let header = Header::parse(&bytes[..len]).map_err(LoadError::Image)?;
    let mut table = vec![0; header.table_bytes()];
    let len = read(&mut table, header.table())?;
    let size = io::fstat(fd).map_err(unreadable)?.size;
    let image = Image::parse(&header, &table[..len], size).map_err(LoadError::Image)?;
    let base = map::map(&image, fd).map_err(|errno| LoadError::System("mapped", errno))?;
    Ok(Loaded { image, base, path: real_path(fd).unwrap_or(path) })
}

/// The path of an open file without symbolic links.
fn real_path(fd: i32) -> Option<&'static CStr> {
    const PATH_MAX: usize = 4096;
    let mut path: Vec<u8> = vec![0; PATH_MAX];
    let len = io::path_of(fd, &mut path[..PATH_MAX - 1]).ok()?;
    path.truncate(len + 1);
    CStr::from_bytes_until_nul(path.leak()).ok()
}

fn object_of(loaded: &Loaded) -> LoadedObject {
    let headers = loaded.at(loaded.image.headers);
    LoadedObject::of_static(loaded.path.to_bytes(), loaded.base, headers, loaded.image.header_count)
}

/// Tells the program and the kernel what the kernel's own loader would have told them.
fn describe(loaded: &Loaded, initial: &mut InitialStack<'_>, file_name: usize, first_variable: usize, stack: *mut usize) {
    let image = &loaded.image;
    initial.set_auxiliary(AT_PHDR, address(loaded.at(image.headers)));
    initial.set_auxiliary(AT_PHNUM, usize::from(image.header_count));
    initial.set_auxiliary(AT_ENTRY, address(loaded.at(image.entry)));
    initial.set_auxiliary(AT_BASE, 0);
    initial.set_auxiliary(AT_EXECFN, file_name);
    // SAFETY: addresses of the initial stack, and the request's path.
    let text_at = |at: usize| unsafe { text(at) };
    let end_of = |at: usize| (at + text_at(at).to_bytes_with_nul().len()) as u64;
    let after_first = end_of(first_variable);
    let (code, data) = image.code_and_data();
    let parts = ProgramParts {
        code: [loaded.at(code.start), loaded.at(code.end)],
        data: [loaded.at(data.start), loaded.at(data.end)],
        stack: stack.addr() as u64,
        arguments: [initial.arguments().first().map_or(first_variable, |&at| at) as u64, first_variable as u64],
        environment: [after_first, initial.variables().last().map_or(after_first, |&at| end_of(at))],
    };
    // Where it fails, debuggers see this object as the program; nothing else differs.
    let _ = process_image::describe_program(&parts, &mut initial.auxiliary_vector());
    let name = text_at(file_name).to_bytes();
    process_image::set_name(name.rsplit(|&byte| byte == b'/').next().unwrap_or_default());
}

/// One line on standard error, then the end.
fn fail(program: &[u8], why: &str) -> ! {
    let program = alloc::string::String::from_utf8_lossy(program);
    write_stderr(format!("uringlet: {program}: {why}\n").as_bytes());
    process_image::exit(NOT_RUNNABLE)
}
