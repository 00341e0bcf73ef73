# cargo: builds, tests and runs a crate without dependencies.
. "$(dirname "$0")/lib.sh" "$1" "$2"
unset CARGO_TARGET_DIR RUSTFLAGS RUSTUP_TOOLCHAIN CARGO CARGO_MANIFEST_DIR
mkdir -p small/src
cd small
printf '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n\n[workspace]\n' > Cargo.toml
cat > src/lib.rs <<'R'
pub fn sum(n: u64) -> u64 { let parts: Vec<_> = (0..4).map(|t| std::thread::spawn(move || (0..n).filter(|i| i % 4 == t).sum::<u64>())).collect(); parts.into_iter().map(|p| p.join().unwrap()).sum() }
#[cfg(test)]
mod tests {
    #[test] fn sums() { assert_eq!(super::sum(1000), 499500) }
    #[test] fn children() { assert_eq!(std::process::Command::new("sh").args(["-c", "exit 3"]).status().unwrap().code(), Some(3)) }
    #[test] #[should_panic] fn panics() { panic!("as it must") }
    #[test] fn fails() { panic!("as it must") }
}
R
printf 'fn main() { println!("{}", small::sum(100)); std::process::exit(2) }\n' > src/main.rs
printf 'fn main() { println!("cargo:rustc-env=BUILT=yes") }\n' > build.rs
cargo build --offline -q -j2
outcome target/debug/small
outcome sh -c 'cargo test --offline --lib 2>/dev/null | grep -E "^test .* \.\.\. " | sort'
outcome cargo build --offline -q --bin no-such-program
