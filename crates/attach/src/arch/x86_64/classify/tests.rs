//! Every pattern by its bytes.

use super::*;

const BASE: u64 = 0x1000;

/// Classifies the last `syscall` of a function with these bytes.
fn classified(code: &[u8]) -> Option<SiteClass> {
    let at = code.windows(2).rposition(|pair| pair == [0x0f, 0x05])?;
    classify(&DecodedFunction::decode(code, BASE), code, BASE, BASE + at as u64)
}

fn plan(code: &[u8]) -> PatchPlan {
    match classified(code) {
        Some(SiteClass::Rewrite(plan)) => plan,
        other => panic!("{other:?}"),
    }
}

/// (kind, number, start, length) with offsets from the function's start.
fn outline(code: &[u8]) -> (PatchKind, u32, u64, usize) {
    let plan = plan(code);
    (plan.kind, plan.nr, plan.start - BASE, plan.bytes.len())
}

const RET: u8 = 0xc3;
const NOP: u8 = 0x90;

#[test]
fn constant_number_is_patched_at_its_load() {
    // mov $426, %eax; syscall
    assert_eq!(outline(&[0xb8, 0xaa, 1, 0, 0, 0x0f, 5, RET]), (PatchKind::NumberLoad, 426, 0, 7));
    // mov $426, %rax (seven bytes); syscall
    assert_eq!(outline(&[0x48, 0xc7, 0xc0, 0xaa, 1, 0, 0, 0x0f, 5, RET]), (PatchKind::NumberLoad, 426, 0, 9));
    // push %rbx; mov $9, %eax; xor %edi, %edi; syscall
    assert_eq!(outline(&[0x53, 0xb8, 9, 0, 0, 0, 0x31, 0xff, 0x0f, 5, RET]), (PatchKind::NumberLoad, 9, 1, 9));
}

#[test]
fn moved_gap_keeps_displacements_and_jumps() {
    // mov $425, %eax; mov 0x100(%rip), %rdi; test %rdi, %rdi; je +3 (to the ret); syscall
    let code = [0xb8, 0xa9, 1, 0, 0, 0x48, 0x8b, 0x3d, 0, 1, 0, 0, 0x48, 0x85, 0xff, 0x74, 3, 0x0f, 5, NOP, RET];
    let plan = plan(&code);
    let relocations: Vec<Relocation> = plan.moved.iter().map(|p| p.relocation).collect();
    assert_eq!((plan.kind, plan.syscall), (PatchKind::NumberLoad, 17));
    assert_eq!(relocations, [Relocation::None, Relocation::Displacement(3), Relocation::None, Relocation::Jump]);
}

#[test]
fn gap_that_jumps_into_itself_is_not_moved() {
    // mov $425, %eax; nop; jne -3 (to the nop); mov (%rsp), %rcx; nop; syscall
    let code = [0xb8, 0xa9, 1, 0, 0, NOP, 0x75, 0xfd, 0x48, 0x8b, 0x0c, 0x24, NOP, 0x0f, 5, RET];
    assert_eq!(outline(&code), (PatchKind::BeforeSyscall, ANY_NUMBER, 8, 7));
}

#[test]
fn numbers_not_intercepted_are_left_alone() {
    // mov $39, %eax; syscall. xor %eax, %eax; syscall.
    assert_eq!(classified(&[0xb8, 39, 0, 0, 0, 0x0f, 5, RET]), Some(SiteClass::NotIntercepted));
    assert_eq!(classified(&[0x31, 0xc0, 0x0f, 5, RET]), Some(SiteClass::NotIntercepted));
}

#[test]
fn pushed_number_is_a_constant() {
    // push $39; pop %rax; syscall
    assert_eq!(classified(&[0x6a, 39, 0x58, 0x0f, 5, RET]), Some(SiteClass::NotIntercepted));
    // push $3; pop %rax; mov %r14, %rdi; syscall
    assert_eq!(outline(&[0x6a, 3, 0x58, 0x4c, 0x89, 0xf7, 0x0f, 5, RET]), (PatchKind::BeforeSyscall, 3, 0, 8));
    // je +2 (to the pop); push $39; pop %rax; mov %r14, %rdi; mov %rax, %rsi; syscall
    let joined = [0x74, 2, 0x6a, 39, 0x58, 0x4c, 0x89, 0xf7, 0x48, 0x89, 0xc6, 0x0f, 5, RET];
    assert_eq!(outline(&joined), (PatchKind::BeforeSyscall, ANY_NUMBER, 5, 8));
}

#[test]
fn bytes_inside_another_instruction_are_not_a_site() {
    // mov $0x050f, %eax
    assert_eq!(classified(&[0xb8, 0x0f, 5, 0, 0, RET]), None);
}

