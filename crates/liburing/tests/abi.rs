//! Our structures and signatures, checked by the C compiler against the installed liburing.h.

mod common;

// The structures themselves, not a copy: a test cannot link to a staticlib.
#[allow(dead_code, unreachable_pub, reason = "only the layouts are used")]
#[path = "../src/c_types.rs"]
mod c_types;
#[allow(dead_code, unreachable_pub, reason = "only the layouts are used")]
#[path = "../src/ring.rs"]
mod ring;

use std::fmt::Write;
use std::mem::offset_of;

use ring::IoUring;

macro_rules! offsets {
    ($($path:ident $(. $rest:ident)?),* $(,)?) => {
        [$((concat!(stringify!($path) $(, ".", stringify!($rest))?), offset_of!(IoUring, $path $(. $rest)?))),*]
    };
}

#[test]
fn struct_io_uring_is_laid_out_as_in_c() {
    let fields = offsets![
        sq,
        sq.khead,
        sq.ktail,
        sq.kring_mask,
        sq.kring_entries,
        sq.kflags,
        sq.kdropped,
        sq.array,
        sq.sqes,
        sq.sqe_head,
        sq.sqe_tail,
        sq.ring_sz,
        sq.ring_ptr,
        sq.ring_mask,
        sq.ring_entries,
        cq,
        cq.khead,
        cq.ktail,
        cq.kring_mask,
        cq.kring_entries,
        cq.kflags,
        cq.koverflow,
        cq.cqes,
        cq.ring_sz,
        cq.ring_ptr,
        cq.ring_mask,
        cq.ring_entries,
        flags,
        ring_fd,
        features,
        enter_ring_fd,
        int_flags,
    ];
    let mut c = String::from("#include <stddef.h>\n#include <liburing.h>\n");
    for (field, offset) in fields {
        writeln!(c, "_Static_assert(offsetof(struct io_uring, {field}) == {offset}, \"{field}\");").unwrap();
    }
    for (name, bytes) in [("io_uring", size_of::<IoUring>()), ("io_uring_params", size_of::<uringlet_abi::UringParams>())] {
        writeln!(c, "_Static_assert(sizeof(struct {name}) == {bytes}, \"{name}\");").unwrap();
    }
    check("layout", &c);
}

/// Compiles a C file; its static assertions are the test.
fn check(name: &str, c: &str) {
    let source = common::scratch().join(format!("{name}.c"));
    std::fs::create_dir_all(common::scratch()).unwrap();
    std::fs::write(&source, c).unwrap();
    common::compile(&source, &source.with_extension("o"), &["-std=gnu11", "-c"]);
}

/// The C spellings of a Rust parameter or result: several if liburing's headers differ.
fn c_types(rust: &str) -> &'static [&'static str] {
    match rust {
        "" => &["void"],
        "u32" => &["unsigned"],
        "i32" => &["int"],
        "usize" => &["size_t"],
        "isize" => &["ssize_t"],
        "bool" => &["bool"],
        "&IoUring" | "&mut MaybeUninit<IoUring>" => &["struct io_uring *"],
        "&UringParams" | "&mut UringParams" | "*mut UringParams" => &["struct io_uring_params *"],
        "&mut CqeOut" | "*mut *mut Cqe" => &["struct io_uring_cqe **"],
        "*mut Sqe" => &["struct io_uring_sqe *"],
        "*mut Timespec" => &["struct __kernel_timespec *"],
        "*mut SigSet" => &["sigset_t *"],
        "*mut EnterArg" => &["sigset_t *", "void *"],
        "*const Void" => &["const void *"],
        "*mut Void" => &["void *"],
        "*const Iovec" => &["const struct iovec *"],
        "*const u64" => &["const __u64 *"],
        "*const i32" => &["const int *"],
        "*mut u32" => &["unsigned *"],
        "&mut u16" => &["uint16_t *"],
        "&mut MaybeUninit<i32>" => &["int *"],
        "*const CpuSet" => &["const cpu_set_t *"],
        "*mut Probe" => &["struct io_uring_probe *"],
        "*mut BufRing" => &["struct io_uring_buf_ring *"],
        "&mut BufReg" => &["struct io_uring_buf_reg *"],
        "*mut SyncCancelReg" => &["struct io_uring_sync_cancel_reg *"],
        "*mut Restriction" => &["struct io_uring_restriction *"],
        "*mut Napi" => &["struct io_uring_napi *"],
        "*mut ClockRegister" => &["struct io_uring_clock_register *"],
        "*mut MemRegionReg" => &["struct io_uring_mem_region_reg *"],
        "*mut RegWait" => &["struct io_uring_reg_wait *"],
        "*mut ZcrxIfqReg" => &["struct io_uring_zcrx_ifq_reg *"],
        "*mut ZcrxCtrl" => &["struct zcrx_ctrl *"],
        "*mut Bpf" => &["struct io_uring_bpf *"],
        "*mut QueryHdr" => &["struct io_uring_query_hdr *"],
        other => panic!("{other}: no C type is listed"),
    }
}

