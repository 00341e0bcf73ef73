//! What a scan finds in real programs, compared with what objdump says about them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use uringlet_sys::linux::elf_uapi::{PT_DYNAMIC, PT_LOAD, elf64_hdr, elf64_phdr};
use uringlet_sys::linux::general::{MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use uringlet_sys::mm;

use super::object::LoadedObject;
use super::plan::{Findings, PatchKind, PatchPlan, Reason};
use super::region::HEADER_BYTES;
use super::scan::scan;
use crate::arch::trampoline;
use crate::convert::address;
use crate::intercepted::is_intercepted;

/// A program's file, mapped as it would be loaded. Programs at fixed addresses lie there one at a
/// time.
struct Mapped {
    object: LoadedObject,
    start: usize,
    len: usize,
    _alone: MutexGuard<'static, ()>,
}

static ADDRESSES: Mutex<()> = Mutex::new(());

impl Mapped {
    fn new(file: &Path) -> Self {
        let alone = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = std::fs::read(file).expect("the program");
        // SAFETY: the program was made by a linker; its headers are where it says.
        let headers = unsafe {
            let header = bytes.as_ptr().cast::<elf64_hdr>().read_unaligned();
            let first = bytes.as_ptr().add(address(header.e_phoff)).cast::<elf64_phdr>();
            (0..usize::from(header.e_phnum)).map(|i| first.add(i).read_unaligned()).collect::<Vec<_>>()
        };
        let loads = || headers.iter().filter(|h| h.p_type == PT_LOAD);
        let low = loads().map(|h| h.p_vaddr & !0xfff).min().expect("a segment");
        let high = loads().map(|h| h.p_vaddr + h.p_memsz).max().expect("a segment");
        let len = address((high - low).next_multiple_of(4096));
        let fixed = if low == 0 { 0 } else { MAP_FIXED_NOREPLACE };
        // SAFETY: fresh memory, which replaces nothing.
        let start =
            unsafe { mm::map(address(low), len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0) }.expect("memory");
        let base = start as u64 - low;
        for load in loads() {
            let from = address(load.p_offset);
            let content = &bytes[from..from + address(load.p_filesz)];
            // SAFETY: the segment lies within the memory.
            unsafe { core::ptr::copy_nonoverlapping(content.as_ptr(), address(base + load.p_vaddr) as *mut u8, content.len()) };
        }
        let first = loads().find(|h| h.p_offset == 0).expect("the headers are loaded");
        // SAFETY: as above.
        let offset = unsafe { bytes.as_ptr().cast::<elf64_hdr>().read_unaligned() }.e_phoff;
        let mut object =
            LoadedObject::of_static(b"", base, base + first.p_vaddr + offset, u16::try_from(headers.len()).expect("few headers"));
        object.is_static = headers.iter().all(|h| h.p_type != 3);
        if !object.is_static {
            relocate(&object, base, &headers);
        }
        Self { object, start, len, _alone: alone }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which is not used any more.
        unsafe { mm::unmap(self.start, self.len) }.expect("unmapped");
    }
}

/// Fills in the addresses that depend on where the program lies, as its dynamic linker does before
/// it is scanned.
fn relocate(object: &LoadedObject, base: u64, headers: &[elf64_phdr]) {
    const DT_RELA: u64 = 7;
    const DT_RELASZ: u64 = 8;
    const R_X86_64_RELATIVE: u64 = 8;
    if headers.iter().all(|h| h.p_type != PT_DYNAMIC) {
        return;
    }
    let (Some(table), Some(len)) = (object.dynamic_entry(DT_RELA), object.dynamic_entry(DT_RELASZ)) else { return };
    for at in (base + table..base + table + len).step_by(24) {
        let [place, info, addend] = [0, 8, 16].map(|offset| object.u64_at(at + offset).expect("a relocation"));
        if info == R_X86_64_RELATIVE {
            // SAFETY: within the mapped program.
            unsafe { (address(base + place) as *mut u64).write_unaligned(base + addend) };
        }
    }
}

/// objdump's instructions, by address.
fn disassembled(file: &Path) -> BTreeMap<u64, String> {
    let output = Command::new("objdump").args(["-d", "-w", "--no-show-raw-insn"]).arg(file).output().expect("objdump");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let insn = |line: &str| {
        let (at, text) = line.split_once(":\t")?;
        Some((u64::from_str_radix(at.trim(), 16).ok()?, text.trim().to_owned()))
    };
    text.lines().filter_map(insn).collect()
}

/// The number that objdump shows before the `syscall` at `at`, if nothing else is done to it.
fn number_before(insns: &BTreeMap<u64, String>, at: u64) -> Option<u32> {
    let mut before = insns.range(..at).rev().take(24).map(|(_, text)| text);
    while let Some(text) = before.next() {
        let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
        let target = operands.trim().rsplit(',').next().unwrap_or_default().trim();
        if operands.trim() == "%eax,%eax" && mnemonic == "xor" {
            return Some(0);
        }
        if mnemonic == "pop" && target == "%rax" {
            return u32::from_str_radix(before.next()?.strip_prefix("push")?.trim().strip_prefix("$0x")?, 16).ok();
        }
        if ["%eax", "%rax"].contains(&target) && mnemonic.starts_with("mov") {
            let number = operands.trim().strip_prefix("$0x")?.split(',').next()?;
            return u32::from_str_radix(number, 16).ok();
        }
        if ["%eax", "%rax", "%al"].contains(&target) && !["cmp", "test"].contains(&mnemonic) || mnemonic.starts_with("call") {
            return None;
        }
    }
    None
}

/// Checks the findings in a program. Returns them.
fn check(file: &Path) -> Findings {
    let mapped = Mapped::new(file);
    let object = &mapped.object;
    let started = std::time::Instant::now();
    let findings = scan(object);
    let took = started.elapsed();
    let insns = disassembled(file);
    let sites: BTreeSet<u64> = insns.iter().filter(|(_, text)| *text == "syscall").map(|(&at, _)| at).collect();
    let rewritten: BTreeSet<u64> = findings.plans.iter().map(PatchPlan::syscall_address).collect();
    let left: BTreeMap<u64, _> = findings.left.iter().map(|site| (site.at, site.reason)).collect();
    eprintln!("{}: {} sites, {} rewritten, left {left:x?}, {took:?}", file.display(), sites.len(), rewritten.len());
    for &at in &sites {
        let number = number_before(&insns, at);
        let is_known = rewritten.contains(&at) || left.contains_key(&at) || number.is_some_and(|nr| !is_intercepted(nr));
        assert!(is_known, "{at:x} with number {number:?} is neither rewritten nor left alone");
    }
    assert!(rewritten.is_subset(&sites), "not a syscall: {:x?}", rewritten.difference(&sites));
    for plan in &findings.plans {
        check_plan(object, plan, &insns);
    }
    findings
}

/// The plan replaces whole instructions, and its trampoline does what they do.
fn check_plan(object: &LoadedObject, plan: &PatchPlan, insns: &BTreeMap<u64, String>) {
    assert!(insns.contains_key(&plan.start), "{:x} begins no instruction", plan.start);
    assert!(insns.contains_key(&plan.end()), "{:x} begins no instruction", plan.end());
    let header = object.span().end.next_multiple_of(4096) + (1 << 20);
    let at = header + HEADER_BYTES;
    let (code, _) = trampoline::emit(plan, object.base, header, at).expect("a trampoline");
    let before = decode(&plan.bytes, object.base + plan.start);
    let after = decode(&code, at);
    let is_moved = |insn: &&Instruction| insn.mnemonic() != iced_x86::Mnemonic::Syscall;
    let mut rest = after.iter();
    for insn in before.iter().filter(is_moved) {
        assert!(rest.any(|moved| is_same(insn, moved)), "{:x}: {insn:?} is not in the trampoline", plan.start);
    }
    let targets: Vec<u64> =
        after.iter().filter(|i| i.flow_control() == FlowControl::UnconditionalBranch).map(Instruction::near_branch_target).collect();
    assert!(targets.contains(&(object.base + plan.end())), "{:x}: no way back", plan.start);
}

fn is_same(insn: &Instruction, moved: &Instruction) -> bool {
    if insn.is_jcc_short_or_near() || insn.is_jmp_short_or_near() {
        return insn.mnemonic() == moved.mnemonic() && insn.near_branch_target() == moved.near_branch_target();
    }
    // Where they lie does not count, what they refer to does.
    *insn == *moved
}

fn decode(code: &[u8], ip: u64) -> Vec<Instruction> {
    let insns: Vec<Instruction> = Decoder::with_ip(64, code, ip, DecoderOptions::NONE).into_iter().collect();
    assert!(insns.iter().all(|insn| !insn.is_invalid()), "{code:x?}");
    insns
}

/// A program in a folder that goes with it.
struct Built(PathBuf, PathBuf);

impl Drop for Built {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Builds a program in a folder of its own. `None`: there is no such compiler.
fn build(name: &str, compiler: &str, source: (&str, &str), options: &[&str]) -> Option<Built> {
    let folder = std::env::temp_dir().join(format!("uringlet-sites-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (program, file) = (folder.join(name), folder.join(source.0));
    std::fs::write(&file, source.1).expect("the source");
    let path = [std::env::var("PATH").unwrap_or_default(), "/usr/local/go/bin".into()].join(":");
    let mut command = Command::new(compiler);
    command.env("PATH", path).args(options).arg("-o").arg(&program).arg(&file).current_dir(&folder);
    let Ok(done) = command.output() else {
        eprintln!("skipped: there is no {compiler}");
        return None;
    };
    let text = String::from_utf8_lossy(&done.stderr);
    if text.contains("target may not be installed") {
        eprintln!("skipped: {text}");
        return None;
    }
    assert!(done.status.success(), "{text}");
    Some(Built(folder, program))
}

const C: (&str, &str) = (
    "program.c",
    r#"
    #include <pthread.h>
    #include <poll.h>
    #include <stdlib.h>
    #include <unistd.h>
    #include <sys/epoll.h>
    #include <sys/syscall.h>
    static void *thread(void *argument) { return argument; }
    int main(int argc, char **argv)
    {
        pthread_t one;
        struct epoll_event event;
        pthread_create(&one, 0, thread, 0);
        pthread_cancel(one);
        pthread_join(one, 0);
        epoll_wait(epoll_create1(0), &event, 1, 0);
        return poll(0, 0, 1) + system("true") + setuid(getuid()) + syscall(argc, argv) + close(dup(0));
    }
    "#,
);
const GO: (&str, &str) =
    ("main.go", "package main\nimport (\"os\"; \"os/exec\")\nfunc main() { os.Stdout.Close(); _ = exec.Command(\"true\").Run() }\n");
const CGO: (&str, &str) = (
    "main.go",
    "package main\n// int two(void) { return 2; }\nimport \"C\"\nimport \"os\"\nfunc main() { os.Stdout.Close(); os.Exit(int(C.two())) }\n",
);

/// The function of each site that is rewritten, with the kind of its patch.
fn rewritten(file: &Path, findings: &Findings) -> BTreeMap<String, PatchKind> {
    let output = Command::new("nm").arg(file).output().expect("nm");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let symbol = |line: &str| {
        let mut words = line.split(' ');
        let at = u64::from_str_radix(words.next()?, 16).ok()?;
        words.next().filter(|kind| ["t", "T", "W", "i"].contains(kind))?;
        Some((at, words.next()?.to_owned()))
    };
    let symbols: Vec<(u64, String)> = text.lines().filter_map(symbol).collect();
    let function_of = |plan: &PatchPlan| {
        let at = symbols.iter().map(|(at, _)| *at).filter(|&at| at <= plan.syscall_address()).max()?;
        Some(symbols.iter().filter(move |symbol| symbol.0 == at).map(|(_, name)| (name.clone(), plan.kind)).collect::<Vec<_>>())
    };
    findings.plans.iter().filter_map(function_of).flatten().collect()
}

fn c_program_has_its_sites_rewritten(name: &str, compiler: &str, options: &[&str], expected: &[&str]) {
    let Some(program) = build(name, compiler, C, &[&["-O2", "-pthread", "-w"], options].concat()) else { return };
    let findings = check(&program.1);
    let functions = rewritten(&program.1, &findings);
    for function in expected {
        let kind = functions.get(*function).unwrap_or_else(|| panic!("{name}: {function} is not among {functions:?}"));
        // Cancellation compares the program counter with the address of the call.
        assert!(!["__syscall_cp_asm", "__syscall_cancel_arch"].contains(function) || kind.keeps_syscall(), "{function} {kind:?}");
    }
}

#[test]
fn static_glibc_has_its_sites_rewritten() {
    let expected = ["syscall", "__close", "epoll_wait", "__libc_sigaction"];
    c_program_has_its_sites_rewritten("glibc", "gcc", &["-static"], &expected);
    c_program_has_its_sites_rewritten("glibc-pie", "gcc", &["-static-pie"], &expected);
}

#[test]
fn static_musl_has_its_sites_rewritten() {
    let expected = ["syscall", "__syscall_cp_asm", "epoll_ctl", "__libc_sigaction"];
    c_program_has_its_sites_rewritten("musl", "musl-gcc", &["-static"], &expected);
}

#[test]
fn go_has_all_its_sites_rewritten() {
    for (name, source, mode) in [("go", GO, "exe"), ("go-pie", GO, "pie"), ("go-c", CGO, "exe"), ("go-c-pie", CGO, "pie")] {
        let Some(program) = build(name, "go", source, &["build", "-buildmode", mode]) else { return };
        let findings = check(&program.1);
        assert_eq!(findings.left, [], "{name}");
        let functions = rewritten(&program.1, &findings);
        let is_general = |name: &str| name.starts_with("internal/runtime/syscall") && name.ends_with(".Syscall6");
        assert!(functions.keys().any(|name| is_general(name)), "{name}: {functions:?}");
        assert!(functions.keys().any(|name| name.starts_with("runtime.")), "{name}: {functions:?}");
    }
}

#[test]
fn rust_with_musl_has_its_sites_rewritten() {
    let source = ("main.rs", "fn main() { std::thread::spawn(|| drop(std::fs::File::open(\"/\"))).join().unwrap(); }");
    let target = ["-O", "--target", "x86_64-unknown-linux-musl"];
    let Some(program) = build("rust", "rustc", source, &target) else { return };
    let functions = rewritten(&program.1, &check(&program.1));
    assert!(functions.contains_key("__syscall_cp_c") && functions.contains_key("__mmap"), "{functions:?}");
}

/// Functions of libc that are called through words which the program has yet to store.
#[test]
fn rust_with_musl_has_its_own_calls_rewritten() {
    let source = (
        "main.rs",
        "extern \"C\" { fn syscall(number: i64, ...) -> i64; }\nfn main() { println!(\"{}\", unsafe { syscall(425, 8, 0) }); }",
    );
    let target = ["-O", "--target", "x86_64-unknown-linux-musl"];
    let Some(program) = build("rust-calls", "rustc", source, &target) else { return };
    let findings = check(&program.1);
    let functions = rewritten(&program.1, &findings);
    assert!(functions.contains_key("syscall") && functions.contains_key("__stdio_write"), "{functions:?}");
    assert_eq!(findings.left, []);
}

/// Sites behind computed jumps. A jump leads to the `outer` label of each function. In the second
/// of each kind another one leads to `inner`, between the instructions to be overwritten.
const COMPUTED: (&str, &str) = (
    "computed.S",
    r#"
    .macro function name
        .text
        .globl \name
        .type \name, @function
    \name:
        .cfi_startproc
    .endm
    .macro offsets name, second
        function \name
        lea table\@(%rip), %rcx
        movslq (%rcx,%rdi,4), %rax
        add %rcx, %rax
        jmp *%rax
        .set outer, .
        xor %edi, %edi
        xor %edx, %edx
        .set inner, .
        mov %esi, %eax
        syscall
        ret
        .cfi_endproc
        .section .rodata
        .balign 8
    table\@: .long outer - table\@, \second - table\@
        .long 0x7fffffff
    .endm
    .macro stored name, second
        function \name
    #ifdef PIE
        lea table\@(%rip), %rcx
        mov (%rcx,%rdi,8), %rcx
        jmp *%rcx
    #else
        jmp *table\@(,%rdi,8)
    #endif
        .set outer, .
        xor %edi, %edi
        xor %edx, %edx
        .set inner, .
        mov %esi, %eax
        syscall
        ret
        .cfi_endproc
        .section .data.rel.ro, "aw"
        .balign 8
    table\@: .quad outer, \second
    .endm
    offsets offsets_outside, outer
    offsets offsets_inside, inner
    stored stored_outside, outer
    stored stored_inside, inner
    function arithmetic
        lea 1f(%rip), %rcx
        shl $1, %rdi
        add %rdi, %rcx
        jmp *%rcx
    1:  xor %edi, %edi
        xor %edx, %edx
        mov %esi, %eax
        syscall
        ret
        .cfi_endproc
    function _start
        mov $60, %eax
        syscall
        .cfi_endproc
    "#,
);

#[test]
fn sites_behind_computed_jumps_are_rewritten_where_no_jump_leads_between() {
    let fixed = ["-static", "-no-pie"];
    for (name, options) in [("computed", &fixed[..]), ("computed-pie", &["-static-pie", "-fPIE", "-DPIE"])] {
        let options = [options, &["-nostdlib", "-Wl,--eh-frame-hdr"]].concat();
        let Some(program) = build(name, "gcc", COMPUTED, &options) else { return };
        let findings = check(&program.1);
        let functions: Vec<String> = rewritten(&program.1, &findings).into_keys().filter(|name| name.contains("side")).collect();
        assert_eq!(functions, ["offsets_outside", "stored_outside"], "{name}: {findings:?}");
        let reasons: Vec<Reason> = findings.left.iter().map(|site| site.reason).collect();
        assert_eq!(reasons, [Reason::JumpTarget, Reason::JumpTarget, Reason::ComputedJumps], "{name}");
    }
}

/// A program of one's own: `SITES_OF=FILE cargo test -p uringlet-attach named_program`.
#[test]
fn named_program_has_each_site_rewritten_or_left_alone_with_a_reason() {
    for file in std::env::var("SITES_OF").unwrap_or_default().split_whitespace() {
        check(Path::new(file));
    }
}