#[test]
fn number_from_a_register_is_looked_up_at_each_call() {
    // mov %edi, %eax; mov %rsi, %rdi; syscall
    assert_eq!(outline(&[0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 5, RET]), (PatchKind::BeforeSyscall, ANY_NUMBER, 0, 7));
    // call; mov %rsi, %rdi; mov %rdx, %rsi; syscall: the call's result is the number.
    let code = [0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x0f, 5, RET];
    assert_eq!(outline(&code), (PatchKind::BeforeSyscall, ANY_NUMBER, 5, 8));
    // The function starts with the syscall.
    assert_eq!(outline(&[0x0f, 5, 0x48, 0x89, 0xc2, RET]), (PatchKind::AfterSyscall, ANY_NUMBER, 0, 5));
}

#[test]
fn joined_paths_are_looked_up() {
    // cmp; jne +7; mov $425, %eax; jmp +5; mov $426, %eax; mov (%rsp), %rcx; nop; syscall.
    // The second jump lands behind the second constant.
    let code = [0x75, 7, 0xb8, 0xa9, 1, 0, 0, 0xeb, 5, 0xb8, 0xaa, 1, 0, 0, 0x48, 0x8b, 0x0c, 0x24, NOP, 0x0f, 5, RET];
    assert_eq!(outline(&code), (PatchKind::BeforeSyscall, ANY_NUMBER, 14, 7));
}

#[test]
fn jump_between_earlier_instructions_selects_another_kind() {
    // jne +2; mov %edi, %eax; mov %rsi, %rdi (target); syscall; mov %rax, %rdx; ret
    let code = [0x75, 2, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 5, 0x48, 0x89, 0xc2, RET];
    // Three bytes before and the syscall itself: no jump leads to the syscall.
    assert_eq!(outline(&code), (PatchKind::OverSyscall, ANY_NUMBER, 4, 5));
    // The same with a jump to the syscall alone: what lies before it would be passed by.
    let code = [0x75, 5, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 5, 0x48, 0x89, 0xc2, RET];
    assert_eq!(outline(&code), (PatchKind::AfterSyscall, ANY_NUMBER, 7, 5));
    // Nothing behind it can be moved: the other path at least.
    let code = [0x75, 5, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 5, RET];
    assert_eq!(outline(&code), (PatchKind::BeforeSyscall, ANY_NUMBER, 2, 7));
    // Both jumps: only the instructions behind are left.
    let code = [0x75, 7, 0x75, 2, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 5, 0x48, 0x89, 0xc2, RET];
    assert_eq!(outline(&code), (PatchKind::AfterSyscall, ANY_NUMBER, 9, 5));
}

#[test]
fn site_without_room_is_unpatchable() {
    // Two bytes before, a call behind.
    assert_eq!(classified(&[0x89, 0xf8, 0x0f, 5, 0xe8, 0, 0, 0, 0, RET]), Some(SiteClass::LeftAlone(Reason::NoRoom)));
    // A return right behind: the bytes after it are not this function's.
    assert_eq!(classified(&[0x0f, 5, RET, NOP, NOP, NOP]), Some(SiteClass::LeftAlone(Reason::NoRoom)));
}

#[test]
fn computed_jumps_forbid_windows_with_boundaries() {
    // mov %edi, %eax; mov %rsi, %rdi; syscall; mov %rax, %rdx; jmp *%rdx
    let code = [0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 5, 0x48, 0x89, 0xc2, 0xff, 0xe2];
    assert_eq!(classified(&code), Some(SiteClass::LeftAlone(Reason::ComputedJumps)));
    // movabs (ten bytes, alone in the window); syscall; jmp *%rdx
    let code = [0x89, 0xf8, 0x48, 0xbf, 1, 2, 3, 4, 5, 6, 7, 8, 0x0f, 5, 0xff, 0xe2];
    assert_eq!(outline(&code), (PatchKind::BeforeSyscall, ANY_NUMBER, 2, 12));
    // `NumberLoad` has no boundaries.
    assert_eq!(outline(&[0xb8, 0xaa, 1, 0, 0, 0x31, 0xff, 0x0f, 5, 0xff, 0xe2]), (PatchKind::NumberLoad, 426, 0, 9));
}

#[test]
fn adjacent_calls_do_not_overlap() {
    // mov $425, %eax; syscall; mov $426, %eax; syscall
    let code = [0xb8, 0xa9, 1, 0, 0, 0x0f, 5, 0xb8, 0xaa, 1, 0, 0, 0x0f, 5, RET];
    assert_eq!(outline(&code), (PatchKind::NumberLoad, 426, 7, 7));
    // syscall; syscall: the first's result is the second's number. Neither may move the other.
    assert_eq!(
        classified(&[0x0f, 5, 0x0f, 5, 0x48, 0x89, 0xc2, RET])
            .map(|s| matches!(s, SiteClass::Rewrite(p) if p.kind == PatchKind::AfterSyscall)),
        Some(true)
    );
}

#[test]
fn exec_calls_are_found_by_number() {
    let code = [0xb8, 59, 0, 0, 0, 0x0f, 5, RET];
    let function = DecodedFunction::decode(&code, BASE);
    let found = |wanted: u32| plan_constant(&function, &code, BASE, BASE + 5, |nr| nr == wanted);
    assert_eq!(found(59).map(|p| (p.kind, p.nr)), Some((PatchKind::NumberLoad, 59)));
    assert_eq!(found(322), None);
}