/// An exported function as our source declares it.
#[derive(Debug)]
struct ExportedFunction {
    name: String,
    parameters: Vec<String>,
    result: String,
}

impl ExportedFunction {
    /// All exports in one of our source files.
    fn in_source(text: &str) -> Vec<Self> {
        let declarations = text.split("#[unsafe(no_mangle)]\npub extern \"C\" fn ").skip(1);
        declarations.map(|rest| Self::parse(&rest[..rest.find(" {").expect("a body")])).collect()
    }

    fn parse(declaration: &str) -> Self {
        let (name, rest) = declaration.split_once('(').expect("parameters");
        let (parameters, result) = rest.rsplit_once(')').expect("parameters");
        let types = parameters.split(',').filter(|p| !p.trim().is_empty());
        Self {
            name: name.to_owned(),
            parameters: types.map(|p| p.split_once(':').expect("a type").1.trim().to_owned()).collect(),
            result: result.trim_start_matches([' ', '-', '>']).to_owned(),
        }
    }

    /// The types of C function pointers that the header's declaration may have.
    fn pointer_types(&self) -> Vec<String> {
        let result = c_types(&self.result)[0];
        let mut lists = vec![Vec::new()];
        for parameter in &self.parameters {
            let spellings = c_types(parameter);
            lists = lists.iter().flat_map(|list| spellings.iter().map(|spelling| [list.as_slice(), &[*spelling]].concat())).collect();
        }
        lists.iter().map(|list| format!("{result} (*)({})", if list.is_empty() { "void".to_owned() } else { list.join(", ") })).collect()
    }
}

fn all_exports() -> Vec<ExportedFunction> {
    let entries = std::fs::read_dir(common::crate_dir().join("src")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.flat_map(|path| ExportedFunction::in_source(&std::fs::read_to_string(path).unwrap())).collect()
}

/// Each function has in C the type that our source gives it: in the installed header, or in
/// `newer_functions.h` if that header is older than the function.
#[test]
fn signatures_are_those_of_the_headers() {
    let mut c = format!("#include \"{}\"\n", common::crate_dir().join("tests/c/newer_functions.h").display());
    for export in all_exports() {
        let cases: String = export.pointer_types().iter().map(|pointer| format!("{pointer}: 1, ")).collect();
        writeln!(c, "_Static_assert(_Generic(&{0}, {cases}default: 0), \"{0}\");", export.name).unwrap();
    }
    check("signatures", &c);
}

/// The parser above finds every export, so all are checked.
#[test]
fn every_export_is_declared_in_source() {
    let mut declared: Vec<String> = all_exports().into_iter().map(|export| export.name).collect();
    declared.sort();
    let exported: Vec<String> = common::exports(&common::our_library().join("liburing.so.2")).into_keys().collect();
    assert_eq!(declared, exported);
}
