//! The smallest set of decisions that still breaks the program: delta debugging (Zeller's ddmin).

use uringlet_sys::fault_plan::DecisionId;

use super::args::ChaosArgs;
use super::decision::ranges;
use super::run::{Run, Runner};
use super::seeds::FailingSeed;

/// Runs that have to agree before a failure counts as one that cannot be repeated.
const TRIES: u32 = 3;

/// What is left of a failure.
#[derive(Debug)]
pub(super) enum Shrunk {
    /// These decisions are enough; the run that has shown it.
    To(Vec<DecisionId>, Box<Run>),
    /// It does not fail again.
    Vanished,
    /// Ctrl-C.
    Stopped,
}

/// Looks for a smaller set.
pub(super) fn shrink(args: &ChaosArgs, runner: &Runner, failure: &FailingSeed) -> Result<Shrunk, String> {
    let mut all = failure.decisions.clone();
    all.sort_unstable();
    all.dedup();
    let mut last: Option<Run> = None;
    let mut fails = |ids: &[DecisionId], tries: u32| -> Result<bool, String> {
        for _ in 0..tries {
            let plan = args.plan(failure.seed, Some(ranges(ids)))?;
            let run = runner.run(Some(&plan))?;
            if run.end == failure.end {
                last = Some(run);
                return Ok(true);
            }
        }
        Ok(false)
    };
    if !fails(&all, TRIES)? {
        let is_stopped = runner.stop.load(std::sync::atomic::Ordering::Relaxed);
        return Ok(if is_stopped { Shrunk::Stopped } else { Shrunk::Vanished });
    }
    let limit = args.shrink_runs();
    let mut spent = 0;
    let least = minimal(all, |ids| {
        spent += 1;
        if spent > limit || runner.stop.load(std::sync::atomic::Ordering::Relaxed) { Ok(false) } else { fails(ids, 1) }
    })?;
    Ok(last.map_or(Shrunk::Vanished, |run| Shrunk::To(least, Box::new(run))))
}

/// A subset of which `fails` is true, and of no subset of it with one element less, provided that
/// it is true of the whole.
fn minimal<T: Clone, E>(mut set: Vec<T>, mut fails: impl FnMut(&[T]) -> Result<bool, E>) -> Result<Vec<T>, E> {
    let mut parts = 2;
    while set.len() > 1 {
        let size = set.len().div_ceil(parts);
        let chunks: Vec<Vec<T>> = set.chunks(size).map(<[T]>::to_vec).collect();
        let mut smaller = None;
        for chunk in &chunks {
            if fails(chunk)? {
                smaller = Some((chunk.clone(), 2));
                break;
            }
        }
        for without in 0..chunks.len() {
            if smaller.is_some() || chunks.len() <= 2 {
                break;
            }
            let rest: Vec<T> = chunks.iter().enumerate().filter(|(n, _)| *n != without).flat_map(|(_, chunk)| chunk.clone()).collect();
            if fails(&rest)? {
                smaller = Some((rest, (chunks.len() - 1).max(2)));
            }
        }
        match smaller {
            Some((found, next)) => (set, parts) = (found, next),
            None if parts >= set.len() => break,
            None => parts = (parts * 2).min(set.len()),
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_that_fails_is_found() {
        for needed in [vec![7], vec![3, 41], vec![0, 20, 49], vec![10, 11, 12, 13]] {
            let mut runs = 0;
            let found = minimal((0..50).collect(), |ids: &[i32]| {
                runs += 1;
                Ok::<bool, ()>(needed.iter().all(|id| ids.contains(id)))
            });
            assert_eq!(found, Ok(needed));
            assert!(runs < 150, "{runs}");
        }
    }

    #[test]
    fn a_set_of_needed_elements_stays() {
        assert_eq!(minimal(vec![1, 2, 3], |ids| Ok::<bool, ()>(ids.len() == 3)), Ok(vec![1, 2, 3]));
        assert_eq!(minimal(vec![1], |_| Ok::<bool, ()>(true)), Ok(vec![1]));
        assert_eq!(minimal(vec![1, 2], |_| Err::<bool, &str>("no run")), Err("no run"));
    }
}
